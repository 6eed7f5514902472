"""Files of predicted tags in the columns of CoNLL."""

from __future__ import annotations

from collections.abc import Sequence

from albert_tf import files
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.token_classification.sentences import Sentence


def write_predictions(
    path: str, data: Examples[Sentence], predicted: Sequence[Sequence[str]]
) -> None:
    r"""Writes one token per line and blank lines between sentences, for `conlleval -d '\t'`.

    A line contains the token, its label if all labels are known, and the predicted label, separated
    by tabs.

    Args:
        path: the file.
        data: the sentences.
        predicted: the predicted labels of each sentence.
    """
    has_labels = data.has_labels
    with files.write_atomically(path) as stream:
        for sentence, guesses in zip(data.examples, predicted, strict=True):
            for cells in zip(sentence.tokens, sentence.labels, guesses, strict=True):
                shown = cells if has_labels else (cells[0], cells[2])
                stream.write("\t".join(map(str, shown)) + "\n")
            stream.write("\n")
