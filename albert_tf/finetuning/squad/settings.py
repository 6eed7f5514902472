"""Settings of run_squad.py."""

from __future__ import annotations

import dataclasses
import os

from albert_tf import data, files
from albert_tf.export.quantizations import NONE
from albert_tf.finetuning.settings import (
    DataSettings,
    FineTuningSettings,
    HeadSettings,
    SplitSettings,
    TaskSettings,
    TFLiteSettings,
)
from albert_tf.settings import TRAINING, redefined, setting
from albert_tf.tables.splits import find_files

PREDICTIONS = "predictions.json"
NBEST = "nbest_predictions.json"
NULL_ODDS = "null_odds.json"
SPECIAL_TOKENS = 3  # [CLS] question [SEP] window [SEP]


@dataclasses.dataclass(frozen=True)
class WindowSettings:
    """How contexts are split into windows.

    Attributes:
        max_seq_length: S, maximum length of a feature, in tokens.
        doc_stride: number of tokens between the starts of consecutive windows.
        max_query_length: maximum number of tokens of a question; longer ones are truncated.
    """

    max_seq_length: int = 384
    doc_stride: int = 128
    max_query_length: int = 64

    def __post_init__(self) -> None:
        least = self.max_query_length + SPECIAL_TOKENS + 1
        if self.max_seq_length < least:
            raise ValueError(
                f"--max_seq_length={self.max_seq_length} leaves no room for the context after a "
                f"question of --max_query_length={self.max_query_length} and three special "
                f"tokens; expected {least} or more"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(FineTuningSettings, TFLiteSettings, HeadSettings):
    """Settings of run_squad.py, with the names of Google's flags for both versions of SQuAD."""

    GROUP = "data"
    ESSENTIAL = ("train_file", "predict_file", "dev_fraction", *FineTuningSettings.ESSENTIAL)

    data_dir: str | None = redefined(
        TaskSettings,
        "data_dir",
        None,
        "Folder of the Hugging Face Hub or of `datasets`, instead of train_file and predict_file.",
    )
    train_file: str | None = redefined(
        SplitSettings,
        "train_file",
        None,
        "File with the questions to train on: JSON in SQuAD's format, or rows in Parquet, Arrow "
        "or JSON; required by do_train, unless data_dir has it.",
    )
    predict_file: str | None = setting(
        None,
        "The same for the questions to answer, and to evaluate on if it has the answers; required "
        "by do_eval and do_predict, unless data_dir has it.",
        takes_several=True,
    )
    dev_fraction: float = redefined(
        SplitSettings,
        "dev_fraction",
        0.0,
        "Fraction of the contexts of train_file, chosen at random with a fixed seed, to evaluate "
        "on instead of training on their questions, if predict_file has no answers or is not "
        "given; 0 requires it.",
    )
    tflite_quantization: str = redefined(
        TFLiteSettings,
        "tflite_quantization",
        NONE,
        "Data type of the weights in the exported albert_model.tflite: float32 (none), float16 or "
        "int8 (dynamic range).",
    )
    version_2_with_negative: bool | None = setting(
        None,
        "Allow questions without an answer, as in SQuAD 2.0; if not given, the model or the data "
        "decide.",
    )
    doc_stride: int = setting(
        128,
        "Distance between the starts of two windows of a long context, in tokens.",
        minimum=1,
        affects=TRAINING,
    )
    max_query_length: int = setting(
        64,
        "Maximum length of a question, in tokens; longer ones are truncated.",
        minimum=1,
        affects=TRAINING,
    )
    n_best_size: int = setting(
        20,
        "Length of the n-best list of answers, and for SQuAD 1.1 the number of start and end "
        "positions considered.",
        minimum=1,
        group="prediction and export",
    )
    max_answer_length: int = setting(
        30, "Maximum length of an answer, in tokens.", minimum=1, group="prediction and export"
    )
    start_n_top: int = setting(
        5, "Beam size of start positions for SQuAD 2.0.", minimum=1, group="prediction and export"
    )
    end_n_top: int = setting(
        5,
        "Beam size of end positions per start position for SQuAD 2.0.",
        minimum=1,
        group="prediction and export",
    )
    official_threshold: bool = setting(
        False,
        "Treat the threshold of SQuAD 2.0's metrics exactly as Google's program does.",
        group="evaluation",
    )
    null_score_diff_threshold: float | None = setting(
        None,
        "Null odds above which a question of SQuAD 2.0 is left unanswered; if not given, the "
        "threshold with the best F1 on the dev set.",
        group="prediction and export",
    )
    mixed_segmentation: bool | None = setting(
        None,
        "Compute the metrics of CMRC 2018; if not given, for Chinese data in which every "
        "question has an answer.",
        group="evaluation",
    )
    num_workers: int | None = redefined(
        data.Settings,
        "num_workers",
        None,
        "Number of processes that create features; if not given, one per core.",
    )
    do_eval: bool = redefined(
        FineTuningSettings,
        "do_eval",
        False,
        "Evaluate every checkpoint on predict_file and keep the best one; do_predict does this "
        "as well.",
    )
    do_predict: bool = redefined(
        FineTuningSettings,
        "do_predict",
        False,
        "Answer the questions of predict_file with the best checkpoint.",
    )
    eval_batch_size: int | None = redefined(
        FineTuningSettings,
        "eval_batch_size",
        None,
        "Evaluation batch size, in examples; if not given, predict_batch_size.",
        is_optional=True,
    )
    max_seq_length: int = redefined(DataSettings, "max_seq_length", 384)
    num_train_epochs: float = redefined(FineTuningSettings, "num_train_epochs", 3.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.windows

    @property
    def windows(self) -> WindowSettings:
        """How contexts are split into windows."""
        return WindowSettings(self.max_seq_length, self.doc_stride, self.max_query_length)

    def check_paths(self) -> None:
        """Checks all paths, including the question files."""
        super().check_paths()
        if self.train_file and self.do_train:
            find_files(self.train_file, "--train_file")
        if self.predict_file and (self.do_eval or self.do_predict):
            find_files(self.predict_file, "--predict_file")
        outputs = [os.path.join(self.output_dir, name) for name in (PREDICTIONS, NBEST, NULL_ODDS)]
        inputs = {"--train_file": self.train_file, "--predict_file": self.predict_file}
        files.check_outputs({"--output_dir": outputs}, inputs)
