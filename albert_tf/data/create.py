"""Creates pre-training records on one machine: text files in, shuffled record files out.

1. The text is divided into chunks (`corpus`). Worker processes read and encode them (`encoding`)
   and spill the instances to random slots of a work directory (`shuffling`).
2. For each output file, a process reads the slots that belong to it, shuffles their records and
   writes them.
3. A metadata file beside the outputs describes them (`records`).

The bytes of the outputs depend on the text and the settings only. They depend neither on the number
of processes nor on interruptions: each finished chunk and output is recorded in a small JSON file
in the work directory (`work_directory`), and the next run continues from there. Memory use is
determined by the chunk size, the shuffle size and the number of processes, not by the amount of
text.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import math
import os
from collections.abc import Callable, Iterator
from typing import Any

from absl import logging
from tqdm import tqdm

from albert_tf import files, workers
from albert_tf.data import corpus, records, shuffling
from albert_tf.data.encoding import load_tokenizer, load_word_marker, make_chunk_encoder
from albert_tf.data.records import Outputs
from albert_tf.data.settings import InstanceSettings, MaskingSettings, Settings, TextSettings
from albert_tf.data.sources import Source, find_sources
from albert_tf.data.work_directory import (
    FinishedChunk,
    WorkDirectory,
    describe_changes,
    lock_outputs,
    open_work_directory,
)
from albert_tf.version import __version__

RECORDS_AT_ONCE = 1000  # records between two updates of the progress bar


def create_pretraining_data(settings: Settings) -> dict[str, Any]:
    """Creates pre-training records from text.

    Returns:
        The content of the metadata file: settings, vocabulary, counts and files.

    Raises:
        FileNotFoundError: an input file or the vocabulary does not exist.
        ValueError: settings, file names or text are invalid; the message says which.
        OSError: a file cannot be written, for example because the disk is full. Finished work stays
            in the work directory, and the next run continues from it.
    """
    outputs = Outputs.parse(settings.output_file, settings.compression)
    work_dir = settings.work_dir or outputs.stem + ".work"
    if files.is_remote(work_dir):
        raise ValueError(
            f"--work_dir={work_dir}: expected a local directory. Pass one if the outputs are remote"
        )
    with prepare(settings, outputs) as job:
        metadata = job.metadata
        run = {**metadata["settings"], **metadata["vocabulary"], "outputs": list(outputs.paths)}
        if job.is_finished:
            # The run that wrote the outputs may have been killed before it removed the directory. A
            # ValueError means that the directory is in use or belongs to another run: it stays.
            if os.path.isdir(work_dir):
                with contextlib.suppress(ValueError), open_work_directory(work_dir, run):
                    pass
            return metadata
        with open_work_directory(work_dir, run) as work_directory:
            text = _encode_text(work_directory, job, settings)
            metadata["text_checksum"] = text.checksum
            metadata["counts"] = dict(text.counts)
            metadata["files"] = _write_outputs(work_directory, text, outputs, settings)
            records.write_metadata(outputs.metadata_file, metadata)
    return metadata


@dataclasses.dataclass(frozen=True)
class Job:
    """Validated inputs and outputs of a run.

    Attributes:
        sources: the text files.
        outputs: the files to write.
        metadata: content of the metadata file, without `text_checksum`, `counts` and `files`.
        is_finished: whether an earlier run has written everything; then the metadata is complete.
    """

    sources: list[Source]
    outputs: Outputs
    metadata: dict[str, Any]
    is_finished: bool = False


@contextlib.contextmanager
def prepare(settings: Settings, outputs: Outputs) -> Iterator[Job]:
    """Validates the settings and files before the work begins, and locks the outputs meanwhile.

    Raises:
        FileNotFoundError, ValueError: see `create_pretraining_data`.
    """
    sources = find_sources(files.expand_patterns(settings.input_file, "--input_file"))
    _check_paths(settings, sources, outputs)
    for folder in dict.fromkeys(map(os.path.dirname, outputs.paths)):
        files.ensure_directory(folder, "--output_file")
    job = Job(sources, outputs, _describe(settings))
    with lock_outputs(outputs.stems):
        earlier = _load_earlier(outputs)
        if settings.resume and _is_complete(job, earlier, settings):
            logging.info("%s: all outputs are complete already", outputs.metadata_file)
            yield dataclasses.replace(job, metadata=earlier, is_finished=True)
        else:
            _warn_of_other_outputs(outputs, earlier)
            yield job


def _describe(settings: Settings) -> dict[str, Any]:
    """Returns the part of the metadata that is known in advance: settings and vocabulary."""
    tokenizer = load_tokenizer(settings)
    load_word_marker(settings, tokenizer)  # fails here rather than later in every process
    return {
        "program": f"albert_tf {__version__}",
        "settings": _record_settings(settings),
        "vocabulary": {
            "file": os.path.basename(settings.vocabulary_file),
            "size": tokenizer.vocab_size,
            "checksum": tokenizer.checksum,
            "do_lower_case": tokenizer.do_lower_case,
        },
        "mask_id": tokenizer.mask_id,
    }


def _check_paths(settings: Settings, sources: list[Source], outputs: Outputs) -> None:
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


def _record_settings(settings: Settings) -> dict[str, Any]:
    """Returns all settings that determine the content of the outputs: flag name → value."""
    names = [
        field.name
        for group in (MaskingSettings, InstanceSettings, TextSettings)
        for field in dataclasses.fields(group)
        if field.name != "random_next_sentence"  # recorded as the sentence objective
    ]
    return {name: getattr(settings, name) for name in names} | {
        "sentence_objective": settings.objective.abbreviation,
        "compression": settings.compression,
        "chunk_bytes": settings.chunk_bytes,
        "shuffle_bytes": settings.shuffle_bytes,
    }


def _load_earlier(outputs: Outputs) -> dict[str, Any]:
    """Returns the metadata of an earlier run with these outputs; {} if there are none."""
    try:
        return records.load_metadata(outputs.metadata_file)
    except (FileNotFoundError, ValueError):  # an unreadable file is simply overwritten
        return {}


def _is_complete(job: Job, earlier: dict[str, Any], settings: Settings) -> bool:
    """Returns whether an earlier run has written all outputs, from the same text.

    Reads the whole text to compute its checksum, if all outputs are there.

    Raises:
        ValueError: that run had different settings; the message names them.
    """
    existing = filter(files.is_file, job.outputs.paths)
    found = [(os.path.basename(path), files.file_size(path)) for path in existing]
    if not earlier or found != [(entry["name"], entry["bytes"]) for entry in earlier["files"]]:
        return False
    before, now = ({**run["settings"], **run["vocabulary"]} for run in (earlier, job.metadata))
    if changes := describe_changes(before, now):
        raise ValueError(
            f"{job.outputs.metadata_file}: the outputs are complete, but were created with "
            f"different settings: {changes}. Choose another --output_file, or recreate them with "
            "--noresume."
        )
    paths = [source.path for source in job.sources]
    chunks = corpus.read_chunks(paths, settings.chunk_bytes, settings.input_format)
    checksum = corpus.text_checksum(chunk.checksum for chunk in chunks)
    if earlier.get("text_checksum") != checksum:
        logging.warning(
            "--input_file: the text has changed since the outputs were created (checksum %s, now "
            "%s); recreating them",
            earlier.get("text_checksum"),
            checksum,
        )
    return earlier.get("text_checksum") == checksum


def _warn_of_other_outputs(outputs: Outputs, earlier: dict[str, Any]) -> None:
    """Warns of leftover files of an earlier run with more shards: `name@4`, and now `name@2`."""
    folder = os.path.dirname(outputs.metadata_file)
    paths = {os.path.join(folder, entry["name"]) for entry in earlier.get("files", [])}
    if left := sorted(filter(files.is_file, paths - set(outputs.paths))):
        logging.warning(
            "%d files of an earlier run, such as %s, remain beside the new ones, and a glob "
            "pattern may match both. Remove them if they are not needed.",
            len(left),
            left[0],
        )


@dataclasses.dataclass(frozen=True)
class EncodedText:
    """The result of the first stage.

    Attributes:
        checksum: see `corpus.text_checksum`.
        counts: the counts in the metadata.
        blocks: paths of the blocks of all chunks, in order.
    """

    checksum: str
    counts: collections.Counter[str]
    blocks: list[str]


def _encode_text(work_directory: WorkDirectory, job: Job, settings: Settings) -> EncodedText:
    """Runs the first stage: encodes and spills all unfinished chunks."""
    planned = corpus.plan_jobs(job.sources, settings.chunk_bytes, settings.input_format)
    args = (work_directory.path, settings, len(job.outputs.paths))
    num_workers = _processes(settings)
    if not any(read_job.is_stream for read_job in planned):
        num_workers = min(num_workers, len(planned))
    chunks: list[FinishedChunk] = []
    instances = 0
    size = sum(read_job.size for read_job in planned)
    with _progress_bar("making instances", size, settings, unit="B", unit_scale=True) as bar:
        parts = _divide(planned, settings)
        for chunk, read_bytes in workers.run(_make_chunk_work, args, parts, num_workers):
            chunks.append(chunk)
            instances += chunk.counts["instances"]
            bar.set_postfix_str(f"{instances:,} made", refresh=False)
            bar.update(read_bytes)
    chunks.sort(key=lambda chunk: chunk.position)
    counts: collections.Counter[str] = collections.Counter()
    for chunk in chunks:
        counts.update(chunk.counts)
    blocks = [os.path.join(work_directory.path, name) for chunk in chunks for name in chunk.blocks]
    return EncodedText(corpus.text_checksum(chunk.checksum for chunk in chunks), counts, blocks)


def _divide(
    planned: list[corpus.ReadJob], settings: Settings
) -> Iterator[corpus.ReadJob | corpus.Chunk]:
    """Yields what the processes of the first stage work on.

    Each reads its own text, except that of large compressed files, which is read here, so that all
    processes can encode it.
    """
    for read_job in planned:
        if read_job.is_stream:
            yield from _read(read_job, settings)
        else:
            yield read_job


def _make_chunk_work(
    directory: str, settings: Settings, num_outputs: int
) -> Callable[[corpus.ReadJob | corpus.Chunk], Iterator[tuple[FinishedChunk, int]]]:
    """Returns the work of a process in the first stage.

    It yields each chunk, which it spills unless it is finished, and the number of bytes read.
    """
    encode = make_chunk_encoder(settings, num_outputs)
    work_directory = WorkDirectory(directory)

    def spill(chunk: corpus.Chunk, checksum: str) -> FinishedChunk:
        spilled = shuffling.Spill(work_directory.chunk_stem(chunk.position, checksum), num_outputs)
        counts: collections.Counter[str] = collections.Counter()
        for batch in encode(chunk):
            spilled.add(batch.records, batch.slots)
            counts.update(batch.counts)
        spilled.flush()
        counts["record_bytes"] = spilled.written
        blocks = list(map(os.path.basename, spilled.blocks))
        finished = FinishedChunk(chunk.position, checksum, blocks, counts)
        if blocks:
            work_directory.finish_chunk(finished)
        return finished

    def work(part: corpus.ReadJob | corpus.Chunk) -> Iterator[tuple[FinishedChunk, int]]:
        for chunk in [part] if isinstance(part, corpus.Chunk) else _read(part, settings):
            checksum = chunk.checksum
            finished = work_directory.find_chunk(chunk.position, checksum)
            yield finished or spill(chunk, checksum), chunk.read_bytes

    return work


def _read(job: corpus.ReadJob, settings: Settings) -> Iterator[corpus.Chunk]:
    return corpus.read_job(job, settings.chunk_bytes, settings.input_format)


def _write_outputs(
    work_directory: WorkDirectory, text: EncodedText, outputs: Outputs, settings: Settings
) -> list[dict[str, Any]]:
    """Runs the second stage: shuffles and writes all unfinished outputs; returns their metadata."""
    if not text.counts["instances"]:
        raise ValueError("--input_file: no text in these files yields a token")
    finished = work_directory.finished_outputs(text.checksum)
    missing = [output for output in range(len(outputs.paths)) if output not in finished]
    files.remove_half_written(outputs.all_files)
    bytes_per_output = text.counts["record_bytes"] / len(outputs.paths)
    groups = max(1, math.ceil(bytes_per_output / settings.shuffle_bytes))
    args = (work_directory.path, text, outputs, settings.random_seed, groups)
    num_workers = min(_processes(settings), len(missing))
    size, initial = text.counts["instances"], sum(finished.values())
    with _progress_bar("writing", size, settings, initial=initial, unit=" records") as bar:
        for written in workers.run(_make_output_work, args, missing, num_workers):
            bar.update(written)
    finished = work_directory.finished_outputs(text.checksum)
    return [describe_output(path, finished[output]) for output, path in enumerate(outputs.paths)]


def _make_output_work(
    directory: str, text: EncodedText, outputs: Outputs, random_seed: int, groups: int
) -> Callable[[int], Iterator[int]]:
    """Returns the work of a process in the second stage: output index → records written."""
    work_directory = WorkDirectory(directory)

    def work(output: int) -> Iterator[int]:
        path = outputs.paths[output]
        shuffled = shuffling.shuffled(text.blocks, output, len(outputs.paths), groups, random_seed)
        instances = 0
        with records.open_output(path, outputs.compression) as write:
            while some := list(itertools.islice(shuffled, RECORDS_AT_ONCE)):
                write(some)
                instances += len(some)
                yield len(some)
        work_directory.finish_output(output, text.checksum, instances)

    return work


def describe_output(path: str, instances: int) -> dict[str, Any]:
    """Returns the entry of an output in the metadata."""
    return {"name": os.path.basename(path), "instances": instances, "bytes": files.file_size(path)}


def _processes(settings: Settings) -> int:
    return settings.num_workers or workers.available_cores()


def _progress_bar(name: str, total: int, settings: Settings, **options: Any) -> tqdm[Any]:
    return tqdm(desc=name, total=total, disable=not settings.show_progress, **options)
