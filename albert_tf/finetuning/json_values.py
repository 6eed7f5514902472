"""Values with NumPy arrays and numbers, as JSON can express them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from albert_tf import files


def as_json(value: object) -> files.Json:
    """Returns a value that may contain NumPy arrays and numbers as one that JSON can express.

    A float has the fewest digits that round to the same float of its type.
    """
    if isinstance(value, Mapping):
        return {name: as_json(part) for name, part in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [as_json(part) for part in value]
    if isinstance(value, np.floating):
        return float(str(value))
    return value.item() if isinstance(value, np.generic) else value
