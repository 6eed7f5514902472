"""Tagging schemes, units of tokens, spans and their metrics."""

import pytest

from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.finetuning.token_classification.sentences import Sentence
from albert_tf.finetuning.token_classification.spans import find_spans, span_metrics
from albert_tf.finetuning.token_classification.tags import (
    TagFinder,
    Tags,
    cut,
    join_tokens,
    recorded_tags,
)


def find_tags(*sentences, is_raw=False):
    """Returns the tags of sentences with the given labels and arbitrary tokens."""
    finder, line = TagFinder(), 1
    for labels in map(str.split, sentences):
        finder.add(Sentence(line, ("word",) * len(labels), tuple(labels)))
        line += len(labels) + 1
    return finder.tags("train.txt", is_raw)


@pytest.mark.parametrize(
    "sentence",
    [
        "B-PER I-LOC O",
        "S-PER B-PER I-PER E-PER O",
        "B M E S",
        "U-PER B-LOC I-LOC L-LOC O",
        "W-PER B-LOC M-LOC E-LOC O",
    ],
)
def test_labels_of_all_schemes_mark_spans(sentence):
    assert find_tags(sentence) == Tags(tuple(sorted(sentence.split())))


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        (["O O"], r"train\.txt: 1 different labels \(O\), expected 2 to 1000"),
        (
            ["NN O", "VB"],
            r"line or row 1: label 'NN' is neither O nor one of B, E, .* --tag_scheme=raw",
        ),
        (["B-PER O", "-PER O"], "line or row 4: label '-PER' is neither"),
        *(([f"{label} O"], f"label '{label}'") for label in ("Q-PER", "O-PER", "B_PER")),
    ],
)
def test_labels_that_do_not_mark_spans_are_refused(sentences, message):
    with pytest.raises(ValueError, match=message):
        find_tags(*sentences)


@pytest.mark.parametrize(
    ("count", "is_valid"), [(1, False), (2, True), (1000, True), (1001, False)]
)
def test_there_are_two_to_a_thousand_labels(count, is_valid):
    labels = " ".join(["O", *(f"B-{number}" for number in range(count - 1))])
    if is_valid:
        assert len(find_tags(labels).labels) == count
        return
    with pytest.raises(ValueError, match=f"{count} different labels .* expected 2 to 1000"):
        find_tags(labels)


@pytest.mark.parametrize(
    ("task", "tags_of_model"),
    [
        ({"labels": ["O", "B-P"]}, Tags(("O", "B-P"))),
        ({"labels": ["O", "NN"]}, Tags(("O", "NN"), is_raw=True)),
        ({"labels": ["O"], "token_units": "characters"}, Tags(("O",), units="characters")),
        ({"labels": []}, None),
        ({"labels": ["O", "B-P"], "name": "classification"}, None),
    ],
)
def test_the_tags_of_a_model_are_those_of_its_record(tmp_path, task, tags_of_model):
    folder = RunFolder(str(tmp_path))
    folder.write_record(RunRecord(task={"name": "token_classification"} | task))
    assert recorded_tags(folder) == tags_of_model


@pytest.mark.parametrize(
    ("sentences", "units"),
    [
        ([["ab", "c", "d", "在"]], "characters"),  # as much evidence of words as of characters
        ([["ab", "cd", "e", "f"]], "words"),
        ([["a"], ["b"]], "characters"),
        (["他在1987年买abf"], "characters"),
        (["他在北京"], "characters"),  # no letter or digit tells
        ([["他", "在", "1987", "年", "买", "abf"]], "words"),
        (["U.N. official Ekeus heads for Baghdad .".split(), ["a", "b"]], "words"),
        (["他在1987年", "买了一个", ["QQ", "群"]], "characters"),  # one token that was left whole
    ],
)
def test_the_units_of_the_training_data_are_found(sentences, units):
    finder = TagFinder()
    for tokens in sentences:
        finder.add(Sentence(1, tuple(tokens), ("O",) * len(tokens)))
    assert finder.units == units


def test_tokens_are_joined_as_they_were_cut():
    assert join_tokens("在 New York 的".split(), "words") == "在New York的"
    assert join_tokens("1 9 8 7".split(), "characters") == "1987"
    assert join_tokens(["在a", "b"], "words") == "在a b"
    assert join_tokens(["a在", "b", "c在"], "words") == "a在b c在"
    assert join_tokens([], "words") == ""


def test_raw_text_is_cut_like_the_training_data():
    text = " U.N. 在1 9"
    assert cut(text, "characters") == [
        *(("U", 1), (".", 2), ("N", 3), (".", 4), ("在", 6), ("1", 7), ("9", 9))
    ]
    assert [word for word, _ in cut(text, "words")] == ["U.N", ".", "在", "1", "9"]
    assert cut("U.N. 19", "words") == [("U.N", 0), (".", 3), ("19", 5)]


