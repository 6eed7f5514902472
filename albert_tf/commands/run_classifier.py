r"""Fine-tunes, evaluates, predicts and exports ALBERT on GLUE, CLUE or a custom task.

    python run_classifier.py --task_name=MRPC --data_dir=glue \
        --albert_config_file=albert_base/albert_config.json \
        --init_checkpoint=albert_base/model.ckpt-best --spm_model_file=albert_base/30k-clean.model \
        --output_dir=mrpc_model --do_train --do_eval --do_predict

--task_name=tsv reads train, dev and test files (.tsv, .csv or .jsonl) from --data_dir. Checkpoints,
model.ckpt-best, eval_results.txt, best_trial.txt, dev_predictions.tsv, predictions and plots are
written to --output_dir. With --num_runs or several learning rates, each run has a subfolder, next
to sweep_results.txt. Run the same command again to resume a run.
"""

from albert_tf import classification
from albert_tf.cli import program
from albert_tf.commands import plot_results
from albert_tf.finetuning.result import FineTuningResult


def run(settings: classification.Settings) -> FineTuningResult:
    """Runs the program, and plots its results."""
    return plot_results.run_and_plot(classification.run, settings)


def main() -> None:
    """Runs the command line of this process."""
    program.start(classification.Settings, run, __doc__)


if __name__ == "__main__":
    main()
