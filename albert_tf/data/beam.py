"""Creates pre-training records with Apache Beam, for corpora too large for one machine.

    read chunks → encode each (`encoding`) → group by output → shuffle and write

A single worker reads the chunks in order, because the random seeds depend on the chunk index, and
distributes them to all workers. Reading takes about one percent of the total time. With the same
seed and chunk size, each output contains the same records as with `create`. The records of one
output are shuffled in the memory of one worker: use so many outputs (`name@4096`) that each fits.

Apache Beam is an optional dependency, imported when the pipeline is built. Every worker needs this
package installed, and all paths must be reachable from every worker (`gs://…`).
"""

from __future__ import annotations

import collections
import functools
import logging
import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from albert_tf import files
from albert_tf.data import corpus, create, records, shuffling
from albert_tf.data.encoding import EncodedBatch, make_chunk_encoder
from albert_tf.data.records import Outputs
from albert_tf.data.settings import EncodingSettings, Settings

COUNTS = "counts"  # tag of the encoding step's side output
ENCODERS = 2  # cached by each worker process

# Some records of one output: chunk index, batch index within the chunk, slots, TFRecord frames.
Piece = tuple[int, int, list[int], list[bytes]]
# Counts of some chunks, and chunk index → checksum.
Counts = tuple[collections.Counter[str], dict[int, str]]

_make_encoder = functools.lru_cache(ENCODERS)(make_chunk_encoder)


def _pieces(
    chunk: corpus.Chunk, number: int, batch: EncodedBatch, num_outputs: int
) -> Iterator[tuple[int, Piece]]:
    """Splits a batch by output; yields (output, piece)."""
    outputs = batch.slots // shuffling.slots_per_output(num_outputs)
    for output in np.unique(outputs).tolist():
        chosen = np.flatnonzero(outputs == output).tolist()
        slots, frames = batch.slots[chosen].tolist(), [batch.records[at] for at in chosen]
        yield output, (chunk.index, number, slots, frames)


def _encode(chunk: corpus.Chunk, settings: EncodingSettings, num_outputs: int) -> Iterator[Any]:
    """Yields the records of a chunk by output, and its counts as a tagged side output."""
    from apache_beam.pvalue import TaggedOutput

    counts: collections.Counter[str] = collections.Counter()
    size = 0
    encode = _make_encoder(settings, num_outputs)
    for number, batch in enumerate(encode(chunk)):
        counts.update(batch.counts)
        size += sum(map(len, batch.records))
        yield from _pieces(chunk, number, batch, num_outputs)
    counts["record_bytes"] = size
    yield TaggedOutput(COUNTS, (counts, {chunk.index: chunk.checksum}))


def _add_counts(all_counts: Iterable[Counts]) -> Counts:
    total: Counts = (collections.Counter(), {})
    for counts, checksums in all_counts:
        total[0].update(counts)
        total[1].update(checksums)
    return total


def _write_output(
    element: tuple[int, Iterable[Piece]], counts: Counts, outputs: Outputs, random_seed: int
) -> tuple[int, dict[str, Any]]:
    """Shuffles and writes the records of one output; returns the output and its metadata entry.

    The order is the same as in `create` if an output fits into one shuffle group there.

    Raises:
        ValueError: the text yields no instances; nothing is written.
    """
    if not counts[0]["instances"]:
        raise ValueError("--input_file: no text in these files yields a token")
    output, pieces = element
    made: list[tuple[int, int, bytes]] = []
    for chunk, _, slots, frames in sorted(filter(None, pieces), key=lambda piece: piece[:2]):
        made += zip([chunk] * len(slots), slots, frames, strict=True)
    made.sort(key=lambda record: record[:2])  # by chunk and slot; the sort is stable
    path = outputs.paths[output]
    with records.open_output(path, outputs.compression) as stream:
        for at in shuffling.random_order(len(made), random_seed, output):
            stream.write(made[at][2])
    entry = {
        "name": os.path.basename(path),
        "instances": len(made),
        "bytes": files.file_size(path),
    }
    return output, entry


def _write_metadata(
    entries: list[tuple[int, dict[str, Any]]],
    counts_and_checksums: Counts,
    metadata: dict[str, Any],
    path: str,
) -> None:
    counts, checksums = counts_and_checksums
    listed = [entry for _, entry in sorted(entries, key=lambda entry: entry[0])]
    checksum = corpus.text_checksum(checksums[index] for index in sorted(checksums))
    made = {"text_checksum": checksum, "counts": dict(counts), "files": listed}
    records.write_metadata(path, metadata | made)


def _import_beam() -> Any:
    try:
        import apache_beam
    except ImportError:
        raise ValueError(
            "--runner requires Apache Beam: pip install 'albert-tf2[beam]', or omit the flag to "
            "use this machine only"
        ) from None
    logging.getLogger("apache_beam").setLevel(logging.WARNING)
    return apache_beam


def _build(pipeline: Any, job: create.Job, settings: Settings) -> None:
    """Adds the steps to the pipeline."""
    beam = _import_beam()
    outputs = job.outputs
    num_outputs = len(outputs.paths)
    encoded = (
        pipeline
        | "files" >> beam.Create([job.input_files])
        | "read chunks"
        >> beam.FlatMap(corpus.read_chunks, settings.chunk_bytes, settings.input_format)
        | "spread" >> beam.Reshuffle()
        | "encode"
        >> beam.FlatMap(_encode, settings, num_outputs).with_outputs(COUNTS, main="records")
    )
    counts = beam.pvalue.AsSingleton(encoded[COUNTS] | "count" >> beam.CombineGlobally(_add_counts))
    # Ensures that outputs without records are written as well.
    empty = pipeline | "outputs" >> beam.Create([(n, ()) for n in range(num_outputs)])
    metadata = job.metadata, outputs.metadata_file
    _ = (
        (encoded["records"], empty)
        | "with empty ones" >> beam.Flatten()
        | "by output" >> beam.GroupByKey()
        | "write" >> beam.Map(_write_output, counts, outputs, settings.random_seed)
        | "all" >> beam.combiners.ToList()
        | "metadata" >> beam.Map(_write_metadata, counts, *metadata)
    )


def create_pretraining_data(settings: Settings) -> dict[str, Any]:
    """Creates pre-training records with Apache Beam, on the runner `settings.runner`.

    `num_workers`, `work_dir` and `shuffle_megabytes` are ignored, because the runner manages
    workers and storage. With `resume`, nothing is done if all outputs are complete.

    Returns:
        The content of the metadata file, as `create.create_pretraining_data`.

    Raises:
        ValueError: Apache Beam is not installed, or any error of `create.create_pretraining_data`.
    """
    beam = _import_beam()
    options = beam.options.pipeline_options.PipelineOptions(
        [f"--{option.lstrip('-')}" for option in settings.beam_pipeline_options],
        runner=settings.runner,
    )
    outputs = Outputs.parse(settings.output_file, settings.compression)
    with create.prepare(settings, outputs) as job:
        if job.is_finished:
            return job.metadata
        with beam.Pipeline(options=options) as pipeline:
            _build(pipeline, job, settings)
        return records.load_metadata(outputs.metadata_file)
