# The public names, stated once: type checkers read this file, and __init__.py loads from it.
from blicer.align import RCSLS as RCSLS
from blicer.align import Contrastive as Contrastive
from blicer.align import EncoderMix as EncoderMix
from blicer.align import Procrustes as Procrustes
from blicer.align import Space as Space
from blicer.align import TwoView as TwoView
from blicer.align import VecMap as VecMap
from blicer.config import Config as Config
from blicer.crossencoder.model import Reranker as Reranker
from blicer.dictionary import Dictionary as Dictionary
from blicer.dictionary import Entry as Entry
from blicer.embeddings import Embeddings as Embeddings
from blicer.errors import BlicerError as BlicerError
from blicer.evaluation import Evaluation as Evaluation
from blicer.evaluation import compare as compare
from blicer.evaluation import evaluate as evaluate
from blicer.lexicon import Lexicon as Lexicon
from blicer.multilingual import prepare_multilingual as prepare_multilingual
from blicer.multilingual import prepare_zero_shot as prepare_zero_shot
from blicer.pipeline import train as train
from blicer.translations import Translation as Translation
from blicer.translator import Translator as Translator

__version__: str
