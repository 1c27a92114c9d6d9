"""Many setups measured in one go: units of work, a local or a Ray pool, one results file."""
