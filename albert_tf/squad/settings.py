"""Settings of run_squad.py. TensorFlow is not imported here."""

from __future__ import annotations

import dataclasses
import os

from albert_tf import data, files
from albert_tf.finetuning.settings import (
    DataSettings,
    FineTuningSettings,
    QuestionSettings,
    TFLiteSettings,
)
from albert_tf.settings import TRAINING, redefined, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(FineTuningSettings, TFLiteSettings, QuestionSettings):
    """All settings of run_squad.py, under the names of Google's flags for both versions."""

    GROUP = "data"

    predict_file: str | None = redefined(
        QuestionSettings,
        "predict_file",
        None,
        "Questions to answer, and to evaluate checkpoints on if it has the answers.",
    )
    tflite_quantization: str = redefined(
        TFLiteSettings,
        "tflite_quantization",
        "none",
        "Weights of the exported albert_model.tflite: float32 (none), float16 or int8 (dynamic "
        "range).",
    )
    train_feature_file: str = setting("", "File to cache the features of train_file in.")
    predict_feature_file: str = setting("", "File to cache the features of predict_file in.")
    version_2_with_negative: bool | None = setting(
        None, "SQuAD 2.0: questions may have no answer; default: as the model or the data are."
    )
    doc_stride: int = setting(
        128,
        "Number of tokens between the starts of two windows over a long context.",
        minimum=1,
        decides=TRAINING,
    )
    max_query_length: int = setting(
        64,
        "Number of first tokens of a question that are kept.",
        minimum=1,
        decides=TRAINING,
    )
    n_best_size: int = setting(
        20,
        "Length of n-best lists; in SQuAD 1.1 also the number of starts, and of ends, tried.",
        minimum=1,
    )
    max_answer_length: int = setting(30, "Maximum length of an answer, in tokens.", minimum=1)
    start_n_top: int = setting(5, "SQuAD 2.0: number of starts in the beam.", minimum=1)
    end_n_top: int = setting(5, "SQuAD 2.0: number of ends for each start.", minimum=1)
    official_threshold: bool = setting(
        False, "SQuAD 2.0: compute the metrics as Google's program does."
    )
    null_score_diff_threshold: float | None = setting(
        None,
        "SQuAD 2.0: no answer above these null odds; default: the best threshold for "
        "predict_file, or the one that was best when the model was evaluated.",
    )
    mixed_segmentation: bool | None = setting(
        None, "Compute the metrics of CMRC 2018; default: for Chinese data without SQuAD 2.0."
    )
    question: str = setting("", "A single question about context, to answer on the terminal.")
    context: str = setting("", "The text that answers question.")
    num_workers: int = redefined(
        data.Settings,
        "num_workers",
        0,
        "Number of processes that make features; 0 for one on each core.",
    )
    do_eval: bool = redefined(
        FineTuningSettings,
        "do_eval",
        False,
        "Evaluate checkpoints on predict_file and keep the best; do_predict does this as well.",
    )
    do_predict: bool = redefined(
        FineTuningSettings,
        "do_predict",
        False,
        "Answer the questions of predict_file with the best checkpoint.",
    )
    eval_batch_size: int = redefined(
        FineTuningSettings,
        "eval_batch_size",
        0,
        "Number of examples of an evaluation step; 0 for predict_batch_size.",
        minimum=0,
    )
    max_seq_length: int = redefined(DataSettings, "max_seq_length", 384)
    num_train_epochs: float = redefined(FineTuningSettings, "num_train_epochs", 3.0)

    @property
    def splits(self) -> list[str]:
        """The splits that are used: those of all tasks, and "question" for a single question."""
        return super().splits + (["question"] if self.question or self.context else [])

    def check_paths(self) -> None:
        """Checks the files of questions and the folders of their features, too."""
        super().check_paths()
        used = {"train": self.do_train, "predict": self.do_eval or self.do_predict}
        for split in (name for name, is_used in used.items() if is_used):
            path, feature_file = (getattr(self, f"{split}_{k}") for k in ("file", "feature_file"))
            if path:
                files.check_file(path, f"--{split}_file")
            files.check_writable(os.path.dirname(feature_file), f"--{split}_feature_file")

    def require_a_phase(self) -> None:
        """Raises ValueError when nothing is asked for, which is an error on a command line."""
        if not self.asks_for_something:
            raise ValueError(
                "nothing to do: give --do_train, --do_predict, --export_dir, or --question and "
                "--context"
            )
