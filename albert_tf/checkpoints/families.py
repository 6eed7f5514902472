"""Recognizes whose weights a checkpoint holds, and fits them to a model.

Works on names and shapes; `containers` opens the files. `recognize` tells the families apart and
returns an `Entry` for every weight: its name in this model, and how it is computed from the arrays
of the file. `fit` adapts the entries to one model. No array is read until all of them fit, so that
a checkpoint is refused before any weight has changed.

Letters: V vocabulary, E embedding, H hidden, I intermediate, L layers, G groups.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from albert_tf.checkpoints.names import (
    PROJECTION,
    WORDS,
    WORDS_2,
    is_bookkeeping,
    name_map,
    unwrap,
)
from albert_tf.config import AlbertConfig

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Family:
    """A family of checkpoints: weights with the same names and the same layout.

    Attributes:
        title: whose they are, for messages.
        refusal: why no model here can hold them; empty if one can.
        hint: what to check where a model does not hold them.
        is_square: whether only a model of Google's layout with E = H can hold them.
    """

    title: str
    refusal: str = ""
    hint: str = ""
    is_square: bool = False


def _square(title: str) -> Family:
    hint = (
        'such weights fit a model with "layout": "google", embedding_size = hidden_size and a '
        "hidden group for every layer that has weights of its own; albert-convert "
        "(tools/convert_checkpoint.py) writes it"
    )
    return Family(title, hint=hint, is_square=True)


FAMILIES = {
    "google": Family("Google ALBERT"),
    "google_square": Family("Google ALBERT with E = H, without embedding projection"),
    "albert_zh": Family(
        "albert_zh",
        hint='its own config has "ln_type" or pooler keys, by which its layout is known; else add '
        '"layout": "albert_zh"',
    ),
    "albert_zh_unfactorized": _square("albert_zh without factorized embeddings"),
    "albert_zh_unshared": _square("albert_zh, every layer with weights of its own"),
    "albert_zh_partly_shared": _square("albert_zh, layers sharing a part of their weights"),
    "bert": _square("BERT: every layer with weights of its own, E = H"),
    "hugging_face": Family("ALBERT with Hugging Face's (PyTorch's) names"),
    "model_garden": Family("ALBERT of the TensorFlow Model Garden and its TF-Hub modules"),
    "kamalkraj": Family("kamalkraj/ALBERT-TF2.0"),
    "grouped": Family(
        "albert_zh's experiment with grouped feed-forward networks (rank-3 kernels)",
        "This model's feed-forward networks are dense. No weights of that experiment were released",
    ),
    "sharing_lost": Family(
        "Google's program run under TensorFlow 2, which lost the sharing of the layers",
        "Every layer got weights of its own under numbered names (google-research/albert#241), so "
        "it is no ALBERT. Train anew, with sharing that works",
    ),
    "hugging_face_tf": Family(
        "ALBERT with the names of Hugging Face's TensorFlow classes",
        "Load model.safetensors or pytorch_model.bin of the same repository instead",
    ),
    "unknown": Family(
        "not recognized",
        "Known are the names of Google's ALBERT, albert_zh, BERT, TF-Hub, the TensorFlow Model "
        "Garden, Hugging Face and kamalkraj/ALBERT-TF2.0",
    ),
}

# The family of a checkpoint is the first one with a name that matches; `_family` refines it.
_SIGNS = (
    ("sharing_lost", r"group_0_\d+/|layer_normalization(_\d+)?/"),
    ("hugging_face_tf", r"albert_layer_groups_\._\d+/"),
    ("google", r"/transformer/group_\d+/inner_group_\d+/"),
    ("hugging_face", r"\.albert_layer_groups\.\d+\.albert_layers\.\d+\."),
    ("kamalkraj", r"^encoder/shared_layer/"),
    ("model_garden", r"^transformer/self_attention/"),
    ("bert", r"^bert/encoder/layer_(\d+|shared)/"),
)
_GOOGLE_BLOCK = re.compile(r"/group_(\d+)/inner_group_(\d+)/")
_HUGGING_FACE_BLOCK = re.compile(r"albert_layer_groups\.(\d+)\.albert_layers\.(\d+)\.")
# albert_zh: layer_<i>/attention/…, layer_shared/attention/… or layer_shared/attention_<i>/…
_BERT_LAYER = re.compile(
    r"bert/encoder/layer_(shared|\d+)/(attention|intermediate|output)(?:_(\d+))?/(.+)"
)
_BERT_NUMBER = re.compile(r"bert/encoder/layer_(?:shared/[a-z]+_)?(\d+)/")


def _same(array: np.ndarray) -> np.ndarray:
    return array


@dataclasses.dataclass(frozen=True)
class Entry:
    """How a weight of this model is computed from the arrays of a file.

    Attributes:
        shape: shape of the weight.
        sources: names of the arrays in the file.
        compute: function of these arrays that returns the weight.
    """

    shape: Shape
    sources: tuple[str, ...]
    compute: Callable[..., np.ndarray] = _same


@dataclasses.dataclass(frozen=True)
class Recognized:
    """Whose weights a checkpoint holds, and which.

    Attributes:
        family: a key of `FAMILIES`.
        entries: name in this model → entry; empty if the family is refused.
        unmapped: weights of the file that have no name in this model.
        bookkeeping: names of moments, counters and copies.
    """

    family: str
    entries: dict[str, Entry]
    unmapped: list[str]
    bookkeeping: list[str]

    @property
    def kind(self) -> Family:
        """The family itself."""
        return FAMILIES[self.family]


def recognize(shapes: Mapping[str, Sequence[int]]) -> Recognized:
    """Recognizes a checkpoint by the names and shapes of its arrays."""
    bookkeeping = sorted(name for name in shapes if is_bookkeeping(name))
    weights = {unwrap(name): name for name in shapes if not is_bookkeeping(name)}
    plain = {name: Entry(tuple(shapes[raw]), (raw,)) for name, raw in weights.items()}
    family = _family(plain)
    entries = {} if FAMILIES[family].refusal else _entries(family, plain)
    used = {source for entry in entries.values() for source in entry.sources}
    unmapped = sorted(set(weights.values()) - used)
    return Recognized(family, entries, unmapped, bookkeeping)


def _family(plain: Mapping[str, Entry]) -> str:
    def some(pattern: str) -> bool:
        return any(re.search(pattern, name) for name in plain)

    family = next((family for family, sign in _SIGNS if some(sign)), "unknown")
    if family == "google":
        if any(name.endswith("/kernel") and len(e.shape) == 3 for name, e in plain.items()):
            return "grouped"
        return "google" if f"{PROJECTION}/kernel" in plain else "google_square"
    if family == "bert":
        is_shared, is_factorized = some("/layer_shared/"), WORDS_2 in plain
        if is_shared and some(r"/layer_shared/[a-z]+_\d+/"):
            return "albert_zh_partly_shared"
        if is_shared:
            return "albert_zh" if is_factorized else "albert_zh_unfactorized"
        return "albert_zh_unshared" if is_factorized else "bert"
    return family


def _entries(family: str, plain: dict[str, Entry]) -> dict[str, Entry]:
    if family in ("google", "google_square", "albert_zh"):
        return plain
    if family == "albert_zh_unfactorized":
        return to_google_layout(plain)
    if family in ("albert_zh_unshared", "albert_zh_partly_shared", "bert"):
        return to_google_layout(_spread_over_layers(plain))
    groups, inner = 1, 1
    if family == "hugging_face":
        found = [match for name in plain for match in _HUGGING_FACE_BLOCK.findall(name)]
        groups, inner = (1 + max(map(int, numbers)) for numbers in zip(*found, strict=True))
    names = name_map(family, groups, inner)
    rename = _transposed if family == "hugging_face" else _flattened
    return {
        google: rename(google, plain[other]) for google, other in names.items() if other in plain
    }


def _transposed(name: str, entry: Entry) -> Entry:
    """PyTorch stores the kernel of a dense layer as [out, in]."""
    if not name.endswith("/kernel"):
        return entry
    return dataclasses.replace(entry, shape=entry.shape[::-1], compute=np.transpose)


def _flattened(name: str, entry: Entry) -> Entry:
    """Keras programs may split H into heads: kernels [H, A, D] or [A, D, H], biases [A, D]."""
    shape = entry.shape
    if name.endswith("/kernel") and len(shape) == 3:
        is_output = name.endswith("output/dense/kernel")
        shape = (shape[0] * shape[1], shape[2]) if is_output else (shape[0], shape[1] * shape[2])
    elif name.endswith("/bias") and len(shape) == 2:
        shape = (shape[0] * shape[1],)
    return dataclasses.replace(entry, shape=shape, compute=lambda array: array.reshape(shape))


def _spread_over_layers(plain: Mapping[str, Entry]) -> dict[str, Entry]:
    """Gives every layer all its weights under BERT's names, those that layers share as well."""
    numbers = [int(number) for name in plain for number in _BERT_NUMBER.findall(name)]
    entries = {}
    for name, entry in plain.items():
        match = _BERT_LAYER.fullmatch(name)
        if match is None:
            entries[name] = entry
            continue
        layer, part, part_layer, rest = match.groups()
        own = part_layer if layer == "shared" else layer
        for i in range(1 + max(numbers)) if own is None else [own]:
            entries[f"bert/encoder/layer_{i}/{part}/{rest}"] = entry
    return entries


