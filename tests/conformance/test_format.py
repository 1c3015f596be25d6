"""A saved workflow has the names of its format: with others it would be refused as damaged."""

from __future__ import annotations

import re

from operator_cases import CASES

from workflow import ops
from workflow.saved.audit import FORMAT

NAMES_OF = 2
# For each operator its saved fields | the first words of its state's names in its examples, where *
# stands for the name of a column.
NAMES = {
    "AddMetadata": "properties tags",
    "AddProperties": "properties",
    "AddTags": "tags",
    "Bucketize": "boundaries",
    "Categorify": "dtype encode_type freq_threshold max_size name_sep num_buckets single_table "
    "split_out | combined given learnt table",
    "Clip": "max_value min_value",
    "ColumnSimilarity": "metric | left right",
    "DataStats": "| moments range",
    "DatePart": "parts time_zone unit zone_offsets",
    "DifferenceLag": "partition_cols shift",
    "DropLowCardinality": "min_cardinality",
    "Dropna": "subset",
    "FillMedian": "add_binary_cols | median",
    "FillMissing": "add_binary_cols fill_val",
    "Filter": "f",
    "Groupby": "aggs ascending groupby_cols name_sep sort_cols",
    "HashBucket": "hash num_buckets",
    "HashedCross": "hash hash_key num_buckets",
    "JoinExternal": "columns_ext drop_duplicates_ext on on_ext | column table time",
    "JoinGroupby": "cont_cols name_sep stats | group time",
    "LambdaOp": "dependency dtype f tags",
    "ListSlice": "end pad pad_value start",
    "LogOp": "",
    "Normalize": "out_dtype | mean std",
    "NormalizeMinMax": "out_dtype | min range",
    "PretrainedVectors": "| ids vectors",
    "ReduceDtypeSize": "float_dtype | *",
    "Rename": "f name postfix",
    "TagAsItemFeatures": "",
    "TagAsItemID": "",
    "TagAsUserFeatures": "",
    "TagAsUserID": "",
    "TargetEncoding": "fold_seed kfold name_sep out_col out_dtype p_smooth target target_mean | group",
    "ValueCount": "| *",
}


def saved_names(operator: str) -> str:
    """The names that a saved workflow has of an operator, as in `NAMES`."""
    states = set()
    for case in (case for case in CASES if type(case.operator).__name__ == operator):
        for name in case.workflow.states.get(len(case.workflow.nodes) - 1, {}):
            states.add("*" if name in case.fitted.columns else re.split(r"[.\d]", name)[0])
    fields = sorted(getattr(ops, operator).saved_fields())
    return " ".join([*fields, *(["|"] if states else []), *sorted(states)])


def test_other_names_in_a_saved_workflow_are_another_format():
    saved = {operator: saved_names(operator) for operator in ops.__all__}
    changed = {name for name, line in NAMES.items() if saved.get(name) != line}
    lines = "".join(f'\n    "{n}": "{saved[n]}",' for n in saved if saved[n] != NAMES.get(n))
    assert not changed or FORMAT != NAMES_OF, (
        f"Expected the names of format {FORMAT} for {', '.join(sorted(changed))}. Received:{lines or ' none.'}\n"
        "Workflows that were saved before cannot be loaded with these. Raise FORMAT in "
        "workflow/saved/audit.py and in the table of docs/releasing.md, and say in CHANGELOG.md to fit "
        "workflows again. If only an example is new, put its lines into NAMES here."
    )
    is_of_format = FORMAT == NAMES_OF and not lines
    assert is_of_format, (
        f"Expected NAMES_OF = {FORMAT} and all of its lines in tests/conformance/test_format.py. "
        f"Received: {NAMES_OF}, without these lines, which belong into NAMES:{lines or ' none.'}"
    )
