"""Model configuration, read from and written to Google's `albert_config.json`.

albert_zh's configs and Hugging Face's `config.json` can be read as well. TensorFlow is not
imported.

A config says which layers of the encoder share their attention and feed-forward modules. A pattern
gives the number of a module for each layer: `(0, 0, 1, 1)` means that four layers use two modules.
Attention and feed-forward network have a pattern each, so that ALBERT can share all weights, those
of one of them, or none (arXiv 1909.11942, section 4.5 and table 4). The rule for the names of
weights extends Google's: module g of the attention has Google's names in `group_<g>`, and so has
module g of the feed-forward network. Where Google's hidden groups express the sharing, config files
and checkpoints are Google's.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping

from absl import logging

from albert_tf import files
from albert_tf.files import JsonObject

Pattern = tuple[int, ...]

# Name of an activation → its names in Hugging Face's configs: the first is written, all are read.
# () if Hugging Face does not have it. `ops.ACTIVATIONS` has the functions, and
# `ops.register_activation` adds one.
ACTIVATIONS: dict[str, tuple[str, ...]] = {
    "gelu": ("gelu_new", "gelu_pytorch_tanh", "gelu"),
    "relu": ("relu",),
    "tanh": ("tanh",),
    "linear": ("linear",),
}
GROUPS = "groups"
# Name of a kind of sharing → the patterns of attention and feed-forward modules of L layers. That
# of GROUPS depends on the number of groups instead; `register_sharing` adds one.
SHARING: dict[str, Callable[[int], tuple[Pattern, Pattern]]] = {
    "all": lambda layers: ((0,) * layers, (0,) * layers),
    "attention": lambda layers: ((0,) * layers, tuple(range(layers))),
    "ffn": lambda layers: (tuple(range(layers)), (0,) * layers),
    "none": lambda layers: (tuple(range(layers)), tuple(range(layers))),
}
LAYER_NORM_EPSILON = 1e-12  # Google's; Keras and PyTorch have larger defaults
LAYOUTS = ("google", "albert_zh")
LN_TYPES = ("postln", "preln")

_LARGEST_SIZE = 2**31 - 1  # limit of all integers, because token ids are int32
_MOST_BLOCKS = 1 << 16  # each is computed one after the other

# Keys of Google's configs that its model ignores.
HISTORIC_KEYS = frozenset(
    ["down_scale_factor", "net_structure_type", "gap_size", "num_memory_blocks", "layers_to_keep"]
)
# Keys of albert_zh's configs that its model ignores. Google's configs never contain them.
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
# Hugging Face's `config.json` has at least one of these keys, other configs have none.
_HUGGING_FACE_MARKS = frozenset(["model_type", "architectures"])
_HUGGING_FACE_VOCAB_SIZE = 30000  # the only default that differs from Google's
_FROM_HUGGING_FACE = {other: name for name, others in ACTIVATIONS.items() for other in others}


def config_file(path: str) -> str:
    """Returns the path of a config, given a path or the name of a config of this package.

    >>> import os
    >>> os.path.basename(config_file("albert_base"))
    'albert_base.json'
    >>> config_file("my_model/albert_config.json")
    'my_model/albert_config.json'

    Args:
        path: a file, or a name such as `albert_base`. An existing file takes precedence.

    Raises:
        FileNotFoundError: a name without a dot or slash is neither a file nor a config of this
            package. The message lists the names.
    """
    return files.find_included(path, "config", "configs", ".json")


@dataclasses.dataclass(frozen=True)
class AlbertConfig:
    """Configuration of an ALBERT model. The defaults are those of Google's `AlbertConfig`.

    Attributes:
        vocab_size: V, number of tokens in the vocabulary.
        embedding_size: E, size of the embeddings.
        hidden_size: H, hidden size of the layers, a multiple of `num_attention_heads`.
        num_hidden_layers: L, number of layers.
        num_hidden_groups: G, number of hidden groups; the layers of a group share all weights.
        num_attention_heads: A, number of attention heads.
        intermediate_size: I, hidden size of the feed-forward network.
        inner_group_num: N, number of blocks (attention and feed-forward network) in a layer.
        hidden_act: activation function, a key of `ACTIVATIONS`; "gelu" is the tanh approximation.
            In files, "" and null mean "linear".
        hidden_dropout_prob: dropout rate after the embeddings and each sublayer, in [0, 1).
        attention_probs_dropout_prob: dropout rate for the attention probabilities, in [0, 1).
        max_position_embeddings: maximum sequence length in tokens.
        type_vocab_size: number of segment types.
        initializer_range: standard deviation of the truncated normal initializer of kernels and
            embeddings, 0 or more.
        layout: "google", or "albert_zh" for brightmart's variant: segment and position embeddings
            have the size H, the projection from E to H has no bias, and the masked language
            modeling head is also tied to it.
        ln_type: "postln" as in the paper, or "preln" (only with the layout "albert_zh").
        share: which layers share their attention and feed-forward modules: "groups" (Google's
            `num_hidden_groups`), "all", "attention", "ffn" or "none". What Google's groups can
            express is stored as "groups". See `modules_of_layers`.

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
    share: str = GROUPS

    def __post_init__(self) -> None:
        self._check_types()
        blocks = self.num_hidden_layers * self.inner_group_num
        if blocks > _MOST_BLOCKS:
            raise ValueError(
                f"num_hidden_layers · inner_group_num is {blocks}: expected at most {_MOST_BLOCKS}"
            )
        share, groups = as_google_groups(self.share, self.num_hidden_layers, self.num_hidden_groups)
        object.__setattr__(self, "share", share)
        object.__setattr__(self, "num_hidden_groups", groups)
        for name, choices in (
            ("hidden_act", tuple(ACTIVATIONS)),
            ("layout", LAYOUTS),
            ("ln_type", LN_TYPES),
        ):
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"{name}={getattr(self, name)!r}: expected one of {', '.join(choices)}"
                )
        if self.layout == "google" and self.ln_type != "postln":
            raise ValueError('ln_type="preln" requires the layout "albert_zh"')
        sharing = self.share, self.num_hidden_groups, self.inner_group_num
        if self.layout == "albert_zh" and sharing != (GROUPS, 1, 1):
            raise ValueError(
                'the layout "albert_zh" requires num_hidden_groups=1 and inner_group_num=1, and '
                "shares all weights"
            )

    def _check_types(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            expected, is_valid = "", True
            if field.type == "int":
                expected = f"an integer from 1 to {_LARGEST_SIZE}"
                is_valid = type(value) is int and 1 <= value <= _LARGEST_SIZE
            elif field.type == "float":
                expected, limit = "a finite number of 0 or more", math.inf
                if field.name.endswith("_prob"):
                    expected, limit = "a number in [0, 1)", 1
                is_valid = type(value) in (int, float) and 0 <= value < limit
            if not is_valid:
                raise ValueError(f"{field.name}={files.quote(value)}: expected {expected}")

    @classmethod
    def from_dict(cls, values: JsonObject) -> AlbertConfig:
        """Creates a config from the contents of Google's or albert_zh's `albert_config.json`.

        The contents of a `config.json` of Hugging Face's ALBERT are accepted too; keys that do not
        describe the model (labels, token ids, generation) are ignored.

        Raises:
            ValueError: a key is unknown, `vocab_size` is missing or a value is invalid; or a config
                of Hugging Face is not ALBERT's, or has an unsupported activation or epsilon.
        """
        values = from_hugging_face(values) if is_hugging_face(values) else dict(values)
        names = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(values) - names - HISTORIC_KEYS - ALBERT_ZH_KEYS)
        if unknown:
            raise ValueError(
                f"unknown keys {files.quote_all(unknown)}. Known: {', '.join(sorted(names))}"
            )
        if "vocab_size" not in values:
            raise ValueError("the key 'vocab_size' is missing")
        # albert_zh's configs do not name their layout. They have `ln_type` or BERT's pooler keys,
        # and not Google's keys for parameter sharing.
        if (
            "ln_type" in values or ALBERT_ZH_KEYS & set(values)
        ) and "num_hidden_groups" not in values:
            if "embedding_size" not in values:
                raise ValueError("this is a BERT config, not ALBERT: it has no 'embedding_size'")
            values.setdefault("layout", "albert_zh")
        if values.get("ln_type", "") is None:
            values["ln_type"] = "postln"
        if values.get("hidden_act", "gelu") in ("", None):
            values["hidden_act"] = "linear"
        return cls(**{key: value for key, value in values.items() if key in names})

    @classmethod
    def from_json_file(cls, path: files.PathLike) -> AlbertConfig:
        """Reads an `albert_config.json`, or Hugging Face's `config.json`.

        Args:
            path: the file, or the name of a config of this package, such as `albert_base`.

        Raises:
            FileNotFoundError: the file does not exist.
            ValueError: the file is not a JSON object, or `from_dict` rejects it.
        """
        path = files.path_text(path, "path")
        values = files.read_json(config_file(path))
        try:
            return cls.from_dict(values)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    @classmethod
    def for_model(cls, path: files.PathLike) -> AlbertConfig:
        """Reads the config of a model to build, as `from_json_file`.

        Raises:
            FileNotFoundError, ValueError: as there; or see `check_heads`. The message names the
                file.
        """
        config = cls.from_json_file(path)
        try:
            config.check_heads()
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        return config

    def to_dict(self) -> JsonObject:
        """Returns the config with the keys of Google's or, depending on the layout, albert_zh's."""
        values = dataclasses.asdict(self)
        if self.layout == "google":
            del values["layout"], values["ln_type"]
        else:
            del values["layout"], values["num_hidden_groups"], values["inner_group_num"]
        if self.share == GROUPS:
            del values["share"]
        return values

    def to_json_file(self, path: files.PathLike) -> None:
        """Writes an `albert_config.json`, from which `from_json_file` restores the same config."""
        files.write_json(files.path_text(path, "path"), self.to_dict())

    def check_heads(self) -> None:
        """Checks that the hidden units can be divided among the heads.

        As in Google's code, this is a condition of the model, not of its config.

        Raises:
            ValueError: `hidden_size` is not a multiple of `num_attention_heads`.
        """
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size={self.hidden_size} is not a multiple of "
                f"num_attention_heads={self.num_attention_heads}"
            )

    def check_length(self, max_seq_length: int) -> None:
        """Checks that there is a model of this config for `max_seq_length` tokens.

        Raises:
            ValueError: `max_seq_length` exceeds `max_position_embeddings`; or see `check_heads`.
        """
        self.check_heads()
        if max_seq_length > self.max_position_embeddings:
            raise ValueError(
                f"--max_seq_length={max_seq_length} is larger than the model's "
                f"max_position_embeddings={self.max_position_embeddings}: pass at most that"
            )

    def modules_of_layers(self) -> tuple[Pattern, Pattern]:
        """Returns the patterns of attention and feed-forward modules."""
        return patterns_of(self.share, self.num_hidden_layers, self.num_hidden_groups)

    @property
    def num_weights(self) -> int:
        """Number of weights of the encoder."""
        return sum(self.weights_by_part.values())

    @property
    def weights_by_part(self) -> dict[str, int]:
        """Number of weights of each part of the encoder, name → number."""
        hidden, inner = self.hidden_size, self.intermediate_size
        is_zh = self.layout == "albert_zh"
        width = hidden if is_zh else self.embedding_size
        projection = 0
        if self.has_embedding_projection:
            projection = (self.embedding_size + (not is_zh)) * hidden  # albert_zh's has no bias
        dense = (hidden + 1) * hidden
        attention = 4 * dense + 2 * hidden
        ffn = (hidden + 1) * inner + (inner + 1) * hidden + 2 * hidden
        modules = [len(set(numbers)) * self.inner_group_num for numbers in self.modules_of_layers()]
        return {
            "word embeddings": self.vocab_size * self.embedding_size,
            # And those of segments, and LayerNorm.
            "position embeddings": (self.type_vocab_size + self.max_position_embeddings + 2)
            * width,
            "embedding projection": projection,
            "attention": modules[0] * attention,
            "feed-forward": modules[1] * ffn,
            "pooler": dense,
        }

    @property
    def has_embedding_projection(self) -> bool:
        """Whether embeddings are projected from E to H; if E = H, Google's model does not."""
        return self.layout == "albert_zh" or self.embedding_size != self.hidden_size


