"""The checksum of the contents of record files, which finds what their metadata do not tell.

Metadata, size and first record of a file stay as they are when somebody exchanges records behind
the first one. So the bytes are compared as well: all of them up to `READ_BYTES`, and of more data
evenly spaced blocks, because a start must not read terabytes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence

from albert_tf import files
from albert_tf.checkpoints import run_record
from albert_tf.checkpoints.run_record import FileRecord

BLOCK_BYTES = 1 << 20
READ_BYTES = 512 * BLOCK_BYTES  # half a second to a second


def describe_contents(paths: Sequence[str]) -> dict[str, FileRecord]:
    """Returns the entry of a run's record for the contents of its record files.

    The digest depends on their bytes and their order, not on their folder. There is no entry for
    remote files, of which each block would be a request.

    Args:
        paths: the record files.
    """
    if any(map(files.is_remote, paths)):
        return {}
    sizes = list(map(files.file_size, paths))
    share = min(1.0, READ_BYTES / max(sum(sizes), 1))  # of each file
    # At least two blocks of a file are read, so that of thousands of files only some are.
    every = 1 if share == 1 else math.ceil(2 * len(paths) * BLOCK_BYTES / READ_BYTES)
    contents = hashlib.sha256()
    for number, (path, size) in enumerate(zip(paths, sizes, strict=True)):
        contents.update(f"{size} ".encode())
        if number % every:
            continue
        for block in _blocks(path, size, share):
            contents.update(block)
    what = "whole" if share == 1 else f"{share:.2%} of the bytes"
    return {run_record.RECORD_CONTENTS: FileRecord(f"{what}, sha256 {contents.hexdigest()[:16]}")}


def _blocks(path: str, size: int, share: float) -> Iterator[bytes]:
    """Yields a share of a file's blocks, evenly spaced from the first to the last one."""
    last = max(math.ceil(size / BLOCK_BYTES) - 1, 0)
    steps = max(math.ceil(last * share), 1)
    with files.open_binary(path) as stream:
        for step in range(steps + 1 if last else 1):
            stream.seek(last * step // steps * BLOCK_BYTES)
            yield stream.read(BLOCK_BYTES)
