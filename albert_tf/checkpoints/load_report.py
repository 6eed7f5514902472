"""The comparison of a checkpoint with a model: which weights fit, and which do not."""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from albert_tf.checkpoints import families
from albert_tf.checkpoints.arrays import LazyArrays, to_take_over
from albert_tf.checkpoints.containers import WeightFile
from albert_tf.checkpoints.families import Entry
from albert_tf.checkpoints.weight_names import (
    ADAPTERS,
    DECODER,
    MASKED_LM_BIAS,
    PARTS,
    POOLER,
    PROJECTION,
    WORDS,
    by_name,
    is_encoder,
    part_of,
)
from albert_tf.model.config import AlbertConfig

if TYPE_CHECKING:
    import tensorflow as tf

_MAX_LISTED_NAMES = 16  # per list of a report
_OWN_DECODER = (
    f"its head for masked words has a matrix of its own, {DECODER} (tie_word_embeddings=false); in "
    "the models here, it is that of the word embeddings"
)


class WithVariables(Protocol):
    """A Keras model or layer, which may be one of another program, with Google's names.

    What else it has is read where it has it, such as a `config` and the `encoder` of a head.
    """

    @property
    def variables(self) -> Sequence[tf.Variable]:
        """All variables, those that are not trained too."""


class LoadReport:
    """The comparison of a checkpoint with a model.

    Weights have the names of the model's variables.

    Args:
        weights: the open checkpoint.
        model: the model; None for one that has the weights of the checkpoint.
        init_from_group0: as in `load_checkpoint`.

    Attributes:
        prefix: the checkpoint.
    """

    def __init__(
        self,
        weights: WeightFile,
        model: WithVariables | None = None,
        init_from_group0: bool = False,
    ) -> None:
        self.prefix = weights.path
        self._weights = weights
        self._recognized = families.recognize(weights.shapes)
        self._wanted = {name: entry.shape for name, entry in self._recognized.entries.items()}
        if model is not None:
            self._wanted = {name: tuple(x.shape) for name, x in by_name(model.variables).items()}
        self._config = config_of(model)
        self._init_from_group0 = init_from_group0

    # What is compared: entries of the checkpoint with shapes of the model.

    @functools.cached_property
    def entries(self) -> dict[str, Entry]:
        """Weight of the checkpoint → how it is computed from the arrays in the file."""
        found = families.fit(self._recognized.entries, self._wanted, self._init_from_group0)
        return self._without_identity_projection(found)

    def _without_identity_projection(self, entries: dict[str, Entry]) -> dict[str, Entry]:
        """Leaves out a projection that the model lacks (E = H) if it is the identity."""
        names = [f"{PROJECTION}/kernel", f"{PROJECTION}/bias"]
        if set(names) & self._wanted.keys() or not set(names) <= entries.keys():
            return entries
        kernel, bias = (self._compute(entries[name]) for name in names)
        if bias.any() or not np.array_equal(kernel, np.eye(*kernel.shape)):
            return entries
        return {name: entry for name, entry in entries.items() if name not in names}

    @property
    def title(self) -> str:
        """Family of the checkpoint and file format."""
        return f"{self._recognized.title} ({self._weights.container})"

    @property
    def bookkeeping(self) -> int:
        """Number of optimizer moments, counters and copies."""
        return len(self._recognized.bookkeeping)

    @property
    def found(self) -> list[str]:
        """All weights of the checkpoint, without optimizer moments and counters."""
        return [*self.entries, *self._recognized.unmapped]

    # What fits, and what does not.

    @functools.cached_property
    def misshapen(self) -> dict[str, tuple[list[int], list[int]]]:
        """Variable → (shape in the checkpoint, shape in the model)."""
        return {
            name: (list(self.entries[name].shape), list(self._wanted[name]))
            for name in sorted(self.entries.keys() & self._wanted.keys())
            if self.entries[name].shape != self._wanted[name]
        }

    @functools.cached_property
    def loaded(self) -> list[str]:
        """Variables that the checkpoint has with the shape of the model."""
        return sorted(self.entries.keys() & self._wanted.keys() - self.misshapen.keys())

    @functools.cached_property
    def missing(self) -> list[str]:
        """Variables of the model that the checkpoint lacks."""
        return sorted(self._wanted.keys() - self.entries.keys())

    @functools.cached_property
    def unused(self) -> list[str]:
        """Weights of the checkpoint that the model does not have."""
        return self._surplus + self._recognized.unmapped

    @functools.cached_property
    def _surplus(self) -> list[str]:
        """Those of them whose names are ours."""
        return sorted(self.entries.keys() - self._wanted.keys())

    @property
    def unknown(self) -> list[str]:
        """Unused weights of the encoder of the family, which no model here computes.

        They have their names in the file.
        """
        return self._recognized.unknown

    @functools.cached_property
    def notes(self) -> list[str]:
        """What keeps a checkpoint of this family from fitting the model's config."""
        found = families.differences(self._recognized, self.entries, self._config)
        return [*found, _OWN_DECODER] if self._has_own_decoder else found

    @property
    def _has_own_decoder(self) -> bool:
        """Whether the masked-word head does not share its matrix with the word embeddings."""
        if DECODER not in self._weights.shapes or WORDS not in self.entries:
            return False
        if MASKED_LM_BIAS not in self._wanted:
            return False
        decoder = np.asarray(self._weights.read(DECODER), np.float32)
        return not np.array_equal(decoder, self._compute(self.entries[WORDS]))

    @functools.cached_property
    def _decisive(self) -> list[str]:
        """The names that do not fit, and without which the encoder is another one.

        New adapters change nothing, but a model is wrong without those that it was trained with. A
        pooler does not count if only one of checkpoint and model has it.
        """
        others = [*self.misshapen, *self._surplus]
        encoder = [name for name in self.missing if is_encoder(name)]
        encoder += [name for name in others if is_encoder(name) or name.startswith(ADAPTERS)]
        if all(any(name.startswith(POOLER) for name in x) for x in (self.entries, self._wanted)):
            return encoder
        return [name for name in encoder if not name.startswith(POOLER)]

    @property
    def fits(self) -> bool:
        """Whether the checkpoint has all weights of the model's encoder, and no others.

        The pooler does not count if only one of them has it.
        """
        return not (self.notes or self.unknown or self._decisive)

    # The weights themselves.

    def read(self, names: Iterable[str]) -> dict[str, NDArray[np.float32]]:
        """Returns name → weight of the checkpoint, float32, which a tensor can take over.

        The large ones come first, so that no copy of one is in memory beside all of the others.

        Raises:
            ValueError: the file is damaged.
        """
        weights = self.lazily(names)
        return {
            name: to_take_over(np.asarray(weights[name], np.float32))
            for name in reversed(list(weights))
        }

    def lazily(self, names: Iterable[str]) -> LazyArrays:
        """Returns name → weight of the checkpoint, float32, read when it is asked for.

        Reading one raises ValueError if the file is damaged.
        """
        shapes = {name: self.entries[name].shape for name in names}
        return LazyArrays(shapes, lambda name: self._compute(self.entries[name]))

    def _compute(self, entry: Entry) -> NDArray[np.float32]:
        arrays = (self._weights.read(name, entry.is_transposed) for name in entry.sources)
        return np.asarray(entry.compute(*arrays), np.float32)

    # The comparison as text.

    @property
    def heading(self) -> str:
        """The checkpoint, its family, and the number of its weights."""
        return f"{self.prefix}: {self.title}, {len(self.found)} weights"

    def __str__(self) -> str:
        """Returns the number of weights in each part of the model, and the names not loaded."""
        return self.as_text()

    def as_text(self, unused: str = "unused") -> str:
        """Returns the number of weights in each part of the model, and the names not loaded.

        Args:
            unused: what the weights are that the model does not have, in ten letters or fewer.
        """
        counts = collections.Counter(map(part_of, self.found))
        parts = ", ".join(f"{part} {counts[part]}" for part in PARTS if part in counts)
        sizes = ", ".join(f"{k} {size}" for k, size in families.sizes(self.entries).items())
        return "\n".join(
            [
                f"{self.heading}, {self.bookkeeping} moments, counters and copies",
                f"  {sizes or 'no sizes'}",
                *([f"  weights: {parts}"] if parts else []),
                *(f"  note: {note}" for note in self.notes),
                *_first(f"  missing    {name}" for name in self.missing),
                *_first(f"  misshapen  {text}" for text in self.other_shapes),
                *_first(f"  {unused:<10} {name}" for name in self.unused),
            ]
        )

    @property
    def other_shapes(self) -> list[str]:
        """The misshapen variables, with both shapes."""
        return [f"{n} has the shape {t}, here {o}" for n, (t, o) in self.misshapen.items()]

    @property
    def reason(self) -> str:
        """Why the checkpoint does not fit: the keys of the config that differ, or else a weight.

        A weight of the encoder comes before one of a head, which may be new.
        """
        if self.unknown:
            return (
                f"no model here has its weight {_and_more(self.unknown)}. Merge a LoRA into the "
                "weights before saving; relative positions are not supported"
            )
        if self.notes:
            return "; ".join(self.notes)
        misfits = dict(zip(self.misshapen, self.other_shapes, strict=True))
        misfits |= {name: f"{name} is missing" for name in self.missing}
        misfits |= {name: f"{name} is not in the model" for name in self.unused}
        return _and_more([misfits[name] for name in self._decisive] or list(misfits.values()))


def config_of(model: object) -> AlbertConfig | None:
    """Returns the config of a model; None if it has none, or that of another library."""
    config = getattr(model, "config", None)
    return config if isinstance(config, AlbertConfig) else None


def _first(lines: Iterable[str]) -> list[str]:
    """Returns the first lines, and a line with the number of the others."""
    every = list(lines)
    more = len(every) - _MAX_LISTED_NAMES
    return every if more <= 1 else [*every[:_MAX_LISTED_NAMES], f"  … and {more} more"]


def _and_more(texts: Sequence[str]) -> str:
    """Returns the first text, and the number of the others."""
    return texts[0] + (f" (and {len(texts) - 1} more)" if len(texts) > 1 else "")
