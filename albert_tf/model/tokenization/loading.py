"""The tokenizer of a file: of a vocabulary, or of a Hugging Face folder."""

from __future__ import annotations

import hashlib

from albert_tf import files
from albert_tf.model.tokenization.full_tokenizer import FullTokenizer
from albert_tf.model.tokenization.huggingface_files import is_tokenizer_file
from albert_tf.model.tokenization.huggingface_tokenizer import HuggingFaceTokenizer
from albert_tf.model.tokenization.tokenizer import Tokenizer


def load_tokenizer(
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
    spm_model_file: str | None = None,
    max_length: int = 512,
) -> Tokenizer:
    """Returns the tokenizer of a vocabulary.

    Args:
        vocab_file: WordPiece vocabulary; or `tokenizer.json` of a Hugging Face folder, or the
            `tokenizer_config.json` of one that has `spiece.model` or `vocab.txt` instead.
        do_lower_case: whether to lowercase; None for what the files of a Hugging Face folder say,
            and True for a vocabulary.
        spm_model_file: SentencePiece model; takes precedence over `vocab_file`.
        max_length: default of `max_length` in calls.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a file is damaged, not supported or contradicts `do_lower_case`, or the library
            `tokenizers` is not installed.
    """
    if spm_model_file is None and vocab_file is not None and is_tokenizer_file(vocab_file):
        tokenizer = HuggingFaceTokenizer(vocab_file, max_length)
        if do_lower_case not in (None, tokenizer.do_lower_case):
            raise ValueError(
                f"do_lower_case={do_lower_case}: the tokenizer in {vocab_file} "
                f"{'lowercases' if tokenizer.do_lower_case else 'does not lowercase'} texts. Leave "
                "the option out, or give a vocabulary of its own as spm_model_file or vocab_file"
            )
        return tokenizer
    return FullTokenizer(vocab_file, do_lower_case is not False, spm_model_file, max_length)


def checksum_of(path: str) -> str:
    """Returns the `checksum` of the tokenizer with this file, in hexadecimal.

    Raises:
        OSError, ValueError: as in `load_tokenizer`, for a Hugging Face tokenizer.
    """
    if is_tokenizer_file(path):
        return HuggingFaceTokenizer(path).checksum
    return hashlib.sha256(files.read_bytes(path)).hexdigest()
