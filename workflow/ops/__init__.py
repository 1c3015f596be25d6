"""The operators: one file each."""

from .add_metadata import (
    AddMetadata,
    AddProperties,
    AddTags,
    TagAsItemFeatures,
    TagAsItemID,
    TagAsUserFeatures,
    TagAsUserID,
)
from .bucketize import Bucketize
from .categorify import Categorify
from .clip import Clip
from .column_similarity import ColumnSimilarity
from .data_stats import DataStats
from .date_part import DatePart
from .difference_lag import DifferenceLag
from .drop_low_cardinality import DropLowCardinality
from .dropna import Dropna
from .fill_median import FillMedian
from .fill_missing import FillMissing
from .filter import Filter
from .groupby import Groupby
from .hash_bucket import HashBucket
from .hashed_cross import HashedCross
from .join_external import JoinExternal
from .join_groupby import JoinGroupby
from .lambda_op import LambdaOp
from .list_slice import ListSlice
from .log_op import LogOp
from .normalize import Normalize
from .normalize_min_max import NormalizeMinMax
from .pretrained_vectors import PretrainedVectors
from .reduce_dtype_size import ReduceDtypeSize
from .rename import Rename
from .target_encoding import TargetEncoding
from .value_count import ValueCount

__all__ = [
    "AddMetadata",
    "AddProperties",
    "AddTags",
    "Bucketize",
    "Categorify",
    "Clip",
    "ColumnSimilarity",
    "DataStats",
    "DatePart",
    "DifferenceLag",
    "DropLowCardinality",
    "Dropna",
    "FillMedian",
    "FillMissing",
    "Filter",
    "Groupby",
    "HashBucket",
    "HashedCross",
    "JoinExternal",
    "JoinGroupby",
    "LambdaOp",
    "ListSlice",
    "LogOp",
    "Normalize",
    "NormalizeMinMax",
    "PretrainedVectors",
    "ReduceDtypeSize",
    "Rename",
    "TagAsItemFeatures",
    "TagAsItemID",
    "TagAsUserFeatures",
    "TagAsUserID",
    "TargetEncoding",
    "ValueCount",
]
