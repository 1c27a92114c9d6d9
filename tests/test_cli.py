"""The command line as a whole: help, settings, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from blicer import cli
from blicer.align import METHODS, aligner_class
from blicer.config import describe
from blicer.formats import FORMATS
from blicer.scorers import SCORERS

run = CliRunner()


def exit_code(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["blicer", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0)


def test_help_of_every_command_has_an_example_and_needs_no_torch() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from blicer.cli import app; "
        "from typer.main import get_command; run = CliRunner().invoke; "
        "names = set(get_command(app).commands) - {'data', 'benchmark', 'pretrained'}; "
        "print(*[name for name in names if 'Example' not in run(app, [name, '--help']).stdout]); "
        "print(len(names), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    without, rest = done.stdout.split("\n", 1)
    assert without == ""
    assert rest.split() == ["13", "False"]


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("align", METHODS),
        ("train", METHODS),
        ("train", SCORERS),
        ("induce", FORMATS),
        ("export", FORMATS),
    ],
)
def test_help_names_what_the_registries_hold(command: str, names: dict[str, object]) -> None:
    shown = run.invoke(cli.app, [command, "--help"], env={"COLUMNS": "200"}).stdout
    assert all(name in shown for name in names)


def test_config_lists_every_setting() -> None:
    rows = json.loads(run.invoke(cli.app, ["config", "--json"]).stdout)
    assert [row["name"] for row in rows] == [row["name"] for row in describe()]
    assert {"name", "default", "others", "expected", "group", "help"} == set(rows[0])
    table = run.invoke(cli.app, ["config"]).stdout
    for row in rows:
        assert f"│ {row['name']} " in table


@pytest.mark.parametrize("method", METHODS)
def test_config_lists_the_settings_of_a_space(method: str) -> None:
    rows = json.loads(run.invoke(cli.app, ["config", "--space", method, "--json"]).stdout)
    kind = aligner_class(method)
    assert {row["name"]: row["default"] for row in rows} == kind().settings
    assert all(row["help"] for row in rows)
    for row in rows:
        others = [
            f"{mode}: {changed[row['name']]}"
            for mode, changed in kind.presets.items()
            if changed.get(row["name"], row["default"]) != row["default"]
        ]
        assert row["others"] == ", ".join(others)


COMMANDS_THAT_READ_DICTIONARIES = ["align", "pairs", "train", "train-multilingual", "evaluate"]


@pytest.mark.parametrize("command", [*COMMANDS_THAT_READ_DICTIONARIES, "inspect"])
def test_every_command_that_reads_a_dictionary_takes_its_encoding(command: str) -> None:
    names = [one.name for one in get_command(cli.app).commands[command].params]
    assert "encoding" in names


def test_exit_codes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(monkeypatch, "--version") == 0
    assert exit_code(monkeypatch, "config") == 0
    assert exit_code(monkeypatch, "inspect", tmp_path / "none") == 2  # the input
    assert exit_code(monkeypatch, "inspect", "--magic") == 2  # the options
    capsys.readouterr()

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "app", interrupted)
    assert exit_code(monkeypatch, "config") == 130
    assert "interrupted" in capsys.readouterr().err
