"""The program that creates pre-training data, as a function of its settings."""

from __future__ import annotations

import dataclasses
from typing import Any

from albert_tf.data import beam, create
from albert_tf.data.encoding import load_tokenizer
from albert_tf.data.records import Outputs
from albert_tf.data.settings import Settings


@dataclasses.dataclass(frozen=True)
class Result:
    """The outcome of a run.

    Attributes:
        metadata: content of the metadata file: settings, vocabulary, counts and files.
    """

    metadata: dict[str, Any]

    def __str__(self) -> str:
        instances = self.metadata["counts"]["instances"]
        return f"{instances} instances in {len(self.metadata['files'])} files"


def run(settings: Settings) -> Result:
    """Creates pre-training records from text, on this machine or with Apache Beam.

    At the end, logs some of the records, their counts, and warnings if the text looks wrong.

    Raises:
        FileNotFoundError, ValueError, OSError: see `create.create_pretraining_data`.
        KeyboardInterrupt: the run was interrupted; the message says how to resume it.
    """
    engine = beam if settings.runner else create
    try:
        metadata = engine.create_pretraining_data(settings)
        outputs = Outputs.parse(settings.output_file, settings.compression)
        tokenizer = load_tokenizer(settings)
        create.log_instances(outputs.paths, tokenizer, settings.num_logged_instances)
        create.log_counts(metadata, settings)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("interrupted; run the same command again to resume") from None
    return Result(metadata)
