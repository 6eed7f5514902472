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

from typing import TYPE_CHECKING

from albert_tf.data.settings import Settings

if TYPE_CHECKING:
    from albert_tf.data.program import Result

__all__ = ["Settings", "run"]


def run(settings: Settings) -> Result:
    """Creates pre-training records from text, as create_pretraining_data.py does.

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
    """
    from albert_tf.data import program

    return program.run(settings)
