"""Creates pre-training records with Apache Beam, for corpora too large for one machine.

    read files as chunks → encode each (`encoding`) → group by output → shuffle and write

A file is read by one worker (`chunks`), and its chunks are encoded by all. With the same seed and
chunk size, each output has the same bytes as that of `create` if it fits into one shuffle group
there. The records of one output are shuffled in the memory of one worker: use so many outputs
(`name@4096`) that each fits.

The pipeline consists of the transforms that every runner supports: no side inputs, no tagged
outputs. Counts are elements like the records, with a key of their own.

Apache Beam is an optional dependency, imported when the pipeline is built. Every worker needs this
package installed, and all paths must be reachable from every worker (`gs://…`).
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import importlib
import logging
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from albert_tf import files
from albert_tf.data import create, record_metadata, records, shuffle
from albert_tf.data.chunks import Chunk, Pack, Position, pack_files, read_pack
from albert_tf.data.create import RecordOutputs
from albert_tf.data.encoding import make_chunk_encoder
from albert_tf.data.settings import EncodingSettings, Settings
from albert_tf.data.shuffle import EncodedBatch
from albert_tf.files import JsonObject

if TYPE_CHECKING:
    import apache_beam
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners import PipelineRunner

COUNTS = -1  # key of the counts; the keys of records are the indices of outputs
ENCODERS = 2  # cached by each worker process
MAX_EMPTY_PACKS = 4096
DASK_PARTITIONS = 256  # the runner's default of 128 elements would leave most workers idle

# Short names that Beam does not know.
_RUNNERS = {"daskrunner": "apache_beam.runners.dask.dask_runner.DaskRunner"}

_make_encoder = functools.lru_cache(ENCODERS)(make_chunk_encoder)


@dataclasses.dataclass(frozen=True)
class Piece:
    """Some records of one output.

    Attributes:
        position: position of the chunk.
        number: index of the batch in the chunk.
        slots: the shuffle slot of each record.
        frames: the records, in TFRecord frames.
    """

    position: Position
    number: int
    slots: list[int]
    frames: list[bytes]


@dataclasses.dataclass(frozen=True)
class Counts:
    """What is known of some chunks.

    Attributes:
        counts: the sums of their counts.
        checksums: position of a chunk → checksum of its text.
    """

    counts: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    checksums: dict[Position, str] = dataclasses.field(default_factory=dict)

    def add(self, other: Counts) -> None:
        """Adds other chunks."""
        self.counts.update(other.counts)
        self.checksums.update(other.checksums)


def _pieces(
    chunk: Chunk, number: int, batch: EncodedBatch, num_outputs: int
) -> Iterator[tuple[int, Piece]]:
    """Splits a batch by output; yields (output, piece)."""
    outputs = batch.slots // shuffle.slots_per_output(num_outputs)
    for output in np.unique(outputs).tolist():
        chosen = np.flatnonzero(outputs == output).tolist()
        slots = batch.slots[chosen].tolist()
        frames = [batch.records[at] for at in chosen]
        yield output, Piece(chunk.position, number, slots, frames)


def _among_empty_packs(packs: list[Pack], chunk_bytes: int) -> list[Pack]:
    """Returns the packs with empty ones between them: about as many as there are chunks, at most.

    Dask never has more partitions than there are elements at the start, so that without the empty
    packs, the chunks of a single file would all be encoded by one worker.
    """
    text_bytes = sum(source.text_bytes for pack in packs for source in pack)
    count = min(MAX_EMPTY_PACKS, text_bytes // chunk_bytes)
    elements: list[Pack] = [()] * max(count, len(packs))
    for number, pack in enumerate(packs):
        elements[number * len(elements) // len(packs)] = pack
    return elements


def _read(pack: Pack, chunk_bytes: int, input_format: str) -> Iterator[Chunk]:
    """Yields the chunks of a pack; none of an empty one."""
    return read_pack(pack, chunk_bytes, input_format) if pack else iter(())


def _encode(
    chunk: Chunk, settings: EncodingSettings, num_outputs: int
) -> Iterator[tuple[int, Piece | Counts]]:
    """Yields the records of a chunk by output, and then its counts."""
    counts: collections.Counter[str] = collections.Counter()
    encode = _make_encoder(settings, num_outputs)
    for number, batch in enumerate(encode(chunk)):
        counts.update(batch.counts)
        yield from _pieces(chunk, number, batch, num_outputs)
    yield COUNTS, Counts(counts, {chunk.position: chunk.checksum})


def _write_group(
    group: tuple[int, Iterable[Piece | Counts]], outputs: RecordOutputs, random_seed: int
) -> tuple[int, tuple[int, JsonObject | Counts]]:
    """Writes the records of one output, or adds the counts.

    Returns:
        The same key for all groups, to collect them, and (output, metadata entry) or
        (COUNTS, counts).
    """
    output, values = group
    total = Counts()
    pieces: list[Piece] = []
    for value in values:
        if isinstance(value, Counts):
            total.add(value)
        else:
            pieces.append(value)
    made = total if output == COUNTS else _write_output(output, pieces, outputs, random_seed)
    return 0, (output, made)


def _write_output(
    output: int, pieces: list[Piece], outputs: RecordOutputs, random_seed: int
) -> JsonObject:
    """Shuffles and writes the records of one output; returns its metadata entry.

    The order is the same as in `create` if an output fits into one shuffle group there.
    """
    made: list[tuple[Position, int, bytes]] = []
    for piece in sorted(pieces, key=lambda piece: (piece.position, piece.number)):
        positions = [piece.position] * len(piece.slots)
        made += zip(positions, piece.slots, piece.frames, strict=True)
    made.sort(key=lambda record: record[:2])  # by chunk and slot; the sort is stable
    path = outputs.paths[output]
    order = shuffle.random_order(len(made), random_seed, output)
    shuffled = (made[at][2] for at in order)
    written = sum(records.write_records(path, shuffled))
    return record_metadata.describe_file(path, written)


def _finish(
    written: Iterable[tuple[int, JsonObject | Counts]],
    outputs: RecordOutputs,
    random_seed: int,
    metadata: JsonObject,
) -> None:
    """Writes the outputs without records and the metadata file.

    Raises:
        ValueError: the text yields no instances; nothing is written.
    """
    total = Counts()
    entries: dict[int, JsonObject] = {}
    for output, value in written:
        if isinstance(value, Counts):
            total.add(value)
        else:
            entries[output] = value
    checksums = (total.checksums[position] for position in sorted(total.checksums))
    made = create.describe_text(total.counts, checksums)
    for output in range(len(outputs.paths)):
        if output not in entries:
            entries[output] = _write_output(output, [], outputs, random_seed)
    made["files"] = [entries[output] for output in sorted(entries)]
    record_metadata.write_metadata(outputs.metadata_file, metadata | made)


def _import_beam() -> ModuleType:
    try:
        beam = importlib.import_module("apache_beam")
    except ImportError:
        raise ValueError(
            "--runner requires Apache Beam: pip install 'albert-tf2[beam]', or 'albert-tf2[dask]' "
            "for Dask, or omit the flag to use this machine only"
        ) from None
    logging.getLogger("apache_beam").setLevel(logging.WARNING)
    return beam


def _build(pipeline: apache_beam.Pipeline, job: create.Job, settings: Settings) -> None:
    """Adds the steps to the pipeline."""
    beam = _import_beam()
    text = settings.chunk_bytes, settings.input_format
    packs = pack_files(job.sources, *text)
    outputs = job.outputs
    seed = settings.random_seed
    _ = (
        pipeline
        | "files" >> beam.Create(_among_empty_packs(packs, settings.chunk_bytes))
        | "read chunks" >> beam.FlatMap(_read, *text)
        | "spread" >> beam.Reshuffle()
        | "encode" >> beam.FlatMap(_encode, settings, len(outputs.paths))
        | "by output" >> beam.GroupByKey()
        | "write" >> beam.Map(_write_group, outputs, seed)
        | "all" >> beam.GroupByKey()
        | "entries" >> beam.Values()
        | "finish" >> beam.Map(_finish, outputs, seed, job.metadata)
    )


def _make_runner(name: str) -> PipelineRunner:
    """Returns the runner of a name: a short one such as DirectRunner, or that of its class.

    Raises:
        ValueError: there is no such runner, or a package that it needs is not installed.
    """
    from apache_beam.runners import create_runner

    try:
        return create_runner(_RUNNERS.get(name.lower(), name))
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"--runner={name}: expected a runner of Apache Beam, such as DirectRunner or "
            f"DaskRunner, or the full name of its class ({error})"
        ) from None


def _pipeline_options(settings: Settings) -> PipelineOptions:
    """Returns the options of the pipeline."""
    options = [f"--{option.lstrip('-')}" for option in settings.beam_pipeline_options]
    if settings.runner.rpartition(".")[2].lower() == "daskrunner":
        # Of two options with the same name, the last one, which is the user's, counts.
        options.insert(0, f"--dask_npartitions={DASK_PARTITIONS}")
    return _import_beam().options.pipeline_options.PipelineOptions(options)


def create_pretraining_data(settings: Settings) -> JsonObject:
    """Creates pre-training records with Apache Beam, on the runner `settings.runner`.

    `num_workers`, `work_dir` and `shuffle_megabytes` are ignored, because the runner manages
    workers and storage. With `resume`, nothing is done if all outputs are complete.

    Returns:
        The content of the metadata file, as `create.create_pretraining_data`.

    Raises:
        ValueError: Apache Beam is not installed, the runner is unknown, or any error of
            `create.create_pretraining_data`.
    """
    beam = _import_beam()
    runner = _make_runner(settings.runner)
    options = _pipeline_options(settings)
    job = create.prepare(settings)
    if job.is_finished:
        return job.metadata
    with beam.Pipeline(runner, options) as pipeline:
        _build(pipeline, job, settings)
    files.remove_half_written(job.outputs.all_files)  # left by killed workers
    return record_metadata.load_metadata(job.outputs.metadata_file)
