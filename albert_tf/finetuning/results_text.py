"""The lines of the text files of results, as Google's programs write them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from albert_tf.checkpoints.evaluations import Evaluation
from albert_tf.checkpoints.run_folder import DATA_SUFFIX, RunFolder

RESULTS_FILE = "eval_results.txt"
TEST_RESULTS_FILE = "predict_results.txt"
SEPARATOR = "=" * 50 + "\n"


def format_metrics(metrics: Mapping[str, float]) -> str:
    """Returns lines `key = value`, sorted by key; floats are printed as float32."""
    lines = []
    for key, value in sorted(metrics.items()):
        lines.append(f"{key} = {str(np.float32(value)) if isinstance(value, float) else value}\n")
    return "".join(lines)


def format_copies(folder: RunFolder, evaluation: Evaluation) -> str:
    """Returns a line for each file of a checkpoint that is copied to `model.ckpt-best`.

    The text is empty for a checkpoint outside the output directory, which is not copied.
    """
    source = folder.file(f"model.ckpt-{evaluation.step}")
    target = folder.best
    suffixes = (DATA_SUFFIX, ".index") if evaluation.checkpoint else ()
    return "".join(f"saved {source}{suffix} to {target}{suffix}\n" for suffix in suffixes)
