"""Tokenization compatible with google-research/albert: text to tokens and ids.

`load_tokenizer` returns the tokenizer of a file. One class, `FullTokenizer`, supports both kinds of
vocabularies:

* SentencePiece (English models): `preprocess_text`, then `encode_pieces`.
* WordPiece (Chinese models): `BasicTokenizer`, then `WordpieceTokenizer`, as in BERT.

`HuggingFaceTokenizer` computes the tokenizers of Hugging Face folders. TensorFlow is not imported.

`FullTokenizer` produces the same tokens and ids as google-research/albert for every text, with two
differences: `tokenize` normalizes the text itself (in Google's class callers have to do so, or
"Hello" becomes `<unk>`), and a vocabulary that lacks a special token raises an error.

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

import hashlib

from albert_tf import files
from albert_tf.model.tokenization.full_tokenizer import (
    SENTENCEPIECE_NAME,
    WORDPIECE_NAME,
    FullTokenizer,
)
from albert_tf.model.tokenization.huggingface_files import (
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    has_ids_of_lines,
    is_tokenizer_file,
    list_files,
    read_files,
)
from albert_tf.model.tokenization.huggingface_tokenizer import HuggingFaceTokenizer
from albert_tf.model.tokenization.lost_marks import LostMarks, MarkRemoval
from albert_tf.model.tokenization.sentencepiece_encoder import (
    SPIECE_UNDERLINE,
    encode_pieces,
    preprocess_text,
)
from albert_tf.model.tokenization.tokenizer import (
    MASK_TOKEN,
    SPECIAL_TOKENS,
    Tokenizer,
    check_list,
    check_text,
    check_tokenizer,
    split_pairs,
)
from albert_tf.model.tokenization.wordpiece_encoder import (
    UNKNOWN_TOKEN,
    BasicTokenizer,
    WordpieceTokenizer,
)

__all__ = [
    "MASK_TOKEN",
    "SENTENCEPIECE_NAME",
    "SPECIAL_TOKENS",
    "SPIECE_UNDERLINE",
    "TOKENIZER_CONFIG_FILE",
    "TOKENIZER_FILE",
    "UNKNOWN_TOKEN",
    "WORDPIECE_NAME",
    "BasicTokenizer",
    "FullTokenizer",
    "HuggingFaceTokenizer",
    "LostMarks",
    "MarkRemoval",
    "Tokenizer",
    "WordpieceTokenizer",
    "check_list",
    "check_text",
    "check_tokenizer",
    "checksum_of",
    "encode_pieces",
    "has_ids_of_lines",
    "is_tokenizer_file",
    "list_files",
    "load_tokenizer",
    "preprocess_text",
    "read_files",
    "split_pairs",
]


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
