r"""Trains by a kit of `make_training_kit.py` on a GPU or CPU that has JAX, without TensorFlow.

    python train_gpu_kit.py training_kit trained --seconds=480

Needs NumPy and JAX (0.10 or 0.11), and of this project `run_gpu_kit.py` beside it and the modules
in `albert_tf/data/` that draw the masks. It prints a JSON line with the mean loss of each
`--log_steps` steps, and with the metrics on held-out text every `--eval_steps` steps and at the
end. It ends with the last step of the kit, or when the time is over, and then writes the state in
parts of at most 16 MiB, the loss of every step, and `trained.json`.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import functools
import importlib
import json
import os
import pathlib
import sys
import time
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import run_gpu_kit
from numpy.typing import NDArray

PART_BYTES = 16 * 2**20
AHEAD = 16  # batches that are masked in advance
DATA = pathlib.Path(__file__).resolve().parents[1] / "albert_tf" / "data"

Arrays = dict[str, NDArray[Any]]


@functools.cache
def masking_module() -> Any:
    """Returns the module that draws masks, without the rest of its package."""
    for name, path in (("albert_tf", []), ("albert_tf.data", [str(DATA)])):
        package: Any = types.ModuleType(name)
        package.__path__ = path
        sys.modules.setdefault(name, package)
    return importlib.import_module("albert_tf.data.dynamic_masks")


class Rows:
    """The rows of the records, and the batches that are made of them.

    Args:
        folder: the kit.
        kit: the content of its kit.json.
    """

    def __init__(self, folder: str, kit: dict[str, Any]) -> None:
        with np.load(os.path.join(folder, "rows.npz")) as arrays:
            self._rows = {name: arrays[name] for name in arrays.files}
        self._order = self._rows.pop("order")
        self._kit = kit
        self._settings = types.SimpleNamespace(**kit["masking"])

    @property
    def num_steps(self) -> int:
        """The number of steps of the kit."""
        return len(self._order)

    def batch(self, step: int) -> Arrays:
        """Returns the masked batch of a step."""
        chosen = {name: value[self._order[step]] for name, value in self._rows.items()}
        ids = chosen["input_ids"].astype(np.int32)  # [B, S]
        places = np.arange(ids.shape[1])
        lengths = chosen["lengths"].astype(np.int32)[:, None]
        mask = (places < lengths).astype(np.int32)
        seconds = chosen["seconds"].astype(np.int32)[:, None]
        bits = np.unpackbits(chosen["boundaries"], axis=1)[:, : ids.shape[1]]
        masked = masking_module().mask_instances(
            ids,
            mask,
            bits.astype(np.int32),
            step * len(ids),
            self._settings,
            self._kit["mask_id"],
            self._kit["vocab_size"],
            self._kit["seed"],
        )
        batch = masked | {
            "input_mask": mask,
            "segment_ids": ((places >= seconds) & (places < lengths)).astype(np.int32),
            "next_sentence_labels": chosen["labels"].astype(np.int32)[:, None],
        }
        return {name: batch[name] for name in self._kit["features"]}

    def batches(self) -> Iterator[Arrays]:
        """Yields the batches of all steps; threads mask some in advance."""
        with concurrent.futures.ThreadPoolExecutor() as pool:
            futures = [pool.submit(self.batch, step) for step in range(min(AHEAD, self.num_steps))]
            for step in range(self.num_steps):
                batch = futures.pop(0).result()
                if step + AHEAD < self.num_steps:
                    futures.append(pool.submit(self.batch, step + AHEAD))
                yield batch


class Training:
    """The state of a run on the device, and what is computed with it.

    Args:
        folder: the kit.
        kit: the content of its kit.json.
    """

    def __init__(self, folder: str, kit: dict[str, Any]) -> None:
        import jax

        self._kit = kit
        self._updated = kit["step"]["updated"]
        platform = jax.default_backend()
        with np.load(os.path.join(folder, "state.npz")) as arrays:
            values = [arrays[str(number)] for number in range(self._updated)]
        with np.load(os.path.join(folder, "held_out.npz")) as arrays:
            self._held_out = {name: arrays[name] for name in arrays.files}
        self.state = [jax.device_put(value) for value in values]
        step = run_gpu_kit.load_function(folder, kit["step"], platform)
        self._step = jax.jit(step, donate_argnums=range(self._updated))
        evaluation = run_gpu_kit.load_function(folder, kit["evaluation"], platform)
        self._evaluation = jax.jit(evaluation)

    def step(self, batch: Arrays) -> Any:
        """Takes a step; returns the sum of the loss and its weight, on the device."""
        results = self._step(*self.state, *(batch[name] for name in sorted(batch)))
        self.state = results[-self._updated :]
        return results[self._kit["step"]["loss"]]

    def evaluate(self) -> dict[str, float]:
        """Returns the means of the metrics over the held-out batches."""
        entry = self._kit["evaluation"]
        weights = [self.state[place] for place in entry["variables"]]
        sums: list[NDArray[np.float64]] = []  # [number of metrics, 2] of each batch
        for number in range(len(self._held_out["input_ids"])):
            inputs = [self._held_out[name][number] for name in sorted(self._held_out)]
            results = self._evaluation(*weights, *inputs)
            sums.append(np.stack([np.asarray(x, np.float64) for x in results]))
        names: list[str] = entry["metrics"]
        totals = np.sum(sums, axis=0)
        return {name: float(x / y) for name, (x, y) in zip(names, totals, strict=True)}


def train(training: Training, rows: Rows, args: argparse.Namespace) -> list[float]:
    """Takes steps until the last one or the end of the time; returns their losses."""
    begin = time.perf_counter()
    losses: list[float] = []
    pending: list[Any] = []
    for batch in rows.batches():
        pending.append(training.step(batch))
        count = len(losses) + len(pending)
        is_last = count == rows.num_steps or time.perf_counter() - begin > args.seconds
        if is_last or len(pending) == args.log_steps:
            pairs = [np.asarray(x, np.float64) for x in pending]
            losses += [float(total / weight) for total, weight in pairs]
            mean = float(np.mean(losses[-len(pending) :]))
            pending = []
            seconds = round(time.perf_counter() - begin, 1)
            run_gpu_kit.print_line(step=count, seconds=seconds, loss=round(mean, 4))
            if not np.isfinite(mean):
                raise ArithmeticError(f"the loss is {mean} in the steps before step {count}")
        if is_last or count % args.eval_steps == 0:
            run_gpu_kit.print_line(step=count, held_out=training.evaluate())
        if is_last:
            break
    return losses


def write_state(training: Training, losses: list[float], folder: str) -> None:
    """Writes what was trained, in parts that are small enough to be sent."""
    os.makedirs(folder, exist_ok=True)
    parts: list[Arrays] = [{}]
    size = 0
    for number, value in enumerate(training.state):
        flat = np.ravel(np.asarray(value))
        for first in range(0, flat.size, PART_BYTES // 8):
            piece = flat[first : first + PART_BYTES // 8]
            if size + piece.nbytes > PART_BYTES:
                parts.append({})
                size = 0
            parts[-1][f"{number}/{first}"] = piece
            size += piece.nbytes
    names = [f"state-{number:02d}.npz" for number in range(len(parts))]
    for name, part in zip(names, parts, strict=True):
        np.savez(os.path.join(folder, name), **part)  # type: ignore[arg-type]
    np.save(os.path.join(folder, "losses.npy"), np.array(losses))
    with open(os.path.join(folder, "trained.json"), "w", encoding="utf-8") as stream:
        json.dump({"step": len(losses), "parts": names}, stream)


def main() -> None:
    """Trains."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kit", help="folder of make_training_kit.py")
    parser.add_argument("folder", help="where to write what was trained")
    parser.add_argument("--seconds", type=float, default=480, help="time after which it ends")
    parser.add_argument("--log_steps", type=int, default=100, help="steps between two lines")
    parser.add_argument("--eval_steps", type=int, default=2000, help="steps between evaluations")
    args = parser.parse_args()
    try:
        import jax

        jax.config.update("jax_enable_x64", True)  # steps are counted in int64
        kit = run_gpu_kit.load_kit(args.kit, "make_training_kit.py")
        training, rows = Training(args.kit, kit), Rows(args.kit, kit)
        run_gpu_kit.print_line(device=jax.devices()[0].device_kind, held_out=training.evaluate())
        losses = train(training, rows, args)
    except Exception as error:  # of the kit, JAX or the device, whatever its class
        run_gpu_kit.print_line(error=run_gpu_kit.reason_of(error))
        sys.exit(1)
    write_state(training, losses, args.folder)


if __name__ == "__main__":
    main()
