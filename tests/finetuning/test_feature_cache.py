import numpy as np
import pytest

from albert_tf.data.tfrecord import frame_records
from albert_tf.finetuning import feature_cache
from albert_tf.finetuning.sequences import TokenSequences

LENGTH = 11
MADE_OF = {"max_seq_length": LENGTH, "task": "toy", "labels": ["a", "b"], "text": "00ff"}


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
    [make_sequences(), make_sequences(labels=np.float32), make_questions()],
    ids=["classes", "scores", "choices"],
)
def test_loading_restores_saved_features(tmp_path, features):
    path = str(tmp_path / "toy.npz")
    load_or_make(path, MADE_OF, lambda: features)
    assert_same(load_or_make(path, MADE_OF, None), features)


def load_or_make(*args):
    return feature_cache.load_or_make(*args, TokenSequences)


class Maker:
    """Creates features and counts the calls."""

    def __init__(self, seed=5):
        self.count, self.seed = 0, seed

    def __call__(self):
        self.count += 1
        return make_sequences(seed=self.seed, labels=np.float32)


def test_features_are_created_once(tmp_path):
    path, make = str(tmp_path / "new" / "folder" / "toy.npz"), Maker()
    first = load_or_make(path, MADE_OF, make)
    second = load_or_make(path, MADE_OF, make)
    assert make.count == 1
    assert_same(first, second)


@pytest.mark.parametrize(
    "changed", [{"text": "00fe"}, {"labels": ["b", "a"]}, {"new": 1}, {"max_seq_length": 13}]
)
def test_a_stale_cache_is_recreated(tmp_path, changed):
    path, make = str(tmp_path / "toy.npz"), Maker(seed=6)
    load_or_make(path, MADE_OF, Maker())
    found = load_or_make(path, MADE_OF | changed, make)
    assert make.count == 1
    assert_same(found, make_sequences(seed=6, labels=np.float32))
    assert_same(load_or_make(path, MADE_OF | changed, make), found)
    assert make.count == 1


def test_features_of_an_older_program_are_recreated(tmp_path, monkeypatch):
    path, make = str(tmp_path / "toy.npz"), Maker()
    load_or_make(path, MADE_OF, make)
    monkeypatch.setattr(feature_cache, "FORMAT", feature_cache.FORMAT + 1)
    load_or_make(path, MADE_OF, make)
    assert make.count == 2


def broken_cache(path):
    load_or_make(str(path), MADE_OF, Maker())
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    return bytes(content)


def shortened_cache(path):
    """Returns a cache in which the header of an array gives too short a length."""
    load_or_make(str(path), MADE_OF, Maker())
    content = path.read_bytes()
    assert b"'shape': (5,)" in content
    return content.replace(b"'shape': (5,)", b"'shape': (4,)")


def cache_with(**changes):
    """Returns a cache with some arrays replaced or removed."""

    def content(path):
        load_or_make(str(path), MADE_OF, Maker())
        with np.load(path) as opened:
            arrays = dict(opened) | changes
        with open(path, "wb") as stream:
            np.savez(stream, **{n: array for n, array in arrays.items() if array is not None})
        return path.read_bytes()

    return content


def zip_of_another_program(path):
    with open(path, "wb") as stream:
        np.savez(stream, weights=np.ones(5))
    return path.read_bytes()


def pickled_objects(path):
    with open(path, "wb") as stream:
        np.savez(stream, made_of=np.array([{}], object))
    return path.read_bytes()


@pytest.mark.parametrize(
    "content",
    [
        lambda path: b"",
        lambda path: b"precious",
        lambda path: b"".join(frame_records([b"a record of an official program"])),
        broken_cache,
        shortened_cache,
        zip_of_another_program,
        pickled_objects,
        cache_with(made_of=np.array("{")),
        cache_with(made_of=np.array("[]")),
        cache_with(made_of=np.ones((2, 3))),
        cache_with(num_choices=None),
        cache_with(**{"columns/label_ids": None}),
        cache_with(num_choices=np.ones(7)),
        cache_with(sequence_lengths=np.ones(7, np.int32)),
    ],
)
def test_a_file_that_is_not_a_cache_is_left_unchanged(tmp_path, caplog, content):
    path, make = tmp_path / "toy.npz", Maker()
    before = content(path)
    path.write_bytes(before)
    for count in (1, 2):
        assert_same(load_or_make(str(path), MADE_OF, make), make_sequences(labels=np.float32))
        assert make.count == count
    assert path.read_bytes() == before
    assert f"{path} is not a feature cache" in caplog.text


def test_a_cache_may_be_remote(tmp_path):
    path, make = f"file://{tmp_path}/folder/toy.npz", Maker()
    for _ in range(2):
        load_or_make(path, MADE_OF, make)
    assert make.count == 1


def test_without_a_name_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    load_or_make("", MADE_OF, Maker())
    assert not list(tmp_path.iterdir())
