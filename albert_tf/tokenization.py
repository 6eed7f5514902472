"""From text to pieces and ids, as the official ALBERT tokenization.

Two kinds of vocabulary, one class:

* SentencePiece (English models): `preprocess_text`, then `encode_pieces`.
* WordPiece (Chinese models): `BasicTokenizer`, then `WordpieceTokenizer`, as BERT.

Read from the bottom up: `FullTokenizer` is what the programs use. It gives the pieces and ids of
google-research/albert's `tokenization.py` for every text, but is stricter: a special symbol that
the vocabulary lacks raises, instead of becoming an unknown id.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any

import sentencepiece

from albert_tf import files

SPIECE_UNDERLINE = "\u2581"  # "▁", SentencePiece's mark for a space
SPECIAL_TOKENS = ("[CLS]", "[SEP]", "[MASK]")
UNKNOWN_TOKEN = "[UNK]"
PAD_ID = 0  # the official programs pad with 0 whatever the vocabulary says
MAX_INPUT_CHARS_PER_WORD = 200  # a longer word is one unknown token
MAX_REMEMBERED = 200_000  # words, about 40 MB

# The code points that BERT surrounds with spaces: no kana and no hangul among them.
_CJK = re.compile(
    "[\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
    "\U0002b820-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f]"
)


def is_whitespace(char: str) -> bool:
    """Whether BERT treats `char` as a space: space, tab, newline, return or category Zs."""
    return char in " \t\n\r" or unicodedata.category(char) == "Zs"


def is_control(char: str) -> bool:
    """Whether BERT drops `char` as a control character: Cc or Cf, but no tab, newline, return."""
    return char not in "\t\n\r" and unicodedata.category(char) in ("Cc", "Cf")


def is_punctuation(char: str) -> bool:
    """Whether BERT cuts at `char`: category P*, or any ASCII sign (even "$", "^" and "`")."""
    if char.isascii():
        return char.isprintable() and not char.isalnum() and char != " "
    return unicodedata.category(char).startswith("P")


class _Memory(dict[Any, Any]):
    """A function's results, each worked out at first need; also a table for `str.translate`."""

    def __init__(self, function: Callable[[Any], Any]):
        super().__init__()
        self._function = function

    def __missing__(self, key: Any) -> Any:
        if len(self) >= MAX_REMEMBERED:
            self.clear()
        value = self[key] = self._function(key)
        return value


def _clean(code: int) -> str | None:
    char = chr(code)
    if is_whitespace(char):
        return " "
    if char in "\0\ufffd" or is_control(char):
        return None
    return f" {char} " if _CJK.match(char) else char


_CLEAN_AND_SPACE_CJK = _Memory(_clean)
_SPACE_PUNCTUATION = _Memory(lambda c: f" {chr(c)} " if is_punctuation(chr(c)) else c)
_DROP_COMBINING = _Memory(lambda c: None if unicodedata.combining(chr(c)) else c)
_DROP_MARKS = _Memory(lambda c: None if unicodedata.category(chr(c)) == "Mn" else c)


def preprocess_text(text: str, remove_space: bool = True, lower: bool = False) -> str:
    """Normalizes text for a SentencePiece vocabulary (official `preprocess_text`).

    Accents go even in cased models. Whitespace is collapsed before NFKD, as in the official
    program, so that a character which decomposes to a space (U+00B4, the acute accent) leaves one.

    Args:
        text: any text.
        remove_space: collapse each run of whitespace to one space and strip both ends.
        lower: lower-case at the end.

    Returns:
        the text in NFKD without combining characters.
    """
    if remove_space:
        text = " ".join(text.split())
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text).translate(_DROP_COMBINING)
    return text.lower() if lower else text


def _has_number_comma(piece: str) -> bool:
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def encode_pieces(sp: Any, text: str) -> list[str]:
    """Pieces of `text`, numbers separated from the comma after them (official `encode_pieces`).

    A piece such as "▁1999," is encoded anew without its comma, and the comma follows as a piece of
    its own. The second encoding adds a "▁" in front even in the middle of a word; the official
    program means to take it away again but never does, and trained models know it so.

    Args:
        sp: a `sentencepiece.SentencePieceProcessor`.
        text: text as `preprocess_text` leaves it.
    """
    result: list[str] = []
    for piece in sp.encode(text, out_type=str):
        if _has_number_comma(piece):
            body = piece[:-1].replace(SPIECE_UNDERLINE, "")
            result += [*sp.encode(body, out_type=str), ","]
        else:
            result.append(piece)
    return result


def _vocabulary_lines(path: str) -> list[str]:
    try:
        text = files.read_text(path)
    except ValueError as error:
        raise ValueError(f"{error} A SentencePiece .model belongs to --spm_model_file.") from None
    if not text:
        raise ValueError(f"{path}: an empty file; expected a vocabulary, one token a line")
    return text.removesuffix("\n").split("\n")


