"""Creates pre-training records on one machine: text files in, shuffled record files out.

1. The text is divided into chunks (`corpus`). Worker processes read and encode them (`encoding`)
   and spill the instances to random slots of a work directory (`encoding`).
2. For each output file, a process reads the slots that belong to it, shuffles their records and
   writes them.
3. A metadata file beside the outputs describes them (`records`).

The bytes of the outputs depend on the text and the settings only. They depend neither on the number
of processes nor on interruptions: each finished chunk is recorded in a small JSON file in the work
directory, and the next run continues from there. Memory use is determined by the chunk size, the
shuffle size and the number of processes, not by the amount of text.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import filelock
from absl import logging
from tqdm import tqdm

from albert_tf import files
from albert_tf.data import corpus, encoding, records, workers
from albert_tf.data.corpus import Position, Source, find_sources
from albert_tf.data.encoding import load_tokenizer, load_word_marker, make_chunk_encoder
from albert_tf.data.records import FEATURES, Outputs, decode_example, read_records
from albert_tf.data.settings import EncodingSettings, InstanceSettings, Settings, TextSettings
from albert_tf.version import __version__


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
    with open_work_directory(work_dir, run):
        chunks = _encode_text(work_dir, job, settings)
        counts: collections.Counter[str] = collections.Counter()
        for chunk in chunks:
            counts.update(chunk.counts)
        metadata |= describe_text(counts, (chunk.checksum for chunk in chunks))
        blocks = [os.path.join(work_dir, name) for chunk in chunks for name in chunk.blocks]
        metadata["files"] = _write_outputs(blocks, counts, outputs, settings)
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


def prepare(settings: Settings) -> Job:
    """Validates the settings and files before the work begins.

    Raises:
        FileNotFoundError, ValueError: see `create_pretraining_data`.
    """
    outputs = Outputs.parse(settings.output_file)
    sources = find_sources(files.expand_patterns(settings.input_file, "--input_file"))
    _check_paths(settings, sources, outputs)
    for folder in dict.fromkeys(map(os.path.dirname, outputs.paths)):
        files.ensure_directory(folder, "--output_file")
    job = Job(sources, outputs, _describe(settings))
    if settings.resume and (complete := _load_complete(job, settings)):
        logging.info("%s: all outputs are complete already", outputs.metadata_file)
        return dataclasses.replace(job, metadata=complete, is_finished=True)
    return job


def _describe(settings: Settings) -> dict[str, Any]:
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


def describe_text(counts: Mapping[str, int], checksums: Iterable[str]) -> dict[str, Any]:
    """Returns the part of the metadata that the text determines.

    Args:
        counts: counts of all chunks.
        checksums: checksums of all chunks, in order.

    Raises:
        ValueError: the text yields no instances.
    """
    if not counts["instances"]:
        raise ValueError("--input_file: no text in these files yields a token")
    return {"text_checksum": corpus.text_checksum(checksums), "counts": dict(counts)}


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


def _load_complete(job: Job, settings: Settings) -> dict[str, Any] | None:
    """Returns the metadata of an earlier run that has written all outputs, from the same text.

    Reads the whole text to compute its checksum, if all outputs are there.

    Raises:
        ValueError: that run had different settings; the message names them.
    """
    try:
        earlier = records.load_metadata(job.outputs.metadata_file)
    except (FileNotFoundError, ValueError):  # an unreadable file is simply overwritten
        return None
    existing = filter(files.is_file, job.outputs.paths)
    found = [(os.path.basename(path), files.file_size(path)) for path in existing]
    if found != [(entry["name"], entry["bytes"]) for entry in earlier["files"]]:
        return None
    before, now = ({**run["settings"], **run["vocabulary"]} for run in (earlier, job.metadata))
    if changes := describe_changes(before, now):
        raise ValueError(
            f"{job.outputs.metadata_file}: the outputs are complete, but were created with "
            f"different settings: {changes}. Choose another --output_file, or recreate them with "
            "--noresume."
        )
    paths = [source.path for source in job.sources]
    chunks = corpus.read_chunks(paths, settings.chunk_bytes, settings.input_format)
    if earlier.get("text_checksum") == corpus.text_checksum(chunk.checksum for chunk in chunks):
        return earlier
    logging.warning("--input_file: the text has changed; creating its records again")
    return None


def _encode_text(directory: str, job: Job, settings: Settings) -> list[FinishedChunk]:
    """Runs the first stage: encodes and spills all unfinished chunks; returns all, in order."""
    planned = corpus.plan_jobs(job.sources, settings.chunk_bytes, settings.input_format)
    args = (directory, settings, len(job.outputs.paths))
    num_workers = _processes(settings)
    if not any(read_job.is_stream for read_job in planned):
        num_workers = min(num_workers, len(planned))
    chunks: list[FinishedChunk] = []
    instances = 0
    size = sum(read_job.size for read_job in planned)
    with tqdm(desc="making instances", total=size, unit="B", unit_scale=True, disable=None) as bar:
        parts = _divide(planned, settings)
        for chunk, read_bytes in workers.run(_make_chunk_work, args, parts, num_workers):
            chunks.append(chunk)
            instances += chunk.counts["instances"]
            bar.set_postfix_str(f"{instances:,} made", refresh=False)
            bar.update(read_bytes)
    return sorted(chunks, key=lambda chunk: chunk.position)


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

    def work(part: corpus.ReadJob | corpus.Chunk) -> Iterator[tuple[FinishedChunk, int]]:
        for chunk in [part] if isinstance(part, corpus.Chunk) else _read(part, settings):
            checksum = chunk.checksum
            finished = find_chunk(directory, chunk.position, checksum)
            if finished is None:
                stem = _chunk_stem(directory, chunk.position, checksum)
                paths, counts = encoding.spill(encode(chunk), stem, num_outputs)
                blocks = list(map(os.path.basename, paths))
                finished = FinishedChunk(chunk.position, checksum, blocks, counts)
                if blocks:
                    finish_chunk(directory, finished)
            yield finished, chunk.read_bytes

    return work


def _read(job: corpus.ReadJob, settings: Settings) -> Iterator[corpus.Chunk]:
    return corpus.read_job(job, settings.chunk_bytes, settings.input_format)


def _write_outputs(
    blocks: list[str], counts: Mapping[str, int], outputs: Outputs, settings: Settings
) -> list[dict[str, Any]]:
    """Runs the second stage: shuffles and writes all outputs; returns their metadata."""
    files.remove_half_written(outputs.all_files)
    bytes_per_output = counts["record_bytes"] / len(outputs.paths)
    groups = max(1, math.ceil(bytes_per_output / settings.shuffle_bytes))
    args = (blocks, outputs, settings.random_seed, groups)
    num_workers = min(_processes(settings), len(outputs.paths))
    instances = [0] * len(outputs.paths)
    with tqdm(desc="writing", total=counts["instances"], unit=" records", disable=None) as bar:
        tasks = range(len(outputs.paths))
        for output, written in workers.run(_make_output_work, args, tasks, num_workers):
            instances[output] += written
            bar.update(written)
    return list(map(records.describe_file, outputs.paths, instances))


def _make_output_work(
    blocks: list[str], outputs: Outputs, random_seed: int, groups: int
) -> Callable[[int], Iterator[tuple[int, int]]]:
    """Returns the work of a process in the second stage.

    For the index of an output, it yields that index and numbers of records written.
    """

    def work(output: int) -> Iterator[tuple[int, int]]:
        shuffled = encoding.shuffled(blocks, output, len(outputs.paths), groups, random_seed)
        for written in records.write_records(outputs.paths[output], shuffled):
            yield output, written

    return work


def _processes(settings: Settings) -> int:
    return settings.num_workers or workers.available_cores()


# Keeps the progress of an unfinished run of the data program in a work directory.
#
# The directory contains these files:
#
# * `run.json`: the settings that determine the bytes of the outputs;
# * `run.lock`: locked by the process that uses the directory;
# * `chunk-000012-000001048576-<checksum>-000.spill`, …: the records of the chunk of file 12 at
#   offset 1048576, with the checksum of its text;
# * `chunk-000012-000001048576-<checksum>.json`: written when this chunk is finished; its blocks and
#   counts.
#
# Each file is written under a temporary name and then renamed. The directory is therefore
# consistent whenever a process is killed, and the next run continues from it. If the text has
# changed since, the checksums differ: such chunks are not found, and created again.

_RUN = "run.json"
_LOCK = "run.lock"
_CHUNK = re.compile(r"chunk-[\da-f-]+\.json")
_OURS = re.compile(rf"{_LOCK}|{_RUN}.*|chunk-\d.*")  # half-written files included


class FinishedChunk(NamedTuple):
    """A chunk whose records are in the work directory.

    Attributes:
        position: identifies the chunk.
        checksum: checksum of its text.
        blocks: names of the blocks with its records, in order.
        counts: what it adds to the counts in the metadata.
    """

    position: Position
    checksum: str
    blocks: list[str]
    counts: Mapping[str, int]


def _chunk_stem(directory: str, position: Position, checksum: str) -> str:
    """Returns the path prefix of a chunk's files."""
    number, offset = position
    return os.path.join(directory, f"chunk-{number:06d}-{offset:012d}-{checksum}")


