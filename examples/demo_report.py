"""Reports the results of the demo, compared with constant predictions, and plots them."""

from __future__ import annotations

import collections
import dataclasses
import os
import textwrap

from albert_tf import files
from albert_tf.checkpoints.run_folder import RunFolder

VOCAB_SIZE = 4000
LINE_LENGTH = 96
# The model has learned something if it is this many times better than a constant prediction.
REQUIRED_RATIO = 1.25
REQUIRED_TASK_RATIO = 2.0  # the same for the classification task
LONG_RUN = (
    "This took minutes. After an hour, on the documentation of more packages, bash "
    "examples/pretrain_small.sh reaches 0.265 of the masked tokens and 0.734 of the sentence "
    "orders, where the best constant answers reach 0.062 and 0.574. Curves, and what that model is "
    "good for: docs/notebook/reproduction.md"
)
TOO_LITTLE = (
    f"The model learned too little: expected were {REQUIRED_RATIO} times the best constant answer "
    f"for masked words, and {REQUIRED_TASK_RATIO} times for packages."
)


@dataclasses.dataclass(frozen=True)
class Chance:
    """The accuracy of the best constant predictions on a file of records.

    Attributes:
        token_id: the most frequent masked token.
        masked_lm_accuracy: its share of the masked tokens, in [0, 1].
        sentence_order_accuracy: share of the more frequent label, in [0, 1].
    """

    token_id: int
    masked_lm_accuracy: float
    sentence_order_accuracy: float


def count_chance(record_file: str) -> Chance:
    """Returns the accuracy of constant predictions, by counting the labels of records."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    tokens: collections.Counter[int] = collections.Counter()
    orders: collections.Counter[int] = collections.Counter()
    for record in tf.data.TFRecordDataset(record_file).as_numpy_iterator():
        features = tf.train.Example.FromString(record).features.feature
        weights = features["masked_lm_weights"].float_list.value
        ids = features["masked_lm_ids"].int64_list.value
        tokens.update(token for token, weight in zip(ids, weights, strict=True) if weight)
        orders.update(features["next_sentence_labels"].int64_list.value)
    token_id, count = tokens.most_common(1)[0]
    return Chance(token_id, count / tokens.total(), max(orders.values()) / orders.total())


def read_results(path: str) -> list[dict[str, float]]:
    """Reads an eval_results.txt; returns the metrics of each checkpoint, by step."""
    results: list[dict[str, float]] = []
    for line in files.read_text(path).splitlines():
        if line.startswith("#"):
            continue
        key, value = line.split(" = ")
        if not results or key in results[-1]:
            results.append({})
        results[-1][key] = float(value)
    return sorted(results, key=lambda result: result["global_step"])


def draw_curves(
    model_dir: str, results: list[dict[str, float]], chance: Chance, plot_file: str
) -> None:
    """Plots loss and accuracies in training and on held-out text over the steps."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    metrics = RunFolder(model_dir).metrics()
    rows = [row for row in metrics if "loss" in row]  # not those of evaluations
    # metric, title, accuracy of the best constant answer, lower end of the axis
    order_level = chance.sentence_order_accuracy
    panels = [
        ("loss", "loss (masked LM + sentence order)", None, None),
        ("masked_lm_accuracy", "masked-LM accuracy", chance.masked_lm_accuracy, 0.0),
        ("sentence_order_accuracy", "sentence-order accuracy", order_level, 0.4),
    ]
    figure, axes = plt.subplots(1, len(panels), figsize=(13, 3.8), layout="constrained")
    steps = [row["step"] for row in rows]
    held_out_steps = [result["global_step"] for result in results]
    for axis, (key, title, level, bottom) in zip(axes, panels, strict=True):
        axis.plot(steps, [row[key] for row in rows], color="tab:blue", label="training batches")
        values = [result[key] for result in results]
        axis.plot(held_out_steps, values, "o-", color="tab:orange", label="held-out text")
        if level is not None:
            axis.axhline(
                level, color="gray", linestyle="--", label="best constant answer, held out"
            )
        axis.set_ylim(bottom=bottom)
        axis.set(title=title, xlabel="step")
        axis.grid(alpha=0.3)
        axis.legend(loc="best", fontsize="small")
    figure.savefig(plot_file, dpi=120)


