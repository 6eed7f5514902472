"""Reads examples of classification as the program does, and checks what all of them have in common.

The vocabulary is of a few pieces: what texts become is for other tests to say.
"""

from __future__ import annotations

import functools
import tempfile

import numpy as np

from albert_tf.finetuning.classification import Settings, reading
from albert_tf.finetuning.classification.encoding import EncodedTexts, ExampleColumns
from albert_tf.finetuning.classification.parsing import Block
from albert_tf.finetuning.examples import LOOKED_AT, Examples
from albert_tf.finetuning.token_sequences import TokenSequences
from albert_tf.model.tokenization import FullTokenizer

PHASES = {"train": "do_train", "dev": "do_eval", "test": "do_predict"}


@functools.cache
def small_tokenizer():
    """Returns a tokenizer to which any word is unknown."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
        file.flush()
        return FullTokenizer(file.name)


def read_data(settings, trained=None, given=None):
    """Returns the task, and split → examples as a list, whose checksum was that of the first pass.

    Of more than LOOKED_AT examples, the texts of the others are "".
    """
    task, data = reading.read_data(settings, small_tokenizer(), trained, given)
    return task, {split: _as_list(part) for split, part in data.items()}


def _as_list(part):
    found = Examples(part.path, list(part.examples), part.has_labels)
    assert len(found) == len(part) == len(part.features)
    if len(found) <= LOOKED_AT:
        assert part.checksum() == found.checksum()
    return found


def read_examples(name, folder, split):
    """Returns the examples of a split of a task of the table."""
    phase = {PHASES[split]: True}
    settings = Settings(task_name=name, data_dir=str(folder), output_dir="out", **phase)
    return read_data(settings)[1][split]


def encoded(examples, tokenizer=None, max_seq_length=0):
    """Returns examples given as tuples of id, text, second text and label, the last two optional.

    They have no token sequences without a tokenizer.
    """
    rows = [(*example, *("", None)[len(example) - 2 :]) for example in examples]
    guids, firsts, seconds, labels = map(list, zip(*rows, strict=True))
    numbers = list(range(len(rows)))
    columns = ExampleColumns("test", 0)
    block = Block([], numbers, numbers, firsts, seconds, labels, guids)
    columns.extend(block, numbers)
    columns.labels, columns.rows = labels, np.array(numbers)
    sequences = tokenizer.sequences(firsts, seconds, max_seq_length) if tokenizer else []
    features = TokenSequences.pack(sequences, {})
    has_labels = None not in labels
    return EncodedTexts(
        *("memory", columns, has_labels),
        features=features,
        digest="",
        count=len(rows),
        read_again=lambda: iter([block]),
    )