def to_google_layout(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Renames entries of albert_zh or BERT to those of a Google model with E = H.

    The two factors of albert_zh's word embeddings, [V, E] and [E, H], are multiplied to one table
    [V, H]. The outputs stay the same, as everything behind them is H wide already.
    """
    layers = {name.replace("/layer_shared/", "/layer_0/"): entry for name, entry in entries.items()}
    count = sum(name.endswith("/attention/self/query/kernel") for name in layers)
    names = {other: google for google, other in name_map("bert", num_groups=count).items()}
    result = {names.get(name, name): entry for name, entry in layers.items()}
    if {WORDS, WORDS_2} <= set(layers):
        words, projection = layers[WORDS], result.pop(WORDS_2)
        result[WORDS] = Entry(
            words.shape[:1] + projection.shape[1:],
            words.sources + projection.sources,
            lambda a, b: np.matmul(a.astype(np.float64), b.astype(np.float64)),
        )
    return result


def fit(
    entries: Mapping[str, Entry], wanted: Mapping[str, Shape], init_from_group0: bool = False
) -> dict[str, Entry]:
    """Adapts the entries of a checkpoint to a model.

    Args:
        entries: as in `Recognized`.
        wanted: the model's variables, name → shape.
        init_from_group0: give every hidden group of the model the weights of group 0.

    Returns:
        name → entry, also for names that the model does not have.
    """
    result = dict(entries)
    if WORDS_2 in entries and WORDS_2 not in wanted:
        merged = to_google_layout(entries)
        if WORDS in merged and merged[WORDS].shape == wanted.get(WORDS):
            result = merged
    if init_from_group0:
        first = {name: re.sub(r"/group_\d+/", "/group_0/", name) for name in wanted}
        result |= {name: result[source] for name, source in first.items() if source in result}
    return result


def is_identity(kernel: np.ndarray, bias: np.ndarray) -> bool:
    """Whether a projection is the identity, so that a model without one loses nothing."""
    return np.array_equal(kernel, np.eye(*kernel.shape)) and not bias.any()


def sizes(entries: Mapping[str, Entry]) -> dict[str, int]:
    """Returns the sizes that the shapes tell, under the keys of `AlbertConfig`.

    Shapes do not tell the numbers of attention heads and of layers.
    """
    tables = {
        "vocab_size": (WORDS, 0),
        "embedding_size": (WORDS, 1),
        "hidden_size": ("bert/pooler/dense/kernel", 0),
        "max_position_embeddings": ("bert/embeddings/position_embeddings", 0),
        "type_vocab_size": ("bert/embeddings/token_type_embeddings", 0),
    }
    matrices = {name: entry.shape for name, entry in entries.items() if len(entry.shape) == 2}
    found = {key: matrices[name][axis] for key, (name, axis) in tables.items() if name in matrices}
    for name, shape in matrices.items():
        if name.endswith("/intermediate/dense/kernel"):
            found["hidden_size"], found["intermediate_size"] = shape
    blocks = [match.groups() for match in map(_GOOGLE_BLOCK.search, entries) if match]
    if blocks:
        groups, inner = (len(set(numbers)) for numbers in zip(*blocks, strict=True))
        found |= {"num_hidden_groups": groups, "inner_group_num": inner}
    return found


def differences(
    recognized: Recognized, entries: Mapping[str, Entry], config: AlbertConfig
) -> list[str]:
    """Returns where a checkpoint contradicts a model's config, one line each.

    Args:
        recognized: the checkpoint.
        entries: the same, as `fit` adapted it to the model.
        config: the model's.
    """
    lines = []
    layout = "albert_zh" if WORDS_2 in entries else "google"
    if layout != config.layout:
        lines.append(f"layout is {layout!r} in the checkpoint, {config.layout!r} in the config")
    groups = {config.group_of_layer(layer) for layer in range(config.num_hidden_layers)}
    expected = config.to_dict() | {"num_hidden_groups": len(groups)}
    for key, size in sizes(entries).items():
        if size != expected.get(key, size):
            lines.append(f"{key} is {size} in the checkpoint, {expected[key]} in the config")
    hint = [recognized.kind.hint] if lines and recognized.kind.hint else []
    return lines + hint


def check_google_layout(config: AlbertConfig, whose: str) -> None:
    """Checks that a model has the only layout that the ALBERT of another program has.

    Args:
        config: the model's.
        whose: the other program, in the possessive.

    Raises:
        ValueError: it has albert_zh's layout; says how to convert it.
    """
    if config.layout != "google":
        raise ValueError(
            f"{whose} ALBERT has Google's layout only. With --merge_embeddings, albert-convert "
            "(tools/convert_checkpoint.py) makes albert_zh's (post-LN) fit, with E = H"
        )


def group_obstacles(config: AlbertConfig) -> list[str]:
    """Returns why Hugging Face's ALBERT would use other groups in some layers; [] if it does not.

    Both programs give layer i the group ⌊i / L · G⌋, but round differently.
    """
    count, groups = config.num_hidden_layers, config.num_hidden_groups
    ours = [config.group_of_layer(layer) for layer in range(count)]
    theirs = [int(layer / (count / groups)) for layer in range(count)]
    if ours == theirs and set(ours) == set(range(groups)):
        return []
    return [
        f"with {count} layers in {groups} groups, Google's and Hugging Face's programs share the "
        "weights among different layers, so the weights of one do not fit the other"
    ]


# Released models whose files or descriptions are wrong about a value that no shape shows:
# (layout, vocab_size, hidden_size) → key, right value, reason.
_KNOWN_CONTRADICTIONS = {
    ("google", 30000, 2048): (
        "num_attention_heads",
        16,
        "descriptions of Google's English xlarge say 16 and 32 heads, the released config says 16",
    ),
    ("google", 21128, 4096): (
        "num_attention_heads",
        16,
        "Google's Chinese xxlarge was trained with 16 heads, not with the paper's 64",
    ),
    ("google", 21128, 312): (
        "num_hidden_layers",
        4,
        "the config in the archive of the Chinese tiny model says 1 layer, its program's says 4",
    ),
    ("albert_zh", 21128, 2048): (
        "ln_type",
        "postln",
        "configs of albert_zh's xlarge say preln or postln, and every known use takes postln",
    ),
}


def contradictions(config: AlbertConfig) -> list[str]:
    """Returns warnings about values of a config that are known to be wrong for its model."""
    key = (config.layout, config.vocab_size, config.hidden_size)
    if key not in _KNOWN_CONTRADICTIONS:
        return []
    name, value, reason = _KNOWN_CONTRADICTIONS[key]
    if getattr(config, name) == value:
        return []
    return [f"{name} is {getattr(config, name)!r}; {value!r} was expected: {reason}"]
