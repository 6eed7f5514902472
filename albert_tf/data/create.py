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
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from absl import logging
from tqdm import tqdm

from albert_tf import files, workers
from albert_tf.data import corpus, records, shuffling
from albert_tf.data.encoding import load_tokenizer, load_word_marker, make_chunk_encoder
from albert_tf.data.records import Outputs
from albert_tf.data.settings import (
    EncodingSettings,
    InstanceSettings,
    MaskingSettings,
    Settings,
    TextSettings,
)
from albert_tf.data.sources import Source, find_sources
from albert_tf.data.tfrecord import decode_example
from albert_tf.data.work_directory import (
    WorkDirectory,
    describe_changes,
    lock_outputs,
    open_work_directory,
    remove_work_directory,
)
from albert_tf.tokenization import Tokenizer
from albert_tf.version import __version__

PROGRESS_EVERY = 1000  # records written between two updates of the progress bar
_HALF_WRITTEN = re.compile(rf"(?P<name>.+){files.HALF_WRITTEN}")
TASKS_PER_CHECKING_WORKER = 100  # below that, comparing texts is faster than starting a process


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
    files.check_path(outputs.stem, "--output_file")
    work_dir = settings.work_dir or outputs.stem + ".work"
    if files.is_remote(work_dir):
        raise ValueError(
            f"--work_dir={work_dir}: expected a local directory. Pass one if the outputs are remote"
        )
    with prepare(settings, outputs) as job:
        return _run_job(job, settings, work_dir)


def _run_job(job: Job, settings: Settings, work_dir: str) -> dict[str, Any]:
    """Creates the outputs of a job, and returns the content of the metadata file."""
    metadata = job.metadata
    outputs = job.outputs
    run = {**metadata["settings"], **metadata["vocabulary"], "outputs": outputs.paths}
    if job.is_finished:
        remove_work_directory(work_dir, run)
        return metadata
    with open_work_directory(work_dir, run) as work_directory:
        _encode_chunks(work_directory, job, settings)
        _write_outputs(work_directory, outputs, settings)
        metadata["text_checksum"] = work_directory.text_checksum()
        metadata["counts"] = dict(work_directory.counts())
        metadata["files"] = list(work_directory.finished_outputs().values())
        records.write_metadata(outputs.metadata_file, metadata)
        work_directory.remove()
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
    with contextlib.ExitStack() as stack:
        for folder in dict.fromkeys(map(os.path.dirname, outputs.paths)):
            files.make_directory(folder, "--output_file")
        metadata = _describe(settings)
        stack.enter_context(lock_outputs(outputs.stems))
        finished = settings.resume and _find_finished(outputs, metadata)
        if finished and _is_same_text(finished, sources, settings):
            logging.info("%s: all outputs are complete already", outputs.metadata_file)
            yield Job(sources, outputs, finished, is_finished=True)
        else:
            _warn_of_other_outputs(outputs)
            if streams := corpus.streams(sources, settings.chunk_bytes):
                logging.info(
                    "%s%s: compressed, so each file is read by one process and encoded by all",
                    streams[0].path,
                    f" and {len(streams) - 1} more" if len(streams) > 1 else "",
                )
            yield Job(sources, outputs, metadata)