def finish_chunk(directory: str, chunk: FinishedChunk) -> None:
    """Records that a chunk is finished, with all its records in its blocks."""
    path = f"{_chunk_stem(directory, chunk.position, chunk.checksum)}.json"
    _write_json(path, {"blocks": chunk.blocks, "counts": chunk.counts})


def find_chunk(directory: str, position: Position, checksum: str) -> FinishedChunk | None:
    """Returns the finished chunk with this position and text, or None."""
    path = f"{_chunk_stem(directory, position, checksum)}.json"
    if not os.path.exists(path):
        return None
    entry = files.read_json(path, {"blocks": list, "counts": dict})
    return FinishedChunk(position, checksum, entry["blocks"], entry["counts"])


def _has_finished_chunks(directory: str) -> bool:
    return any(map(_CHUNK.fullmatch, os.listdir(directory)))


def _clear(directory: str) -> None:
    """Removes this program's files but the lock."""
    ours = set(filter(_OURS.fullmatch, os.listdir(directory))) - {_LOCK}
    # run.json first: after a kill, the next run does not take the other files for its own.
    for name in sorted(ours, key=lambda name: name != _RUN):
        os.remove(os.path.join(directory, name))


@contextlib.contextmanager
def _locked(directory: str) -> Iterator[None]:
    """Locks a work directory; the kernel releases the lock if the process is killed.

    On file systems without locks, this logs a warning and continues without a lock.

    Raises:
        ValueError: another process holds the lock.
    """
    path = os.path.join(directory, _LOCK)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(filelock.FileLock(path, timeout=0, fallback_to_soft=False))
        except filelock.Timeout:
            raise ValueError(
                f"--work_dir={directory}: another process is using it; wait until that has finished"
            ) from None
        except OSError as error:
            logging.warning("%s: cannot lock out other processes (%s)", path, error.strerror)
        yield


