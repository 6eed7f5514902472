"""Contexts are split into windows as in Google's program."""

import json

import numpy as np
import pytest

from albert_tf.finetuning.squad import windows
from albert_tf.finetuning.squad.questions import SquadExample
from albert_tf.finetuning.squad.reading import read_squad
from albert_tf.finetuning.squad.settings import WindowSettings
from albert_tf.finetuning.squad.windows import make_features
from albert_tf.model.tokenization import FullTokenizer
from tests.finetuning.squad.word_tokenizer import WordTokenizer

LETTERS = "a b c d e f g h i j"


def example(context=LETTERS, question="q", answer="", start=-1, qas_id="q1", **overrides):
    answers = (answer,) if answer else ()
    return SquadExample(qas_id, question, context, answers, start, **overrides)


def is_max_context(features, row):
    """Returns a column by position in the sequence, as in Google's features."""
    begin = int(features.query_lengths[row]) + 2
    window = features.is_max_context[slice(*features.window_offsets[row : row + 2])]
    return {begin + place: bool(value) for place, value in enumerate(window)}


def test_windows_overlap_and_are_padded_as_in_googles_program():
    question = example(answer="f g", start=10)
    settings = WindowSettings(max_seq_length=9, doc_stride=3, max_query_length=2)
    features = make_features([question], WordTokenizer(), settings, is_training=True)
    assert features.window_lengths.tolist() == [5, 5, 4]
    predicted = make_features([question], WordTokenizer(), settings, is_training=False)
    assert predicted.last_char[predicted.window_offsets[:-1]].tolist() == [0, 6, 12]
    assert [is_max_context(predicted, row) for row in range(3)] == [
        {3: True, 4: True, 5: True, 6: True, 7: False},
        {3: False, 4: True, 5: True, 6: True, 7: False},
        {3: False, 4: True, 5: True, 6: True},
    ]
    # The first window lacks the "g", the last the "f".
    assert {name: column.tolist() for name, column in features.sequences.columns.items()} == {
        "start_positions": [0, 5, 0],
        "end_positions": [0, 6, 0],
        "is_impossible": [1, 0, 1],
    }
    batch = features.batch(np.array([2, 1]), seq_length=11)
    # [CLS] question [SEP] window [SEP], where the words of the context have the ids from 5 on
    assert {name: values.tolist() for name, values in batch.items()} == {
        "input_ids": [
            [2, 15, 3, 11, 12, 13, 14, 3, 0, 0, 0],
            [2, 15, 3, 8, 9, 10, 11, 12, 3, 0, 0],
        ],
        "input_mask": [[1] * 8 + [0] * 3, [1] * 9 + [0] * 2],
        "segment_ids": [[0] * 3 + [1] * 5 + [0] * 3, [0] * 3 + [1] * 6 + [0] * 2],
        "p_mask": [[0, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1], [0, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1]],
        "start_positions": [0, 5],
        "end_positions": [0, 6],
        "is_impossible": [1, 0],
    }
    assert {value.dtype.name for value in batch.values()} == {"int32"}


@pytest.mark.parametrize(
    ("max_seq_length", "doc_stride", "sizes", "starts"),
    [
        (15, 3, [10], [0]),  # [CLS] 2 tokens [SEP] 10 tokens [SEP]
        (14, 3, [9, 7], [0, 3]),
        (14, 1, [9, 9], [0, 1]),
        (14, 9, [9, 1], [0, 9]),  # no overlap
        (14, 99, [9, 1], [0, 9]),  # no gap
        (10, 5, [5, 5], [0, 5]),
        (10, 4, [5, 5, 2], [0, 4, 8]),
    ],
)
def test_a_context_that_fits_exactly_is_one_window(max_seq_length, doc_stride, sizes, starts):
    settings = WindowSettings(max_seq_length, doc_stride, max_query_length=2)
    features = make_features(
        [example(question="q r")], WordTokenizer(), settings, is_training=False
    )
    assert features.window_lengths.tolist() == sizes
    # Two characters for each token of the context.
    begins = features.last_char[features.window_offsets[:-1]]
    assert begins.tolist() == [2 * start for start in starts]
    assert features.lengths.tolist() == [size + 5 for size in sizes]


