"""Real batches for the benchmarks: LCQMC, sentence pairs, from the data beside the repository."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Sequence

import contenders
import numpy as np
from absl import logging

from albert_tf.classification.reading import read_examples
from albert_tf.classification.task import make_features
from albert_tf.classification.tasks import find_task
from albert_tf.finetuning import batching
from albert_tf.finetuning.batching import Padding, TrainingOrder
from albert_tf.finetuning.sequences import TokenSequences
from albert_tf.tokenization import FullTokenizer

MAX_SEQ_LENGTH = 128
BATCHES_TO_SORT = 32  # the default of run_classifier.py


def read_features(split: str) -> TokenSequences:
    """LCQMC's pairs as token ids; ends the program with a reason where the data is missing."""
    folder = os.path.join(contenders.SHARED, "data", "lcqmc")
    if not os.path.isdir(folder):
        sys.exit(f"skipped: no LCQMC at {folder}")
    logging.set_verbosity(logging.WARNING)
    vocabulary = os.path.join(contenders.SHARED, "vocab", "vocab_chinese.txt")
    tokenizer = FullTokenizer(vocab_file=vocabulary)
    data = read_examples(find_task("lcqmc"), folder, split)
    return make_features(data, tokenizer, MAX_SEQ_LENGTH)


def padded(features: TokenSequences, batch_size: int, count: int) -> Sequence[contenders.Batch]:
    """Random batches, all rows as long as MAX_SEQ_LENGTH."""
    order, padding = TrainingOrder(batch_size), Padding(MAX_SEQ_LENGTH, MAX_SEQ_LENGTH)
    return list(itertools.islice(batching.training_batches(features, order, padding), count))


def dynamic(features: TokenSequences, batch_size: int, count: int) -> Sequence[contenders.Batch]:
    """Random batches, each as long as its longest row: as Hugging Face's collator makes them."""
    order, padding = TrainingOrder(batch_size), Padding(MAX_SEQ_LENGTH, 8)
    return list(itertools.islice(batching.training_batches(features, order, padding), count))


def bucketed(features: TokenSequences, batch_size: int, count: int) -> Sequence[contenders.Batch]:
    """As `dynamic`, with rows of like length put together: as run_classifier.py trains."""
    order = TrainingOrder(batch_size, batches_to_sort=BATCHES_TO_SORT)
    padding = Padding(MAX_SEQ_LENGTH, 8)
    return list(itertools.islice(batching.training_batches(features, order, padding), count))


def by_length(features: TokenSequences, batch_size: int, count: int) -> Sequence[contenders.Batch]:
    """Batches as they are predicted, sorted by length: `count` of all, evenly spaced."""
    padding = Padding(MAX_SEQ_LENGTH, 8)
    found = [b for _, b in batching.evaluation_batches(features, batch_size, padding)]
    places = np.linspace(0, len(found) - 2, count).round().astype(int)  # the last one is smaller
    return [found[place] for place in places]


def mean_length(batches: Sequence[contenders.Batch]) -> float:
    """S, padding included, of a batch."""
    return round(float(np.mean([batch["input_ids"].shape[1] for batch in batches])), 1)
