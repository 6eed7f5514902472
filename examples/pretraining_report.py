"""Compares a pre-trained model with the best constant answers, and plots its curves.

    python examples/pretraining_report.py --output_dir=work/pretrain_small/model \
        --eval_input_file=work/pretrain_small/held_out.tfrecord

Reads the files of a run of run_pretraining.py with --do_eval; nothing is computed again. Prints the
held-out accuracies of the last checkpoint and of the one with the lowest loss.
"""

from __future__ import annotations

import os

import demo_report
from absl import app, flags

from albert_tf.model.tokenization import FullTokenizer

FLAGS = flags.FLAGS


def report(output_dir: str, eval_input_file: str, plot_file: str | None) -> str:
    """Returns the report, and draws the plot.

    Args:
        output_dir: folder of the run, with eval_results.txt, metrics.jsonl and spiece.model.
        eval_input_file: the records that it was evaluated on, one file.
        plot_file: PNG file to write, if any.

    Raises:
        OSError: the run has not been evaluated, or there are no records.
    """
    for path in (os.path.join(output_dir, "eval_results.txt"), eval_input_file):
        if not os.path.isfile(path):
            raise FileNotFoundError(
                f"{path}: no such file. Train and evaluate with run_pretraining.py --do_train "
                "--do_eval first."
            )
    results = demo_report.read_results(os.path.join(output_dir, "eval_results.txt"))
    chance = demo_report.count_chance(eval_input_file)
    tokenizer = FullTokenizer(spm_model_file=os.path.join(output_dir, "spiece.model"))
    piece = tokenizer.pieces[chance.token_id]
    best = min(results, key=lambda result: result["loss"])
    selected = [best] if best is results[-1] else [best, results[-1]]
    tables = [demo_report.tabulate(result, chance, piece) for result in selected]
    if plot_file:
        demo_report.draw_curves(output_dir, results, chance, plot_file)
        tables.append(f"\nPlot: {plot_file}")
    return "\n".join(tables)


def main(argv: list[str]) -> None:
    """Prints the report."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments: {' '.join(argv[1:])}")
    try:
        print(report(FLAGS.output_dir, FLAGS.eval_input_file, FLAGS.plot_file))
    except OSError as error:
        raise SystemExit(f"pretraining_report.py: {error}") from error


if __name__ == "__main__":
    flags.DEFINE_string("output_dir", None, "Folder of the run.", required=True)
    flags.DEFINE_string("eval_input_file", None, "Its evaluation records.", required=True)
    flags.DEFINE_string("plot_file", None, "PNG file for the curves; default: none.")
    app.run(main)
