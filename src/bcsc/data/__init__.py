"""Data sets, what is wrong in them on purpose, and how batches are made of them."""

from typing import TYPE_CHECKING

from bcsc.lazy import loader

if TYPE_CHECKING:
    from bcsc.data.feeding import Feeder, evaluation_feeder, training_feeder
    from bcsc.data.outliers import Corruption, Outliers
    from bcsc.data.registry import SOURCES, Source
    from bcsc.data.sources import DataSet, load

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

__getattr__ = loader(
    __name__,
    {
        "SOURCES": "bcsc.data.registry",
        "Corruption": "bcsc.data.outliers",
        "DataSet": "bcsc.data.sources",
        "Feeder": "bcsc.data.feeding",
        "Outliers": "bcsc.data.outliers",
        "Source": "bcsc.data.registry",
        "evaluation_feeder": "bcsc.data.feeding",
        "load": "bcsc.data.sources",
        "training_feeder": "bcsc.data.feeding",
    },
)
