"""From text to pieces and ids, as the official ALBERT tokenization.

Two kinds of vocabulary, one class:

* SentencePiece (English models): `preprocess_text`, then `encode_pieces`.
* WordPiece (Chinese models): `BasicTokenizer`, then `WordpieceTokenizer`, as BERT.

Read from the bottom up: `FullTokenizer` is what users and the programs call. It gives the pieces
and ids of google-research/albert for every text, with two differences: `tokenize` normalizes the
text itself (Google's class leaves that to its callers, so that "Hello" becomes `<unk>` without
`preprocess_text`), and a vocabulary without a special symbol raises an error.

    >>> from albert_tf import FullTokenizer
    >>> tokenizer = FullTokenizer(spm_model_file="30k-clean.model")
    >>> tokenizer.tokenize("The  RIVER")
    ['▁the', '▁river']
    >>> batch = tokenizer([("The river", "A boat"), ("The sea", "")])
    >>> batch["segment_ids"]
    array([[0, 0, 0, 0, 1, 1, 1],
           [0, 0, 0, 0, 0, 0, 0]], dtype=int32)
    >>> tokenizer.decode(batch["input_ids"][0])
    'the river a boat'
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import sentencepiece
from absl import logging
from numpy.typing import NDArray

from albert_tf import files

SPIECE_UNDERLINE = "\u2581"  # "▁", SentencePiece's mark for a space
SPECIAL_TOKENS = ("[CLS]", "[SEP]", "[MASK]")
UNKNOWN_TOKEN = "[UNK]"
PAD_ID = 0  # the official programs pad with 0 whatever the vocabulary says
MAX_INPUT_CHARS_PER_WORD = 200  # a longer word is one unknown token
MAX_REMEMBERED = 200_000  # words, about 40 MB
PADDINGS = ("longest", "max_length")

# The code points that BERT surrounds with spaces: no kana and no hangul among them.
_CJK = re.compile(
    "[\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
    "\U0002b820-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f]"
)
# Every character that is not an ordinary letter to all predicates: without surrogates, rare Chinese
# characters that BERT does not know either, planes without characters, and private use.
_CODE_POINTS = (*range(0xD800), *range(0xE000, 0x30000), *range(0xE0000, 0xE0200))
# Spaces that WordPiece text gains: around Chinese characters and full-width signs, and before
# punctuation that follows a word.
_ADDED_SPACE = re.compile(
    r" (?=[\u3000-\u303f\u3400-\u9fff\uf900-\ufaff\uff00-\uffef.,;:!?])"
    r"|(?<=[\u3000-\u303f\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]) "
)


def is_whitespace(char: str) -> bool:
    """Whether BERT treats `char` as a space: space, tab, newline, return or category Zs."""
    return char in " \t\n\r" or unicodedata.category(char) == "Zs"


def is_control(char: str) -> bool:
    """Whether BERT drops `char` as a control character: Cc or Cf, but no tab, newline, return."""
    return char not in "\t\n\r" and unicodedata.category(char) in ("Cc", "Cf")


def is_cjk(char: str) -> bool:
    """Whether BERT makes `char` a word of its own: a Chinese character."""
    return _CJK.match(char) is not None


def is_punctuation(char: str) -> bool:
    """Whether BERT cuts at `char`: category P*, or any ASCII sign (even "$", "^" and "`")."""
    if char.isascii():
        return char.isprintable() and not char.isalnum() and char != " "
    return unicodedata.category(char).startswith("P")


def is_dropped(char: str) -> bool:
    """Whether BERT removes `char`: a control character, NUL or U+FFFD."""
    is_removed = char in "\0\ufffd" or is_control(char)
    return is_removed and not is_whitespace(char)


def is_mark(char: str) -> bool:
    """Whether BERT strips `char` as an accent: category Mn."""
    return unicodedata.category(char) == "Mn"


def is_combining(char: str) -> bool:
    """Whether `preprocess_text` strips `char` as an accent: a combining class other than 0."""
    return unicodedata.combining(char) != 0


@functools.cache
def character_class(contains: Callable[[str], bool]) -> str:
    """Returns a class of regular expressions with all characters that a predicate accepts.

    In the notation that RE2 and Oniguruma have in common.

    Args:
        contains: takes a character; true for at least one. Asked of `_CODE_POINTS` only.
    """
    runs: list[list[int]] = []
    for code in _CODE_POINTS:
        if not contains(chr(code)):
            continue
        if runs and runs[-1][1] == code - 1:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    return "[" + "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in runs) + "]"


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
    if is_dropped(char):
        return None
    return f" {char} " if is_cjk(char) else char


_CLEAN_AND_SPACE_CJK = _Memory(_clean)
_SPACE_PUNCTUATION = _Memory(lambda c: f" {chr(c)} " if is_punctuation(chr(c)) else c)
_DROP_COMBINING = _Memory(lambda c: None if is_combining(chr(c)) else c)
_DROP_MARKS = _Memory(lambda c: None if is_mark(chr(c)) else c)


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


def has_number_comma(piece: str) -> bool:
    """Whether a piece is a number with a comma after it, as "▁1999,", or ends so."""
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
        if has_number_comma(piece):
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
    """

    def __init__(self, vocab: dict[str, int]):
        self.vocab = vocab
        self._longest = max(map(len, vocab), default=0)

    def tokenize(self, text: str) -> list[str]:
        """The pieces of the whitespace-separated words of `text`."""
        return [piece for word in text.split() for piece in self.split_word(word)]

    def split_word(self, word: str) -> list[str]:
        """The pieces of one word, greedy: longest match first, from the left.

        A word that the pieces cannot spell, or that is too long, is one unknown token.
        """
        if len(word) > MAX_INPUT_CHARS_PER_WORD:
            return [UNKNOWN_TOKEN]
        pieces: list[str] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            for end in range(min(len(word), start + self._longest), start, -1):
                piece = prefix + word[start:end]
                if piece in self.vocab:
                    break
            else:
                return [UNKNOWN_TOKEN]
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
        try:
            pieces = self.sp.id_to_piece(list(range(self.sp.get_piece_size())))
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}: a damaged SentencePiece model: a piece is not UTF-8 ({error.reason}). "
                "Bring it back from a copy."
            ) from None
        self.vocab: dict[str, int] = {piece: piece_id for piece_id, piece in enumerate(pieces)}
        self.unk_id = int(self.sp.unk_id())
        # Ids straight from the model are right where none of these is among them. An unknown
        # piece's characters may end in a number and a comma too, or be the name of a special
        # symbol, whose id the official program then takes.
        commas = (piece_id for piece, piece_id in self.vocab.items() if has_number_comma(piece))
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


