r"""Fine-tunes, evaluates, predicts and exports ALBERT for token classification, such as NER.

    python run_token_classification.py --data_dir=msra \
        --albert_config_file=albert_tiny/albert_config_tiny.json \
        --init_checkpoint=albert_tiny/albert_model.ckpt --vocab_file=albert_tiny/vocab.txt \
        --max_seq_length=128 --num_train_epochs=3 --output_dir=msra_model \
        --do_train --do_eval --do_predict

--data_dir contains train, dev and test files (.txt, .conll or .tsv) with one token per line (in
Chinese, one character), its label in the last column, and blank lines between sentences.
Checkpoints, model.ckpt-best, eval_results.txt (precision, recall and F1 of the spans),
dev_predictions.tsv, test_predictions.tsv and plots are written to --output_dir. With --num_runs or
several learning rates, each run has a subfolder, next to sweep_results.txt. Run the same command
again to resume a run.
"""

from albert_tf import token_classification
from albert_tf.cli import program
from albert_tf.commands import plot_results
from albert_tf.finetuning.result import FineTuningResult


def run(settings: token_classification.Settings) -> FineTuningResult:
    """Runs the program, and plots its results."""
    return plot_results.run_and_plot(token_classification.run, settings)


def main() -> None:
    """Runs the command line of this process."""
    program.start(token_classification.Settings, run, __doc__)


if __name__ == "__main__":
    main()
