"""A Keras layer that tokenizes strings in a graph."""

from __future__ import annotations

import base64
import os
import tempfile
from typing import TYPE_CHECKING

import tensorflow as tf
import tf_keras

from albert_tf.files import JsonObject
from albert_tf.model.graph_tokenizer import GraphTokenizer
from albert_tf.model.layers import LayerOptions, register
from albert_tf.model.tokenization import FullTokenizer, check_tokenizer

if TYPE_CHECKING:
    from typing_extensions import Unpack


@register
class TokenizerLayer(tf_keras.layers.Layer):
    """Tokenizes strings in the graph, with the ids that a call of the tokenizer returns.

    Models with this layer can be saved and loaded as `.keras` and as a SavedModel, which contain
    the vocabulary. It runs on the CPU. docs/notebook/differences.md lists the characters that get
    other ids.

    Args:
        tokenizer: the tokenizer.
        max_length: maximum length of a row with special tokens; None for that of the tokenizer.
        padding: "longest" pads to the longest row, "max_length" to `max_length`.
        **kwargs: `name` of a Keras layer.

    Call arguments:
        texts: string [B], or a pair of them for pairs of texts. Or a scalar, or a pair of scalars,
            for a row without a batch dimension. UTF-8; invalid bytes become U+FFFD.
    Returns: dict of `input_ids`, `input_mask` and `segment_ids`, int32 [B, S] each, or [S].

    Raises:
        ValueError: `padding` or `max_length` is invalid, or the input is not as described.

    >>> tokenize = TokenizerLayer(tokenizer, max_length=8)
    >>> dataset = tf.data.Dataset.from_tensor_slices((["The river", "A boat"], [1, 0])).batch(2)
    >>> for batch, labels in dataset.map(lambda texts, labels: (tokenize(texts), labels)):
    ...     print(batch["input_ids"].shape, labels.numpy())
    (2, 4) [1 0]
    """

    def __init__(
        self,
        tokenizer: FullTokenizer,
        max_length: int | None = None,
        padding: str = "longest",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        check_tokenizer(tokenizer)
        kwargs["trainable"] = False
        super().__init__(**kwargs)
        self.max_length = tokenizer.max_length if max_length is None else max_length
        self.padding = padding
        tokenizer("", max_length=self.max_length, padding=padding)  # checks both
        self._tokenizer = tokenizer
        self._graph = GraphTokenizer(tokenizer)

    def call(
        self, texts: tf.Tensor | list[tf.Tensor] | tuple[tf.Tensor, tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        """Returns the model's inputs; see the class."""
        first, second = texts if isinstance(texts, (list, tuple)) else (texts, None)
        if first.shape.rank not in (0, 1):
            raise ValueError(f"texts have the shape {first.shape}: expected strings [B], or one")
        pad_to = self.max_length if self.padding == "max_length" else None
        second = None if second is None else tf.reshape(second, [-1])  # [B]
        batch = self._graph.pack(tf.reshape(first, [-1]), second, self.max_length, pad_to)  # [B, S]
        return batch if first.shape.rank else {name: row[0] for name, row in batch.items()}  # [S]

    def get_config(self) -> JsonObject:
        """Returns the constructor's arguments, with the content of the vocabulary's file."""
        (vocabulary,) = self._tokenizer.vocabulary_files.values()
        tokenizer = {
            "vocabulary": base64.b64encode(vocabulary).decode("ascii"),
            "is_sentencepiece": self._tokenizer.is_sentencepiece,
            "do_lower_case": self._tokenizer.do_lower_case,
        }
        config = super().get_config()
        del config["trainable"]
        return config | {
            "tokenizer": tokenizer,
            "max_length": self.max_length,
            "padding": self.padding,
        }

    @classmethod
    def from_config(cls, config: JsonObject) -> TokenizerLayer:
        """Returns a layer from the result of `get_config`."""
        stored = config["tokenizer"]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "vocabulary")
            with open(path, "wb") as stream:
                stream.write(base64.b64decode(stored["vocabulary"]))
            vocab, spm_model = (None, path) if stored["is_sentencepiece"] else (path, None)
            tokenizer = FullTokenizer(vocab, stored["do_lower_case"], spm_model)
        return cls(**{**config, "tokenizer": tokenizer})
