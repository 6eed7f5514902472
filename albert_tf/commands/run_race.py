r"""Fine-tunes, evaluates and predicts with ALBERT on RACE or custom multiple-choice questions.

    python run_race.py --data_dir=data --albert_config_file=albert_base/albert_config.json \
        --init_checkpoint=albert_base/model.ckpt-best --spm_model_file=albert_base/30k-clean.model \
        --output_dir=race_model --do_train --do_eval --do_predict

--data_dir contains RACE/{train,dev,test}/{middle,high}, with all.txt (one article per line) or one
file per article. With --task_name=choice, it contains train.jsonl, dev.jsonl and test.jsonl, with
one JSON object per line: passage, question, options (two or more), label. Checkpoints,
model.ckpt-best, eval_results.txt, predict_results.txt, <task_name>_predictions.jsonl and plots are
written to --output_dir. With --num_runs or several learning rates, each run has a subfolder, next
to sweep_results.txt. Run the same command again to resume a run.
"""

from albert_tf import race
from albert_tf.cli import program
from albert_tf.commands import plot_results
from albert_tf.finetuning.result import FineTuningResult


def run(settings: race.Settings) -> FineTuningResult:
    """Runs the program, and plots its results."""
    return plot_results.run_and_plot(race.run, settings)


def main() -> None:
    """Runs the command line of this process."""
    program.start(race.Settings, run, __doc__)


if __name__ == "__main__":
    main()
