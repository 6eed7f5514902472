"""Calls the signatures of exported models that take raw strings, as a model server does."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf

from albert_tf import files

Column = Sequence[str] | Sequence[Sequence[str]]
Row = dict[str, Any]


class Signatures:
    """The signatures of an exported model.

    Args:
        folder: the folder of the SavedModel.
    """

    def __init__(self, folder: str) -> None:
        importlib.import_module("tensorflow_text")  # registers the ops of the signatures
        with files.local_copy(folder) as path:
            self._loaded = tf.saved_model.load(path)  # signatures do not keep the weights alive

    def outputs(self, name: str) -> dict[str, tf.TensorSpec]:
        """Returns the outputs of a signature, output name → spec."""
        return dict(self._loaded.signatures[name].structured_outputs)

    def has(self, name: str, needed: Collection[str]) -> bool:
        """Returns whether there is a signature whose inputs and outputs include the given names."""
        found = self._loaded.signatures.get(name)
        if found is None:
            return False
        names = {*found.structured_input_signature[1], *found.structured_outputs}
        return names.issuperset(needed)

    def answer(
        self,
        name: str,
        columns: Mapping[str, Column],
        batch_size: int,
        max_characters: int | None = None,
    ) -> list[Row]:
        """Returns the outputs for each row of the inputs, in input order.

        Rows are sorted by length, so that the texts of a batch need little padding.

        Args:
            name: the signature.
            columns: input name → N strings, or N lists of strings, which are padded with "".
            batch_size: maximum number of rows per call.
            max_characters: maximum number of characters per call, unless a single row has more.
                For signatures that split texts into windows; None for no limit.

        Returns:
            Output name → value for each row, where values may be padded. Outputs without a batch
            dimension are omitted.
        """
        rows = list(zip(*columns.values(), strict=True))
        order = sorted(range(len(rows)), key=lambda number: -_length(rows[number]))
        found: list[Row] = [{} for _ in rows]
        while order:
            count, longest = batch_size, _length(rows[order[0]])
            if max_characters is not None:
                count = min(max(max_characters // max(longest, 1), 1), batch_size)
            numbers, order = order[:count], order[count:]
            inputs = {
                key: _strings([column[number] for number in numbers])
                for key, column in columns.items()
            }
            outputs = self._loaded.signatures[name](**inputs)
            arrays = {key: value.numpy() for key, value in outputs.items() if value.ndim}
            for place, number in enumerate(numbers):
                found[number] = {key: array[place] for key, array in arrays.items()}
        return found


def _length(row: Sequence[str | Sequence[str]]) -> int:
    """Returns the number of characters in a row."""
    return sum(len(cell) if isinstance(cell, str) else _length(cell) for cell in row)


def _strings(values: Sequence[Any]) -> tf.Tensor:
    """Returns strings as a tensor [B], or lists of strings as [B, W] padded with ""."""
    if isinstance(values[0], str):
        return tf.constant(values, tf.string)
    width = max(map(len, values))
    padded = [[*value, *[""] * (width - len(value))] for value in values]
    return tf.constant(padded, tf.string, [len(values), width])
