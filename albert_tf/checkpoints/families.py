"""Recognizes the family of a checkpoint, and maps its weights to a model.

Everything here works on names and shapes; `containers` opens the files. `recognize` determines the
family and returns an `Entry` for every weight: its name in this model, and how it is computed from
the arrays in the file. `fit` adapts the entries to a model. Arrays are only read once all of them
fit, so an unsuitable checkpoint is rejected before any weight has changed.

Dimensions: V vocabulary size, E embedding size, H hidden size, I intermediate size, L layers,
G groups.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from albert_tf.checkpoints.weight_names import (
    DECODER_BIAS,
    FAMILY_NAMES,
    HUGGING_FACE,
    MASKED_LM_BIAS,
    WORDS,
    WORDS_2,
    is_bookkeeping,
    name_map,
    unwrap,
)
from albert_tf.model.config import GROUPS, AlbertConfig, google_groups

Shape = tuple[int, ...]


UNKNOWN = "unknown"
TITLES = {  # family → its name in messages
    "google": "Google ALBERT",
    "albert_zh": "albert_zh",
    "hugging_face": "ALBERT with Hugging Face's (PyTorch) names",
    "model_garden": "ALBERT of the TensorFlow Model Garden and its TF-Hub modules",
    UNKNOWN: "not recognized",
}
_HINT = (  # where the weights of albert_zh do not fit a model
    'its own config has "ln_type" or pooler keys, by which its layout is known; else add '
    '"layout": "albert_zh"'
)

# The first family whose pattern matches the name of a weight.
_SIGNS = (
    ("google", r"/transformer/group_\d+/inner_group_\d+/"),
    ("hugging_face", r"\.albert_layer_groups\.\d+\.albert_layers\.\d+\."),
    ("model_garden", r"^transformer/self_attention/"),
    ("albert_zh", r"^bert/encoder/layer_shared/"),
)
_GOOGLE_BLOCK = re.compile(r"/group_(\d+)/inner_group_(\d+)/")
# "albert." is Hugging Face's own; what else stands before it is not.
_PREFIX = re.compile(r"(?!albert\.encoder\.)(.+?)(?:albert\.)?encoder\.albert_layer_groups\.")
_PEFT = "base_model.model."
# What PyTorch's wrappers put into names: DataParallel and DeepSpeed, torch.compile, FSDP, Fabric,
# and checkpoints of activations.
_WRAPPERS = re.compile(
    r"(?<![^.])(module|_orig_mod|_fsdp_wrapped_module|_forward_module|_checkpoint_wrapped_module)\."
)
_HUGGING_FACE_BIAS = HUGGING_FACE[MASKED_LM_BIAS]
_HUGGING_FACE_BLOCK = re.compile(r"albert_layer_groups\.(\d+)\.albert_layers\.(\d+)\.")


@dataclasses.dataclass(frozen=True)
class Entry:
    """A weight of this model, computed from arrays of a file.

    Attributes:
        shape: shape of the weight.
        sources: names of the arrays in the file.
        compute: computes the weight from these arrays.
        is_transposed: whether it needs their transposes.
    """

    shape: Shape
    sources: tuple[str, ...]
    compute: Callable[..., np.ndarray] = np.asarray
    is_transposed: bool = False


@dataclasses.dataclass(frozen=True)
class Recognized:
    """The family and the weights of a checkpoint.

    Attributes:
        family: a key of `TITLES`.
        entries: name in this model → entry; empty if the family is unknown.
        unmapped: weights in the file without a counterpart in this model.
        unknown: those of them that belong to the encoder, such as an unmerged LoRA.
        bookkeeping: names of optimizer moments, counters and copies.
        prefix: what stands before Hugging Face's names of a part of the weights, as inside of
            another model; "" as usual.
        left_out: what is left out of the names: wrappers of PyTorch, and what stands before all.
    """

    family: str
    entries: dict[str, Entry]
    unmapped: list[str]
    unknown: list[str]
    bookkeeping: list[str]
    prefix: str = ""
    left_out: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The family, and what is left out of the names, for messages."""
        without = ", ".join(map(repr, self.left_out))
        return TITLES[self.family] + (f", read without {without} in names" if without else "")

    @property
    def refusal(self) -> str:
        """Why the checkpoint cannot be loaded, with some of its names; "" if it can."""
        if self.prefix.startswith(_PEFT):
            return (
                "its weights are those of an adapter of PEFT, or of a model with one. Merge it "
                "(merged = model.merge_and_unload()), and save the result: "
                "merged.save_pretrained(folder)"
            )
        if self.prefix:
            return (
                f"some weights have the prefix {self.prefix!r}, as those of an ALBERT inside of "
                "another model. Save the ALBERT alone, with its save_pretrained"
            )
        if self.family != UNKNOWN:
            return ""
        names = self.unmapped
        some = dict.fromkeys(names[place] for place in (0, len(names) // 2, -1) if names)
        return (
            "expected the weights of an ALBERT by Google or albert_zh, on TF-Hub or of Hugging "
            f"Face (PyTorch); found {len(names)} others, such as {', '.join(some) or 'none'}"
        )


def recognize(shapes: Mapping[str, Sequence[int]]) -> Recognized:
    """Recognizes a checkpoint by the names and shapes of its arrays."""
    names, left_out = _without_wrappers(shapes)
    copies = {name: raw for name, raw in names.items() if is_bookkeeping(name)}
    weights = {unwrap(name): raw for name, raw in names.items() if name not in copies}
    if DECODER_BIAS in copies and _HUGGING_FACE_BIAS not in weights:  # the copy is all there is
        weights[_HUGGING_FACE_BIAS] = copies.pop(DECODER_BIAS)
    bookkeeping = sorted(copies.values())
    plain = {name: Entry(tuple(shapes[raw]), (raw,)) for name, raw in weights.items()}
    signs = (family for family, sign in _SIGNS if any(re.search(sign, name) for name in plain))
    family = next(signs, UNKNOWN)
    entries = {} if family == UNKNOWN else _entries(family, plain)
    used = {source for entry in entries.values() for source in entry.sources}
    unmapped = {name: raw for name, raw in weights.items() if raw not in used}
    encoder = _encoder_roots(family)
    unknown = [raw for name, raw in unmapped.items() if _root(name) in encoder]
    prefixes = (match[1] for match in map(_PREFIX.match, plain) if match)
    return Recognized(
        family,
        entries,
        sorted(unmapped.values()),
        sorted(unknown),
        bookkeeping,
        prefix=next(prefixes, ""),
        left_out=left_out,
    )


def _without_wrappers(raw_names: Iterable[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Returns names without what PyTorch's wrappers put there, if they stay different.

    A prefix that all names have is left out as well, such as `model.` of PyTorch Lightning; not
    that of an adapter of PEFT, whose weights have to be merged.

    Returns:
        Name → name in the file, and what is left out.
    """
    raw_names = list(raw_names)
    unchanged = {raw: raw for raw in raw_names}
    names = {_WRAPPERS.sub("", raw): raw for raw in raw_names}
    left_out = {f"{part}." for raw in raw_names for part in _WRAPPERS.findall(raw)}
    if len(names) < len(raw_names):
        return unchanged, ()
    prefix = next((match[1] for match in map(_PREFIX.match, names) if match), "")
    if prefix and not prefix.startswith(_PEFT) and all(name.startswith(prefix) for name in names):
        names = {name.removeprefix(prefix): raw for name, raw in names.items()}
        left_out.add(prefix)
    return names, tuple(sorted(left_out))


def _encoder_roots(family: str) -> set[str]:
    """Returns the roots of the encoder's names in a family that has other names than Google's."""
    names = FAMILY_NAMES.get(family, {}).items()
    return {_root(name) for google, name in names if google.startswith(("bert/", "{block}"))}


def _root(name: str) -> str:
    """Returns a name up to its first "/" or "."."""
    return re.split(r"[/.]", name, maxsplit=1)[0]


def _entries(family: str, plain: dict[str, Entry]) -> dict[str, Entry]:
    if family in ("google", "albert_zh"):
        return plain
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
    """Transposes kernels, which PyTorch stores as [out, in]."""
    if not name.endswith("/kernel") or len(entry.shape) != 2:
        return entry
    return dataclasses.replace(entry, shape=entry.shape[::-1], is_transposed=True)


def _flattened(name: str, entry: Entry) -> Entry:
    """Merges A and D, which Keras splits: kernels [H, A, D], [A, D, H], biases [A, D]."""
    shape = entry.shape
    if name.endswith("/kernel") and len(shape) == 3:
        is_output = name.endswith("output/dense/kernel")
        shape = (shape[0] * shape[1], shape[2]) if is_output else (shape[0], shape[1] * shape[2])
    elif name.endswith("/bias") and len(shape) == 2:
        shape = (shape[0] * shape[1],)
    return dataclasses.replace(entry, shape=shape, compute=lambda array: array.reshape(shape))


def to_google_layout(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Converts the entries of albert_zh's encoder to those of a Google model with E = H.

    The two factors of albert_zh's word embeddings, [V, E] and [E, H], are multiplied into a single
    table [V, H]. The model's outputs do not change, because segment and position embeddings already
    have the size H.
    """
    names = {other: google for google, other in name_map("albert_zh").items()}
    result = {names.get(name, name): entry for name, entry in entries.items()}
    words, projection = entries[WORDS], result.pop(WORDS_2)
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
        init_from_group0: whether to initialize all hidden groups from group 0, so that the entries
            of others are left out.

    Returns:
        name → entry, including names that the model does not have.
    """
    result = dict(entries)
    if {WORDS, WORDS_2} <= entries.keys() and WORDS_2 not in wanted:
        merged = to_google_layout(entries)
        if merged[WORDS].shape == wanted.get(WORDS):
            result = merged
    if init_from_group0:
        result = {name: x for name, x in result.items() if not re.search("/group_[1-9]", name)}
        first = {name: re.sub(r"/group_\d+/", "/group_0/", name) for name in wanted}
        result |= {name: result[source] for name, source in first.items() if source in result}
    return result


def sizes(entries: Mapping[str, Entry]) -> dict[str, int]:
    """Returns the sizes that can be inferred from shapes, with the keys of `AlbertConfig`.

    The numbers of attention heads and of layers cannot be inferred.
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
    recognized: Recognized, entries: Mapping[str, Entry], config: AlbertConfig | None
) -> list[str]:
    """Returns why a checkpoint cannot be that of a model with a config, one reason per line.

    Args:
        recognized: the checkpoint.
        entries: its entries, adapted to the model by `fit`.
        config: the model's config; None if it is not known.
    """
    if recognized.refusal:
        return [recognized.refusal]
    if config is None:
        return []
    obstacle = group_obstacle(config) if recognized.family == "hugging_face" else ""
    lines = [obstacle] if obstacle else []
    layout = "albert_zh" if WORDS_2 in entries else "google"
    if layout != config.layout:
        lines.append(f"layout is {layout!r} in the checkpoint, {config.layout!r} in the config")
    groups = set().union(*config.modules_of_layers())
    expected = config.to_dict() | {"num_hidden_groups": len(groups)}
    for key, size in sizes(entries).items():
        if size != expected.get(key, size):
            lines.append(f"{key} is {size} in the checkpoint, {expected[key]} in the config")
    if lines and recognized.family == "albert_zh":
        lines.append(_HINT)
    return lines


def check_google_layout(config: AlbertConfig) -> None:
    """Checks that a model has Google's layout, the only one that Hugging Face supports.

    Raises:
        ValueError: the model has albert_zh's layout (the message says how to convert it), or
            shares its weights in a way that Google's hidden groups cannot express.
    """
    if config.layout != "google":
        raise ValueError(
            "Hugging Face's ALBERT only supports Google's layout. With --merge_embeddings, "
            "`albert convert` converts albert_zh's post-LN models to it, with E = H"
        )
    if config.share != GROUPS:
        raise ValueError(
            f"Hugging Face's ALBERT has hidden groups only: this model has share={config.share!r}"
        )


def group_obstacle(config: AlbertConfig) -> str:
    """Returns why Hugging Face's ALBERT assigns layers to other groups; "" if it does not.

    Both implementations assign layer i to group ⌊i / L · G⌋, but round differently.
    """
    count, groups = config.num_hidden_layers, config.num_hidden_groups
    ours = google_groups(count, groups)
    theirs = tuple(int(layer / (count / groups)) for layer in range(count))
    if ours == theirs and set(ours) == set(range(groups)):
        return ""
    return (
        f"with {count} layers in {groups} groups, Google's and Hugging Face's ALBERT assign layers "
        "to different groups, so their weights are not compatible"
    )
