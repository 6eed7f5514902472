import json

import numpy as np
import pytest

from albert_tf.squad import windows
from albert_tf.squad.reading import SquadExample, read_squad, shuffled
from albert_tf.squad.windows import WindowSettings, make_features
from albert_tf.tokenization import FullTokenizer
from tests.squad.test_alignment import ACCENTED, WordTokenizer

LETTERS = "a b c d e f g h i j"


def example(context=LETTERS, question="q", answer="", start=-1, qas_id="q1", **overrides):
    answers = (answer,) if answer else ()
    return SquadExample(qas_id, question, context, answers, start, **overrides)


def is_max_context(features, row):
    """Returns a column by position in the sequence, as in Google's features."""
    begin = int(features.query_lengths[row]) + 2
    window = features.is_max_context[slice(*features.window_offsets[row : row + 2])]
    return {begin + place: bool(value) for place, value in enumerate(window)}


def test_a_feature_is_identical_to_googles():
    question = example(ACCENTED, "Cost now?", "costs ½?", 10)
    settings = WindowSettings(max_seq_length=16, doc_stride=5, max_query_length=7)
    features = make_features([question], WordTokenizer(), settings, is_training=True)
    assert len(features) == 1
    assert features.first_char.tolist() == [0, 1, 7, 9, 15, 18, 22, 25, 26]
    assert features.last_char.tolist() == [0, 6, 8, 14, 17, 21, 24, 25, 28]
    batch = features.batch(np.array([0]), 16)
    assert batch["segment_ids"][0].tolist() == [0] * 4 + [1] * 10 + [0] * 2
    assert batch["p_mask"][0].tolist() == [0, 1, 1, 1] + [0] * 9 + [1, 1, 1]
    assert (batch["start_positions"][0], batch["end_positions"][0]) == (7, 8)
    assert batch["input_ids"][0, [0, 3, 13]].tolist() == [2, 3, 3]


def test_windows_overlap_as_in_googles_program():
    question = example(answer="f g", start=10)
    settings = WindowSettings(max_seq_length=9, doc_stride=3, max_query_length=2)
    features = make_features([question], WordTokenizer(), settings, is_training=True)
    assert features.window_lengths.tolist() == [5, 5, 4]
    assert features.last_char[features.window_offsets[:-1]].tolist() == [0, 6, 12]
    assert [is_max_context(features, row) for row in range(3)] == [
        {3: True, 4: True, 5: True, 6: True, 7: False},
        {3: False, 4: True, 5: True, 6: True, 7: False},
        {3: False, 4: True, 5: True, 6: True},
    ]
    targets = zip(features.start_positions, features.end_positions, features.is_impossible)  # noqa: B905
    # The first window lacks the "g", the last the "f".
    assert [tuple(map(int, target)) for target in targets] == [(0, 0, 1), (5, 6, 0), (0, 0, 1)]
    assert features.doc_span_index.tolist() == [0, 1, 2]
    assert features.unique_ids.tolist() == [1000000000, 1000000001, 1000000002]


def test_an_unanswerable_question_is_labeled_at_the_first_token():
    features = make_features(
        [example(is_impossible=True)], WordTokenizer(), WindowSettings(), is_training=True
    )
    assert features.start_positions.tolist() == features.end_positions.tolist() == [0]
    assert features.is_impossible.tolist() == [1]
    # For prediction, labels are unknown.
    features = make_features(
        [example(is_impossible=True)], WordTokenizer(), WindowSettings(), is_training=False
    )
    assert features.is_impossible.tolist() == [0]


@pytest.mark.parametrize("stride", [1, 3, 5, 100])
def test_each_piece_has_its_maximum_context_in_exactly_one_window(stride):
    settings = WindowSettings(max_seq_length=11, doc_stride=stride, max_query_length=3)
    question = example(question="q r s t u")
    tokenizer = WordTokenizer()
    features = make_features([question], tokenizer, settings, is_training=False)
    assert features.query_lengths.tolist() == [3] * len(features)  # cut
    assert features.lengths.max() == 11
    assert set(features.last_char.tolist()) == set(range(0, 20, 2))
    chosen = features.last_char[features.is_max_context].tolist()
    assert sorted(chosen) == list(range(0, 20, 2))


