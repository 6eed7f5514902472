"""Settings of run_token_classification.py."""

from __future__ import annotations

import dataclasses

from albert_tf.data.settings import SequenceSettings
from albert_tf.finetuning.settings import (
    FineTuningSettings,
    HeadSettings,
    SplitSettings,
    TaskSettings,
)
from albert_tf.settings import READING, redefined, setting

AUTO = "auto"
RAW = "raw"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(FineTuningSettings, SplitSettings, HeadSettings):
    """Settings of run_token_classification.py.

    The files have one token per line and blank lines between sentences, or a sentence per row.
    """

    GROUP = "data"
    ESSENTIAL = ("data_dir", "label_column", "dev_fraction", *FineTuningSettings.ESSENTIAL)

    data_dir: str | None = redefined(
        TaskSettings,
        "data_dir",
        None,
        "Folder with the files train, dev and test, ending in .txt, .conll, .conllu or .tsv, or "
        "of the Hugging Face Hub; required, unless other flags name the file of each split.",
    )
    # The smallest is [CLS] a [SEP].
    max_seq_length: int = redefined(SequenceSettings, "max_seq_length", 512, minimum=3)
    token_column: int = setting(
        0,
        "Column of the token, counted from 0, or from the end with negative numbers; 0 is the "
        "first column.",
        affects=READING,
    )
    label_column: int = redefined(
        TaskSettings,
        "label_column",
        -1,
        "Column of the label, counted from 0, or from the end with negative numbers; -1 is the "
        "last column.",
    )
    tag_column: str | None = setting(
        None,
        "Column of the tags in files whose rows have lists, such as pos_tags; if not given, "
        "ner_tags, tags, labels or ner.",
        affects=READING,
    )
    tag_names: tuple[str, ...] = setting(
        (),
        "Names of the tags in the order of their ids, separated by commas, for files whose tags "
        "are numbers without names.",
        affects=READING,
    )
    tag_scheme: str = setting(
        AUTO,
        "How labels mark spans: auto is by the first letter, as in IOB1, IOB2, BIOES, BILOU, BMES "
        "and BMEWO, and raw takes every token with a label other than O as a span of its own.",
        choices=(AUTO, RAW),
        affects=READING,
    )