def is_hugging_face(values: Mapping[str, object]) -> bool:
    """Returns whether a config is Hugging Face's `config.json`, judging by its keys."""
    return not _HUGGING_FACE_MARKS.isdisjoint(values)


def from_hugging_face(values: Mapping[str, object]) -> JsonObject:
    """Converts the contents of Hugging Face's `config.json` to those of an `albert_config.json`.

    Raises:
        ValueError: the model is not ALBERT, or its activation or epsilon is not supported.
    """
    name = "model_type" if "model_type" in values else "architectures"
    if "albert" not in str(values[name]).lower():
        raise ValueError(
            f'{name} is {files.quote(values[name])}, expected "albert". Use transformers for '
            "other architectures"
        )
    activation = values.get("hidden_act", "gelu_new")
    if not isinstance(activation, str) or activation not in _FROM_HUGGING_FACE:
        raise ValueError(
            f"hidden_act={files.quote(activation)}: expected one of "
            f"{', '.join(sorted(_FROM_HUGGING_FACE))}"
        )
    if activation == "gelu":
        logging.warning(
            'hidden_act is "gelu", which Hugging Face computes with erf, but this model, like '
            "Google's, with tanh. The outputs differ in the third decimal place"
        )
    epsilon = values.get("layer_norm_eps", LAYER_NORM_EPSILON)
    if epsilon != LAYER_NORM_EPSILON:
        raise ValueError(
            f"layer_norm_eps={epsilon!r}: only {LAYER_NORM_EPSILON:g} is supported, which Google's "
            "checkpoints were trained with. The outputs would differ with another value"
        )
    ours = {field.name for field in dataclasses.fields(AlbertConfig)} - {"layout", "ln_type"}
    kept = {key: value for key, value in values.items() if key in ours}
    return {
        "vocab_size": _HUGGING_FACE_VOCAB_SIZE,
        **kept,
        "hidden_act": _FROM_HUGGING_FACE[activation],
    }