def test_questions_keep_their_order_and_share_a_context():
    other = "k l m n o p"
    questions = [
        example(qas_id=str(number), context=(LETTERS, other, LETTERS + " k")[number % 3])
        for number in range(7)
    ]
    settings = WindowSettings(max_seq_length=9, doc_stride=3, max_query_length=2)
    features = make_features(questions, WordTokenizer(), settings, is_training=False)
    assert features.example_index.tolist() == sorted(features.example_index.tolist())
    assert set(features.example_index.tolist()) == set(range(7))
    alone = make_features(questions[1:2], WordTokenizer(), settings, is_training=False)
    rows = features.example_index == 1
    np.testing.assert_array_equal(features.lengths[rows], alone.lengths)


@pytest.fixture
def warnings(monkeypatch):
    lines = []
    monkeypatch.setattr(windows.logging, "warning", lambda text, *args: lines.append(text % args))
    return lines


def test_questions_without_features_are_reported(warnings):
    questions = [
        example(qas_id="good"),
        example("", qas_id="empty"),
        example(" \n", qas_id="blank"),
        example("한국어", qas_id="lost"),
    ]
    features = make_features(questions, WordTokenizer(), WindowSettings(), is_training=False)
    assert set(features.example_index.tolist()) == {0}
    assert "3 of 4 questions are skipped" in warnings[0]
    assert warnings[0].endswith("empty, blank, lost")
    with pytest.raises(ValueError, match="none of 2 questions has features"):
        make_features(questions[1:3], WordTokenizer(), WindowSettings(), is_training=False)


def test_an_answer_removed_by_normalization_is_skipped_in_training(warnings):
    context = "cafe\u0301 and tea"
    lost = example(context, answer="\u0301", start=4, qas_id="lost")
    kept = example(context, answer="e\u0301", start=3, qas_id="kept")
    features = make_features([lost, kept], WordTokenizer(), WindowSettings(), is_training=True)
    assert features.example_index.tolist() == [1]
    assert features.start_positions.tolist() == [3]  # [CLS] q [SEP] cafe
    assert "1 of 2 questions" in warnings[0]
    both = make_features([lost, kept], WordTokenizer(), WindowSettings(), is_training=False)
    assert both.example_index.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"max_seq_length": 67}, "--max_seq_length=67 leaves no room .* expected 68 or more"),
        ({"max_seq_length": 9, "max_query_length": 6}, "expected 10 or more"),
    ],
)
def test_settings_that_leave_no_window_are_rejected(settings, expected):
    with pytest.raises(ValueError, match=expected):
        WindowSettings(**settings)


def test_a_very_long_context_has_all_its_windows():
    context = "\n".join(f"word{number % 97}  and" for number in range(1500))
    settings = WindowSettings(max_seq_length=101, doc_stride=48, max_query_length=7)
    features = make_features([example(context)], WordTokenizer(), settings, is_training=False)
    assert features.last_char.max() == len(context) - 1
    assert len(features) == -(-(3000 - (101 - 4)) // 48) + 1


def columns(features):
    return {name: column.tolist() for name, column in vars(features).items()}


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
    examples = shuffled(data.examples) if is_training else data.examples
    features = make_features(examples, tokenizer, settings, is_training)
    golden = np.load(folder / f"{version}_{split}_features.npz")
    assert len(features) == len(golden["unique_id"])
    batch = features.batch(np.arange(len(features)), settings.max_seq_length)
    ours = vars(features) | batch
    names = {
        "unique_ids": "unique_id",
        "doc_span_index": "doc_span_index",
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
    for row in range(len(features)):
        for name, value in official_features(features, row).items():
            assert value == json.loads(str(golden[name][row])), (name, row)


def test_answers_are_recovered_from_their_pieces_in_published_data(shared):
    """All answers of Chinese data with WordPiece, which Google's program does not support."""
    tokenizer = FullTokenizer(str(shared / "vocab" / "vocab_chinese.txt"))
    path = str(shared / "data" / "cmrc2018" / "cmrc2018_trial.json")
    examples = read_squad(path, is_training=True).examples[:300]
    features = make_features(examples, tokenizer, WindowSettings(), is_training=True)
    begins = features.window_offsets[:-1] - features.query_lengths - 2
    found = set()
    for row in np.flatnonzero(features.is_impossible == 0):
        example = examples[features.example_index[row]]
        first = features.first_char[begins[row] + features.start_positions[row]]
        last = features.last_char[begins[row] + features.end_positions[row]]
        assert example.context[first : last + 1] == example.answers[0].strip()
        found.add(example.qas_id)
    assert len(found) > 295  # the other answers are longer than a window
