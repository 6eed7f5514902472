r"""Fine-tunes and evaluates ALBERT on SQuAD 1.1, SQuAD 2.0, CMRC 2018 or DRCD; answers questions.

    python run_squad.py --albert_config_file=albert_base/albert_config.json \
        --init_checkpoint=albert_base/model.ckpt-best --spm_model_file=albert_base/30k-clean.model \
        --train_file=train-v1.1.json --predict_file=dev-v1.1.json --output_dir=squad_model \
        --do_train --do_predict

The flags are those of run_squad_v1.py and run_squad_v2.py. Checkpoints, model.ckpt-best,
eval_results.txt, predictions.json, nbest_predictions.json, null_odds.json (for SQuAD 2.0) and plots
are written to --output_dir. If --predict_file has no answers, the best checkpoint predicts them;
--question and --context ask a single question. With --num_runs or several learning rates, each run
has a subfolder, next to sweep_results.txt. Run the same command again to resume a run.
"""

from albert_tf import squad
from albert_tf.cli import program
from albert_tf.commands import plot_results
from albert_tf.finetuning.result import FineTuningResult


def run(settings: squad.Settings) -> FineTuningResult:
    """Runs the program, and plots its results."""
    return plot_results.run_and_plot(squad.run, settings)


def main() -> None:
    """Runs the command line of this process."""
    program.start(squad.Settings, run, __doc__)


if __name__ == "__main__":
    main()
