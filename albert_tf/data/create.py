"""Creates pre-training records on one machine: text files in, shuffled record files out.

1. One process reads the text in chunks (`chunks`). Worker processes encode them (`encoding`) and
   spill the instances to random slots of a work directory (`shuffle`, `work_directory`).
2. For each output file, a process reads the slots that belong to it, shuffles their records and
   writes them.
3. A metadata file beside the outputs describes them (`record_metadata`).

The bytes of the outputs depend on the text and the settings only. They depend neither on the number
of processes nor on interruptions: each finished chunk and output is recorded in a small JSON file
in the work directory, and the next run continues from there. Memory use is determined by the chunk
size, the shuffle size and the number of processes, not by the amount of text.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from absl import logging
from tqdm import tqdm

from albert_tf import files
from albert_tf.data import record_metadata, records, shuffle, work_directory, workers
from albert_tf.data.chunks import Chunk, read_chunks, text_checksum
from albert_tf.data.encoding import load_tokenizer, load_word_marker, make_chunk_encoder
from albert_tf.data.settings import InstanceSettings, Settings, TextSettings
from albert_tf.data.sources import TextSource, find_sources
from albert_tf.data.work_directory import FinishedChunk
from albert_tf.files import JsonObject
from albert_tf.version import __version__

_SHARDED = re.compile(r"(?P<stem>.+)@(?P<count>-?\d+)")


def create_pretraining_data(settings: Settings) -> JsonObject:
    """Creates pre-training records from text.

    Returns:
        The content of the metadata file, which are settings, vocabulary, counts and files.

    Raises:
        FileNotFoundError: an input file or the vocabulary does not exist.
        ValueError: settings, file names or text are invalid; the message says which.
        OSError: a file cannot be written, for example because the disk is full. Finished work stays
            in the work directory, and the next run continues from it.
    """
    job = prepare(settings)
    outputs, metadata = job.outputs, job.metadata
    if job.is_finished:
        return metadata
    work_dir = settings.work_dir or outputs.stem + ".work"
    if files.is_remote(work_dir):
        raise ValueError(
            f"--work_dir={work_dir}: expected a local directory. Pass one if the outputs are remote"
        )
    run = {**metadata["settings"], **metadata["vocabulary"], "outputs": list(outputs.paths)}
    with work_directory.open_work_directory(work_dir, run):
        chunks = _encode_text(work_dir, job, settings)
        counts: collections.Counter[str] = collections.Counter()
        for chunk in chunks:
            counts.update(chunk.counts)
        metadata |= describe_text(counts, (chunk.checksum for chunk in chunks))
        blocks = [name for chunk in chunks for name in chunk.blocks]
        metadata["files"] = _write_outputs(work_dir, blocks, counts, outputs, settings)
        record_metadata.write_metadata(outputs.metadata_file, metadata)
    return metadata


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
        return self.stem + record_metadata.METADATA_SUFFIX

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


@dataclasses.dataclass(frozen=True)
class Job:
    """Validated inputs and outputs of a run.

    Attributes:
        sources: the text files.
        outputs: the files to write.
        metadata: content of the metadata file, without `text_checksum`, `counts` and `files`.
        is_finished: whether an earlier run has written everything; then the metadata is complete.
    """

    sources: list[TextSource]
    outputs: RecordOutputs
    metadata: JsonObject
    is_finished: bool = False


def prepare(settings: Settings) -> Job:
    """Validates the settings and files before the work begins.

    Raises:
        FileNotFoundError, ValueError: see `create_pretraining_data`.
    """
    settings.check_paths()
    outputs = RecordOutputs.parse(settings.output_file)
    sources = find_sources(files.expand_patterns(settings.input_file, "--input_file"))
    _check_paths(settings, sources, outputs)
    for folder in dict.fromkeys(map(os.path.dirname, outputs.paths)):
        files.ensure_directory(folder, "--output_file")
    job = Job(sources, outputs, _describe(settings))
    if settings.resume and (complete := _load_complete(job, settings)):
        logging.info("%s: all outputs are complete already", outputs.metadata_file)
        return dataclasses.replace(job, metadata=complete, is_finished=True)
    return job


def _describe(settings: Settings) -> JsonObject:
    """Returns the part of the metadata that is known in advance: settings and vocabulary."""
    tokenizer = load_tokenizer(settings)
    load_word_marker(settings, tokenizer)  # fails here rather than later in every process
    # All settings that determine the content of the outputs.
    names = [
        field.name
        for group in (InstanceSettings, TextSettings)
        for field in dataclasses.fields(group)
        if field.name != "random_next_sentence"  # recorded as the sentence objective
    ]
    names += ["chunk_bytes", "shuffle_bytes"]
    recorded = {name: getattr(settings, name) for name in names}
    return {
        "program": f"albert_tf {__version__}",
        "settings": recorded | {"sentence_objective": settings.objective.abbreviation},
        "vocabulary": {
            "file": os.path.basename(settings.vocabulary_file),
            "size": tokenizer.vocab_size,
            "checksum": tokenizer.checksum,
            "do_lower_case": tokenizer.do_lower_case,
        },
        "mask_id": tokenizer.mask_id,
    }


def describe_text(counts: Mapping[str, int], checksums: Iterable[str]) -> JsonObject:
    """Returns the part of the metadata that the text determines.

    Args:
        counts: counts of all chunks.
        checksums: checksums of all chunks, in order.

    Raises:
        ValueError: the text yields no instances.
    """
    if not counts["instances"]:
        raise ValueError("--input_file: no text in these files yields a token")
    return {"text_checksum": text_checksum(checksums), "counts": dict(counts)}


def _check_paths(settings: Settings, sources: list[TextSource], outputs: RecordOutputs) -> None:
    """Checks that there is text, and that no output would overwrite it or the vocabulary."""
    paths = [source.path for source in sources]
    if not any(source.size for source in sources):
        raise ValueError(f"--input_file: {', '.join(paths)}: all input files are empty")
    files.check_outputs(
        {"--output_file": outputs.all_files},
        {
            "--input_file": paths,
            "--spm_model_file": settings.spm_model_file,
            "--vocab_file": settings.vocab_file,
        },
    )


def _load_complete(job: Job, settings: Settings) -> JsonObject | None:
    """Returns the metadata of an earlier run that has written all outputs, from the same text.

    Reads the whole text to compute its checksum, if all outputs are there.

    Raises:
        ValueError: that run had different settings; the message names them.
    """
    try:
        earlier = record_metadata.load_metadata(job.outputs.metadata_file)
    except (FileNotFoundError, ValueError):  # an unreadable file is simply overwritten
        return None
    existing = filter(files.is_file, job.outputs.paths)
    found = [(os.path.basename(path), files.file_size(path)) for path in existing]
    if found != [(entry["name"], entry["bytes"]) for entry in earlier["files"]]:
        return None
    before, now = ({**run["settings"], **run["vocabulary"]} for run in (earlier, job.metadata))
    if changes := work_directory.describe_changes(before, now):
        raise ValueError(
            f"{job.outputs.metadata_file}: the outputs are complete, but were created with "
            f"different settings: {changes}. Choose another --output_file, or recreate them with "
            "--noresume."
        )
    chunks = read_chunks(job.sources, settings.chunk_bytes, settings.input_format)
    if earlier.get("text_checksum") == text_checksum(chunk.checksum for chunk in chunks):
        return earlier
    logging.warning("--input_file: the text has changed; creating its records again")
    return None


def _encode_text(directory: str, job: Job, settings: Settings) -> list[FinishedChunk]:
    """Runs the first stage: encodes and spills all unfinished chunks; returns all, in order.

    The text is read here, at the pace of the processes that encode it.
    """
    texts = read_chunks(job.sources, settings.chunk_bytes, settings.input_format)
    make_work = functools.partial(_make_chunk_work, directory, settings, len(job.outputs.paths))
    chunks: list[FinishedChunk] = []
    instances = 0
    size = sum(source.size for source in job.sources)
    with tqdm(desc="making instances", total=size, unit="B", unit_scale=True, disable=None) as bar:
        for chunk, read_bytes in workers.run(make_work, texts, _processes(settings)):
            chunks.append(chunk)
            instances += chunk.counts["instances"]
            bar.set_postfix_str(f"{instances:,} made", refresh=False)
            bar.update(read_bytes)
    return sorted(chunks, key=lambda chunk: chunk.position)


def _make_chunk_work(
    directory: str, settings: Settings, num_outputs: int
) -> Callable[[Chunk], Iterator[tuple[FinishedChunk, int]]]:
    """Returns the work of a process in the first stage.

    It yields the chunk, which it spills unless it is finished, and the number of bytes read for it.
    """
    encode = make_chunk_encoder(settings, num_outputs)

    def work(chunk: Chunk) -> Iterator[tuple[FinishedChunk, int]]:
        checksum = chunk.checksum
        finished = work_directory.find_chunk(directory, chunk.position, checksum)
        if finished is None:
            stem = work_directory.chunk_stem(directory, chunk.position, checksum)
            paths, counts = shuffle.spill(encode(chunk), stem, num_outputs)
            blocks = list(map(os.path.basename, paths))
            finished = FinishedChunk(chunk.position, checksum, blocks, counts)
            if blocks:
                work_directory.finish_chunk(directory, finished)
        yield finished, chunk.read_bytes

    return work


def _write_outputs(
    directory: str,
    blocks: list[str],
    counts: Mapping[str, int],
    outputs: RecordOutputs,
    settings: Settings,
) -> list[JsonObject]:
    """Runs the second stage: writes the unfinished outputs; returns the metadata of all.

    Raises:
        ValueError: what an interrupted run has left is damaged; the message names it.
    """
    files.remove_half_written(outputs.all_files)
    bytes_per_output = counts["record_bytes"] / len(outputs.paths)
    groups = max(1, math.ceil(bytes_per_output / settings.shuffle_bytes))
    seed = settings.random_seed
    make_work = functools.partial(_make_output_work, directory, blocks, outputs, seed, groups)
    instances = [0] * len(outputs.paths)
    with tqdm(desc="writing", total=counts["instances"], unit=" records", disable=None) as bar:
        tasks = range(len(outputs.paths))
        for output, written in workers.run(make_work, tasks, _processes(settings)):
            instances[output] += written
            bar.update(written)
    if sum(instances) != counts["instances"]:
        raise ValueError(
            f"--work_dir={directory}: damaged, {sum(instances)} records were written of "
            f"{counts['instances']}. Remove this folder and run the same command again"
        )
    return list(map(record_metadata.describe_file, outputs.paths, instances))


def _make_output_work(
    directory: str, blocks: list[str], outputs: RecordOutputs, random_seed: int, groups: int
) -> Callable[[int], Iterator[tuple[int, int]]]:
    """Returns the work of a process in the second stage.

    For the index of an output, it yields that index and numbers of records, which it writes unless
    the output is finished.
    """
    # Names of blocks contain the places and the checksums of their texts.
    checksum = hashlib.blake2b("\n".join(blocks).encode(), digest_size=16).hexdigest()
    paths = [os.path.join(directory, name) for name in blocks]

    def work(output: int) -> Iterator[tuple[int, int]]:
        path = outputs.paths[output]
        if finished := work_directory.find_output(directory, output, checksum, path):
            yield output, finished
            return
        shuffled = shuffle.shuffled(paths, output, len(outputs.paths), groups, random_seed)
        total = 0
        for written in records.write_records(path, shuffled):
            total += written
            yield output, written
        work_directory.finish_output(directory, output, checksum, path, total)

    return work


def _processes(settings: Settings) -> int:
    return settings.num_workers or workers.available_cores()
