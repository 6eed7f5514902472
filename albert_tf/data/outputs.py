"""The names of the files that a run of the data program writes."""

from __future__ import annotations

import dataclasses
import re

from albert_tf.data.record_metadata import METADATA_SUFFIX

_SHARDED = re.compile(r"(?P<stem>.+)@(?P<count>-?\d+)")


@dataclasses.dataclass(frozen=True)
class RecordOutputs:
    """The record files to write.

    Attributes:
        paths: paths of the files.
        stem: path prefix of the metadata file and the work directory, which is the first name in
            `--output_file` without the number of shards.
    """

    paths: tuple[str, ...]
    stem: str

    @property
    def metadata_file(self) -> str:
        """Path of the metadata file."""
        return self.stem + METADATA_SUFFIX

    @property
    def all_files(self) -> list[str]:
        """Paths of the record files and of the metadata file."""
        return [*self.paths, self.metadata_file]

    @classmethod
    def parse(cls, pattern: str) -> RecordOutputs:
        """Parses `--output_file`: comma-separated names, where `name@64` stands for 64 shards.

        Raises:
            ValueError: there is no name, a name occurs twice, or the number of shards is 0.
        """
        names = [name.strip() for name in pattern.split(",") if name.strip()]
        if not names:
            raise ValueError("--output_file: expected at least one file name, got none")
        paths: list[str] = []
        for name in names:
            sharded = _SHARDED.fullmatch(name)
            if not sharded:
                paths.append(name)
                continue
            count = int(sharded["count"])
            if count < 1:
                raise ValueError(f"--output_file={name}: expected 1 or more after the @")
            paths += [f"{sharded['stem']}-{shard:05d}-of-{count:05d}" for shard in range(count)]
        if len(set(paths)) < len(paths):
            raise ValueError(f"--output_file={pattern}: the same file is named twice")
        sharded = _SHARDED.fullmatch(names[0])
        return cls(tuple(paths), sharded["stem"] if sharded else names[0])
