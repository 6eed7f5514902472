r"""Fine-tunes ALBERT on GLUE, CLUE or a custom task, evaluates it, predicts and exports.

    python run_classifier.py --task_name=MRPC --data_dir=glue \
        --albert_config_file=albert_base/albert_config.json \
        --init_checkpoint=albert_base/model.ckpt-best --spm_model_file=albert_base/30k-clean.model \
        --output_dir=mrpc_model --do_train --do_eval --do_predict

--task_name=tsv takes train, dev and test with .tsv, .csv or .jsonl in --data_dir. Writes
checkpoints, model.ckpt-best, eval_results.txt, best_trial.txt, dev_predictions.tsv, plots and
predictions to --output_dir. With --num_runs or several learning rates each run has a folder in
there, beside sweep_results.txt. The same command again resumes a run.
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
