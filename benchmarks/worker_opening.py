"""Opens or converts a model once, and prints what that took; started by `bench_opening.py`.

Imports only what the act needs, before the clock starts.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Opened = Iterable[NDArray[Any]]  # weights of an opened model


def transformers_opens(folder: str) -> Callable[[], Opened]:
    """Returns what opens a folder with transformers: model and tokenizer."""
    from transformers import AlbertModel, AutoTokenizer

    def act() -> Opened:
        AutoTokenizer.from_pretrained(folder)
        model = AlbertModel.from_pretrained(folder)
        return (weight.detach().numpy() for weight in model.parameters())

    return act


def opens(door: str, folder: str) -> Callable[[], Opened]:
    """Returns what opens a folder with this package: "load_predictor" or "from_pretrained"."""
    import sentencepiece  # noqa: F401 - imported on first use, as are the others
    import tensorflow as tf
    import tokenizers  # noqa: F401

    import albert_tf
    import albert_tf.inference.predictor
    import albert_tf.inference.pretrained

    with contextlib.suppress(ImportError):  # older checkouts read files with it
        import safetensors.numpy  # noqa: F401
    with contextlib.suppress(ImportError):  # older checkouts have it in the file of the predictor
        import albert_tf.inference.tensorflow_engine

    tf.zeros(1)  # starts TensorFlow

    def act() -> Opened:
        if door == "load_predictor":
            predictor: Any = albert_tf.load_predictor(folder, engine="tensorflow")
            model = predictor.model
        else:
            model, _ = albert_tf.from_pretrained(folder)
        return (np.asarray(memoryview(variable.value())) for variable in model.variables)

    return act


def converts(folder: str, output_format: str, output: str) -> Callable[[], Opened]:
    """Returns what converts a folder to another format."""
    import safetensors.numpy  # noqa: F401
    import tensorflow as tf

    from albert_tf.export import convert

    tf.zeros(1)

    def act() -> Opened:
        list(convert.run(convert.Settings(folder, output, output_format)))
        return ()

    return act


def peak() -> int:
    """Returns the largest resident memory of this process so far, in bytes. On Linux."""
    with open("/proc/self/status", encoding="utf-8") as status:
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read())
    assert found
    return 1024 * int(found[1])


def cpu_seconds() -> float:
    """Returns the CPU time of this process, of all its threads, in user and kernel mode."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Runs the act of the command line, and reads all weights; prints a line of JSON."""
    act_name, folder, *rest = sys.argv[1:]
    if act_name == "transformers":
        act = transformers_opens(folder)
    elif act_name == "convert":
        act = converts(folder, *rest)
    else:
        act = opens(act_name, folder)
    cpu, seconds, memory = cpu_seconds(), time.perf_counter(), peak()
    total = sum(float(np.sum(weight)) for weight in act())
    figures = {
        "cpu": cpu_seconds() - cpu,
        "seconds": time.perf_counter() - seconds,
        "megabytes": (peak() - memory) / 1e6,
        "sum": total,
    }
    sys.stdout.flush()
    os.write(1, (json.dumps(figures) + "\n").encode())


if __name__ == "__main__":
    main()
