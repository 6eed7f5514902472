r"""Creates pre-training records from text: one sentence per line, blank lines between documents.

English, with a SentencePiece model:

    python create_pretraining_data.py --input_file=corpus/*.txt --output_file=records/train@8 \
        --spm_model_file=30k-clean.model --vocab_file=30k-clean.vocab --dupe_factor=10

Chinese, with a WordPiece vocabulary:

    python create_pretraining_data.py --input_file=news.txt --output_file=news.tfrecord \
        --vocab_file=vocab_chinese.txt --max_predictions_per_seq=76

Writes the record files (records/train-00000-of-00008, ...) and records/train.records.json, which
describes them. Run the same command again to resume an interrupted run; with --resume, outputs that
are already complete are kept as well. For other kinds of text, use --input_format (JSON lines, or
one document per file) or --split_sentences (paragraphs).
"""

from __future__ import annotations

import dataclasses

from albert_tf.data.settings import Settings
from albert_tf.files import JsonObject

__all__ = ["Settings", "run"]


@dataclasses.dataclass(frozen=True)
class Result:
    """The outcome of a run.

    Attributes:
        metadata: content of the metadata file: settings, vocabulary, counts and files.
    """

    metadata: JsonObject

    def __str__(self) -> str:
        instances = self.metadata["counts"]["instances"]
        return f"{instances} instances in {len(self.metadata['files'])} files"


def run(settings: Settings) -> Result:
    """Creates pre-training records from text, as create_pretraining_data.py does.

    At the end, logs some of the records, their counts, and warnings if the text looks wrong.

    >>> from albert_tf import data
    >>> settings = data.Settings(
    ...     input_file="corpus/*.txt",
    ...     output_file="records/train@8",
    ...     spm_model_file="30k-clean.model",
    ... )
    >>> print(data.run(settings))  # doctest: +SKIP
    4711 instances in 8 files

    Args:
        settings: the flags of that program. `Settings.make` also applies albert_zh's defaults.

    Returns:
        The metadata: settings, vocabulary, counts and files.

    Raises:
        ValueError, OSError: settings, files or text are invalid or do not match; the message says
            which.
        KeyboardInterrupt: the run was interrupted; the message says how to resume it.
    """
    from albert_tf.data import beam, create, report  # imported late, for the sake of `--help`

    engine = beam if settings.runner else create
    try:
        metadata = engine.create_pretraining_data(settings)
        report.log_instances(settings)
        report.log_counts(metadata, settings)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("interrupted; run the same command again to resume") from None
    return Result(metadata)