@contextlib.contextmanager
def open_work_directory(path: str, run: Mapping[str, Any]) -> Iterator[None]:
    """Opens a work directory, which is created if needed and removed at the end.

    After an error, it remains if it contains finished work.

    Args:
        path: the directory.
        run: what must be equal for an interrupted run to be resumed: settings, vocabulary and file
            names, as JSON values.

    Raises:
        ValueError: the directory contains an interrupted run with different values, is in use
            by another process, or contains unrelated files.
    """
    files.ensure_directory(path, "--work_dir")
    names = os.listdir(path)
    if _RUN not in names and not all(map(_OURS.fullmatch, names)):
        raise ValueError(
            f"--work_dir={path}: contains other files; choose an empty or a new directory"
        )
    with _locked(path):
        _resume_or_start(path, run)
        try:
            yield
            _clear(path)
        finally:
            if _has_finished_chunks(path):
                logging.warning(
                    "%s: finished work is kept; run the same command again to resume", path
                )
            else:
                _clear(path)
                with contextlib.suppress(OSError):
                    os.remove(os.path.join(path, _LOCK))
                with contextlib.suppress(OSError):  # it still contains the user's files
                    os.rmdir(path)


def _resume_or_start(directory: str, run: Mapping[str, Any]) -> None:
    """Compares `run` with that of an interrupted run, or saves it if there is nothing to resume.

    The text may have changed since: chunks are compared with it later, one by one.
    """
    path = os.path.join(directory, _RUN)
    if not (os.path.exists(path) and _has_finished_chunks(directory)):
        _clear(directory)
        _write_json(path, run)
    elif changes := describe_changes(files.read_json(path), run):
        raise ValueError(
            f"{directory}: the interrupted run had different settings: {changes}. Resume it "
            "with those, or remove the directory to start over."
        )
    else:
        logging.info("%s: resuming an interrupted run", directory)


