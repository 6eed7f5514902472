"""Reads the file of a SentencePiece model: its pieces, and the options of its normalization.

The package sentencepiece has a module for this, `sentencepiece_model_pb2`. In its releases from
0.2.2 on, that module requires protobuf 6, and TensorFlow up to 2.19 requires an older protobuf.

Source: `sentencepiece_model.proto` of google/sentencepiece, for the numbers of the fields.
"""

from __future__ import annotations

import dataclasses

from albert_tf.protobuf_wire import fields

UNIGRAM = 1  # a model type
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4  # kinds of pieces

# Fields of the message ModelProto, and of the messages in it.
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_TEXT, _SCORE, _KIND = 1, 2, 3
_MODEL_TYPE, _WHITESPACE_IS_SUFFIX, _BYTE_FALLBACK = 3, 24, 35
_CHARSMAP, _DUMMY_PREFIX, _REMOVE_WHITESPACES, _ESCAPE_WHITESPACES = 2, 3, 4, 5


@dataclasses.dataclass(frozen=True)
class Piece:
    """A piece of the vocabulary.

    Attributes:
        text: the piece, in which "▁" stands for a space.
        score: its log probability in a unigram model.
        kind: NORMAL, CONTROL, USER_DEFINED or another type of the file format.
    """

    text: str
    score: float
    kind: int


@dataclasses.dataclass(frozen=True)
class SentencePieceFile:
    """What the file of a SentencePiece model says.

    Attributes:
        pieces: the vocabulary, in the order of the ids.
        model_type: UNIGRAM, or another type of model.
        byte_fallback: whether unknown characters become pieces of single bytes.
        treat_whitespace_as_suffix: whether "▁" ends a word instead of beginning it.
        precompiled_charsmap: the normalization, in SentencePiece's format; b"" for none.
        add_dummy_prefix: whether a space is added to a text.
        remove_extra_whitespaces: whether runs of spaces become one.
        escape_whitespaces: whether "▁" replaces spaces.
    """

    pieces: tuple[Piece, ...]
    model_type: int
    byte_fallback: bool
    treat_whitespace_as_suffix: bool
    precompiled_charsmap: bytes
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool
    escape_whitespaces: bool


def read_sentencepiece_file(content: bytes) -> SentencePieceFile:
    """Parses the content of a SentencePiece model's file.

    Raises:
        ValueError: it is no such file.
    """
    messages = list(fields(content))
    trainer = _last_values(messages, _TRAINER)
    normalizer = _last_values(messages, _NORMALIZER)
    charsmap = normalizer.get(_CHARSMAP, b"")
    if not isinstance(charsmap, bytes):
        raise ValueError("not a SentencePiece model: its normalization is a number")
    return SentencePieceFile(
        pieces=tuple(_piece(value) for number, value in messages if number == _PIECES),
        model_type=int(trainer.get(_MODEL_TYPE, UNIGRAM)),
        byte_fallback=bool(trainer.get(_BYTE_FALLBACK, False)),
        treat_whitespace_as_suffix=bool(trainer.get(_WHITESPACE_IS_SUFFIX, False)),
        precompiled_charsmap=charsmap,
        add_dummy_prefix=bool(normalizer.get(_DUMMY_PREFIX, True)),
        remove_extra_whitespaces=bool(normalizer.get(_REMOVE_WHITESPACES, True)),
        escape_whitespaces=bool(normalizer.get(_ESCAPE_WHITESPACES, True)),
    )


def _last_values(
    messages: list[tuple[int, int | float | bytes]], wanted: int
) -> dict[int, int | float | bytes]:
    """Returns number → value of the fields of a message within others; the last value counts."""
    parts = [value for number, value in messages if number == wanted]
    return dict(fields(b"".join(part for part in parts if isinstance(part, bytes))))


def _piece(message: int | float | bytes) -> Piece:
    values = dict(fields(message)) if isinstance(message, bytes) else {}
    text, score, kind = values.get(_TEXT), values.get(_SCORE, 0.0), values.get(_KIND, NORMAL)
    if not isinstance(text, bytes) or isinstance(score, bytes) or isinstance(kind, bytes):
        raise ValueError("not a SentencePiece model: a piece without text, score or type")
    return Piece(text.decode("utf-8"), float(score), int(kind))
