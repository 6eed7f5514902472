r"""Pre-trains ALBERT on records made by create_pretraining_data.py, and evaluates it.

    python run_pretraining.py --albert_config_file=configs/albert_base.json \
        --input_file=records/train*.tfrecord --output_dir=model --do_train --do_eval \
        --eval_input_file=records/held_out.tfrecord --train_batch_size=32 \
        --learning_rate=0.00015 --num_train_steps=10000 --num_warmup_steps=1000

Writes checkpoints (model.ckpt-<step>), metrics.jsonl and TensorBoard summaries to --output_dir.
With --do_eval, each checkpoint is evaluated when it is saved, and eval_results.txt and
model.ckpt-best are written. The training curves are plotted at the end. Run the same command again
to resume a run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from albert_tf import pretraining
from albert_tf.cli import program
from albert_tf.commands import plot_results

if TYPE_CHECKING:
    from albert_tf.pretraining.program import Result


def run(settings: pretraining.Settings) -> Result:
    """Runs the program, and plots its results."""
    return plot_results.run_and_plot(pretraining.run, settings)


def main() -> None:
    """Runs the command line of this process."""
    program.start(pretraining.Settings, run, __doc__)


if __name__ == "__main__":
    main()