@pytest.mark.parametrize(
    ("labels", "spans"),
    [
        # IOB2.
        ("B-P I-P O B-L B-L", [("P", 0, 2), ("L", 3, 4), ("L", 4, 5)]),
        # IOB1: a span starts with I; with B only if it directly follows one of the same type.
        ("I-P I-P B-P I-L O I-L", [("P", 0, 2), ("P", 2, 3), ("L", 3, 4), ("L", 5, 6)]),
        # BIOES.
        ("S-P B-P I-P E-P S-L O", [("P", 0, 1), ("P", 1, 4), ("L", 4, 5)]),
        # BMES, and without types, as in word segmentation.
        ("B-P M-P M-P E-P O S-L", [("P", 0, 4), ("L", 5, 6)]),
        ("B M E S B E", [("", 0, 3), ("", 3, 4), ("", 4, 6)]),
        # BILOU and BMEWO.
        ("U-P B-P I-P L-P U-L O", [("P", 0, 1), ("P", 1, 4), ("L", 4, 5)]),
        ("B-P L-P L-P U-P", [("P", 0, 2), ("P", 2, 3), ("P", 3, 4)]),
        ("W-P B-P M-P E-P W-L", [("P", 0, 1), ("P", 1, 4), ("L", 4, 5)]),
        # Invalid sequences: a change of type, an end without a start, a continuation after an end.
        ("B-P I-L", [("P", 0, 1), ("L", 1, 2)]),
        ("O E-P O", [("P", 1, 2)]),
        ("B-P E-P I-P E-P E-P", [("P", 0, 2), ("P", 2, 4), ("P", 4, 5)]),
        ("S-P I-P B-P", [("P", 0, 1), ("P", 1, 2), ("P", 2, 3)]),
        ("B-P O", [("P", 0, 1)]),
        ("B-GPE-X I-GPE-X", [("GPE-X", 0, 2)]),
        ("O O B-P", [("P", 2, 3)]),
        ("O O", []),
        ("", []),
    ],
)
def test_spans_are_those_of_conlleval(labels, spans):
    assert find_spans(labels.split()) == spans


def test_raw_labels_are_separate_spans():
    spans = [("B-P", 0, 1), ("I-P", 1, 2), ("NN", 3, 4)]
    assert find_spans("B-P I-P O NN".split(), is_raw=True) == spans


def test_metrics_are_those_computed_by_hand():
    gold = ["B-P I-P O B-L O".split(), "B-L I-L".split()]
    guess = ["B-P I-P O B-P O".split(), "B-L O".split()]
    # Predicted: P 0-2 (correct), P 3-4 (wrong type), L 0-1 (too short). Gold: P, L, L.
    assert span_metrics(gold, guess) == pytest.approx(
        {
            **{"precision": 1 / 3, "recall": 1 / 3, "f1": 1 / 3, "accuracy": 5 / 7},
            **{"precision_P": 1 / 2, "recall_P": 1, "f1_P": 2 / 3},
            **{"precision_L": 0, "recall_L": 0, "f1_L": 0},
        }
    )


def test_metrics_without_spans_are_zero():
    nothing = {"precision": 0.0, "recall": 0.0, "f1": 0.0}
    of_p = {f"{name}_P": 0.0 for name in nothing}
    assert span_metrics([["O"]], [["O"]]) == {**nothing, "accuracy": 1.0}
    assert span_metrics([["B-P"]], [["O"]]) == {**nothing, "accuracy": 0.0, **of_p}
    assert span_metrics([["O"]], [["B-P"]]) == {**nothing, "accuracy": 0.0, **of_p}


def test_a_span_is_correct_only_with_both_ends_and_in_its_own_sentence():
    gold = ["B-P I-P I-P".split(), ["O"] * 3]
    for guess in ("B-P I-P O", "O B-P I-P", "B-P I-P B-P"):
        assert span_metrics(gold, [guess.split(), ["O"] * 3])["f1"] == 0.0
    assert span_metrics(gold, [gold[1], gold[0]])["f1"] == 0.0
    assert span_metrics(gold, gold) == dict.fromkeys(
        ["precision", "recall", "f1", "accuracy", "precision_P", "recall_P", "f1_P"], 1.0
    )
    raw = span_metrics([["NN", "VB"]], [["NN", "NN"]], is_raw=True)
    assert (raw["precision"], raw["precision_NN"], raw["recall_VB"]) == (0.5, 0.5, 0.0)


def test_a_label_that_may_stand_for_none_is_said(caplog):
    assert find_tags("NOUN VERB", is_raw=True).labels == ("NOUN", "VERB")
    assert not caplog.messages
    assert find_tags("NOUN VERB", "_ NOUN", is_raw=True).labels[-1] == "_"
    assert "train.txt, sentence at line or row 4: '_' is taken as a label" in caplog.text