def _describe(settings: Settings) -> dict[str, Any]:
    """Returns the part of the metadata that is known in advance: settings and vocabulary."""
    tokenizer = load_tokenizer(settings)
    load_word_marker(settings, tokenizer)  # fails here rather than later in every process
    return {
        "program": f"albert_tf {__version__}",
        "settings": _record_settings(settings),
        "vocabulary": {
            "file": os.path.basename(settings.spm_model_file or settings.vocab_file or ""),
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
        if field.name != "random_next_sentence"  # another name of an objective
    ]
    return {name: getattr(settings, name) for name in names} | {
        "sentence_objective": settings.objective.abbreviation,
        "compression": settings.compression,
        "chunk_bytes": settings.chunk_bytes,
        "shuffle_bytes": settings.shuffle_bytes,
    }


def _find_finished(outputs: Outputs, metadata: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the metadata of an earlier run that has written all outputs, or None.

    Raises:
        ValueError: that run had different settings; the message names them.
    """
    existing = records.read_metadata(list(filter(files.is_file, outputs.paths)))
    expected = os.path.realpath(outputs.metadata_file)
    if not all(
        path in existing and os.path.realpath(existing[path].metadata_file) == expected
        for path in outputs.paths
    ):
        return None
    finished = records.load_metadata(outputs.metadata_file)
    before, now = ({**run["settings"], **run["vocabulary"]} for run in (finished, metadata))
    if changes := describe_changes(before, now):
        raise ValueError(
            f"{outputs.metadata_file}: the outputs are complete, but were created with different "
            f"settings: {changes}. Choose another --output_file, or recreate them with --noresume."
        )
    return finished


def _warn_of_other_outputs(outputs: Outputs) -> None:
    """Warns of leftover files of an earlier run with more shards: `name@4`, and now `name@2`."""
    try:
        earlier = records.load_metadata(outputs.metadata_file)["files"]
    except (FileNotFoundError, ValueError):  # an unreadable file is simply overwritten
        return
    folder = os.path.dirname(outputs.metadata_file)
    paths = {os.path.join(folder, entry["name"]) for entry in earlier} - set(outputs.paths)
    if left := sorted(filter(files.is_file, paths)):
        logging.warning(
            "%d files of an earlier run, such as %s, remain beside the new ones, and a glob "
            "pattern may match both. Remove them if they are not needed.",
            len(left),
            left[0],
        )


def _is_same_text(finished: dict[str, Any], sources: list[Source], settings: Settings) -> bool:
    """Returns whether a finished run was made from the same text; logs a warning if it was not.

    Reads the whole text to compute its checksum.
    """
    args = settings.chunk_bytes, settings.input_format
    tasks = corpus.plan_tasks(sources, *args)
    num_workers = min(_processes(settings), math.ceil(len(tasks) / TASKS_PER_CHECKING_WORKER))
    checksums = dict(workers.run(_make_checksum_work, args, tasks, num_workers))
    checksum = corpus.text_checksum(checksums[position] for position in sorted(checksums))
    if finished.get("text_checksum") == checksum:
        return True
    logging.warning(
        "--input_file: the text has changed since the outputs were created (checksum %s, now %s); "
        "recreating them",
        finished.get("text_checksum"),
        checksum,
    )
    return False


def _make_checksum_work(
    chunk_bytes: int, input_format: str
) -> Callable[[corpus.Task], Iterator[tuple[corpus.Position, str]]]:
    """Returns the work of a process that compares texts: task → (position, checksum) of chunks."""

    def work(task: corpus.Task) -> Iterator[tuple[corpus.Position, str]]:
        for chunk in corpus.read_task(task, chunk_bytes, input_format):
            yield chunk.position, chunk.checksum

    return work


def _encode_chunks(work_directory: WorkDirectory, job: Job, settings: Settings) -> None:
    """Runs the first stage: encodes and spills all unfinished chunks."""
    planned = corpus.plan_tasks(job.sources, settings.chunk_bytes, settings.input_format)
    chunks: set[corpus.Position] = set()
    instances = 0
    with tqdm(
        total=sum(task.size for task in planned),
        unit="B",
        unit_scale=True,
        desc="making instances",
        disable=not settings.show_progress,
    ) as bar:
        args = (work_directory.path, settings, settings.chunk_bytes, len(job.outputs.paths))
        tasks = _tasks(planned, settings)
        is_divided = len(planned) > 1 or planned[0].is_stream
        num_workers = _processes(settings) if is_divided else 1
        for done in workers.run(_make_chunk_work, args, tasks, num_workers):
            instances += done.instances
            chunks |= set(done.chunks)
            rate = instances / max(bar.format_dict["elapsed"], 1e-9)
            bar.set_postfix_str(f"{instances:,} made, {rate:,.0f}/s", refresh=False)
            bar.update(done.read_bytes)
    work_directory.keep_chunks(chunks)


def _tasks(planned: list[corpus.Task], settings: Settings) -> Iterator[corpus.Task | corpus.Chunk]:
    """Yields the tasks of the first stage.

    A worker reads its own text, except that of large compressed files: these are read here, so that
    all workers can encode it.
    """
    for task in planned:
        if task.is_stream:
            yield from corpus.read_task(task, settings.chunk_bytes, settings.input_format)
        else:
            yield task


@dataclasses.dataclass(frozen=True)
class _Progress:
    """What a process has done since its last message: instances, finished chunks, input bytes."""

    instances: int = 0
    chunks: tuple[corpus.Position, ...] = ()
    read_bytes: int = 0


def _make_chunk_work(
    directory: str, settings: EncodingSettings, chunk_bytes: int, num_outputs: int
) -> Callable[[corpus.Task | corpus.Chunk], Iterator[_Progress]]:
    """Returns the work of a process in the first stage: reads and spills unfinished chunks."""
    encode = make_chunk_encoder(settings, num_outputs)
    work_directory = WorkDirectory(directory)
    has_changed = False

    def encode_and_spill(chunk: corpus.Chunk, checksum: str) -> Iterator[_Progress]:
        spill = shuffling.Spill(work_directory.chunk_stem(chunk.position), num_outputs)
        counts: collections.Counter[str] = collections.Counter()
        for batch in encode(chunk):
            spill.add(batch.records, batch.slots)
            counts.update(batch.counts)
            yield _Progress(instances=len(batch.records))
        spill.flush()
        counts["record_bytes"] = spill.written
        work_directory.finish_chunk(chunk.position, checksum, spill.blocks, counts)

    def work(task: corpus.Task | corpus.Chunk) -> Iterator[_Progress]:
        nonlocal has_changed
        if isinstance(task, corpus.Task):
            chunks = corpus.read_task(task, chunk_bytes, settings.input_format)
        else:
            chunks = iter([task])
        for chunk in chunks:
            checksum = chunk.checksum
            if work_directory.chunk_checksum(chunk.position) != checksum:
                if not has_changed:
                    has_changed = True
                    work_directory.forget_outputs()
                work_directory.forget_chunk(chunk.position)
                yield from encode_and_spill(chunk, checksum)
            yield _Progress(chunks=(chunk.position,), read_bytes=chunk.read_bytes)

    return work


def _write_outputs(work_directory: WorkDirectory, outputs: Outputs, settings: Settings) -> None:
    """Runs the second stage: shuffles and writes all unfinished outputs."""
    counts = work_directory.counts()
    if not counts["instances"]:
        raise ValueError("--input_file: no text in these files yields a token")
    finished = work_directory.finished_outputs()
    missing = [output for output in range(len(outputs.paths)) if output not in finished]
    remove_half_written(outputs)
    bytes_per_output = counts["record_bytes"] / len(outputs.paths)
    groups = max(1, math.ceil(bytes_per_output / settings.shuffle_bytes))
    args = (work_directory.path, outputs, settings.random_seed, groups)
    with tqdm(
        total=counts["instances"],
        initial=sum(entry["instances"] for entry in finished.values()),
        unit=" records",
        desc="writing",
        disable=not settings.show_progress,
    ) as bar:
        num_workers = min(_processes(settings), len(missing))
        try:
            for written in workers.run(_make_output_work, args, missing, num_workers):
                bar.update(written)
        finally:
            remove_half_written(outputs)


def remove_half_written(outputs: Outputs) -> None:
    """Removes temporary files left by killed processes, including those stopped by a failure.

    Only those of local outputs are found.
    """
    names: dict[str, set[str]] = {}
    for path in itertools.filterfalse(files.is_remote, outputs.all_files):
        folder, name = os.path.split(path)
        names.setdefault(folder, set()).add(name)
    for folder, ours in names.items():
        for name in os.listdir(folder or ".") if os.path.isdir(folder or ".") else ():
            half_written = _HALF_WRITTEN.fullmatch(name)
            if half_written and half_written["name"] in ours:
                # A worker of a killed run may still be renaming it.
                with contextlib.suppress(FileNotFoundError):
                    os.remove(os.path.join(folder, name))


def _make_output_work(
    directory: str, outputs: Outputs, random_seed: int, groups: int
) -> Callable[[int], Iterator[int]]:
    """Returns the work of a process in the second stage: output index → records written."""
    work_directory = WorkDirectory(directory)
    blocks = work_directory.blocks()

    def work(output: int) -> Iterator[int]:
        path = outputs.paths[output]
        shuffled = shuffling.shuffled(blocks, output, len(outputs.paths), groups, random_seed)
        written = 0
        with records.open_output(path, outputs.compression) as write:
            while some := list(itertools.islice(shuffled, PROGRESS_EVERY)):
                write(some)
                written += len(some)
                yield len(some)
        size = files.file_size(path)
        work_directory.finish_output(output, os.path.basename(path), written, size)

    return work


def _processes(settings: Settings) -> int:
    return settings.num_workers or workers.available_cores()


def log_instances(paths: Sequence[str], tokenizer: Tokenizer, count: int) -> None:
    """Logs the first instances, cycling through the outputs, as Google's program does."""
    interleaved = itertools.zip_longest(*map(records.read_records, paths))
    present = filter(None, itertools.chain.from_iterable(interleaved))
    for record in itertools.islice(present, count):
        features = decode_example(record)
        ids = features["input_ids"][features["input_mask"] > 0].tolist()
        logging.info("*** Example ***")
        logging.info("tokens: %s", " ".join(tokenizer.convert_ids_to_tokens(ids)))
        for name in records.FEATURES:
            logging.info("%s: %s", name, " ".join(map(str, features[name].tolist())))
