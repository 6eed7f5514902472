r"""Fine-tunes and evaluates ALBERT on SQuAD 1.1, SQuAD 2.0, CMRC 2018 or DRCD.

    python run_squad.py --init_checkpoint=albert_base_v2 --output_dir=squad_model \
        --train_file=train-v1.1.json --predict_file=dev-v1.1.json --do_train --do_predict

--data_dir may be a folder of the Hugging Face Hub instead of these two files. The flags are those
of run_squad_v1.py and run_squad_v2.py. Checkpoints, model.ckpt-best, eval_results.txt,
predictions.json, nbest_predictions.json, null_odds.json (for SQuAD 2.0) and plots are written to
--output_dir. If --predict_file has no answers, the best checkpoint predicts them; `albert predict`
asks a single question. With --num_runs or several learning rates, each run has a subfolder, next to
sweep_results.txt. Run the same command again to resume a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from albert_tf.checkpoints.tasks import SPANS
from albert_tf.finetuning.result import FineTuningResult
from albert_tf.finetuning.run import run_fine_tuning
from albert_tf.finetuning.squad.settings import Settings
from albert_tf.finetuning.squad.task import QuestionAnswering

if TYPE_CHECKING:
    from albert_tf.training.hooks import Hook

__all__ = ["Settings", "run"]


def run(
    settings: Settings,
    hooks: Sequence[Hook] = (),
    data: Mapping[str, object] | None = None,
) -> FineTuningResult:
    """Trains, evaluates, answers questions and exports, as `run_squad.py` does.

    Args:
        settings: the flags of that program. If none of `do_train`, `do_eval`, `do_predict` and
            `export_dir` is set, it trains on `train_file` and evaluates on `predict_file`. Config
            and vocabulary can be omitted if they are beside `init_checkpoint`.
        hooks: called in training; see `albert_tf.training.hooks`.
        data: split → rows to read instead of files: an iterable of dicts, a `datasets.Dataset`, or
            a DataFrame.

    Returns:
        The folder, step and metrics of the best checkpoint on `predict_file`.

    Raises:
        ValueError, OSError: settings, files or data are invalid or inconsistent; the message says
            which.
    """
    return run_fine_tuning(SPANS, QuestionAnswering, settings, hooks, data)
