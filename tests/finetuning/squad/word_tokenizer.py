"""A tokenizer in SentencePiece mode without a model."""

from albert_tf.model.tokenization import encode_pieces, preprocess_text


class Words:
    """A fake SentencePiece model: each word is a piece."""

    def encode(self, text, out_type=str):
        return ["▁" + word for word in text.split(" ") if word]


class WordTokenizer:
    """Assigns ids from 5 on to new pieces."""

    is_sentencepiece = True
    has_segments = True
    do_lower_case = True
    checksum = "words"
    cls_id, sep_id = 2, 3

    def __init__(self):
        self.vocab = {}

    def tokenize(self, text):
        return encode_pieces(Words(), preprocess_text(text, lower=True))

    def convert_tokens_to_ids(self, tokens):
        return [self.vocab.setdefault(token, len(self.vocab) + 5) for token in tokens]

    def encode_batch(self, texts):
        return [self.convert_tokens_to_ids(self.tokenize(t)) for t in texts]
