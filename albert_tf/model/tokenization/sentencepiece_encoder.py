"""Normalized text to pieces and ids with a SentencePiece model, as Google's programs do it."""

from __future__ import annotations

import unicodedata
from typing import TypeVar

import sentencepiece

from albert_tf.model.tokenization.bounded_cache import BoundedCache
from albert_tf.model.tokenization.characters import is_combining

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
        commas = (
            piece_id
            for piece, piece_id in self.vocab.items()
            if piece.endswith(",") and has_number_comma(piece)
        )
        self._doubtful = frozenset((self.unk_id, *commas))
        self._has_number_comma = BoundedCache(has_number_comma)
        self._ids_of = BoundedCache(self._id_of)

    def tokenize(self, text: str) -> list[str]:
        """Returns the pieces of a normalized text."""
        return encode_pieces(self.sp, text)

    def encode_and_spell(self, texts: list[str]) -> tuple[list[list[int]], dict[int, list[str]]]:
        """Returns the ids of each text; and index → pieces of those with an unknown piece or more.

        The second may contain other texts.
        """
        ids = self._encode(texts, int)
        doubtful = [
            row for row, row_ids in enumerate(ids) if not self._doubtful.isdisjoint(row_ids)
        ]
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
