"""Settings of what programs read: sequences, records and vocabularies."""

from __future__ import annotations

import dataclasses

from albert_tf.settings import REQUIRED, SettingsGroup, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class SequenceSettings(SettingsGroup):
    """How long sequences are."""

    GROUP = "data"

    max_seq_length: int = setting(
        512, "Maximum length of a sequence, in tokens; longer ones are truncated.", minimum=1
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordSettings(SequenceSettings):
    """What is read, and the shape of pre-training records."""

    GROUP = "data"

    input_file: str = setting(
        REQUIRED, "Input files: names and glob patterns with commas between them."
    )
    max_predictions_per_seq: int = setting(
        20, "Maximum number of masked tokens of a sequence.", minimum=1
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularySettings(SettingsGroup):
    """How text becomes tokens."""

    GROUP = "data"

    spm_model_file: str | None = setting(None, "SentencePiece model of the vocabulary.")
    vocab_file: str | None = setting(
        None, "WordPiece vocabulary, or the .vocab file of the SentencePiece model."
    )
    do_lower_case: bool = setting(True, "Lower-case the text; for uncased models.")