@pytest.mark.parametrize(("max_query_length", "length"), [(1, 1), (2, 2), (3, 3), (4, 3)], ids=str)
def test_a_question_of_exactly_the_maximum_length_is_kept(max_query_length, length):
    settings = WindowSettings(31, 128, max_query_length)
    features = make_features([example(question="q r s")], WordTokenizer(), settings, False)
    assert features.query_lengths.tolist() == [length]
    assert features.window_lengths.tolist() == [10]
    tokenizer = WordTokenizer()
    ids = tokenizer.encode_batch([LETTERS, "q r s"])[1]
    made = make_features([example(question="q r s")], tokenizer, settings, False)
    assert made.sequences.input_ids[1 : 2 + length].tolist() == [*ids[:length], 3]


@pytest.mark.parametrize(
    ("answer", "start", "places"),
    [
        ("a", 0, [(3, 3), (0, 0), (0, 0)]),  # the first token of the first window
        ("e", 8, [(7, 7), (4, 4), (0, 0)]),  # the last one
        ("f", 10, [(0, 0), (5, 5), (0, 0)]),  # the one after it
        ("d e f g h", 6, [(0, 0), (3, 7), (0, 0)]),  # a whole window
        ("c d e f g h", 4, [(0, 0), (0, 0), (0, 0)]),  # more than one
        ("j", 18, [(0, 0), (0, 0), (6, 6)]),  # the last token of all
    ],
)
def test_the_answer_is_in_the_windows_that_have_all_of_it(answer, start, places):
    settings = WindowSettings(max_seq_length=9, doc_stride=3, max_query_length=2)
    question = example(answer=answer, start=start)
    columns = make_features([question], WordTokenizer(), settings, True).sequences.columns
    starts, ends = columns["start_positions"].tolist(), columns["end_positions"].tolist()
    assert list(zip(starts, ends, strict=True)) == places
    assert columns["is_impossible"].tolist() == [int(place == (0, 0)) for place in places]


def test_the_first_of_equal_contexts_is_the_maximum():
    # Windows abcd, bcde and cdef, whose tokens have a context of 0, 1, 1 and 0 tokens.
    settings = WindowSettings(max_seq_length=8, doc_stride=1, max_query_length=2)
    features = make_features([example("a b c d e f")], WordTokenizer(), settings, False)
    assert features.is_max_context.astype(int).tolist() == [1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1, 1]


def test_a_hundred_tokens_of_a_window_count_as_one_of_context():
    # Windows of 300 and 150 tokens, the second from token 200 on. Token 250 has a context of 49
    # tokens in the first and of 50 in the second, which is shorter by more than a hundred.
    settings = WindowSettings(max_seq_length=304, doc_stride=200, max_query_length=2)
    features = make_features([example("a " * 350)], WordTokenizer(), settings, False)
    first, second = np.split(features.is_max_context, [300])
    assert np.flatnonzero(~first).tolist() == list(range(251, 300))
    assert np.flatnonzero(second).tolist() == list(range(251 - 200, 150))


def test_questions_without_features_are_reported(caplog):
    names = {"good": LETTERS, "empty": "", "blank": " \n", "lost": "\u0301"}
    questions = [example(context, qas_id=name) for name, context in names.items()]
    features = make_features(questions, WordTokenizer(), WindowSettings(), is_training=False)
    assert set(features.example_index.tolist()) == {0}
    (line,) = caplog.messages
    assert "3 of 4 questions are skipped" in line
    assert line.endswith("empty, blank, lost")
    with pytest.raises(ValueError, match="none of 2 questions has features"):
        make_features(questions[1:3], WordTokenizer(), WindowSettings(), is_training=False)


