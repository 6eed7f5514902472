r"""Fine-tunes, evaluates and predicts with ALBERT on RACE or custom multiple-choice questions.

    python run_race.py --data_dir=data --init_checkpoint=albert_base_v2 --output_dir=race_model \
        --do_train --do_eval --do_predict --learning_rate=2e-5 --num_train_epochs=2

--data_dir contains RACE/{train,dev,test}/{middle,high}, with all.txt (one article per line) or one
file per article. With --task_name=choice, it contains train.jsonl, dev.jsonl and test.jsonl, with
one JSON object per line: passage, question, options (two or more), label. Checkpoints,
model.ckpt-best, eval_results.txt, predict_results.txt, <task_name>_predictions.jsonl and plots are
written to --output_dir. With --num_runs or several learning rates, each run has a subfolder, next
to sweep_results.txt. Run the same command again to resume a run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from albert_tf.checkpoints.tasks import MULTIPLE_CHOICE
from albert_tf.data.settings import SequenceSettings
from albert_tf.finetuning import run_task
from albert_tf.finetuning.result import FineTuningResult
from albert_tf.finetuning.settings import (
    FineTuningSettings,
    HeadSettings,
    SplitSettings,
    TaskSettings,
)
from albert_tf.settings import TRAINING, redefined, setting

if TYPE_CHECKING:
    from albert_tf.training.hooks import Hook


__all__ = ["Settings", "run"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(FineTuningSettings, TaskSettings, SplitSettings, HeadSettings):
    """Settings of run_race.py, with the names of Google's flags."""

    GROUP = "data"
    ESSENTIAL = ("task_name", "data_dir", *FineTuningSettings.ESSENTIAL)

    task_name: str = redefined(
        TaskSettings,
        "task_name",
        "race",
        "race for RACE, or choice for your own questions in train.jsonl, dev.jsonl and test.jsonl.",
        choices=("race", "choice"),
    )
    # The smallest is [CLS] [SEP] question [SEP].
    max_seq_length: int = redefined(SequenceSettings, "max_seq_length", 512, minimum=4)
    max_qa_length: int = setting(
        128,
        "Maximum length of a question with an option, in tokens; of longer ones the last tokens "
        "are kept.",
        minimum=1,
        affects=TRAINING,
    )
    high_only: bool = setting(False, "Use only the questions for high schools.")
    middle_only: bool = setting(False, "Use only the questions for middle schools.")
    do_train: bool = redefined(FineTuningSettings, "do_train", True)
    do_eval: bool = redefined(FineTuningSettings, "do_eval", True)
    learning_rate: float | tuple[float, ...] = redefined(FineTuningSettings, "learning_rate", 1e-5)
    train_step: int = redefined(FineTuningSettings, "train_step", 12000)
    warmup_step: int = redefined(FineTuningSettings, "warmup_step", 1000)
    save_checkpoints_steps: int = redefined(FineTuningSettings, "save_checkpoints_steps", 100)


def run(
    settings: Settings,
    hooks: Sequence[Hook] = (),
    data: Mapping[str, object] | None = None,
) -> FineTuningResult:
    """Trains, evaluates, predicts and exports a multiple-choice model, as `run_race.py` does.

    Args:
        settings: the flags of that program. Config and vocabulary can be omitted if they are beside
            `init_checkpoint`.
        hooks: called in training; see `albert_tf.training.hooks`.
        data: split → rows to read instead of files: an iterable of dicts, a `datasets.Dataset`, or
            a DataFrame.

    Returns:
        The folder, step and metrics of the best checkpoint on the dev set.

    Raises:
        ValueError, OSError: settings, files or data are invalid or inconsistent; the message says
            which.
    """
    return run_task(MULTIPLE_CHOICE, settings, hooks, rows=data)