def truncated_lengths(first: int, second: int, max_tokens: int) -> tuple[int, int]:
    """Lengths of two texts truncated to `max_tokens` together (official `_truncate_seq_pair`).

    The longer one loses its last token again and again; of two equally long ones, the second.
    """
    if first + second <= max_tokens:
        return first, second
    if second <= max_tokens // 2:
        return max_tokens - second, second
    if first <= max_tokens - max_tokens // 2:
        return first, max_tokens - first
    return max_tokens - max_tokens // 2, max_tokens // 2


def join(
    first: Sequence[int], second: Sequence[int], cls_id: int, sep_id: int
) -> tuple[list[int], int]:
    """Adds the special ids to the ids of one text, or of two.

    Returns:
        `[CLS] first [SEP]` or `[CLS] first [SEP] second [SEP]`, and how many of these ids belong
        to segment 0: those up to the first `[SEP]`.
    """
    ids = [cls_id, *first, sep_id]
    return [*ids, *second, sep_id] if second else ids, len(ids)


class FullTokenizer:
    """Tokenizer with a SentencePiece model (English) or a WordPiece vocabulary (Chinese).

    Calling it with texts returns a batch for the model; `encode` and `tokenize` return the ids and
    pieces of one text, without special symbols. All of them normalize the text first.

    Args:
        vocab_file: WordPiece vocabulary. Beside a SentencePiece model it is not used, as in
            Google's programs; where it differs from the model or does not exist, a warning says so.
        do_lower_case: whether text is lower-cased; in WordPiece mode, accents are stripped too.
        spm_model_file: SentencePiece model. Where it is given, it is the vocabulary.
        max_length: the default of `max_length` in calls.

    >>> tokenizer = FullTokenizer(spm_model_file="30k-clean.model")
    >>> tokenizer.encode("The sea") == tokenizer.convert_tokens_to_ids(["▁the", "▁sea"])
    True
    >>> tokenizer.pieces[tokenizer.mask_id]
    '[MASK]'

    Attributes:
        vocab, pieces, vocab_size: dict, piece -> id; list, id -> piece; their length.
        is_sentencepiece: which of the two kinds.
        cls_id, sep_id, mask_id, pad_id, unk_id: ids of the special symbols.
        checksum: SHA-256 of the vocabulary (or model) file, hexadecimal.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: no vocabulary, or special symbols missing.
    """

    def __init__(
        self,
        vocab_file: str | None = None,
        do_lower_case: bool = True,
        spm_model_file: str | None = None,
        max_length: int = 512,
    ):
        if not vocab_file and not spm_model_file:
            raise ValueError("a vocabulary is needed: --spm_model_file, or --vocab_file (Chinese)")
        self.do_lower_case, self.max_length = do_lower_case, max_length
        self.is_sentencepiece = bool(spm_model_file)
        self._encoder = (
            _SentencePieceEncoder(spm_model_file)
            if spm_model_file
            else _WordPieceEncoder(str(vocab_file), do_lower_case)
        )
        self.vocab, self.checksum = self._encoder.vocab, self._encoder.checksum
        self.pieces, self.vocab_size = list(self.vocab), len(self.vocab)
        if spm_model_file and vocab_file:
            _warn_of_another_vocabulary(self.pieces, spm_model_file, vocab_file)
        needed = SPECIAL_TOKENS if spm_model_file else (UNKNOWN_TOKEN, *SPECIAL_TOKENS)
        missing = [token for token in needed if token not in self.vocab]
        if missing:
            raise ValueError(
                f"{spm_model_file or vocab_file}: {', '.join(missing)} missing from the vocabulary "
                f"of {self.vocab_size} pieces; tools/train_vocabulary.py makes one that has them"
            )
        self.cls_id, self.sep_id, self.mask_id = (self.vocab[token] for token in SPECIAL_TOKENS)
        self.pad_id, self.unk_id = PAD_ID, self._encoder.unk_id

    @property
    def sentencepiece_model(self) -> bytes:
        """The SentencePiece model, serialized; empty with a WordPiece vocabulary."""
        if isinstance(self._encoder, _WordPieceEncoder):
            return b""
        return bytes(self._encoder.sp.serialized_model_proto())

    def __call__(
        self,
        texts: str | Sequence[str] | Sequence[Sequence[str]],
        pairs: str | Sequence[str] | None = None,
        max_length: int | None = None,
        padding: str = "longest",
        pad_to_multiple: int = 1,
    ) -> dict[str, NDArray[np.int32]]:
        """Returns a batch of texts or of pairs of texts, as the model takes it.

        A row is `[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]`, truncated as in Google's fine-tuning
        programs: the longer text of a pair loses its last tokens first. An empty second text is
        none.

            >>> tokenizer("The river")["input_ids"].shape
            (1, 4)
            >>> batch = tokenizer(["The river", "A boat at sea"], max_length=5)
            >>> batch["input_mask"]
            array([[1, 1, 1, 1, 0],
                   [1, 1, 1, 1, 1]], dtype=int32)

        Args:
            texts: a text, a list of texts, or a list of pairs (a, b) of texts.
            pairs: the second text, or one for each of `texts`.
            max_length: the most tokens in a row, special symbols included; default:
                `self.max_length`.
            padding: "longest" pads to the longest row, "max_length" to `max_length`.
            pad_to_multiple: "longest" rounds the length up to a multiple of this, so that fewer
                shapes occur.

        Returns:
            `input_ids`, `input_mask` (1 at tokens, 0 at padding) and `segment_ids` (1 from the
            second text on), int32 [B, S].

        Raises:
            ValueError: something is no text, `pairs` and `texts` differ in number, or `padding` or
                a length is impossible.
        """
        limit = self.max_length if max_length is None else max_length
        if padding not in PADDINGS or limit < len("[CLS] a [SEP]".split()) or pad_to_multiple < 1:
            raise ValueError(
                f"padding={padding!r}, max_length={limit}, pad_to_multiple={pad_to_multiple}: "
                f"expected one of {PADDINGS}, 3 or more, and 1 or more"
            )
        rows = self.sequences(texts, pairs, limit)
        longest = max((len(ids) for ids, _ in rows), default=0)
        length = min(-(-longest // pad_to_multiple) * pad_to_multiple, limit)
        return _pad(rows, limit if padding == "max_length" else length)

    def sequences(
        self,
        texts: str | Sequence[str] | Sequence[Sequence[str]],
        pairs: str | Sequence[str] | None,
        max_length: int,
    ) -> list[tuple[list[int], int]]:
        """The rows of a call without padding: ids, and how many of them belong to segment 0.

        Args:
            texts: as in a call.
            pairs: as in a call.
            max_length: the most tokens in a row, special symbols included.
        """
        firsts, seconds = split_pairs(texts, pairs)
        rows = []
        for first, second in zip(
            self.encode_batch(firsts), self.encode_batch(seconds), strict=True
        ):
            room = max(max_length - (3 if second else 2), 0)
            kept = truncated_lengths(len(first), len(second), room)
            rows.append(join(first[: kept[0]], second[: kept[1]], self.cls_id, self.sep_id))
        return rows

    def preprocess(self, text: str) -> str:
        """SentencePiece: `preprocess_text`, lower-cased as set. WordPiece: `text` as it is."""
        return preprocess_text(text, lower=self.do_lower_case) if self.is_sentencepiece else text

    def tokenize(self, text: str) -> list[str]:
        """The pieces of `text`, which is normalized first.

        Text that has been through `preprocess_text` already, as Google's programs pass it, gives
        the same pieces.
        """
        return self.tokenize_preprocessed(self.preprocess(text))

    def tokenize_preprocessed(self, text: str) -> list[str]:
        """The pieces of `text` as it is: Google's `tokenize`, for text from `preprocess`."""
        return self._encoder.tokenize(text)

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """Readable text of `ids`. What normalization took (case, accents) stays lost.

        Args:
            ids: int [S], such as a row of `input_ids`.
            skip_special_tokens: leave out [CLS], [SEP] and padding.

        Raises:
            ValueError: an id outside [0, vocab_size).
        """
        left_out = {self.cls_id, self.sep_id, self.pad_id} if skip_special_tokens else set()
        kept = [int(token_id) for token_id in ids if int(token_id) not in left_out]
        return self.detokenize(self.convert_ids_to_tokens(kept))

    def detokenize(self, tokens: Iterable[str]) -> str:
        """Joins pieces into readable text."""
        if self.is_sentencepiece:
            return "".join(tokens).replace(SPIECE_UNDERLINE, " ").strip()
        return _ADDED_SPACE.sub("", " ".join(tokens).replace(" ##", ""))

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


def split_pairs(
    texts: str | Sequence[str] | Sequence[Sequence[str]], pairs: str | Sequence[str] | None = None
) -> tuple[list[str], list[str]]:
    """First and second texts of a tokenizer's arguments; "" where there is no second one.

    Raises:
        ValueError: something is no text, or `pairs` and `texts` differ in number.
    """
    if isinstance(texts, str):
        texts, pairs = [texts], [pairs] if isinstance(pairs, str) else pairs
    elif isinstance(texts, tuple) and texts and all(isinstance(text, str) for text in texts):
        raise ValueError(
            "a tuple of texts may mean a pair or a batch: pass [(a, b)] for one pair, or a list "
            "for a batch"
        )
    rows = [(text, "") if isinstance(text, str) else text for text in texts]
    if pairs is not None:
        if isinstance(pairs, str) or len(pairs) != len(rows):
            raise ValueError(f"pairs={pairs!r:.60}: expected a list of {len(rows)}, as texts")
        rows = [(row[0], pair) for row, pair in zip(rows, pairs, strict=True)]
    for number, row in enumerate(rows):
        is_pair = isinstance(row, Sequence) and len(row) == 2
        if not (is_pair and all(isinstance(text, str) for text in row)):
            raise ValueError(f"texts[{number}] is {row!r:.60}: expected a str, or a pair of them")
    return [row[0] for row in rows], [row[1] for row in rows]


def _pad(rows: Sequence[tuple[list[int], int]], length: int) -> dict[str, NDArray[np.int32]]:
    """Batch of rows (ids, how many of them belong to segment 0), padded to `length`."""
    shape = (len(rows), length)
    batch = {
        name: np.full(shape, PAD_ID, np.int32)
        for name in ("input_ids", "input_mask", "segment_ids")
    }
    for number, (ids, first_length) in enumerate(rows):
        batch["input_ids"][number, : len(ids)] = ids
        batch["input_mask"][number, : len(ids)] = 1
        batch["segment_ids"][number, first_length : len(ids)] = 1
    return batch


def _warn_of_another_vocabulary(pieces: list[str], model_path: str, vocab_path: str) -> None:
    """Warns if `--vocab_file` does not exist or is not the vocabulary of the model beside it."""
    unused = f"--vocab_file={vocab_path} is not used: the vocabulary is {model_path}"
    try:
        lines = _vocabulary_lines(vocab_path)
    except (OSError, ValueError) as error:
        logging.warning("%s (%s)", unused, error)
        return
    listed = [line.rstrip("\r").split("\t", 1)[0] for line in lines]
    for piece_id, pair in enumerate(itertools.zip_longest(pieces, listed)):
        if pair[0] != pair[1]:
            ours, theirs = ("nothing more" if piece is None else repr(piece) for piece in pair)
            logging.warning(
                "%s. They differ at id %d: %s in the model, %s in the file",
                unused,
                piece_id,
                ours,
                theirs,
            )
            return
