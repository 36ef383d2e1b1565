"""Data sets, what is wrong in them on purpose, and how batches are made of them."""

from bcsc.data.dataset import DataSet, load
from bcsc.data.feeding import Feeder, evaluation_feeder, training_feeder
from bcsc.data.outliers import Corruption, Outliers
from bcsc.data.registry import SOURCES
from bcsc.data.source import Source

__all__ = [
    "SOURCES",
    "Corruption",
    "DataSet",
    "Feeder",
    "Outliers",
    "Source",
    "evaluation_feeder",
    "load",
    "training_feeder",
]
