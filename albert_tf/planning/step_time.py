"""Predicts the time of a training step, from measured steps or from the peak rate of a device.

The time of a step on one device is modeled as

    c1 · dense FLOPs + c2 · dense FLOPs / H + c3 · attention FLOPs + c4 · values
        + c5 · parameters + c6

whose coefficients are fitted to measured steps (`MEASURED`, or your own). The second term says that
narrow matmuls are slower, values are those between the matmuls, and the last two terms are the
update of the weights and the constant overhead. Without measurements on a device, the time is its
FLOPs divided by a share of the peak rate; that share is an assumption.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.config import AlbertConfig
from albert_tf.planning import model_costs
from albert_tf.planning.model_costs import StepShape

MEASURED = os.path.join(os.path.dirname(__file__), "measured_steps.json")
TERMS = ("dense_flops", "narrow_flops", "attention_flops", "values", "parameters", "constant")
HELD_OUT = "held_out"  # key of the steps that are predicted, but not used for the fit


@dataclasses.dataclass(frozen=True)
class MeasuredStep:
    """A measured training step.

    Attributes:
        name: name of the config.
        config: the model.
        shape: the batch.
        seconds: median time of a step.
        is_held_out: whether the step tests the fit instead of being part of it.
    """

    name: str
    config: AlbertConfig
    shape: StepShape
    seconds: float
    is_held_out: bool = False


@dataclasses.dataclass(frozen=True)
class StepTimeModel:
    """A fitted model of the time of a step.

    Attributes:
        coefficients: seconds per unit of each of the TERMS; none is negative.
        fit_error: largest relative error among the steps of the fit.
        held_out_errors: relative error of each held-out step, predicted / measured - 1.
        conditions: device, precision, commit and date of the measurements.
    """

    coefficients: NDArray[np.float64]
    fit_error: float
    held_out_errors: tuple[float, ...]
    conditions: dict[str, Any]

    def seconds(self, config: AlbertConfig, shape: StepShape) -> float:
        """Returns the predicted time of a step on one device."""
        return float(_terms(config, shape) @ self.coefficients)


def _terms(config: AlbertConfig, shape: StepShape) -> NDArray[np.float64]:
    """Returns the amount of each of the TERMS in a step, float64 [6]."""
    costs = model_costs.step_costs(config, shape)
    narrow = costs.dense_flops / config.hidden_size
    return np.array(
        [costs.dense_flops, narrow, costs.attention_flops, costs.values, costs.parameters, 1.0]
    )


def _errors(steps: Sequence[MeasuredStep], coefficients: NDArray[np.float64]) -> list[float]:
    return [
        float(_terms(step.config, step.shape) @ coefficients / step.seconds - 1) for step in steps
    ]


def fit(steps: Sequence[MeasuredStep], conditions: dict[str, Any]) -> StepTimeModel:
    """Fits the model to measured steps by least squares of the relative errors.

    A term whose coefficient would be negative is left out.

    Args:
        steps: the measured steps; those held out only test the fit.
        conditions: what is known about the measurements.

    Raises:
        ValueError: there are fewer steps than terms.
    """
    used = [step for step in steps if not step.is_held_out]
    if len(used) < len(TERMS):
        raise ValueError(f"expected at least {len(TERMS)} measured steps, got {len(used)}")
    relative = np.stack([_terms(step.config, step.shape) / step.seconds for step in used])
    scale = relative.max(axis=0)  # brings all terms to the same order of magnitude
    kept = list(range(len(TERMS)))
    while True:
        solution, *_ = np.linalg.lstsq(relative[:, kept] / scale[kept], np.ones(len(used)))
        if solution.min() >= 0:
            break
        del kept[int(solution.argmin())]
    coefficients = np.zeros(len(TERMS))
    coefficients[kept] = solution / scale[kept]
    held_out = [step for step in steps if step.is_held_out]
    return StepTimeModel(
        coefficients,
        max(map(abs, _errors(used, coefficients))),
        tuple(_errors(held_out, coefficients)),
        conditions,
    )


def read_measured(path: str = MEASURED) -> tuple[list[MeasuredStep], dict[str, Any]]:
    """Reads measured steps, as `plan_run.py --measure_steps` writes them.

    Returns:
        The steps, and the conditions of the measurements.

    Raises:
        ValueError: the file has another content; the message names it.
    """
    content = files.read_json(path)
    try:
        steps = [
            MeasuredStep(
                entry["config"],
                AlbertConfig.from_dict(content["configs"][entry["config"]]),
                StepShape(entry["rows"], entry["length"], entry["predictions"]),
                float(entry["seconds"]),
                bool(entry.get(HELD_OUT, False)),
            )
            for entry in content["steps"]
        ]
        return steps, dict(content["conditions"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{path}: expected the measured steps that plan_run.py --measure_steps writes, "
            f"got {type(error).__name__}: {error}"
        ) from None


def write_measured(path: str, steps: Sequence[MeasuredStep], conditions: dict[str, Any]) -> None:
    """Writes measured steps, from which `read_measured` restores them."""
    entries = [
        {
            "config": step.name,
            "rows": step.shape.rows,
            "length": step.shape.length,
            "predictions": step.shape.predictions,
            "seconds": round(step.seconds, 5),
            HELD_OUT: step.is_held_out,
        }
        for step in steps
    ]
    configs = {step.name: step.config.to_dict() for step in steps}
    files.write_json(path, {"conditions": conditions, "steps": entries, "configs": configs})
