"""Google's tokenizer, for a SentencePiece model (English) or a WordPiece vocabulary (Chinese)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from albert_tf import files
from albert_tf.model.tokenization.sentencepiece_encoder import (
    SPIECE_UNDERLINE,
    SentencePieceEncoder,
    preprocess_text,
)
from albert_tf.model.tokenization.tokenizer import MASK_TOKEN, SPECIAL_TOKENS, Tokenizer
from albert_tf.model.tokenization.wordpiece_encoder import UNKNOWN_TOKEN, WordPieceEncoder

# Names of the vocabulary in runs and Hugging Face folders.
SENTENCEPIECE_NAME = "spiece.model"
WORDPIECE_NAME = "vocab.txt"


class FullTokenizer(Tokenizer):
    """Tokenizer with a SentencePiece model (English) or a WordPiece vocabulary (Chinese).

    Args:
        vocab_file: WordPiece vocabulary. As in Google's programs, it is ignored if there is a
            SentencePiece model.
        do_lower_case: whether to lowercase; with WordPiece, also whether to strip accents.
        spm_model_file: SentencePiece model; takes precedence over `vocab_file`.
        max_length: default of `max_length` in calls.

    >>> tokenizer = FullTokenizer(spm_model_file="30k-clean.model")
    >>> tokenizer.encode("The sea") == tokenizer.convert_tokens_to_ids(["▁the", "▁sea"])
    True
    >>> tokenizer.pieces[tokenizer.mask_id]
    '[MASK]'

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: no vocabulary is given, it is damaged, or it lacks special tokens.
    """

    def __init__(
        self,
        vocab_file: files.PathLike | None = None,
        do_lower_case: bool = True,
        spm_model_file: files.PathLike | None = None,
        max_length: int = 512,
    ) -> None:
        if not vocab_file and not spm_model_file:
            raise ValueError(
                "a vocabulary is required: --spm_model_file (English) or --vocab_file (Chinese)"
            )
        self.do_lower_case = do_lower_case
        self.max_length = max_length
        self.is_sentencepiece = bool(spm_model_file)
        name = "spm_model_file" if spm_model_file else "vocab_file"
        path = files.path_text(spm_model_file or vocab_file or "", name)
        content = files.read_bytes(path)
        self._encoder = (
            SentencePieceEncoder(path, content)
            if self.is_sentencepiece
            else WordPieceEncoder(path, do_lower_case)
        )
        self.vocab = self._encoder.vocab
        self.checksum = hashlib.sha256(content).hexdigest()
        self.pieces = list(self.vocab)
        self.vocab_size = len(self.vocab)
        needed = SPECIAL_TOKENS if spm_model_file else (UNKNOWN_TOKEN, *SPECIAL_TOKENS)
        missing = [token for token in needed if token not in self.vocab]
        if missing:
            raise ValueError(
                f"{path}: the vocabulary of {self.vocab_size} pieces lacks {', '.join(missing)}. "
                "Vocabularies of albert train-vocabulary have them"
            )
        self.cls_id, self.sep_id, self.mask_id = (self.vocab[token] for token in SPECIAL_TOKENS)
        self.unk_id = self._encoder.unk_id
        name = SENTENCEPIECE_NAME if self.is_sentencepiece else WORDPIECE_NAME
        self.vocabulary_files = {name: content}

    @property
    def sentencepiece_model(self) -> bytes:
        """The serialized SentencePiece model; empty for a WordPiece vocabulary."""
        return self.vocabulary_files.get(SENTENCEPIECE_NAME, b"")

    def preprocess(self, text: str) -> str:
        """Normalizes `text` with `preprocess_text` for SentencePiece; no change for WordPiece."""
        return preprocess_text(text, lower=self.do_lower_case) if self.is_sentencepiece else text

    def tokenize_preprocessed(self, text: str) -> list[str]:
        """Returns the pieces of text that `preprocess` has normalized, like Google's `tokenize`."""
        return self._encoder.tokenize(text)

    def encode_preprocessed(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of texts that `preprocess` has normalized."""
        return self._encoder.encode(list(texts))

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """Returns the ids of each text, as `encode` does."""
        return self._encoder.encode([self.preprocess(text) for text in texts])

    def encode_and_spell(
        self, texts: Iterable[str]
    ) -> tuple[list[list[int]], dict[int, list[str]]]:
        """Returns the ids of each text, and the spelling of unknown pieces."""
        return self._encoder.encode_and_spell([self.preprocess(text) for text in texts])

    def encode_masked(self, text: str) -> tuple[list[int], list[int]]:
        """Returns the ids of a text in which "[MASK]" is the mask token, and its positions."""
        parts = text.split(MASK_TOKEN)
        ids = self.encode(parts[0])
        places = []
        for part, part_ids in zip(parts[1:], self.encode_batch(parts[1:]), strict=True):
            places.append(len(ids))
            ids.append(self.mask_id)
            if self.is_sentencepiece and part[:1].strip() and part_ids:
                # "[MASK]." has no space before ".", and therefore no "▁" in the piece.
                body = self.pieces[part_ids[0]].removeprefix(SPIECE_UNDERLINE)
                part_ids[:1] = [self.vocab.get(body, part_ids[0])] if body else []
            ids += part_ids
        return ids, places
