"""The progress of loops over batches: a bar on terminals, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from absl import logging
from tqdm import tqdm

SECONDS_BETWEEN_LINES = 30.0  # between two lines

Item = TypeVar("Item")


def with_progress(batches: Iterable[Item], what: str, total: int | None = None) -> Iterator[Item]:
    """Yields the batches and shows the progress.

    Args:
        batches: the batches.
        what: description of the loop, such as "evaluating".
        total: number of batches; None if it is unknown.
    """
    bar = tqdm(batches, what, total, unit="batch", disable=None, leave=False)
    if not bar.disable:
        yield from bar
        return
    shown_at = time.monotonic()
    for number, batch in enumerate(batches):
        if time.monotonic() - shown_at >= SECONDS_BETWEEN_LINES:
            shown_at = time.monotonic()
            of_total = "" if total is None else f" of {total}"
            logging.info("%s: %d%s batches", what, number, of_total)
        yield batch
