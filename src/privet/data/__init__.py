"""Data sets for training: a small catalogue of verified public sets, and the user's files.

Loading spends no privacy because it releases nothing: inputs are scaled by public constants only, classes are declared, and
errors mention names, shapes and formats, never values.
"""

from privet.data.dataset import DataSet
from privet.data.download.packages import ChecksumError, DataUnavailableError
from privet.data.loading import catalogue, fetch, load
from privet.tables.cells import UNDECLARED

__all__ = ["UNDECLARED", "ChecksumError", "DataSet", "DataUnavailableError", "catalogue", "fetch", "load"]
