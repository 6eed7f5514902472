"""A WordPiece tokenizer of a few words, which the tests of several tasks use."""

import pytest

from albert_tf.model.tokenization import FullTokenizer

VOCABULARY = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] a b c d e f g h p q r s w x y z 1 ok what is the ? , boat "
    "riv ##er ##s 河 船"
).split()


def ids_of(text):
    """The ids of words and special tokens that are separated by spaces."""
    return [VOCABULARY.index(word) for word in text.split()]


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    return FullTokenizer(vocab_file=str(path))