# Which layers share their modules.


def google_groups(num_layers: int, num_groups: int) -> Pattern:
    """Returns the hidden group of each layer in Google's models: ⌊layer / L · G⌋, both from 0.

    Computed in floating point as in Google's `transformer_model`: if rounding skips a group (as
    with G = L = 22 at layer 15), Google's checkpoints do not contain that group either.
    """
    return tuple(int(layer / num_layers * num_groups) for layer in range(num_layers))


def as_google_groups(share: str, num_layers: int, num_groups: int) -> tuple[str, int]:
    """Returns the sharing and the number of groups, "groups" where Google's groups express it.

    Raises:
        ValueError: the name is unknown, or does not use `num_groups`.
    """
    if share not in (GROUPS, *SHARING):
        names = ", ".join((GROUPS, *SHARING))
        raise ValueError(
            f"share={files.quote(share)}: expected one of {names}, or one added with "
            "albert_tf.model.config.register_sharing"
        )
    if share == GROUPS:
        return GROUPS, num_groups
    if num_groups != 1:
        raise ValueError(
            f"share={share!r} does not use num_hidden_groups={num_groups}: leave one of them out"
        )
    if share == "all":
        return GROUPS, 1
    each_its_own = tuple(range(num_layers))
    is_google = share == "none" and google_groups(num_layers, num_layers) == each_its_own
    return (GROUPS, num_layers) if is_google else (share, 1)