def describe_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Returns a description of the values of `now` that differ from `before`; "" if none do."""
    changed = (key for key in now if before.get(key) != now[key])
    return "; ".join(f"{key} {before.get(key)!r}, now {now[key]!r}" for key in changed)


def _write_json(path: str, content: Mapping[str, Any]) -> None:
    files.write_file(path, json.dumps(content))


# Logs some instances and the counts at the end of a run, and warns if the counts look wrong.
#
# Text in the wrong format or language also produces records, but models learn little from them. The
# counts are therefore compared with those of well-formed text.

# In well-formed text, the labels are about equally frequent (of two, 50 to 60 % are 1), and about
# 0.1 % of the tokens are unknown. The latter rises to 5 % with typographic quotes, which the
# vocabularies of the released English models lack, and to 50 % in the wrong language.
MAX_UNKNOWN = 0.07  # fraction of the tokens
MAX_LONG_SENTENCES = 0.05  # fraction of the sentences
MAX_IMBALANCE = 1 / 6  # deviation of the fraction of instances with a label from equal shares
MIN_LENGTH = 0.25  # mean length of an instance, as a fraction of max_seq_length


def log_instances(settings: Settings) -> None:
    """Logs the first instances, cycling through the outputs, as Google's program does."""
    paths = Outputs.parse(settings.output_file).paths
    tokenizer = load_tokenizer(settings)
    interleaved = itertools.zip_longest(*map(read_records, paths))
    present = filter(None, itertools.chain.from_iterable(interleaved))
    for record in itertools.islice(present, settings.num_logged_instances):
        features = decode_example(record)
        ids = features["input_ids"][features["input_mask"] > 0].tolist()
        logging.info("*** Example ***")
        logging.info("tokens: %s", " ".join(tokenizer.convert_ids_to_tokens(ids)))
        for name in FEATURES:
            logging.info("%s: %s", name, " ".join(map(str, features[name].tolist())))


def log_counts(metadata: Mapping[str, Any], settings: EncodingSettings) -> None:
    """Logs the counts of a metadata file, with a warning for each likely problem."""
    counts = collections.Counter[str](metadata["counts"])
    instances, sentences, tokens = counts["instances"], counts["sentences"], counts["tokens"]
    labels = "".join(
        f", {counts[f'label_{label}'] / instances:.2%} of the instances labeled {label}"
        for label in range(1, settings.objective.num_classes)
    )
    logging.info(
        f"{counts['documents']} documents, {sentences} sentences, {tokens} tokens of text -> "
        f"{instances} instances of {counts['positions'] / instances:.1f} tokens on average; "
        f"{counts['predictions'] / counts['positions']:.2%} of the tokens to predict{labels}"
    )
    logging.info(
        f"{sentences / counts['documents']:.1f} sentences per document, "
        f"{tokens / sentences:.1f} tokens per sentence; "
        f"{counts['long_sentences'] / sentences:.2%} of the sentences are longer than a sequence, "
        f"{counts['unknown'] / tokens:.2%} of the tokens are not in the vocabulary"
    )
    for problem in find_problems(counts, settings, metadata["vocabulary"]["file"]):
        logging.warning(problem)


def find_problems(
    counts: collections.Counter[str], settings: EncodingSettings, vocabulary: str
) -> list[str]:
    """Returns a message for each likely problem of the records, with the flag that solves it.

    Args:
        counts: the counts of the metadata.
        settings: the settings the records were created with.
        vocabulary: file name of the vocabulary.
    """
    instances, sentences = counts["instances"], counts["sentences"]
    objective, max_seq_length = settings.objective, settings.max_seq_length
    # At least four standard deviations: by chance, a few instances may all have the same label.
    tolerance = max(MAX_IMBALANCE * instances, 2 * math.sqrt(instances))
    problems = [
        f"{counts[f'label_{label}'] / instances:.0%} of the instances are labeled "
        f"{objective.describe(label)}: the second segment is random where a sentence is alone in "
        f"its document ({sentences / counts['documents']:.1f} on average) or fills a sequence."
        for label in range(1, objective.num_classes)
        if abs(counts[f"label_{label}"] - instances / objective.num_classes) > tolerance
    ]
    if counts["long_sentences"] > MAX_LONG_SENTENCES * sentences:
        problems.append(
            f"{counts['long_sentences'] / sentences:.0%} of the sentences are longer than a "
            f"sequence and are truncated (max_seq_length={max_seq_length})."
        )
    length = counts["positions"] / instances
    if length < MIN_LENGTH * max_seq_length:
        problems.append(
            f"instances have {length:.0f} tokens on average: with max_seq_length={max_seq_length} "
            "most of each sequence is padding, which takes as much time to train on as text."
        )
    if problems:
        problems.append(
            "Consider --split_sentences if lines are paragraphs, --input_format=documents if "
            "blank lines do not separate documents, or another --max_seq_length."
        )
    if counts["unknown"] > MAX_UNKNOWN * counts["tokens"]:
        problems.append(
            f"{counts['unknown'] / counts['tokens']:.0%} of the tokens are not in the vocabulary "
            f"{vocabulary}. Choose one for the language and the letter case of the text with "
            f"--spm_model_file or --vocab_file (now --do_lower_case={settings.do_lower_case})."
        )
    return problems
