import itertools

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import input_pipeline
from albert_tf.input_pipeline import RecordFile

FEATURES = {"number": tf.io.FixedLenFeature((1,), tf.int64)}


def write_numbers(path, numbers, compression=""):
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for number in numbers:
            feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[number]))
            example = tf.train.Example(features=tf.train.Features(feature={"number": feature}))
            writer.write(example.SerializeToString())


@pytest.fixture(name="files")
def make_files(tmp_path, monkeypatch):
    """Six files of different lengths; the records are numbered through."""
    monkeypatch.setattr(input_pipeline, "SHUFFLE_BLOCK", 7)
    start, paths = 0, []
    for i, length in enumerate((5, 19, 1, 11, 3, 8)):
        paths.append(str(tmp_path / f"{i}.tfrecord"))
        write_numbers(paths[-1], range(start, start + length), "GZIP" if i == 1 else "")
        start += length
    return input_pipeline.find_record_files(paths)


def take(files, count, seed=3, start=0, **kwargs):
    dataset = input_pipeline.training_dataset(files, FEATURES, 1, seed, start, **kwargs)
    return [int(batch["number"][0, 0]) for batch in itertools.islice(dataset, count)]


def test_the_lengths_of_files_are_found(files):
    assert [file.num_records for file in files] == [5, 19, 1, 11, 3, 8]
    assert [file.is_gzip for file in files] == [False, True, False, False, False, False]


def test_an_epoch_has_every_record_once(files):
    numbers = take(files, 3 * 47)
    for epoch in range(3):
        assert sorted(numbers[47 * epoch : 47 * (epoch + 1)]) == list(range(47))
    assert numbers[:47] != numbers[47:94]
    assert numbers[:47] != sorted(numbers[:47])


def test_going_on_at_any_record_is_as_going_through(files):
    through = take(files, 150)
    for start in [*range(0, 60, 4), 93, 101]:
        assert take(files, 9, start=start) == through[start : start + 9], start


def test_the_seed_decides_the_order(files):
    assert take(files, 47, seed=3) == take(files, 47, seed=3)
    assert take(files, 47, seed=3) != take(files, 47, seed=4)


def test_without_shuffling_files_come_in_order_and_repeat(files):
    assert take(files, 60, is_shuffled=False) == [*range(47), *range(13)]
    assert take(files, 9, start=44, is_shuffled=False) == [44, 45, 46, *range(6)]


def test_files_are_read_in_turns():
    for lengths in ([4], [2, 5, 1], [3, 3, 3, 3], [1, 9]):
        turns = itertools.zip_longest(*([i] * n for i, n in enumerate(lengths)))
        order = [i for turn in turns for i in turn if i is not None]
        for count in range(len(order)):
            taken, first = input_pipeline._read_in_turns(lengths, count)
            assert taken == [order[:count].count(i) for i in range(len(lengths))]
            rotated = [i % len(lengths) for i in range(first, first + len(lengths))]
            assert next(i for i in rotated if taken[i] < lengths[i]) == order[count]


def test_evaluation_reads_every_record_once_and_in_order(files):
    batches = list(input_pipeline.evaluation_dataset(files, FEATURES, 10))
    assert [len(batch["number"]) for batch in batches] == [10, 10, 10, 10, 7]
    numbers = np.concatenate([batch["number"][:, 0] for batch in batches])
    assert numbers.tolist() == list(range(47))
    assert numbers.dtype == np.int32


def test_a_batch_larger_than_the_data_is_refused(files):
    with pytest.raises(ValueError, match=r"--train_batch_size=48 .* 47 records in 6 file"):
        input_pipeline.check_batch_size(files, 48)


def test_empty_and_truncated_files_are_refused(tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="holds no record"):
        input_pipeline.find_record_files([str(path)])
    write_numbers(path, range(9))
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(ValueError, match=r"a\.tfrecord, record 9"):
        input_pipeline.find_record_files([str(path)])


def test_a_damaged_record_is_found(tmp_path):
    path = tmp_path / "a.tfrecord"
    write_numbers(path, range(9))
    files = input_pipeline.find_record_files([str(path)])
    content = bytearray(path.read_bytes())
    content[5 * len(content) // 9 + 20] ^= 1
    path.write_bytes(content)
    dataset = input_pipeline.evaluation_dataset(files, FEATURES, 2)
    with pytest.raises(ValueError, match=r"a\.tfrecord, record 6: damaged"):
        list(input_pipeline.batches(dataset, files))


def test_the_first_record_is_held_against_the_features(tmp_path):
    path = str(tmp_path / "a.tfrecord")
    write_numbers(path, [7])
    input_pipeline.check_features(path, FEATURES, {})
    wide = {"number": tf.io.FixedLenFeature((128,), tf.int64)}
    with pytest.raises(ValueError, match=r"number has 1 values, --max_seq_length=128 was given"):
        input_pipeline.check_features(path, wide, {"number": "max_seq_length"})
    with pytest.raises(ValueError, match="no feature 'other', but number"):
        input_pipeline.check_features(path, {"other": FEATURES["number"]}, {})


def test_a_metadata_file_among_the_inputs_is_passed_over(files, tmp_path):
    (tmp_path / "x.records.json").write_text('{"files": [], "settings": {}, "vocabulary": {}}')
    found = input_pipeline.find_record_files([files[0].path, str(tmp_path / "x.records.json")])
    assert found == [RecordFile(files[0].path, 5)]
