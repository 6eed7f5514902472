r"""Writes a pre-training run for a GPU without TensorFlow, and a checkpoint of what it trains.

    python benchmarks/make_training_kit.py training_kit --flagfile=flags.txt
    python benchmarks/train_gpu_kit.py training_kit trained          # on the machine with the GPU
    python benchmarks/make_training_kit.py training_kit --flagfile=flags.txt --weights=trained

`flags.txt` has the flags of `run_pretraining.py`, with --dynamic_masking and records that were
created with --masked_lm_prob=0. The kit is a folder with the training step and the evaluation as
programs, the initial state, each row of the records once, the order of the batches and some masked
batches to evaluate on. Masks are drawn on the other machine, by the code of this project, so that
the run takes the same steps as `run_pretraining.py`. The last command writes the checkpoint of the
last step into --output_dir. With --nofused_attention, the programs have no kernels for NVIDIA GPUs.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import itertools
import json
import math
import os
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import make_gpu_kit
import numpy as np
import tensorflow as tf
from lowering import lower, variables_of
from make_gpu_kit import Program
from numpy.typing import NDArray

from albert_tf import files, pretraining
from albert_tf.cli.flags import parse
from albert_tf.data.record_metadata import FoundRecords
from albert_tf.model.config import AlbertConfig
from albert_tf.model.costs import StepShape, step_flops
from albert_tf.pretraining import input_pipeline, program
from albert_tf.pretraining.features import LABELS, TOKEN_BOUNDARY
from albert_tf.pretraining.metadata_checks import check_records, find_objective, find_record_files
from albert_tf.pretraining.record_task import RecordTask
from albert_tf.training.checkpointing import Checkpoints
from albert_tf.training.preparation import make_trainer
from albert_tf.training.run import Run
from albert_tf.training.step import TrainStep

EVALUATION_BATCHES = 20
MAX_VOCABULARY = 2**16  # ids are stored as uint16

Arrays = dict[str, NDArray[Any]]


@contextlib.contextmanager
def opened(settings: pretraining.Settings) -> Iterator[tuple[RecordTask, TrainStep, Run[Any]]]:
    """Context manager with the task of a run, its step in its initial state, and the run."""
    settings = settings.completed()
    found = find_record_files(settings.input_file, "--input_file")
    held_out: FoundRecords = found
    if settings.eval_input_file:
        held_out = find_record_files(settings.eval_input_file, "--eval_input_file")
    config = AlbertConfig.from_json_file(settings.albert_config_file or "")
    objective = settings.sentence_objective or find_objective(found)
    check_records(found | held_out, objective, config)
    settings = dataclasses.replace(settings, sentence_objective=objective)
    with Run.open(settings) as run:
        task = program.make_task(settings, run.config, found, held_out)
        task.num_streams = program.streams_of(settings, run.folder, task.train_records.counts)
        if task.train_records.masking is None or task.eval_records.masking is None:
            raise ValueError(
                "--dynamic_masking is needed, and records created with --masked_lm_prob=0: masks "
                "are drawn on the other machine"
            )
        if run.config.vocab_size > MAX_VOCABULARY:
            raise ValueError(f"vocab_size={run.config.vocab_size}: expected at most 65,536")
        trainer = make_trainer(task, settings, task.schedule(settings), run.strategy, run.folder)
        yield task, trainer.take_step, run


def read_rows(task: RecordTask, settings: pretraining.Settings) -> tuple[Arrays, NDArray[np.int32]]:
    """Returns each row of the records once, and which of them the steps train on, [steps, B].

    The rows are input_ids, uint16 [n, S]; lengths and seconds, uint16 [n], the number of tokens and
    the place where the second segment begins; boundaries, the bits of token_boundary; and labels.
    """
    task.train_records = task.train_records._replace(masking=None)
    size = settings.train_batch_size
    numbers: dict[bytes, int] = {}
    order = np.zeros((settings.num_train_steps, size), np.int32)
    rows: list[Arrays] = []
    batches = task.batches(settings, 0, slice(0, size))
    for step, batch in enumerate(itertools.islice(batches, settings.num_train_steps)):
        arrays = {name: value.numpy() for name, value in batch.items()}
        for place in range(size):
            row = {name: value[place] for name, value in arrays.items()}
            key = b"".join(row[name].tobytes() for name in sorted(row))
            if key not in numbers:
                numbers[key] = len(rows)
                rows.append(packed(row))
            order[step, place] = numbers[key]
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}, order


def packed(row: Arrays) -> Arrays:
    """Returns a row of the records in as few bytes as it takes; see `read_rows`."""
    length = int(row["input_mask"].sum())
    segments = row["segment_ids"]
    second = int(segments.argmax()) if segments.any() else length
    places = np.arange(len(segments))
    if not (
        np.array_equal(row["input_mask"], places < length)
        and np.array_equal(segments, (second <= places) & (places < length))
    ):
        raise ValueError("a record has a mask or segments of another form than one pair of texts")
    boundaries = np.packbits(row[TOKEN_BOUNDARY] > 0)
    sizes = {"lengths": np.uint16(length), "seconds": np.uint16(second)}
    labels = np.uint8(row[LABELS][0] if LABELS in row else 0)
    return {
        "input_ids": row["input_ids"].astype(np.uint16),
        "boundaries": boundaries,
        **{name: np.asarray(value) for name, value in sizes.items()},
        "labels": np.asarray(labels),
    }


def evaluation_batches(task: RecordTask, settings: pretraining.Settings) -> list[Arrays]:
    """Returns masked batches of the held-out records, all of the same size."""
    records = task.eval_records
    size = settings.eval_batch_size
    dataset = input_pipeline.evaluation_dataset(
        records.files, records.features, size, records.masking
    )
    count = min(settings.max_eval_steps, EVALUATION_BATCHES)
    batches = ({name: value.numpy() for name, value in batch.items()} for batch in dataset)
    whole = [batch for batch in itertools.islice(batches, count) if len(batch["input_ids"]) == size]
    if not whole:
        raise ValueError(f"--eval_batch_size={size} is larger than the records to evaluate on")
    return [{name: x for name, x in b.items() if name != TOKEN_BOUNDARY} for b in whole]


def make_step(step: TrainStep, batch: Arrays, config: AlbertConfig) -> Program:
    """Returns the training step."""
    rows, length = batch["input_ids"].shape
    shape = StepShape(rows, length, batch["masked_lm_ids"].shape[1])
    return make_gpu_kit.make_step_program(step, batch, step_flops(config, shape))


def make_evaluation(step: TrainStep, task: RecordTask, batch: Arrays) -> Program:
    """Returns the sums of the metrics of a batch and their weights, [2] each, sorted by name."""
    names: list[str] = []

    def evaluate(batch: Any) -> list[tf.Tensor]:
        loss, sums = task.loss(step.model(batch, training=False), batch)
        del loss
        names[:] = sorted(sums)
        return [tf.stack(sums[name]) for name in names]

    facts = {"metrics": names}
    return Program(evaluate, batch, {}, list(step.model.variables), facts)


def write_program(
    made: Program, name: str, platform: str, folder: str, options: tuple[str, ...]
) -> dict[str, Any]:
    """Lowers a program with options of `make_gpu_kit.py`; returns its entry of `kit.json`."""
    is_step = "updated" in made.facts
    sources = made.function, made.variables, platform, made.arguments
    with make_gpu_kit.without_kernels(options):
        module = lower(*sources, stage="stablehlo", returns_values=is_step)
    file = f"{name}.mlir.gz"
    make_gpu_kit.write_module(module, os.path.join(folder, file))
    inputs = make_gpu_kit.describe_inputs(made, lambda _: {})
    results = make_gpu_kit.results_of(module)
    return {"name": name, "file": file, "inputs": inputs, "results": results} | made.facts


def write_arrays(path: str, arrays: Arrays) -> None:
    """Writes arrays, whole or not at all."""
    with files.write_atomically(path, "wb") as stream:
        np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]


def write_kit(settings: pretraining.Settings, folder: str, platform: str) -> None:
    """Writes the kit of a run."""
    os.makedirs(folder, exist_ok=True)
    at = functools.partial(os.path.join, folder)
    with opened(settings) as (task, step, run):
        masking: Any = task.train_records.masking
        held_out = evaluation_batches(task, run.settings)
        rows, order = read_rows(task, run.settings)
        batch = held_out[0]
        training = {
            name: np.zeros((run.settings.train_batch_size, *x.shape[1:]), x.dtype)
            for name, x in batch.items()
        }
        variables = variables_of(step)
        options = () if run.settings.fused_attention else ("unfused",)
        to_write = functools.partial(
            write_program, platform=platform, folder=folder, options=options
        )
        of_step = to_write(make_step(step, training, run.config), "step")
        evaluation = make_evaluation(step, task, batch)
        places = [[x is y for y in variables].index(True) for x in evaluation.variables]
        of_evaluation = to_write(evaluation, "evaluation")
        write_arrays(at("state.npz"), {str(i): x.numpy() for i, x in enumerate(variables)})
        write_arrays(at("rows.npz"), rows | {"order": order})
        stacked = {name: np.stack([x[name] for x in held_out]) for name in batch}
        write_arrays(at("held_out.npz"), stacked)
        fields = {field.name for field in dataclasses.fields(masking.settings)}
        by = {name: getattr(masking.settings, name) for name in sorted(fields)}
        kit = {
            "platform": platform,
            "step": of_step,
            "evaluation": of_evaluation | {"variables": places},
            "masking": by | {"prediction_slots": masking.settings.prediction_slots},
            "mask_id": masking.mask_id,
            "vocab_size": masking.vocab_size,
            "seed": masking.seed,
            "features": sorted(batch),
        }
    with files.write_atomically(at("kit.json")) as stream:
        json.dump(kit, stream)
    sizes = sum(os.path.getsize(at(name)) for name in os.listdir(folder))
    steps, count = order.shape[0], len(rows["labels"])
    print(f"{folder}: {steps} steps, {count} rows, {sizes / 1e6:.1f} MB")


def write_checkpoint(settings: pretraining.Settings, weights: str) -> None:
    """Writes the checkpoint of what `train_gpu_kit.py` has trained.

    Raises:
        ValueError: the files are of another run.
    """
    path = os.path.join(weights, "trained.json")
    trained = files.read_json(path, {"parts": list, "step": int})
    values: Arrays = {}
    for part in trained["parts"]:
        with np.load(files.inside(weights, part, path, is_name=True)) as arrays:
            for name in arrays.files:
                values.setdefault(name.partition("/")[0], []).append(arrays[name])  # type: ignore
    with opened(settings) as (task, step, run):
        run.admit(program.describe_data(task))
        variables = variables_of(step)
        if len(values) != len(variables):
            raise ValueError(
                f"{weights} has {len(values)} variables: expected {len(variables)}, those of the "
                "flags' model and optimizer"
            )
        for number, variable in enumerate(variables):
            flat = np.concatenate(values[str(number)])
            if flat.size != math.prod(variable.shape):
                raise ValueError(f"{weights}: {variable.name} has {flat.size} values")
            variable.assign(flat.reshape(variable.shape))
        run.begin()
        task.keep_files(run.folder)
        checkpoints = Checkpoints(step, run.folder, run.settings.keep_checkpoint_max)
        print(checkpoints.save(trained["step"]))


def main() -> None:
    """Writes the kit, or the checkpoint."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", help="the kit")
    parser.add_argument("--platform", default="GPU", choices=("GPU", "CPU"), help="target")
    parser.add_argument("--weights", help="folder of train_gpu_kit.py, to make a checkpoint of")
    args, flags = parser.parse_known_args()
    try:
        settings = parse(pretraining.Settings, flags)
        if args.weights:
            write_checkpoint(settings, args.weights)
        else:
            write_kit(settings, args.folder, args.platform)
    except (OSError, ValueError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
