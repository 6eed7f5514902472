"""Implements `albert predict`: predicts from texts or a file, given the settings."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from absl import logging
from tqdm import tqdm

from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.finetuning.task import Result
from albert_tf.inference import answer_file
from albert_tf.inference.inputs import Block, ExampleType, Inputs, Origin
from albert_tf.inference.opening import make_predictor, using_devices
from albert_tf.inference.predictor import Predictor
from albert_tf.inference.settings import Settings


def run(
    settings: Settings, source: ModelSource, task: str, inputs: Inputs[ExampleType]
) -> Iterator[Result]:
    """Yields the result of each input, in input order; for a file, with `line` or `row`, and ids.

    Args:
        settings: the settings.
        source: the model.
        task: name of the task.
        inputs: the inputs, as `read_inputs` returns them.

    Raises:
        ValueError, OSError: the model cannot be used; the message says why.
    """
    for answers in _answers(settings, source, task, inputs):
        for origin, result in answers:
            yield {**origin, **result}


def write(
    settings: Settings, source: ModelSource, task: str, inputs: Inputs[ExampleType]
) -> Iterator[Result]:
    """Writes the result of each input to `output_file`; yields nothing. Arguments as of `run`.

    Raises:
        ValueError, OSError: the model cannot be used, or the file not be written.
    """
    answers = _answers(settings, source, task, inputs)
    answer_file.write(settings.output_file or "", answers, inputs.columns)
    return iter(())


def _answers(
    settings: Settings, source: ModelSource, task: str, inputs: Inputs[ExampleType]
) -> Iterator[list[tuple[Origin, Result]]]:
    """Yields blocks of the origins of inputs and their results."""
    with open_predictor(settings, source, task) as predictor:
        for block in with_progress(settings, inputs):
            results = predictor.predict([example for _, example in block])
            origins = [origin for origin, _ in block]
            yield list(zip(origins, results, strict=True))


@contextlib.contextmanager
def open_predictor(settings: Settings, source: ModelSource, task: str) -> Iterator[Predictor]:
    """Context manager with a predictor, which logs at the end how many texts were truncated."""
    with using_devices(settings, source):
        predictor = make_predictor(source, task, settings, settings.precision, settings.threads)
        yield predictor
        if predictor.num_truncated:
            logging.warning(
                "%d texts are longer than max_seq_length=%d: only a part of each was read",
                predictor.num_truncated,
                predictor.max_seq_length,
            )


def with_progress(settings: Settings, inputs: Inputs[ExampleType]) -> Iterator[Block[ExampleType]]:
    """Yields the blocks; shows a progress bar for a file if only stderr is a terminal."""
    hidden = settings.input_file is None or sys.stdout.isatty() or not sys.stderr.isatty()
    with tqdm(total=inputs.total, desc="predicting", unit="row", disable=hidden) as bar:
        for block in inputs:
            yield block
            bar.update(len(block))