def load_vocab(path: str) -> dict[str, int]:
    """Reads a vocabulary file, one token a line, as token -> id in file order.

    As the official `load_vocab`: the token is the first field of its line (so that `.vocab` files
    with scores load too), a blank line is the token " ", and a repeated token uses up no id.

    Raises:
        FileNotFoundError: no such file.
        ValueError: empty or not UTF-8; names the file.
    """
    tokens = dict.fromkeys((line.split() or [" "])[0] for line in _vocabulary_lines(path))
    return {token: token_id for token_id, token in enumerate(tokens)}


class BasicTokenizer:
    """Cuts text into words, punctuation and single CJK characters (BERT's BasicTokenizer).

    Args:
        do_lower_case: lower-case and strip accents.
    """

    def __init__(self, do_lower_case: bool = True):
        self.do_lower_case = do_lower_case

    def tokenize(self, text: str) -> list[str]:
        """The words of `text`, in order."""
        return [part for word in self.words(text) for part in self.split_word(word)]

    def words(self, text: str) -> list[str]:
        """The words of `text` before case and punctuation are looked at."""
        return text.translate(_CLEAN_AND_SPACE_CJK).split()

    def split_word(self, word: str) -> list[str]:
        """Lower-cases one of `words` where asked for, and cuts it at its punctuation."""
        if self.do_lower_case:
            word = word.lower()
            if not word.isascii():
                word = unicodedata.normalize("NFD", word).translate(_DROP_MARKS)
        return word.translate(_SPACE_PUNCTUATION).split()


class WordpieceTokenizer:
    """Cuts words into the longest pieces of a vocabulary (BERT's WordpieceTokenizer).

    Args:
        vocab: token -> id; pieces inside a word begin with "##".
        unk_token: what stands for a word that the pieces cannot spell, or that is too long.
        max_input_chars_per_word: the most characters in a word that is not too long.
    """

    def __init__(
        self,
        vocab: dict[str, int],
        unk_token: str = UNKNOWN_TOKEN,
        max_input_chars_per_word: int = MAX_INPUT_CHARS_PER_WORD,
    ):
        self.vocab = vocab
        self.unk_token = unk_token
        self.max_input_chars_per_word = max_input_chars_per_word
        self._longest = max(map(len, vocab), default=0)

    def tokenize(self, text: str) -> list[str]:
        """The pieces of the whitespace-separated words of `text`."""
        return [piece for word in text.split() for piece in self.split_word(word)]

    def split_word(self, word: str) -> list[str]:
        """The pieces of one word: greedy, longest match first, from the left."""
        if len(word) > self.max_input_chars_per_word:
            return [self.unk_token]
        pieces: list[str] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            for end in range(min(len(word), start + self._longest), start, -1):
                piece = prefix + word[start:end]
                if piece in self.vocab:
                    break
            else:
                return [self.unk_token]
            pieces.append(piece)
            start = end
        return pieces


class _SentencePieceEncoder:
    """Pieces and ids by a SentencePiece model; knows nothing of normalization."""

    def __init__(self, path: str):
        with files.open_binary(path) as stream:
            content = stream.read()
        self.checksum = hashlib.sha256(content).hexdigest()
        try:
            self.sp = sentencepiece.SentencePieceProcessor(model_proto=content)
        except RuntimeError:
            content = b""
        if not content:  # checked because sentencepiece takes empty bytes for "no model yet"
            raise ValueError(
                f"{path}: no SentencePiece model. --spm_model_file expects the binary .model file "
                "of its training; a .vocab or vocab.txt file belongs to --vocab_file."
            )
        pieces = self.sp.id_to_piece(list(range(self.sp.get_piece_size())))
        self.vocab: dict[str, int] = {piece: piece_id for piece_id, piece in enumerate(pieces)}
        self.unk_id = int(self.sp.unk_id())
        # Ids straight from the model are right where none of these is among them. An unknown
        # piece's characters may end in a number and a comma too, or be the name of a special
        # symbol, whose id the official program then takes.
        commas = (piece_id for piece, piece_id in self.vocab.items() if _has_number_comma(piece))
        self._doubtful = frozenset((self.unk_id, *commas))

    def tokenize(self, text: str) -> list[str]:
        return encode_pieces(self.sp, text)

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        # One thread: the data program gives every core a process. A batch of one is slow.
        raw = self.sp.encode(texts, num_threads=1) if texts[1:] else map(self.sp.encode, texts)
        return [
            ids if self._doubtful.isdisjoint(ids) else self._ids_of_pieces(text)
            for text, ids in zip(texts, raw, strict=True)
        ]

    def _ids_of_pieces(self, text: str) -> list[int]:
        return [self.vocab.get(piece, self.unk_id) for piece in self.tokenize(text)]


