"""Filling in masked words as a task.

Shapes: B batch size, P masks, V vocabulary size, K results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.finetuning.batching import Outputs
from albert_tf.finetuning.columns import parse_text
from albert_tf.finetuning.rows import BadRowError, Row
from albert_tf.finetuning.task import Result, Task, as_json
from albert_tf.finetuning.token_sequences import TokenSequences
from albert_tf.inference.settings import PredictorSettings
from albert_tf.model.tokenization import MASK_TOKEN as MASK
from albert_tf.model.tokenization import Tokenizer, split_pairs

if TYPE_CHECKING:  # what needs TensorFlow
    import tensorflow as tf
    import tf_keras
    from typing_extensions import Self


class FillMask(Task[TokenSequences]):
    """Predicts the words that are masked by "[MASK]" in a text.

        fill_mask = albert_tf.load_predictor("albert_tiny_zh/", "fill_mask")
        fill_mask("北京是[MASK]国的首都")

    The result of a prediction is a dict of `text`, in which the best words replace the masks, and
    `masks`. For each mask, `masks` lists the best words as dicts of `token` and `score`
    (probability). Special tokens and single spaces are excluded.

    Args:
        tokenizer: the tokenizer of the model.
        max_seq_length: maximum sequence length, in tokens.

    Attributes:
        is_word: float32 [V], 1 for each piece that may be a result and 0 for others.
    """

    outputs: Mapping[str, float] = {"ids": 0, "scores": 0.0}
    argument_names = ("text",)
    flags = ("text",)
    table_columns = ("mask", "word", "probability")
    demos = ({"text": "The capital of France is [MASK]."}, {"text": "北京是[MASK]国的首都"})

    def __init__(self, tokenizer: Tokenizer, max_seq_length: int) -> None:
        self.tokenizer = tokenizer
        self.max_seq_length = max_seq_length
        self.is_word = np.array(_is_word(tokenizer), np.float32)  # [V]

    @classmethod
    def of_trained(
        cls, name: str, settings: PredictorSettings, source: ModelSource, num_outputs: int
    ) -> Self:
        """Returns the task for texts as long as the model takes, unless `settings` say less."""
        length = settings.max_seq_length or source.config.max_position_embeddings
        source.config.check_length(length)
        return cls(source.tokenizer, length)

    def parse_call(  # type: ignore[override] # other input
        self, texts: str | Sequence[str]
    ) -> tuple[list[str], bool]:
        """Returns the texts in the argument of a call, and whether it is a single one.

        Args:
            texts: a text, or a list of texts.

        Raises:
            ValueError: an input is not a string, or is a pair.
        """
        firsts, seconds = split_pairs(texts)
        for number, second in enumerate(seconds):
            if second:
                raise ValueError(
                    f"texts[{number}] is a pair: masked words are predicted of one text. Join the "
                    "two, or pass them one by one"
                )
        return firsts, isinstance(texts, str)

    @staticmethod
    def parse_row(row: Row) -> str:
        """Returns the text of a row, whose masked words are to be predicted."""
        text = parse_text(row)
        if MASK not in text:
            raise BadRowError(
                f"no {MASK} in the text: put it in place of a word to predict; for the embedding "
                "of a text, pass --task=embeddings"
            )
        return text

    def features_of(self, examples: Sequence[str]) -> TokenSequences:
        """Returns the token sequences, and the positions of the masks in them.

        Raises:
            ValueError: a text has no "[MASK]", or its masks do not fit into one sequence.
        """
        encoded = [self._encode(text) for text in examples]
        most = max(len(places) for _, places in encoded)
        positions = [places + [0] * (most - len(places)) for _, places in encoded]
        return TokenSequences.pack(
            [(ids, len(ids)) for ids, _ in encoded],
            {"masked_lm_positions": np.array(positions, np.int32)},
        )

    def compute(
        self, model: tf_keras.layers.Layer, batch: Mapping[str, tf.Tensor]
    ) -> Mapping[str, tf.Tensor]:
        """Returns the token ids and probabilities of the best words, [B, P, K] each."""
        import tensorflow as tf

        logits = model(batch, training=False)["masked_lm_logits"]  # [B, P, V or more]
        count = len(self.is_word)  # V; the embedding table may be larger
        scores = tf.nn.softmax(logits)[:, :, :count] * self.is_word
        best = tf.math.top_k(scores, min(self.top_k, count))
        return {"ids": best.indices, "scores": best.values}

    def results(
        self, examples: Sequence[str], features: TokenSequences, outputs: Outputs
    ) -> list[Result]:
        """Returns the words that fill the masks of each text."""
        found = []
        for number, text in enumerate(examples):
            count = text.count(MASK)
            ids, scores = (outputs[name][number, :count] for name in ("ids", "scores"))
            found.append(self._result(text, ids, scores))
        return found

    @staticmethod
    def show(row: files.JsonObject, result: Result) -> dict[str, float]:
        """Returns the words for each mask with their probabilities, for the web page."""
        masks = result["masks"]
        return {
            f"{number}. {word['token']}" if len(masks) > 1 else word["token"]: word["score"]
            for number, words in enumerate(masks, 1)
            for word in words
        }

    @staticmethod
    def table(row: files.JsonObject, result: Result) -> list[Sequence[files.Json]]:
        """Returns the words for each mask, with the number of the mask and their probabilities."""
        return [
            (number, word["token"], word["score"])
            for number, words in enumerate(result["masks"], 1)
            for word in words
        ]

    def _encode(self, text: str) -> tuple[list[int], list[int]]:
        """Returns the token ids, including [CLS] and [SEP], and the positions of the masks."""
        ids, places = self.tokenizer.encode_masked(text)
        if not places:
            raise ValueError(
                f"no {MASK} in {text[:50]!r}: put it in place of a word to predict. For the "
                'embedding of a text, open the model with task="embeddings"'
            )
        room = self.max_seq_length - 2
        self.count_truncated(int(len(ids) > room))
        # If the text is too long, keep a window with the masks in the middle.
        begin = max(min((places[0] + places[-1] + 1 - room) // 2, len(ids) - room), 0)
        if places[0] < begin or places[-1] >= begin + room:
            raise ValueError(
                f"the {MASK}s in {text[:50]!r} are {places[-1] - places[0]} tokens apart, which "
                f"does not fit into max_seq_length={self.max_seq_length}"
            )
        kept = [self.tokenizer.cls_id, *ids[begin : begin + room], self.tokenizer.sep_id]
        return kept, [place - begin + 1 for place in places]

    def _result(self, text: str, ids: NDArray[np.int32], scores: NDArray[np.float32]) -> Result:
        masks: list[list[Result]] = [
            [
                {"token": self._word(token_id), "score": as_json(score)}
                for token_id, score in zip(row, values, strict=True)
            ]
            for row, values in zip(ids, scores, strict=True)
        ]
        parts = text.split(MASK)
        words = [mask[0]["token"].removeprefix("##") for mask in masks]
        filled = "".join(part + word for part, word in zip(parts, [*words, ""], strict=True))
        return {"text": filled, "masks": masks}

    def _word(self, token_id: int) -> str:
        (piece,) = self.tokenizer.convert_ids_to_tokens([int(token_id)])
        return self.tokenizer.detokenize([piece])


def _is_word(tokenizer: Tokenizer) -> list[bool]:
    """Returns whether each piece is a word, not a special token or a lone space."""
    special = {tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id}
    special |= {tokenizer.pad_id, tokenizer.unk_id}
    return [
        number not in special and bool(tokenizer.detokenize([piece]))
        for number, piece in enumerate(tokenizer.pieces)
    ]
