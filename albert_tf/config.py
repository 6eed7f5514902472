"""The architecture of a model, read from and written to Google's `albert_config.json`.

albert_zh's files and Hugging Face's `config.json` are read as well.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from absl import logging

from albert_tf import files

ACTIVATIONS = ("gelu", "relu", "tanh", "linear")
LAYER_NORM_EPSILON = 1e-12  # Google's; Keras and PyTorch default to larger ones
LAYOUTS = ("google", "albert_zh")
LN_TYPES = ("postln", "preln")

_LARGEST_SIZE = 2**31 - 1  # of any whole number: token ids are int32
_BLOCK_BYTES = 100_000  # of a training graph, for each application of a block; measured
_FLOAT_BYTES = 4
_TRAINING_COPIES = 4  # the weights, their gradients and two moments
_GIB = 2**30

# Keys of Google's files that its model never reads.
HISTORIC_KEYS = frozenset(
    ["down_scale_factor", "net_structure_type", "gap_size", "num_memory_blocks", "layers_to_keep"]
)
# Keys of albert_zh's own files that its model never reads. Google's files have none of them.
ALBERT_ZH_KEYS = frozenset(
    [
        "directionality",
        "pooler_fc_size",
        "pooler_num_attention_heads",
        "pooler_num_fc_layers",
        "pooler_size_per_head",
        "pooler_type",
    ]
)
# Keys that only a `config.json` of Hugging Face's has, one of them at least.
_HUGGING_FACE_MARKS = frozenset(["model_type", "architectures"])
_HUGGING_FACE_VOCAB_SIZE = 30000  # their default; their other defaults are Google's
HUGGING_FACE_ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu", "tanh": "tanh", "linear": "linear"}
_OUR_ACTIVATIONS = {other: ours for ours, other in HUGGING_FACE_ACTIVATIONS.items()} | {
    "gelu_pytorch_tanh": "gelu",
    "gelu": "gelu",
}


@dataclasses.dataclass(frozen=True)
class AlbertConfig:
    """The shape of an ALBERT model. Defaults are those of Google's `AlbertConfig`.

    Attributes:
        vocab_size: V, entries of the vocabulary.
        embedding_size: E, width of the embedding tables.
        hidden_size: H, width of the layers, a multiple of `num_attention_heads`.
        num_hidden_layers: L, how often a layer is applied.
        num_hidden_groups: G, layers of one group share all weights.
        num_attention_heads: A.
        intermediate_size: I, width inside the feed-forward network.
        inner_group_num: N, attention + feed-forward blocks inside one layer.
        hidden_act: "gelu" (the tanh form), "relu", "tanh" or "linear" ("" and null mean linear).
        hidden_dropout_prob: dropout after the embeddings and every projection, in [0, 1).
        attention_probs_dropout_prob: dropout of the attention probabilities, in [0, 1).
        max_position_embeddings: the longest sequence, in tokens.
        type_vocab_size: number of segments.
        initializer_range: standard deviation of the truncated normal for kernels and embeddings,
            0 or more.
        layout: "google", or "albert_zh" for brightmart's own design: segments and positions are
            H wide, the E→H projection has no bias, and the masked-LM head is tied to it as well.
        ln_type: "postln" (the paper's) or "preln" (only with layout "albert_zh").

    >>> config = AlbertConfig.from_json_file("albert_config.json")
    >>> config.num_hidden_layers, config.num_hidden_groups
    (2, 1)
    """

    vocab_size: int
    embedding_size: int = 128
    hidden_size: int = 4096
    num_hidden_layers: int = 12
    num_hidden_groups: int = 1
    num_attention_heads: int = 64
    intermediate_size: int = 16384
    inner_group_num: int = 1
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layout: str = "google"
    ln_type: str = "postln"

    def __post_init__(self) -> None:
        self._check_types()
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size={self.hidden_size} is no multiple of "
                f"num_attention_heads={self.num_attention_heads}: every head takes an equal share"
            )
        for name, known in (
            ("hidden_act", ACTIVATIONS),
            ("layout", LAYOUTS),
            ("ln_type", LN_TYPES),
        ):
            if getattr(self, name) not in known:
                raise ValueError(f"{name}={getattr(self, name)!r} is none of {', '.join(known)}")
        if self.layout == "google" and self.ln_type != "postln":
            raise ValueError('ln_type="preln" exists in layout "albert_zh" only')
        if self.layout == "albert_zh" and (self.num_hidden_groups, self.inner_group_num) != (1, 1):
            raise ValueError('layout "albert_zh" has num_hidden_groups=1 and inner_group_num=1')

    def _check_types(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type == "int":
                if type(value) is not int or value < 1:
                    raise ValueError(f"{field.name}={value!r}: a whole number above 0 was expected")
                if value > _LARGEST_SIZE:
                    raise ValueError(f"{field.name}={value}: at most {_LARGEST_SIZE} was expected")
            if field.type == "float":
                if isinstance(value, bool) or not isinstance(value, (int, float)):
                    raise ValueError(f"{field.name}={value!r}: a number was expected")
                if field.name.endswith("_prob") and not 0 <= value < 1:
                    raise ValueError(f"{field.name}={value!r} is not in [0, 1)")
                if not 0 <= value <= sys.float_info.max:
                    raise ValueError(
                        f"{field.name}={value!r}: a finite number of 0 or more was expected"
                    )

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> AlbertConfig:
        """Makes a config from the keys of an `albert_config.json`, Google's or albert_zh's.

        The keys of a `config.json` of Hugging Face's ALBERT are taken too. Those that do not shape
        the model (labels, token ids, generation) are ignored.

        Raises:
            ValueError: an unknown key, a missing `vocab_size` or an impossible value; a model of
                Hugging Face's that is no ALBERT, or has an activation or an epsilon that is not
                available here.
        """
        values = from_hugging_face(values) if is_hugging_face(values) else dict(values)
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(values) - known - HISTORIC_KEYS - ALBERT_ZH_KEYS)
        if unknown:
            raise ValueError(
                f"unknown key(s) {', '.join(map(repr, unknown))}. Known: {', '.join(sorted(known))}"
            )
        if "vocab_size" not in values:
            raise ValueError("the key 'vocab_size' is missing")
        # albert_zh's files name no layout. Theirs have `ln_type` or BERT's pooler keys, and none
        # of Google's sharing keys.
        if (
            "ln_type" in values or ALBERT_ZH_KEYS & set(values)
        ) and "num_hidden_groups" not in values:
            if "embedding_size" not in values:
                raise ValueError("this is a BERT config (no 'embedding_size'), not an ALBERT one")
            values.setdefault("layout", "albert_zh")
        if values.get("ln_type", "") is None:
            values["ln_type"] = "postln"
        if values.get("hidden_act", "gelu") in ("", None):
            values["hidden_act"] = "linear"
        return cls(**{key: value for key, value in values.items() if key in known})

    @classmethod
    def from_json_file(cls, path: str) -> AlbertConfig:
        """Reads an `albert_config.json`, or a `config.json` of Hugging Face's.

        Raises:
            FileNotFoundError: nothing is there.
            ValueError: no JSON object, or what `from_dict` or `check_memory` refuses; names it.
        """
        values = files.read_json(path)
        try:
            config = cls.from_dict(values)
            config.check_memory()
            return config
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def to_dict(self) -> dict[str, Any]:
        """The keys that Google's (or, for its layout, albert_zh's) programs read."""
        values = dataclasses.asdict(self)
        if self.layout == "google":
            del values["layout"], values["ln_type"]
        else:
            del values["layout"], values["num_hidden_groups"], values["inner_group_num"]
        return values

    def to_json_file(self, path: str) -> None:
        """Writes an `albert_config.json` that `from_json_file` reads back unchanged."""
        files.write_json(path, self.to_dict())

    def check_length(self, max_seq_length: int) -> None:
        """Holds --max_seq_length, S, against the positions of the model.

        Raises:
            ValueError: S is larger than `max_position_embeddings`.
        """
        if max_seq_length > self.max_position_embeddings:
            raise ValueError(
                f"--max_seq_length={max_seq_length} is larger than "
                f"max_position_embeddings={self.max_position_embeddings} of the model"
            )

    def check_memory(self) -> None:
        """Compares the memory that an encoder needs at least with that of this machine.

        Logs a warning where only training, with gradients and moments, may not fit.

        Raises:
            ValueError: the weights alone, or the graph of so many layers, do not fit; names the key
                that is to blame.
        """
        available = _memory_of_machine()
        sizes = dataclasses.asdict(self)
        needed = _least_bytes(sizes)
        if needed > available:
            # The key without which the model would be smallest.
            whole_numbers = [name for name, value in sizes.items() if type(value) is int]
            name = min(whole_numbers, key=lambda name: _least_bytes(sizes | {name: 1}))
            raise ValueError(
                f"{name}={sizes[name]}: a model of this size needs {needed / _GIB:,.0f} GiB of "
                f"memory at least, and this machine has {available / _GIB:,.0f} GiB"
            )
        training = _TRAINING_COPIES * _FLOAT_BYTES * _count_weights(sizes)
        if training > available:
            logging.log_first_n(
                logging.WARNING,
                "Training this model takes more than %.0f GiB for weights, gradients and moments; "
                "this machine has %.0f GiB.",
                1,
                training / _GIB,
                available / _GIB,
            )

    def group_of_layer(self, layer: int) -> int:
        """Group whose weights layer `layer` (from 0) uses, ⌊layer / L · G⌋.

        In floating point, as Google's `transformer_model`: where rounding makes it skip a group
        (G = L = 22, layer 15, say), a checkpoint of that program lacks the group too.
        """
        return int(layer / self.num_hidden_layers * self.num_hidden_groups)

    @property
    def has_embedding_projection(self) -> bool:
        """Whether the embeddings are projected from E to H; Google's has no such step if E = H."""
        return self.layout == "albert_zh" or self.embedding_size != self.hidden_size