class _WordPieceEncoder:
    """Pieces and ids by a WordPiece vocabulary; remembers the words it has seen."""

    def __init__(self, path: str, do_lower_case: bool):
        with files.open_binary(path) as stream:
            self.checksum = hashlib.sha256(stream.read()).hexdigest()
        self.vocab = load_vocab(path)
        self.unk_id = self.vocab.get(UNKNOWN_TOKEN, -1)
        self._basic = BasicTokenizer(do_lower_case)
        self._wordpiece = WordpieceTokenizer(self.vocab)
        self._pieces = list(self.vocab)
        self._ids_of = _Memory(self._cut)

    def _cut(self, word: str) -> list[int]:
        parts = self._basic.split_word(word)
        return [self.vocab[piece] for part in parts for piece in self._wordpiece.split_word(part)]

    def tokenize(self, text: str) -> list[str]:
        return [self._pieces[token_id] for token_id in self.encode_batch([text])[0]]

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        ids_of, words = self._ids_of, self._basic.words
        return [[token_id for word in words(text) for token_id in ids_of[word]] for text in texts]


class FullTokenizer:
    """Text to pieces and ids, with a SentencePiece model or a WordPiece vocabulary.

    Args:
        vocab_file: WordPiece vocabulary. Beside a SentencePiece model it may be that model's
            `.vocab`, and only serves to check that the two belong together.
        do_lower_case: SentencePiece: whether `preprocess` lower-cases; WordPiece: whether
            `tokenize` lower-cases and strips accents.
        spm_model_file: SentencePiece model. Where it is given, it is the vocabulary.

    Attributes:
        vocab, pieces, vocab_size: dict, piece -> id; list, id -> piece; their length.
        is_sentencepiece: which of the two kinds.
        cls_id, sep_id, mask_id, pad_id, unk_id: ids of the special symbols.
        checksum: SHA-256 of the vocabulary (or model) file, hexadecimal.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: no vocabulary, special symbols missing, or a model and a vocabulary that differ.
    """

    def __init__(
        self,
        vocab_file: str | None = None,
        do_lower_case: bool = True,
        spm_model_file: str | None = None,
    ):
        if not vocab_file and not spm_model_file:
            raise ValueError("a vocabulary is needed: --spm_model_file, or --vocab_file (Chinese)")
        self.do_lower_case = do_lower_case
        self.is_sentencepiece = bool(spm_model_file)
        self._encoder = (
            _SentencePieceEncoder(spm_model_file)
            if spm_model_file
            else _WordPieceEncoder(str(vocab_file), do_lower_case)
        )
        self.vocab, self.checksum = self._encoder.vocab, self._encoder.checksum
        self.pieces, self.vocab_size = list(self.vocab), len(self.vocab)
        if spm_model_file and vocab_file:
            _check_same_pieces(self.pieces, spm_model_file, vocab_file)
        needed = SPECIAL_TOKENS if spm_model_file else (UNKNOWN_TOKEN, *SPECIAL_TOKENS)
        missing = [token for token in needed if token not in self.vocab]
        if missing:
            raise ValueError(
                f"{spm_model_file or vocab_file}: {', '.join(missing)} missing from the vocabulary "
                f"of {self.vocab_size} pieces; tools/train_vocabulary.py makes one that has them"
            )
        self.cls_id, self.sep_id, self.mask_id = (self.vocab[token] for token in SPECIAL_TOKENS)
        self.pad_id, self.unk_id = PAD_ID, self._encoder.unk_id

    def preprocess(self, text: str) -> str:
        """SentencePiece: `preprocess_text`, lower-cased as set. WordPiece: `text` as it is."""
        return preprocess_text(text, lower=self.do_lower_case) if self.is_sentencepiece else text

    def tokenize(self, text: str) -> list[str]:
        """The pieces of `text`, which in SentencePiece mode has been through `preprocess`."""
        return self._encoder.tokenize(text)

    def encode(self, text: str) -> list[int]:
        """The ids of `text`: preprocess, tokenize and look up. No special symbols are added."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """`encode` of every text."""
        return self._encoder.encode_batch([self.preprocess(text) for text in texts])

    def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
        """Ids of `tokens`. SentencePiece: a token it does not have gets `unk_id`.

        Raises:
            ValueError: WordPiece, and a token is not in the vocabulary.
        """
        if self.is_sentencepiece:
            return [self.vocab.get(token, self.unk_id) for token in tokens]
        try:
            return [self.vocab[token] for token in tokens]
        except KeyError as error:
            raise ValueError(f"token {error} is not in the vocabulary") from None

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """Pieces of `ids`.

        Raises:
            ValueError: an id outside [0, vocab_size).
        """
        ids = list(ids)
        if ids and not 0 <= min(ids) <= max(ids) < self.vocab_size:
            raise ValueError(f"ids {min(ids)} to {max(ids)}; expected 0 to {self.vocab_size - 1}")
        return [self.pieces[token_id] for token_id in ids]


def _check_same_pieces(pieces: list[str], model_path: str, vocab_path: str) -> None:
    listed = [line.rstrip("\r").split("\t", 1)[0] for line in _vocabulary_lines(vocab_path)]
    for piece_id, pair in enumerate(itertools.zip_longest(pieces, listed)):
        if pair[0] != pair[1]:
            ours, theirs = ("nothing more" if piece is None else repr(piece) for piece in pair)
            raise ValueError(
                f"{model_path} and {vocab_path} disagree at id {piece_id}: {ours} in the model, "
                f"{theirs} in the vocabulary. Give the .vocab that was trained with the model, or "
                "none: the model alone is enough."
            )
