import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.finetuning import feature_cache
from albert_tf.finetuning.sequences import TokenSequences

MADE_OF = {"task": "toy", "labels": ["a", "b"], "text": "00ff"}
LENGTH = 11


def make_sequences(count=5, seed=5, labels=np.int32):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, LENGTH + 1, count)
    return TokenSequences.pack(
        [(rng.integers(1, 97, length).tolist(), int(length) // 2) for length in lengths],
        {"label_ids": (rng.integers(0, 9, count) * labels(1.3)).astype(labels)},
    )


def make_questions(count=4):
    rng = np.random.default_rng(5)
    sequences = []
    for number in range(count):
        for choice in range(3):
            length = 0 if choice == 2 and number % 2 else int(rng.integers(2, LENGTH + 1))
            sequences.append((rng.integers(1, 97, length).tolist(), length // 2))
    labels = np.arange(count, dtype=np.int32) % 2
    return TokenSequences.pack(sequences, {"label_ids": labels}, num_choices=3)


def assert_same(first, second):
    for name in ("input_ids", "sequence_lengths", "first_lengths"):
        ours, theirs = getattr(first, name), getattr(second, name)
        np.testing.assert_array_equal(ours, theirs, err_msg=name)
        assert ours.dtype == theirs.dtype
    assert first.num_choices == second.num_choices
    np.testing.assert_array_equal(first.columns["label_ids"], second.columns["label_ids"])
    assert first.columns["label_ids"].dtype == second.columns["label_ids"].dtype


@pytest.mark.parametrize(
    "features",
    [
        make_sequences(),
        make_sequences(count=feature_cache.EXAMPLES_AT_ONCE + 1),
        make_sequences(labels=np.float32),
        make_questions(),
    ],
    ids=["classes", "many", "scores", "choices"],
)
def test_what_is_saved_is_loaded(tmp_path, features):
    path = str(tmp_path / "toy.tf_record")
    feature_cache.save(path, features, LENGTH, MADE_OF)
    assert_same(feature_cache.load(path, MADE_OF, TokenSequences), features)


@pytest.mark.parametrize(("features", "width"), [(make_sequences(3), 11), (make_questions(), 33)])
def test_the_records_are_the_official_ones(tmp_path, features, width):
    path = str(tmp_path / "toy.tf_record")
    feature_cache.save(path, features, LENGTH, MADE_OF)
    examples = [
        tf.train.Example.FromString(record.numpy()).features.feature
        for record in tf.data.TFRecordDataset(path)
    ]
    assert len(examples) == len(features)
    batch = features.batch(np.arange(len(features)), LENGTH)
    for number, example in enumerate(examples):
        assert set(example) == {
            "input_ids",
            "input_mask",
            "segment_ids",
            "label_ids",
            "is_real_example",
        }
        assert example["is_real_example"].int64_list.value == [1]
        for name in ("input_ids", "input_mask", "segment_ids"):
            assert len(example[name].int64_list.value) == width
            assert example[name].int64_list.value == batch[name][number].ravel().tolist()


def test_the_scores_of_a_regression_are_floats(tmp_path):
    path = str(tmp_path / "toy.tf_record")
    features = make_sequences(3, labels=np.float32)
    feature_cache.save(path, features, LENGTH, MADE_OF)
    record = next(iter(tf.data.TFRecordDataset(path))).numpy()
    label = tf.train.Example.FromString(record).features.feature["label_ids"]
    assert label.float_list.value == [float(features.columns["label_ids"][0])]


def load_or_make(*args):
    return feature_cache.load_or_make(*args, TokenSequences)


class Maker:
    """Makes features, and counts how often."""

    def __init__(self, seed=5):
        self.count, self.seed = 0, seed

    def __call__(self):
        self.count += 1
        return make_sequences(seed=self.seed, labels=np.float32)


def test_features_are_made_once(tmp_path):
    path, make = str(tmp_path / "new" / "folder" / "toy.tf_record"), Maker()
    first = load_or_make(path, MADE_OF, LENGTH, make)
    second = load_or_make(path, MADE_OF, LENGTH, make)
    assert make.count == 1
    assert_same(first, second)


@pytest.mark.parametrize(
    ("changed", "length"),
    [({"text": "00fe"}, 11), ({"labels": ["b", "a"]}, 11), ({"new": 1}, 11), ({}, 13)],
)
def test_a_stale_cache_is_made_anew(tmp_path, changed, length):
    path, make = str(tmp_path / "toy.tf_record"), Maker(seed=6)
    load_or_make(path, MADE_OF, LENGTH, Maker())
    found = load_or_make(path, MADE_OF | changed, length, make)
    assert make.count == 1
    assert_same(found, make_sequences(seed=6, labels=np.float32))
    assert_same(load_or_make(path, MADE_OF | changed, length, make), found)
    assert make.count == 1


def test_features_made_by_an_older_program_are_made_anew(tmp_path, monkeypatch):
    path, make = str(tmp_path / "toy.tf_record"), Maker()
    load_or_make(path, MADE_OF, LENGTH, make)
    monkeypatch.setattr(feature_cache, "FORMAT", feature_cache.FORMAT + 1)
    load_or_make(path, MADE_OF, LENGTH, make)
    assert make.count == 2


@pytest.mark.parametrize("content", [b"", b"changed", None])
def test_a_record_file_that_changed_since_is_not_used(tmp_path, content):
    path, make = tmp_path / "toy.tf_record", Maker()
    load_or_make(str(path), MADE_OF, LENGTH, make)
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    load_or_make(str(path), MADE_OF, LENGTH, make)
    assert make.count == 2
    load_or_make(str(path), MADE_OF, LENGTH, make)
    assert make.count == 2


@pytest.mark.parametrize("beside", [None, "no JSON", '{"made_of": {}}', "[]"])
def test_a_file_of_another_program_is_left_as_it_is(tmp_path, beside):
    path, make = tmp_path / "toy.tf_record", Maker()
    path.write_bytes(b"precious")
    if beside is not None:
        (tmp_path / ("toy.tf_record" + feature_cache.SUFFIX)).write_text(beside)
    for count in (1, 2):
        load_or_make(str(path), MADE_OF, LENGTH, make)
        assert make.count == count
    assert path.read_bytes() == b"precious"


def test_without_a_name_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    load_or_make("", MADE_OF, LENGTH, Maker())
    assert not list(tmp_path.iterdir())


def test_the_file_beside_says_what_the_features_were_made_of(tmp_path):
    path = tmp_path / "toy.tf_record"
    load_or_make(str(path), MADE_OF, LENGTH, Maker())
    described = json.loads((tmp_path / ("toy.tf_record" + feature_cache.SUFFIX)).read_text())
    assert described["made_of"] == MADE_OF | {"format": 1, "max_seq_length": LENGTH}
    assert described["num_examples"] == 5
