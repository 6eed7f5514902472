"""The comparison of a checkpoint with a model: which weights fit, and which do not."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.checkpoints import families
from albert_tf.checkpoints.containers import WeightFile
from albert_tf.checkpoints.weight_names import (
    ADAPTERS,
    PARTS,
    POOLER,
    PROJECTION,
    by_name,
    is_encoder,
    part_of,
)

_MAX_LISTED_NAMES = 16  # per list of a report


class LoadReport:
    """The comparison of a checkpoint with a model.

    Weights have the names of the model's variables.

    Args:
        weights: the open checkpoint.
        model: the model; None for one that has the weights of the checkpoint.
        init_from_group0: as in `load_checkpoint`.

    Attributes:
        prefix: the checkpoint.
        title: family of the checkpoint and file format.
        entries: weight of the checkpoint → how it is computed from the arrays in the file.
        loaded: variables that the checkpoint has with the shape of the model.
        missing: variables of the model that the checkpoint lacks.
        misshapen: variable → (shape in the checkpoint, shape in the model).
        unused: weights of the checkpoint that the model does not have.
        unknown: those of them, with their names in the file, that belong to the encoder of its
            family, and that no model here computes.
        found: all weights of the checkpoint, without optimizer moments and counters.
        bookkeeping: number of optimizer moments and counters.
        notes: what keeps a checkpoint of this family from fitting the model's config.
        fits: whether the checkpoint has all weights of the model's encoder, and no others. The
            pooler does not count if only one of them has it.
    """

    def __init__(
        self, weights: WeightFile, model: Any = None, init_from_group0: bool = False
    ) -> None:
        recognized = families.recognize(weights.shapes)
        wanted = {name: entry.shape for name, entry in recognized.entries.items()}
        if model is not None:
            wanted = {name: tuple(x.shape) for name, x in by_name(model.variables).items()}
        self._weights = weights
        self.prefix = weights.path
        self.title = f"{families.TITLES[recognized.family]} ({weights.container})"
        self.entries = families.fit(recognized.entries, wanted, init_from_group0)
        self._drop_identity_projection(wanted)
        surplus = sorted(self.entries.keys() - wanted.keys())
        self.missing = sorted(wanted.keys() - self.entries.keys())
        self.misshapen = {
            name: (list(self.entries[name].shape), list(wanted[name]))
            for name in sorted(self.entries.keys() & wanted.keys())
            if self.entries[name].shape != wanted[name]
        }
        self.loaded = sorted(self.entries.keys() & wanted.keys() - self.misshapen.keys())
        self.unused = surplus + recognized.unmapped
        self.unknown = recognized.unknown
        self.found = [*self.entries, *recognized.unmapped]
        self.bookkeeping = len(recognized.bookkeeping)
        config = getattr(model, "config", None)
        self.notes = families.differences(recognized, self.entries, config)
        # New adapters change nothing, but a model is wrong without those that it was trained with.
        encoder = [name for name in self.missing if is_encoder(name)]
        encoder += [
            n for n in (*self.misshapen, *surplus) if is_encoder(n) or n.startswith(ADAPTERS)
        ]
        both = all(any(n.startswith(POOLER) for n in names) for names in (self.entries, wanted))
        self._decisive = [name for name in encoder if both or not name.startswith(POOLER)]
        self.fits = not (self.notes or self.unknown or self._decisive)

    def _drop_identity_projection(self, wanted: Mapping[str, Any]) -> None:
        """Removes a projection that the model lacks (E = H) if it is the identity."""
        names = [f"{PROJECTION}/kernel", f"{PROJECTION}/bias"]
        if not set(names) & wanted.keys() and set(names) <= self.entries.keys():
            kernel, bias = self.read(names).values()
            if np.array_equal(kernel, np.eye(*kernel.shape)) and not bias.any():
                for name in names:
                    del self.entries[name]

    def read(self, names: Iterable[str]) -> dict[str, np.ndarray]:
        """Returns name → weight of the checkpoint, float32.

        Raises:
            ValueError: the file is damaged.
        """
        entries = {name: self.entries[name] for name in names}
        return {
            name: np.asarray(entry.compute(*map(self._weights.read, entry.sources)), np.float32)
            for name, entry in entries.items()
        }

    @property
    def heading(self) -> str:
        """The checkpoint, its family, and the number of its weights."""
        return f"{self.prefix}: {self.title}, {len(self.found)} weights"

    def __str__(self) -> str:
        """Returns the number of weights in each part of the model, and the names not loaded."""
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
                *_first(f"  unused     {name}" for name in self.unused),
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


def _first(lines: Iterable[str]) -> list[str]:
    """Returns the first lines, and a line with the number of the others."""
    every = list(lines)
    more = len(every) - _MAX_LISTED_NAMES
    return every if more <= 1 else [*every[:_MAX_LISTED_NAMES], f"  … and {more} more"]


def _and_more(texts: Sequence[str]) -> str:
    """Returns the first text, and the number of the others."""
    return texts[0] + (f" (and {len(texts) - 1} more)" if len(texts) > 1 else "")
