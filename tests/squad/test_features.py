import dataclasses

import numpy as np

from albert_tf.squad.features import SquadFeatures, concatenate


def make_features(lengths=(9, 7, 11, 6, 10), queries=(2, 3, 1, 2, 4), first_example=0):
    """Returns five windows; the ids of the rows start at 100, 200, …"""
    windows = [length - query - 3 for length, query in zip(lengths, queries, strict=True)]
    ids = [100 * row + np.arange(length) for row, length in enumerate(lengths, 1)]
    chars = [1000 * row + 2 * np.arange(size) for row, size in enumerate(windows, 1)]
    rows = np.arange(len(lengths), dtype=np.int32)
    return SquadFeatures(
        example_index=rows // 2 + np.int32(first_example),
        doc_span_index=rows % 2,
        lengths=np.array(lengths, np.int32),
        query_lengths=np.array(queries, np.int32),
        first_lengths=np.array(queries, np.int32) + np.int32(2),
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


def test_rows_are_selected_in_all_columns():
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


def test_concatenated_parts_equal_the_whole():
    features = make_features()
    parts = [features.take(np.arange(begin, end)) for begin, end in ((0, 2), (2, 2), (2, 5))]
    assert_same(concatenate(parts), features)


def test_the_columns_are_those_of_the_documentation():
    documented = SquadFeatures.__doc__
    for field in dataclasses.fields(SquadFeatures):
        assert field.name in documented
