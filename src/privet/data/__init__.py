"""Data sets to train on: a small catalogue that fetches and checks itself, and the user's own files.

Nothing here draws from a privacy budget, because nothing here releases anything: inputs are scaled by public constants
only, classes are declared, and errors speak of names, shapes and formats, never of values.
"""

from privet.data.catalogue import Entry, catalogue, fetch
from privet.data.classes import UNDECLARED
from privet.data.dataset import DataSet
from privet.data.download.acquisition import DataUnavailableError
from privet.data.download.checksums import ChecksumError
from privet.data.loading import load

__all__ = ["UNDECLARED", "ChecksumError", "DataSet", "DataUnavailableError", "Entry", "catalogue", "fetch", "load"]
