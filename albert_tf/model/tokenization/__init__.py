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
from albert_tf.model.tokenization.loading import checksum_of, load_tokenizer
from albert_tf.model.tokenization.lost_marks import LostMarks, MarkRemoval
from albert_tf.model.tokenization.sentencepiece_encoder import (
    SPIECE_UNDERLINE,
    encode_pieces,
    preprocess_text,
)
from albert_tf.model.tokenization.special_tokens import (
    MASK_TOKEN,
    SPECIAL_TOKENS,
    UNKNOWN_TOKEN,
)
from albert_tf.model.tokenization.tokenizer import Tokenizer, check_text, split_pairs
from albert_tf.model.tokenization.wordpiece_encoder import BasicTokenizer, WordpieceTokenizer

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
    "check_text",
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
