"""The special tokens that ALBERT's vocabularies have."""

MASK_TOKEN = "[MASK]"
SPECIAL_TOKENS = ("[CLS]", "[SEP]", MASK_TOKEN)
UNKNOWN_TOKEN = "[UNK]"  # of WordPiece
PAD_ID = 0  # the official programs pad with 0 regardless of the vocabulary