def patterns_of(share: str, num_layers: int, num_groups: int) -> tuple[Pattern, Pattern]:
    """Returns the patterns of attention and feed-forward modules of a config's `share`.

    Raises:
        ValueError: a pattern that was registered does not fit the number of layers.
    """
    if share == GROUPS:
        pattern = google_groups(num_layers, num_groups)
        return pattern, pattern
    attention, ffn = map(tuple, SHARING[share](num_layers))
    for pattern in (attention, ffn):
        if len(pattern) != num_layers or not set(pattern) <= set(range(num_layers)):
            raise ValueError(
                f"share={share!r}: expected the number of a module from 0 to {num_layers - 1} for "
                f"each of {num_layers} layers, got {pattern}"
            )
    return attention, ffn


def register_sharing(name: str, patterns: Callable[[int], tuple[Pattern, Pattern]]) -> None:
    """Adds a kind of sharing to those that `share` of a config accepts.

    Args:
        name: what configs call it.
        patterns: returns the patterns of attention and feed-forward modules, given the number of
            layers; `((0, 1, 0, 1), (0, 0, 0, 0))` for four layers, which use two modules of
            attention in turn, and share the feed-forward network.

    Raises:
        ValueError: another kind has this name.
    """
    if name == GROUPS or SHARING.setdefault(name, patterns) is not patterns:
        raise ValueError(f"share={name!r}: the name is taken; expected another one")
