r"""Fine-tunes, evaluates and predicts with ALBERT on RACE or custom multiple-choice questions.

    python run_race.py --data_dir=data --init_checkpoint=albert_base_v2 --output_dir=race_model \
        --do_train --do_eval --do_predict --learning_rate=2e-5 --num_train_epochs=2

--data_dir contains RACE/{train,dev,test}/{middle,high}, with all.txt (one article per line) or one
file per article. With --task_name=choice, it contains train.jsonl, dev.jsonl and test.jsonl, with
one JSON object per line: passage, question, options (two or more), label. Checkpoints,
model.ckpt-best, eval_results.txt, predict_results.txt, `<task_name>_predictions.jsonl` and plots
are written to --output_dir. With --num_runs or several learning rates, each run has a subfolder,
next to sweep_results.txt. Run the same command again to resume a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from albert_tf.checkpoints.tasks import MULTIPLE_CHOICE
from albert_tf.finetuning.race.settings import Settings
from albert_tf.finetuning.race.task import MultipleChoice
from albert_tf.finetuning.result import FineTuningResult
from albert_tf.finetuning.run import run_fine_tuning

if TYPE_CHECKING:
    from albert_tf.training.hooks import Hook

__all__ = ["Settings", "run"]


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
    return run_fine_tuning(MULTIPLE_CHOICE, MultipleChoice, settings, hooks, data)
