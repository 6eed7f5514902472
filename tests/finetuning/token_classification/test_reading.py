"""Sentences are read from columns, and bad lines are named."""

import pytest

from albert_tf.finetuning.token_classification import Settings
from albert_tf.finetuning.token_classification.reading import open_sentences
from albert_tf.finetuning.token_classification.sentences import Sentence

CONLL = """\
-DOCSTART- -X- -X- O

U.N. NNP I-NP I-ORG
official  NN  I-NP  O
Ekeus NNP I-NP I-PER

heads VBZ I-VP O


. . O O
"""
LABELS = ("B-LOC", "B-PER", "I-LOC", "I-PER", "O")


def settings_for(folder, **values):
    return Settings(data_dir=str(folder), output_dir="out", **values)


def read(folder, text, split="train", labels=(), name=None, **values):
    (folder / (name or f"{split}.txt")).write_bytes(text.encode())
    return open_sentences(settings_for(folder, **values), split, labels).read_all()


def test_conll_columns_are_read_sentence_by_sentence(tmp_path):
    data = read(tmp_path, CONLL)
    assert [s.tokens for s in data.examples] == [("U.N.", "official", "Ekeus"), ("heads",), (".",)]
    assert data.examples[0].labels == ("I-ORG", "O", "I-PER")
    assert [s.line for s in data.examples] == [3, 7, 10]
    chunks = read(tmp_path, CONLL, label_column=2, token_column=1)
    assert chunks.examples[0] == Sentence(3, ("NNP", "NN", "NNP"), ("I-NP",) * 3)


def test_chinese_has_one_character_per_line_and_an_ideographic_space_is_one(tmp_path):
    text = "\ufeff河\tB-LOC\r\n\u3000\tO\r\n\r\n船\tO\r\n"
    data = read(tmp_path, text, name="train.conll")
    assert [s.tokens for s in data.examples] == [("河", "\u3000"), ("船",)]
    assert data.examples[0].labels == ("B-LOC", "O")
    assert read(tmp_path, "\u3000 O\n河 O\n", "dev").examples[0].tokens == ("\u3000", "河")


@pytest.mark.parametrize(
    ("columns", "tokens", "labels"),
    [
        ({"token_column": 1, "label_column": 0}, ("b",), ("a",)),
        ({"token_column": -1, "label_column": 0}, ("c",), ("a",)),
        ({"token_column": -3, "label_column": 2}, ("a",), ("c",)),
        ({"token_column": 2, "label_column": -3}, ("c",), ("a",)),
    ],
)
def test_columns_are_counted_from_either_end(tmp_path, columns, tokens, labels):
    assert read(tmp_path, "a b c\n", **columns).examples == [Sentence(1, tokens, labels)]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"token_column": 3}, "no token in column 3 of 3"),
        ({"token_column": -4}, "no token in column -4 of 3"),
        ({"label_column": 3}, "no label in column 3 of 3"),
        ({"label_column": -4}, "no label in column -4 of 3"),
        ({"token_column": 2}, "no label in column -1 of 3"),  # the only column left is the token's
    ],
)
def test_a_column_beyond_the_first_or_the_last_is_named(tmp_path, columns, message):
    with pytest.raises(ValueError, match=f"line 1: {message}"):
        read(tmp_path, "a b c\n", **columns)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a O\nb\n", r"train\.txt, line 2: no label in column -1 of 1"),
        ("a O\n\n\tO\n", r"train\.txt, line 3: no token in column 0 of 2"),
        ("a O\nb B-PRE\n", r"line 2: unknown label 'B-PRE'; expected B-LOC, B-PER, "),
        ("a O\nb\n\nc O\nd B-PRE\n", r"line 2: no label .*\n.*txt, line 5: unknown label"),
        ("a\u00a0O\n", r"column -1 of 1, but a NO-BREAK SPACE \(U\+00A0\), which does not separ"),
    ],
)
def test_a_bad_line_is_named_with_its_number(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, text, labels=LABELS)


def test_a_line_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("albert_tf.files.reading.MAX_LINE", 100)
    with pytest.raises(ValueError, match=r"train\.txt, line 2: longer than"):
        read(tmp_path, "a B-X\n" + "a" * 101)


def test_a_test_file_may_lack_labels_but_not_tokens(tmp_path):
    data = read(tmp_path, "a\nb O\n\nc B-PRE\n", "test", LABELS)
    assert [s.labels for s in data.examples] == [(None, "O"), (None,)]
    assert not data.has_labels
    with pytest.raises(ValueError, match=r"line 2: no token"):
        read(tmp_path, "a O\n\tO\n", "test", LABELS)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a O\nb\n\nc B-PRE\n", "test.txt: predicted, but not evaluated: 2 of 3 have no known"),
        ("a\nb\n", ""),
        ("a O\nb O\n", ""),
    ],
)
def test_a_test_file_that_is_not_evaluated_says_so(tmp_path, caplog, text, said):
    read(tmp_path, text, "test", LABELS)
    assert said in caplog.text
    assert bool(said) == bool(caplog.messages)