def test_an_answer_removed_by_normalization_is_skipped_in_training():
    context = "cafe\u0301 and tea"
    lost = example(context, answer="\u0301", start=4)
    kept = example(context, answer="e\u0301", start=3)
    features = make_features([lost, kept], WordTokenizer(), WindowSettings(), is_training=True)
    assert features.example_index.tolist() == [1]
    assert features.sequences.columns["start_positions"].tolist() == [3]  # [CLS] q [SEP] cafe
    both = make_features([lost, kept], WordTokenizer(), WindowSettings(), is_training=False)
    assert both.example_index.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"max_seq_length": 67}, "--max_seq_length=67 leaves no room .* expected 68 or more"),
        ({"max_seq_length": 9, "max_query_length": 6}, "expected 10 or more"),
    ],
)
def test_settings_that_leave_no_window_are_refused(settings, expected):
    with pytest.raises(ValueError, match=expected):
        WindowSettings(**settings)
    settings["max_seq_length"] += 1
    assert WindowSettings(**settings).max_seq_length == settings["max_seq_length"]


def columns(features):
    batch = features.batch(np.arange(len(features)), 31)
    offsets = {
        name: value
        for name, value in vars(features).items()
        if name not in ("sequences", "has_realigned")
    }
    return {name: column.tolist() for name, column in (batch | offsets).items()}


@pytest.mark.ci
def test_several_processes_create_the_same_features(toy_tokenizer, monkeypatch):
    monkeypatch.setattr(windows, "TASK_CHARS", 30)
    text = "A small boat waits at the landing, and nobody knows whose it is. "
    questions = [
        example(text * (1 + number % 3), "Whose boat?", "boat", 8, qas_id=str(number))
        for number in range(7)
    ]
    settings = WindowSettings(max_seq_length=31, doc_stride=11, max_query_length=7)
    one = make_features(questions, toy_tokenizer, settings, True, num_workers=1)
    two = make_features(questions, toy_tokenizer, settings, True, num_workers=2)
    assert columns(one) == columns(two)
    assert len(one) > 7


def official_features(features, row):
    window = slice(*features.window_offsets[row : row + 2])
    context = is_max_context(features, row)
    return {
        "tok_start_to_orig_index": features.first_char[window].tolist(),
        "tok_end_to_orig_index": features.last_char[window].tolist(),
        "token_is_max_context": {str(place): value for place, value in context.items()},
    }


@pytest.mark.ci
@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("split", ["train", "dev"])
def test_features_are_identical_to_googles_in_every_field(shared, version, split):
    folder = shared / "golden" / "tasks" / "squad"
    tokenizer = FullTokenizer(spm_model_file=str(shared / "vocab" / "30k-clean.model"))
    values = json.loads((folder / f"{version}_settings.json").read_text())
    settings = WindowSettings(*(values[name] for name in vars(WindowSettings())))
    is_training = split == "train"
    data = read_squad(str(folder / f"{version}_{split}.json"), is_training)
    features = make_features(data.examples, tokenizer, settings, is_training)
    features = features.in_training_order(len(data)) if is_training else features
    golden = np.load(folder / f"{version}_{split}_features.npz")
    assert len(features) == len(golden["unique_id"])
    batch = features.batch(np.arange(len(features)), settings.max_seq_length)
    ours = vars(features) | batch | {"lengths": features.lengths}
    names = {
        "lengths": "paragraph_len",
        **{name: name for name in ("input_ids", "input_mask", "segment_ids", "p_mask")},
    }
    if is_training:  # Google's training features do not have the index of their question
        names |= {"start_positions": "start_position", "end_positions": "end_position"}
        names |= {"is_impossible": "is_impossible"}
    else:
        names["example_index"] = "example_index"
    for name, official in names.items():
        np.testing.assert_array_equal(ours[name], golden[official], err_msg=name)
    if is_training:  # no answers are decoded
        assert len(features.first_char) == 0
        return
    for row in range(len(features)):
        for name, value in official_features(features, row).items():
            assert value == json.loads(str(golden[name][row])), (name, row)