def tabulate(results: dict[str, float], chance: Chance, piece: str) -> str:
    """Returns a table of the held-out metrics and the constant answers.

    Args:
        results: metrics of a checkpoint.
        chance: the best constant answers on the same records.
        piece: piece of the vocabulary that is masked most often.
    """
    masked_lm = results["masked_lm_accuracy"]
    order = results["sentence_order_accuracy"]
    word = piece.replace("▁", "")
    answer = f'always "{word}"' if word else "always a space"
    steps = f"after {results['global_step']:.0f} steps"
    return f"""
Held-out text, {steps:20}  model   best constant answer
  masked_lm_accuracy                {masked_lm:6.3f}   {chance.masked_lm_accuracy:.3f} ({answer})
  sentence_order_accuracy           {order:6.3f}   {chance.sentence_order_accuracy:.3f} \
(always the same order)
  loss                              {results["loss"]:6.3f}"""


def describe(results: dict[str, float], chance: Chance, piece: str) -> str:
    """Returns the held-out metrics and an explanation, as text."""
    masked_lm = results["masked_lm_accuracy"]
    word_level = chance.masked_lm_accuracy
    order_gain = results["sentence_order_accuracy"] - chance.sentence_order_accuracy
    meaning = (
        "masked_lm_accuracy is the fraction of masked tokens that the model predicts correctly, "
        f"with a vocabulary of {VOCAB_SIZE}, in packages that it was not trained on: "
        f"{masked_lm / word_level:.1f} times that of always predicting the most frequent token "
        f"(this demo requires {REQUIRED_RATIO} times). sentence_order_accuracy is the fraction of "
        "segment pairs for which it recognizes whether they were swapped: "
        f"{100 * order_gain:+.1f} points compared with always giving the same answer; this is "
        "learned later than words."
    )
    return f"{tabulate(results, chance, piece)}\n\n{textwrap.fill(meaning, LINE_LENGTH)}"


@dataclasses.dataclass(frozen=True)
class TaskResult:
    """The result of the classification task.

    Attributes:
        accuracy: of the best checkpoint on the dev set, in [0, 1].
        majority: the most frequent package of the dev set.
        majority_share: its share, which is the accuracy of always predicting it.
        packages: number of packages.
    """

    accuracy: float
    majority: str
    majority_share: float
    packages: int


def read_task_result(demo_dir: str) -> TaskResult:
    """Reads the results of run_classifier.py, and counts the labels of the dev set."""
    best_trial = files.read_text(os.path.join(demo_dir, "classifier", "best_trial.txt"))
    labels = count_labels(demo_dir)
    majority, count = labels.most_common(1)[0]
    accuracy = float(best_trial.split(":")[2])
    return TaskResult(accuracy, majority, count / labels.total(), len(labels))


def count_labels(demo_dir: str) -> collections.Counter[str]:
    """Returns how often each package occurs in the dev set of the task."""
    lines = files.read_text(os.path.join(demo_dir, "task", "dev.tsv")).splitlines()[1:]
    return collections.Counter(line.split("\t")[1] for line in lines)


def describe_task(result: TaskResult) -> str:
    """Returns the metrics of the task as text."""
    return f"""
Which of {result.packages} packages does a sentence document?  model   best constant answer
  accuracy on the dev set           {result.accuracy:6.3f}   {result.majority_share:.3f} \
(always {result.majority})"""


def about_the_long_run() -> str:
    """Returns what a longer run on the same corpus reaches, as text."""
    return textwrap.fill(LONG_RUN, LINE_LENGTH)


def has_learned(results: dict[str, float], chance: Chance, task_result: TaskResult) -> bool:
    """Returns whether words and packages are predicted as much better as the demo asks for."""
    words = results["masked_lm_accuracy"]
    packages = task_result.accuracy
    return (
        words >= REQUIRED_RATIO * chance.masked_lm_accuracy
        and packages >= REQUIRED_TASK_RATIO * task_result.majority_share
    )
