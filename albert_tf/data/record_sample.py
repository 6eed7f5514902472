"""Reads some of many pre-training records: the first ones of files that are evenly spaced.

The data programs shuffle the records of all files, so that the first ones of a file are as good as
any others, and nothing else of it is read.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator, Iterator

from albert_tf.data import records
from albert_tf.data.record_metadata import FoundRecords
from albert_tf.data.tf_example import Features, decode_example

MAX_FILES = 100


class RecordSample:
    """Some of the records of files, or all of them.

    Args:
        found: the files, with their metadata.
        max_records: how many records to read; 0 reads all.
    """

    def __init__(self, found: FoundRecords, max_records: int) -> None:
        paths = list(found)
        every = math.ceil(len(paths) / min(MAX_FILES, max_records)) if max_records else 1
        self._found = found
        self._paths = paths[::every]
        self._max_records = max_records
        self._is_whole = every == 1
        self._num_read = 0

    def read(self) -> Iterator[Features]:
        """Yields the features of the records.

        Raises:
            ValueError: a file is not a TFRecord file, or a record is not a pre-training record; the
                message names the file.
        """
        for number, path in enumerate(self._paths):
            left = self._max_records - self._num_read
            share = math.ceil(left / (len(self._paths) - number)) if self._max_records else None
            examples = _read_examples(path)
            for features in itertools.islice(examples, share):
                self._num_read += 1
                yield features
            self._is_whole &= next(examples, None) is None
            examples.close()

    def describe(self) -> str:
        """Returns what was read, after reading; "" if these are all records."""
        if self._is_whole:
            return ""
        counts = [info.instances for info in self._found.values() if info]
        known = f" of {sum(counts):,}" if len(counts) == len(self._found) else ""
        read, every = len(self._paths), len(self._found)
        return (
            f"A sample of {self._num_read:,}{known} records, the first ones of {read:,} of "
            f"{every:,} files; --max_records=0 reads all."
        )


def _read_examples(path: str) -> Generator[Features, None, None]:
    needed = set(records.FEATURES) - {"token_boundary"}  # albert_zh's records lack this feature
    for number, record in enumerate(records.read_records(path), 1):
        try:
            features = decode_example(record)
        except ValueError as error:
            raise ValueError(f"{path}, record {number}: {error}") from None
        if missing := sorted(needed - set(features)):
            names = ", ".join(missing)
            raise ValueError(
                f"{path}, record {number} is not a pre-training record: missing {names}"
            )
        yield features
