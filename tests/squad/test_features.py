import dataclasses

import numpy as np
import pytest

from albert_tf.finetuning import feature_cache
from albert_tf.squad.features import SquadFeatures, concatenate

MADE_OF = {"data": "00ff", "doc_stride": 3}


def make_features(lengths=(9, 7, 11, 6, 10), queries=(2, 3, 1, 2, 4), first_example=0):
    """Five windows; the ids of a row are 100 and more, 200 and more, …"""
    windows = [length - query - 3 for length, query in zip(lengths, queries, strict=True)]
    ids = [100 * row + np.arange(length) for row, length in enumerate(lengths, 1)]
    chars = [1000 * row + 2 * np.arange(size) for row, size in enumerate(windows, 1)]
    rows = np.arange(len(lengths), dtype=np.int32)
    return SquadFeatures(
        example_index=rows // 2 + np.int32(first_example),
        doc_span_index=rows % 2,
        lengths=np.array(lengths, np.int32),
        query_lengths=np.array(queries, np.int32),
        input_ids=np.concatenate(ids).astype(np.int32),
        first_char=np.concatenate(chars).astype(np.int32),
        last_char=np.concatenate(chars).astype(np.int32) + np.int32(1),
        is_max_context=np.arange(sum(windows)) % 3 > 0,
        start_positions=rows + np.int32(1),
        end_positions=rows + np.int32(2),
        is_impossible=rows % 2,
    )


def assert_same(first, second):
    for name, column in vars(first).items():
        other = getattr(second, name)
        np.testing.assert_array_equal(column, other, err_msg=name)
        assert column.dtype == other.dtype, name


def test_a_batch_has_question_window_and_padding():
    features = make_features()
    batch = features.batch(np.array([3, 0]), seq_length=12)
    assert batch["unique_ids"].tolist() == [1000000003, 1000000000]
    assert batch["input_ids"].tolist() == [
        [400, 401, 402, 403, 404, 405, 0, 0, 0, 0, 0, 0],
        [100, 101, 102, 103, 104, 105, 106, 107, 108, 0, 0, 0],
    ]
    # [CLS] question question [SEP] window [SEP]
    assert batch["input_mask"].tolist() == [[1] * 6 + [0] * 6, [1] * 9 + [0] * 3]
    assert batch["segment_ids"].tolist() == [
        [0] * 4 + [1] * 2 + [0] * 6,
        [0] * 4 + [1] * 5 + [0] * 3,
    ]
    assert batch["p_mask"].tolist() == [
        [0, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1],
        [0, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1],
    ]
    assert batch["start_positions"].tolist() == [4, 1]
    assert batch["end_positions"].tolist() == [5, 2]
    assert batch["is_impossible"].tolist() == [1, 0]
    types = {value.dtype.name for name, value in batch.items() if name != "unique_ids"}
    assert types == {"int32"}


def test_padding_further_changes_only_the_padding():
    features = make_features()
    rows = np.arange(5)
    short, long = features.batch(rows, 11), features.batch(rows, 17)
    for name in ("input_ids", "input_mask", "segment_ids", "p_mask"):
        np.testing.assert_array_equal(short[name], long[name][:, :11])
        assert np.all(long[name][:, 11:] == (name == "p_mask"))


def test_rows_are_taken_with_all_that_belongs_to_them():
    features = make_features()
    rows = np.array([4, 1, 1, 2])
    taken = features.take(rows)
    np.testing.assert_array_equal(
        taken.batch(np.arange(4), 11)["input_ids"], features.batch(rows, 11)["input_ids"]
    )
    for place, row in enumerate(rows):
        for name in ("first_char", "last_char", "is_max_context"):
            ours = getattr(taken, name)[slice(*taken.window_offsets[place : place + 2])]
            theirs = getattr(features, name)[slice(*features.window_offsets[row : row + 2])]
            np.testing.assert_array_equal(ours, theirs)
    assert len(features.take(np.array([], np.int64))) == 0


def test_parts_put_together_are_the_whole():
    features = make_features()
    parts = [features.take(np.arange(begin, end)) for begin, end in ((0, 2), (2, 2), (2, 5))]
    assert_same(concatenate(parts), features)


OFFICIAL = {"unique_ids", "input_ids", "input_mask", "segment_ids", "p_mask"}
LABELS = {"start_positions", "end_positions", "is_impossible"}


def without_labels(features):
    zeros = dict.fromkeys(LABELS, np.zeros(len(features), np.int32))
    return dataclasses.replace(features, **zeros)


def test_records_for_training_are_the_official_ones():
    features = make_features()
    block = features.to_records(np.arange(5), seq_length=13)
    assert set(block) == OFFICIAL | LABELS
    assert {name: value.shape for name, value in block.items()} == {
        name: (5, 13 if name.endswith(("mask", "_ids")) and name != "unique_ids" else 1)
        for name in block
    }
    found = SquadFeatures.from_records([block], {})
    batch, other = (x.batch(np.arange(5), 13) for x in (features, found))
    for name, value in batch.items():
        np.testing.assert_array_equal(value, other[name])


def test_records_for_prediction_hold_the_way_back_to_the_text():
    features = without_labels(make_features())
    rows = [np.array([0, 1]), np.array([2, 3, 4])]
    blocks = [features.to_records(part, seq_length=13) for part in rows]
    assert set(blocks[0]) == OFFICIAL | {
        *("example_index", "doc_span_index", "first_char", "last_char", "is_max_context")
    }
    assert_same(SquadFeatures.from_records(blocks, features.layout), features)
    assert LABELS.isdisjoint(features.batch(np.arange(5), 11))


@pytest.mark.parametrize("train", [True, False])
def test_features_come_back_from_their_file(tmp_path, train):
    path = str(tmp_path / "features.tf_record")
    features = make_features() if train else without_labels(make_features())
    assert feature_cache.load(path, MADE_OF, SquadFeatures) is None
    feature_cache.save(path, features, 13, MADE_OF)
    found = feature_cache.load(path, MADE_OF, SquadFeatures)
    for name in ("input_ids", "query_lengths", "lengths", "start_positions", "is_impossible"):
        np.testing.assert_array_equal(getattr(found, name), getattr(features, name))
    if not train:
        assert_same(found, features)
    assert feature_cache.load(path, MADE_OF | {"doc_stride": 4}, SquadFeatures) is None


def test_the_columns_are_those_of_the_documentation():
    documented = SquadFeatures.__doc__
    for field in dataclasses.fields(SquadFeatures):
        assert field.name in documented
