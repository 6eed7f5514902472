"""`dev_predictions.tsv`, the table of the dev set's labels and predictions, for error analysis."""

from __future__ import annotations

from albert_tf import files
from albert_tf.checkpoints.run_folder import RunFolder

DEV_PREDICTIONS = "dev_predictions.tsv"
DEV_COLUMNS = ("line", "guid", "label", "prediction")  # and one for each label, or the score
SCORE = "score"
MULTI_LABEL_COLUMNS = ("line", "guid", "labels", "predictions")  # both are JSON lists


def read_dev_predictions(folder: RunFolder) -> tuple[list[str], list[tuple[str, str]]]:
    """Reads the labels in `dev_predictions.tsv`.

    Returns:
        The labels of the task, and the label and the prediction of each example. Both are empty if
        there is no such file, or if its examples do not have one label each: in regression,
        multi-label tasks and token classification.

    Raises:
        ValueError: a row is damaged; the message names the line.
    """
    path = folder.file(DEV_PREDICTIONS)
    if not files.exists(path):
        return [], []
    header, *rows = [line.split("\t") for line in files.read_text(path).splitlines()]
    labels = header[len(DEV_COLUMNS) :]
    if tuple(header[: len(DEV_COLUMNS)]) != DEV_COLUMNS or labels == [SCORE]:
        return [], []
    for number, row in enumerate(rows, 2):
        if len(row) != len(header) or not {row[2], row[3]} <= set(labels):
            raise ValueError(
                f"{path}:{number}: expected {len(header)} cells, as in the header, with two of its "
                f"labels in columns 3 and 4; got {files.quote_all(row)}"
            )
    return labels, [(row[2], row[3]) for row in rows]
