"""SentencePiece models: their files, and normalized text to pieces and ids as Google does it.

Of a file, the pieces and the options of the normalization are read. The package sentencepiece has a
module for this, `sentencepiece_model_pb2`. In its releases from 0.2.2 on, that module requires
protobuf 6, and TensorFlow up to 2.19 requires an older protobuf.

Source: `sentencepiece_model.proto` of google/sentencepiece, for the numbers of the fields.
"""

from __future__ import annotations

import dataclasses
import unicodedata
from typing import TypeVar

import sentencepiece

from albert_tf.model.tokenization.characters import BoundedCache, is_combining
from albert_tf.protobuf_wire import fields

SPIECE_UNDERLINE = "\u2581"  # "▁", SentencePiece's symbol for a space
_DROP_COMBINING: BoundedCache[int, int | None] = BoundedCache(
    lambda c: None if is_combining(chr(c)) else c
)

PieceOrId = TypeVar("PieceOrId", str, int)


def preprocess_text(text: str, remove_space: bool = True, lower: bool = False) -> str:
    """Normalizes text for a SentencePiece vocabulary (official `preprocess_text`).

    Accents are removed even for cased models. As in the official program, whitespace is collapsed
    before NFKD, so characters that decompose to a space (such as U+00B4, the acute accent) leave
    one.

    Args:
        text: any text.
        remove_space: whether to collapse runs of whitespace to one space and strip both ends.
        lower: whether to lowercase the text.

    Returns:
        The text in NFKD without combining characters.
    """
    if remove_space:
        text = " ".join(text.split())
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text).translate(_DROP_COMBINING)
    return text.lower() if lower else text


def has_number_comma(piece: str) -> bool:
    """Returns whether a piece ends in a digit and a comma, such as "▁1999,"."""
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def encode_pieces(sp: sentencepiece.SentencePieceProcessor, text: str) -> list[str]:
    """Returns the pieces of `text`, splitting numbers from a comma (official `encode_pieces`).

    A piece such as "▁1999," is encoded again without the comma, which becomes a separate piece. The
    second encoding adds a "▁" in front even in the middle of a word. The official program is meant
    to remove it but never does, and models have been trained with it.

    Args:
        sp: a `sentencepiece.SentencePieceProcessor`.
        text: text normalized by `preprocess_text`.
    """
    return _split_number_commas(sp, sp.encode(text, out_type=str))


def _split_number_commas(sp: sentencepiece.SentencePieceProcessor, pieces: list[str]) -> list[str]:
    """Returns the pieces of a text, with numbers split from a comma; see `encode_pieces`."""
    result: list[str] = []
    for piece in pieces:
        if has_number_comma(piece):
            body = piece[:-1].replace(SPIECE_UNDERLINE, "")
            result += [*sp.encode(body, out_type=str), ","]
        else:
            result.append(piece)
    return result


class SentencePieceEncoder:
    """Converts normalized text to pieces and ids with a SentencePiece model."""

    def __init__(self, path: str, content: bytes) -> None:
        try:
            self.sp = sentencepiece.SentencePieceProcessor(model_proto=content)
        except RuntimeError:
            content = b""
        if not content:  # an empty file, too, because sentencepiece accepts it as "no model yet"
            raise ValueError(
                f"{path}: not a SentencePiece model. --spm_model_file expects the binary .model "
                "file; pass a .vocab or vocab.txt file as --vocab_file."
            )
        try:
            pieces = self.sp.id_to_piece(list(range(self.sp.get_piece_size())))
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}: this SentencePiece model is damaged: a piece is not UTF-8 "
                f"({error.reason}). Restore it from a backup."
            ) from None
        self.vocab: dict[str, int] = {piece: piece_id for piece_id, piece in enumerate(pieces)}
        self.unk_id = int(self.sp.unk_id())
        # The model's ids differ from the official program's only if they contain one of these: a
        # piece that ends in a digit and a comma; or an unknown piece, which may also end that way,
        # or spell a special token, whose id the official program then uses.
        commas = {
            piece_id
            for piece, piece_id in self.vocab.items()
            if piece.endswith(",") and has_number_comma(piece)
        }
        self._doubtful = frozenset((self.unk_id, *commas))
        self._of_other_ids = frozenset(commas) if self._unknown_stays(content) else self._doubtful
        self._has_number_comma = BoundedCache(has_number_comma)
        self._ids_of = BoundedCache(self._id_of)

    def _unknown_stays(self, content: bytes) -> bool:
        """Returns whether an unknown piece never ends in a comma or spells another piece.

        A unigram model makes one unknown piece of each run of characters that are no pieces.
        """
        trainer = _last_values(list(fields(content)), _TRAINER)
        characters = {
            piece
            for piece, piece_id in self.vocab.items()
            if len(piece) == 1
            and not (self.sp.is_control(piece_id) or self.sp.is_unused(piece_id))
            and piece_id != self.unk_id
        }
        return (
            trainer.get(_MODEL_TYPE, UNIGRAM) == UNIGRAM
            and "," in characters
            and not any(map(characters.isdisjoint, self.vocab))
        )

    def tokenize(self, text: str) -> list[str]:
        """Returns the pieces of a normalized text."""
        pieces: list[str] = self.sp.encode(text, out_type=str)
        if any(map(self._has_number_comma.__getitem__, pieces)):
            return _split_number_commas(self.sp, pieces)
        return pieces

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Returns the ids of each text."""
        return self._encode_doubtful(texts, self._of_other_ids)[0]

    def encode_and_spell(self, texts: list[str]) -> tuple[list[list[int]], dict[int, list[str]]]:
        """Returns the ids of each text; and index → pieces of those with an unknown piece or more.

        The second may contain other texts.
        """
        return self._encode_doubtful(texts, self._doubtful)

    def _encode_doubtful(
        self, texts: list[str], doubtful_ids: frozenset[int]
    ) -> tuple[list[list[int]], dict[int, list[str]]]:
        """Returns the ids of each text; and index → pieces of those with one of some ids."""
        ids = self._encode(texts, int)
        doubtful = [row for row, row_ids in enumerate(ids) if not doubtful_ids.isdisjoint(row_ids)]
        spelled = self._encode([texts[row] for row in doubtful], str)
        pieces_of = {
            row: _split_number_commas(self.sp, pieces)
            if any(map(self._has_number_comma.__getitem__, pieces))
            else pieces
            for row, pieces in zip(doubtful, spelled, strict=True)
        }
        for row, pieces in pieces_of.items():
            ids[row] = list(map(self._ids_of.__getitem__, pieces))
        return ids, pieces_of

    def _id_of(self, piece: str) -> int:
        return self.vocab.get(piece, self.unk_id)

    def _encode(self, texts: list[str], out_type: type[PieceOrId]) -> list[list[PieceOrId]]:
        """Returns the ids or the pieces of each text, as the model gives them."""
        if not texts[1:]:  # encoding a single text as a batch is slow
            return [self.sp.encode(text, out_type=out_type) for text in texts]
        # One thread, because the data program runs a process on every core.
        encoded: list[list[PieceOrId]] = self.sp.encode(texts, out_type=out_type, num_threads=1)
        return encoded


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