def is_hugging_face(values: Mapping[str, Any]) -> bool:
    """Returns whether the keys of a config are those of a `config.json` of Hugging Face's."""
    return not _HUGGING_FACE_MARKS.isdisjoint(values)


def from_hugging_face(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keys of an `albert_config.json` for a `config.json` of Hugging Face's ALBERT.

    Raises:
        ValueError: it is another model's, or its activation or epsilon is not available here.
    """
    name = "model_type" if "model_type" in values else "architectures"
    if "albert" not in str(values[name]).lower():
        raise ValueError(f'{name} is {values[name]!r}, "albert" was expected')
    activation = values.get("hidden_act", "gelu_new")
    if not isinstance(activation, str) or activation not in _OUR_ACTIVATIONS:
        raise ValueError(
            f"hidden_act={activation!r}: this model has {', '.join(sorted(_OUR_ACTIVATIONS))}"
        )
    if activation == "gelu":
        logging.warning(
            'hidden_act is "gelu": Hugging Face computes it with erf, this model with tanh, as '
            "Google's programs. The outputs differ in the third decimal"
        )
    epsilon = values.get("layer_norm_eps", LAYER_NORM_EPSILON)
    if epsilon != LAYER_NORM_EPSILON:
        raise ValueError(
            f"layer_norm_eps={epsilon!r}: this model has {LAYER_NORM_EPSILON:g}, as Google's "
            "checkpoints were trained with. With another epsilon the outputs would differ"
        )
    ours = {field.name for field in dataclasses.fields(AlbertConfig)} - {"layout", "ln_type"}
    kept = {key: value for key, value in values.items() if key in ours}
    return {
        "vocab_size": _HUGGING_FACE_VOCAB_SIZE,
        **kept,
        "hidden_act": _OUR_ACTIVATIONS[activation],
    }


def _count_weights(sizes: dict[str, Any]) -> int:
    """Returns the number of weights of an encoder, from the fields of its config."""
    c = SimpleNamespace(**sizes)
    hidden, inner = c.hidden_size, c.intermediate_size
    is_zh = c.layout == "albert_zh"
    width = hidden if is_zh else c.embedding_size
    words = c.vocab_size * c.embedding_size
    others = (c.type_vocab_size + c.max_position_embeddings + 2) * width
    projection = 0
    if is_zh:
        projection = c.embedding_size * hidden  # without a bias
    elif c.embedding_size != hidden:
        projection = (c.embedding_size + 1) * hidden
    dense = (hidden + 1) * hidden
    block = 4 * dense + (hidden + 1) * inner + (inner + 1) * hidden + 4 * hidden
    blocks = min(c.num_hidden_groups, c.num_hidden_layers) * c.inner_group_num
    pooler = dense
    total: int = words + others + projection + blocks * block + pooler
    return total


def _least_bytes(sizes: dict[str, Any]) -> int:
    """Returns the memory, in bytes, of an encoder's weights and of the graph of its layers."""
    blocks: int = sizes["num_hidden_layers"] * sizes["inner_group_num"]
    return _FLOAT_BYTES * _count_weights(sizes) + _BLOCK_BYTES * blocks


def _memory_of_machine() -> float:
    """Returns the size of the memory in bytes; infinity where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not POSIX
        return float("inf")
