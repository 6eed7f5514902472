"""Reads and writes the metadata files beside record files.

create_pretraining_data.py writes them; run_pretraining.py reads them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping, Sequence

from albert_tf import files
from albert_tf.files import JsonObject

METADATA_SUFFIX = ".records.json"
# Fields of metadata, of its vocabulary, and of each of its files.
_METADATA = {"files": list, "settings": dict, "vocabulary": dict, "mask_id": int}
_VOCABULARY = {"file": str, "size": int, "checksum": str}
_FILE = {"name": str, "instances": int, "bytes": int}


@dataclasses.dataclass(frozen=True)
class RecordFileInfo:
    """The metadata of one record file.

    Attributes:
        instances: number of records.
        settings: settings of the data program: max_seq_length, sentence_objective, …
        vocabulary: the vocabulary's `checksum` (SHA-256 of its file), `size` and `file`.
        mask_id: id of [MASK].
        metadata_file: path of the metadata file.
        checksum: SHA-256 of all metadata, in hexadecimal: text and settings determine the records.
    """

    instances: int
    settings: JsonObject
    vocabulary: JsonObject
    mask_id: int
    metadata_file: str
    checksum: str


# Path → metadata; None for files that have none.
FoundRecords = dict[str, RecordFileInfo | None]


def describe_file(path: str, instances: int) -> JsonObject:
    """Returns the entry of a record file in the metadata."""
    return {"name": os.path.basename(path), "instances": instances, "bytes": files.file_size(path)}


def write_metadata(path: str, metadata: Mapping[str, object]) -> None:
    """Writes a metadata file; `metadata["files"]` has `name`, `instances`, `bytes` of each file."""
    files.write_file(path, json.dumps(metadata, indent=1, ensure_ascii=False) + "\n")


def read_metadata(record_files: Sequence[str]) -> dict[str, RecordFileInfo]:
    """Returns the metadata of record files, found in the folders of these files.

    The result omits files that no metadata file lists, because another program created them.

    Args:
        record_files: paths of record files.

    Returns:
        Path → metadata.

    Raises:
        ValueError: a metadata file was not written by the data program; or a record file has not
            the size that its metadata say: it was overwritten, exchanged, or not copied whole.
    """
    result: dict[str, RecordFileInfo] = {}
    differing: dict[str, str] = {}  # path → what differs
    wanted = {os.path.split(path): path for path in record_files}
    for folder in dict.fromkeys(folder for folder, _ in wanted):
        sizes = files.list_sizes(folder)  # of thousands of files, which are not asked one by one
        for metadata_file in sorted(name for name in sizes if name.endswith(METADATA_SUFFIX)):
            metadata = load_metadata(os.path.join(folder, metadata_file))
            described = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode()).hexdigest()
            for entry in metadata["files"]:
                path = wanted.get((folder, entry["name"]), "")
                if not path:
                    continue
                size = sizes.get(entry["name"])
                if size != entry["bytes"]:
                    place = os.path.join(folder, metadata_file)
                    differing[path] = f"{size} bytes, but {entry['bytes']} in {place}"
                else:
                    result[path] = RecordFileInfo(
                        instances=entry["instances"],
                        settings=metadata["settings"],
                        vocabulary=metadata["vocabulary"],
                        mask_id=metadata["mask_id"],
                        metadata_file=os.path.join(folder, metadata_file),
                        checksum=described,
                    )
    for path, difference in differing.items():
        if path not in result:
            raise ValueError(
                f"{path} has {difference}: it was overwritten, exchanged, or not copied whole. "
                "Restore it, or move the metadata file away if another program wrote it"
            )
    return result


def find_records(patterns: str, what: str) -> FoundRecords:
    """Returns the record files that match some patterns, with their metadata.

    Args:
        patterns: paths and glob patterns, separated by commas. Those that match metadata files too,
            such as `data/*`, are allowed.
        what: the flag with the patterns, for the message.

    Raises:
        ValueError: no record file matches, or see `read_metadata`.
    """
    matches = files.expand_patterns(patterns, what)
    paths = [path for path in matches if not path.endswith(METADATA_SUFFIX)]
    if not paths:
        raise ValueError(f"{what}={patterns}: matches no record file")
    known = read_metadata(paths)
    return {path: known.get(path) for path in paths}


def load_metadata(path: str) -> JsonObject:
    """Returns the content of a metadata file written by `write_metadata`.

    Raises:
        ValueError: the file is not a metadata file.
    """
    try:
        metadata = files.read_json(path, _METADATA)
        files.check_fields(metadata["vocabulary"], "vocabulary", _VOCABULARY)
        for entry in metadata["files"]:
            files.check_fields(entry, "files", _FILE)
    except (ValueError, AttributeError) as error:
        raise ValueError(
            f"{path}: not a metadata file of create_pretraining_data.py. Remove or rename it, or "
            f"create the records again ({error})"
        ) from None
    return metadata
