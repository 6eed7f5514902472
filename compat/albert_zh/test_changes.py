r"""Verifies the three main ideas of the ALBERT paper, and prints the numbers.

    python test_changes.py

Despite its name, which is albert_zh's, this is not a test of this repository. Source: sections 3.1
and 4.1 of https://arxiv.org/abs/1909.11942, and albert_zh's program of this name, from which the
numbers of parameters are taken.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

sys.path.insert(0, os.path.abspath(f"{__file__}/../../.."))

from albert_tf import files
from albert_tf.cli import console
from albert_tf.data import documents as tokenized_documents
from albert_tf.data import instances
from albert_tf.data.settings import InstanceSettings
from albert_tf.model.config import AlbertConfig
from albert_tf.model.tokenization import SPECIAL_TOKENS, BasicTokenizer, FullTokenizer
from albert_tf.settings import SettingsGroup

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ROOT = os.path.abspath(f"{__file__}/../../..")
XXLARGE = os.path.join(_ROOT, "configs", "albert_xxlarge.json")
SAMPLE = os.path.join(_ROOT, "data", "sample_zh.txt")
SENTENCES = 3  # per document: few enough to fit into one instance
# albert_zh's example: layers of hidden size 1024 and intermediate size 3072.
LAYER_SIZE = 10_498_048
NUM_LAYERS = 12


def check(holds: bool, claim: str) -> None:
    """Prints a claim if it holds.

    Raises:
        ValueError: the claim does not hold.
    """
    if not holds:
        raise ValueError(f"this does not hold: {claim}")
    print(f"  {claim}")


def count_parameters(config: AlbertConfig) -> dict[str, int]:
    """Returns the number of weights in each variable of an encoder."""
    import tensorflow as tf

    from albert_tf.checkpoints.weight_names import variable_name
    from albert_tf.model.modeling import AlbertEncoder

    with tf.Graph().as_default():  # does not allocate memory for variables
        variables = AlbertEncoder(config).trainable_variables
        return {variable_name(variable): math.prod(variable.shape) for variable in variables}


def check_embeddings() -> None:
    """Checks factorized embedding parameters: V·E + E·H instead of V·H."""
    print("1. Factorized embedding parameters (xxlarge)")
    config = AlbertConfig.from_json_file(XXLARGE)
    V, E, H = config.vocab_size, config.embedding_size, config.hidden_size  # noqa: N806
    sizes = count_parameters(config)
    factors = [
        sizes["bert/embeddings/word_embeddings"],
        sizes["bert/encoder/embedding_hidden_mapping_in/kernel"],
    ]
    check(factors == [V * E, E * H], f"the model has V·E + E·H = {V * E:,} + {E * H:,} weights")
    check(sum(factors) * 28 < V * H, f"which is less than V·H = {V * H:,} by a factor of 28")


def check_sharing() -> None:
    """Checks cross-layer parameter sharing: the size does not depend on the number of layers."""
    print("2. Cross-layer parameter sharing")
    size = {}
    for layers, groups in ((1, 1), (NUM_LAYERS, 1), (NUM_LAYERS, NUM_LAYERS)):
        config = AlbertConfig(
            vocab_size=30000,
            hidden_size=1024,
            num_attention_heads=16,
            intermediate_size=3072,
            num_hidden_layers=layers,
            num_hidden_groups=groups,
        )
        counts = count_parameters(config).items()
        size[layers, groups] = sum(n for name, n in counts if "/transformer/" in name)
    shared = size[NUM_LAYERS, 1]
    alone = size[NUM_LAYERS, NUM_LAYERS]
    check(shared == size[1, 1] == LAYER_SIZE, f"12 layers have the {shared:,} weights of one layer")
    check(alone == NUM_LAYERS * shared, f"and {alone:,} weights if each layer has its own")


def pairs_of(documents: list[list[str]]) -> Iterator[tuple[str, str, int]]:
    """Yields the segments A and B of each instance, with its label."""
    words = [BasicTokenizer().tokenize(line) for lines in documents for line in lines]
    vocabulary = ["[PAD]", "[UNK]", *SPECIAL_TOKENS, *sorted(set().union(*words))]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "vocab.txt")
        with files.write_atomically(path) as stream:
            stream.writelines(f"{word}\n" for word in vocabulary)
        tokenizer = FullTokenizer(path)
    settings = InstanceSettings(masked_lm_prob=0, short_seq_prob=0, dupe_factor=20)
    table = tokenized_documents.word_start_table(tokenizer.pieces, tokenizer.is_sentencepiece)
    tokens = tokenized_documents.tokenize_documents(documents, tokenizer, table)
    for batch in instances.create_batches(tokens, settings, tokenizer, (0, 0)):
        for row in range(len(batch["input_ids"])):
            yield _segments(batch, row, tokenizer)


def _segments(
    batch: dict[str, NDArray[Any]], row: int, tokenizer: FullTokenizer
) -> tuple[str, str, int]:
    in_use = batch["input_mask"][row] == 1
    ids = batch["input_ids"][row][in_use]
    segments = batch["segment_ids"][row][in_use]
    first, second = (
        "".join(tokenizer.convert_ids_to_tokens(ids[segments == segment].tolist()))
        for segment in (0, 1)
    )
    label = int(batch["next_sentence_labels"][row, 0])
    return first.removeprefix("[CLS]").removesuffix("[SEP]"), second.removesuffix("[SEP]"), label


def check_sentence_order() -> None:
    """Checks sentence-order prediction: two segments in order, or swapped."""
    print("3. Sentence order prediction (data/sample_zh.txt)")
    text = files.read_text(SAMPLE)
    documents = [document.strip().split("\n")[:SENTENCES] for document in text.split("\n\n")]
    wholes = {"".join(BasicTokenizer().tokenize("".join(lines))) for lines in documents}
    pairs = list(pairs_of(documents))
    in_order = {(a, b) for a, b, label in pairs if label == 0}
    swapped = {(a, b) for a, b, label in pairs if label == 1}
    check(all(a + b in wholes for a, b in in_order), "with label 0, A is followed by B in the text")
    check(all(b + a in wholes for a, b in swapped), "with label 1, A and B are swapped")
    share = sum(label for *_, label in pairs) / len(pairs)
    check(0.4 < share < 0.6, f"of {len(pairs)} instances, {share:.1%} are swapped")
    a, b = min((a, b) for a, b in in_order if (b, a) in swapped)
    print(f"  0: [CLS] {a} [SEP] {b} [SEP]\n  1: [CLS] {b} [SEP] {a} [SEP]")


def run(settings: SettingsGroup) -> None:
    """Runs and prints all checks.

    Raises:
        ValueError: a claim does not hold.
    """
    check_embeddings()
    check_sharing()
    check_sentence_order()


if __name__ == "__main__":
    console.start(SettingsGroup, run, __doc__)
