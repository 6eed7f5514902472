r"""Checks how correctly and how fast ALBERT trains on the GPU, TPU or CPU of this machine.

    python tools/check_device.py --device=gpu | tee check.md

prints a Markdown table, a row for each check: versions, agreement with the CPU in float32 and
bfloat16, determinism, training on two devices, a pre-training run that is killed and resumed, and
time and memory of a training step of ALBERT base, beside Hugging Face's if PyTorch and transformers
are installed. Nothing is downloaded. It takes up to ten minutes. Each check is a process of its
own; the others run even if one fails. The exit status is 1 if a check failed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from albert_tf import __version__, files
from albert_tf.checkpoints import containers, finding
from albert_tf.cli import program
from albert_tf.data import tfrecord
from albert_tf.pretraining import device_checks
from albert_tf.pretraining.device_checks import SHAPES, SMALL, Outcome
from albert_tf.settings import SettingsGroup, setting

TITLES = {
    "versions": "device and versions",
    "float32": "agreement with the CPU, float32",
    "bfloat16": "agreement with the CPU, bfloat16",
    "determinism": "determinism",
    "two_devices": "two devices",
    "resume": "kill and resume",
    "speed": "step of ALBERT base",
}
PEER_PYTHON = "ALBERT_PEER_PYTHON"  # environment variable: the Python with PyTorch and transformers
LENGTH, PREDICTIONS = 32, 5
STEPS, SAVED_EVERY, KILLED_AFTER = 300, 20, 40
RUN_SECONDS = 240
_WORDS = {True: "passed", False: "**failed**", None: "skipped"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(SettingsGroup):
    """What to check."""

    device: str = setting(
        "auto",
        "Device to check; auto checks the GPU if TensorFlow finds one, else the CPU.",
        choices=("auto", "cpu", "gpu", "tpu"),
    )
    tpu_name: str = setting(
        "", "Name or address of the TPU; if empty, the TPU of this machine is used."
    )
    checks: tuple[str, ...] = setting(
        tuple(TITLES), "Checks to make, separated by commas.", choices=tuple(TITLES)
    )
    check_seconds: int = setting(
        300, "Number of seconds after which a check has failed and is ended.", minimum=1
    )


def run(settings: Settings) -> None:
    """Makes the checks, and prints a row of the table as soon as each is finished.

    Raises:
        ChildProcessError: a check failed, or all were skipped.
    """
    device = settings.device if settings.device != "auto" else _find_device(settings)
    command = shlex.join([os.path.basename(sys.argv[0]), *sys.argv[1:]])
    date = time.strftime("%d %B %Y")
    _print(f"`{command}`, {date}, albert-tf2 {__version__}\n")
    _print(f"| check | on `{device}` | figures |\n|---|---|---|")
    failed: list[str] = []
    passed = 0
    for name in dict.fromkeys(settings.checks):
        shapes = list(SHAPES) if name == "speed" else [""]
        for shape in shapes:
            outcome = _check(name, shape, device, settings)
            text = outcome.text.replace("|", "/").replace("\n", " ")
            title = f"{TITLES[name]} {shape}".strip()
            _print(f"| {title} | {_WORDS[outcome.is_passed]} | {text} |")
            if outcome.is_passed is False:
                failed.append(title)
            passed += outcome.is_passed is True
    if failed:
        raise ChildProcessError(f"failed: {', '.join(failed)}; the table has the reasons")
    if not passed:
        raise ChildProcessError(f"nothing was checked: --checks={','.join(settings.checks)}")


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _find_device(settings: Settings) -> str:
    """Returns "gpu" if TensorFlow finds a GPU, else "cpu"; asked in a process of its own."""
    code = "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))"
    done = _run_python(["-c", code], "auto", settings.check_seconds)
    return "gpu" if done.stdout.strip().splitlines()[-1:] not in ([], ["0"]) else "cpu"


def _environment(device: str) -> dict[str, str]:
    """Returns the environment of a check: without GPUs for the CPU."""
    found = dict(os.environ) | {
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_USE_LEGACY_KERAS": "1",
    }
    found["PYTHONPATH"] = os.pathsep.join(filter(None, [_root(), os.environ.get("PYTHONPATH")]))
    return found | ({"CUDA_VISIBLE_DEVICES": "-1"} if device == "cpu" else {})


def _root() -> str:
    """Returns the folder that contains the package."""
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def _run_python(
    arguments: list[str], device: str, seconds: float, python: str = sys.executable, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Runs Python for a device.

    Raises:
        ChildProcessError: it failed or took too long; the message has the last line that it wrote.
    """
    try:
        done = subprocess.run(
            [python, *arguments],
            env=_environment(device),
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
            **options,
        )
    except subprocess.TimeoutExpired:
        raise ChildProcessError(f"not finished after {seconds:g} seconds") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise ChildProcessError(f"exit status {done.returncode}: {lines[-1][:300]}")
    return done


def _check(name: str, shape: str, device: str, settings: Settings) -> Outcome:
    """Makes one check. A failure, of whatever kind, is an outcome."""
    try:
        if name == "resume":
            return check_resume(device, settings)
        found = _in_own_process(name, shape, device, settings)
        return _beside_hugging_face(found, shape, device, settings) if name == "speed" else found
    except (OSError, ValueError) as error:
        return Outcome(False, str(error))


def _in_own_process(name: str, shape: str, device: str, settings: Settings) -> Outcome:
    """Returns the outcome of a function of `device_checks`."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "outcome.json")
        arguments = [device, settings.tpu_name, *([shape] if shape else [])]
        code = (
            "import sys; from albert_tf.commands import check_device as c; c.measure(*sys.argv[1:])"
        )
        _run_python(["-c", code, name, path, *arguments], device, settings.check_seconds)
        return Outcome(**json.loads(files.read_text(path)))


def measure(name: str, path: str, *arguments: str) -> None:
    """Makes a check of `device_checks` in this process, and writes its outcome to a JSON file."""
    check: Callable[..., Outcome] = getattr(device_checks, f"check_{name}")
    try:
        outcome = check(*arguments)
    except ValueError as error:
        outcome = Outcome(False, str(error))
    with files.write_atomically(path) as stream:
        json.dump(dataclasses.asdict(outcome), stream)


# A step of Hugging Face's model, by the program that the benchmarks use.


def _beside_hugging_face(ours: Outcome, shape: str, device: str, settings: Settings) -> Outcome:
    """Adds the time and memory of Hugging Face's model on the same device, if it can be run."""
    try:
        theirs = _measure_hugging_face(ours.figures, shape, device, settings.check_seconds)
    except (OSError, ValueError) as error:
        return dataclasses.replace(ours, text=f"{ours.text}; Hugging Face skipped: {error}")
    ratio = ours.figures["seconds"] / theirs["seconds"]
    text = f"{ours.text}; Hugging Face {theirs['seconds']:.4g} s, peak {theirs['megabytes']} MB"
    if theirs["megabytes"] and ours.figures["megabytes"]:
        memory = ours.figures["megabytes"] / theirs["megabytes"]
        return dataclasses.replace(ours, text=f"{text}; ratio {ratio:.2f}, of memory {memory:.2f}")
    return dataclasses.replace(ours, text=f"{text}; ratio {ratio:.2f}")


def _measure_hugging_face(
    ours: dict[str, Any], shape: str, device: str, seconds: float
) -> dict[str, Any]:
    """Returns `seconds` and `megabytes` of a step of Hugging Face's model.

    Raises:
        ChildProcessError: PyTorch or transformers is not installed, or the step failed.
        ValueError: there is no such measurement for this device or installation.
    """
    worker = os.path.join(_root(), "benchmarks", "worker_huggingface.py")
    if device == "tpu":
        raise ValueError("not measured on TPUs")
    if not os.path.exists(worker):
        raise ValueError("benchmarks/ is only in a clone of the repository")
    rows, length, predictions = SHAPES[shape]
    config = device_checks.base_config()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "batches.npz")
        batch = device_checks.random_batch(rows, length, predictions, config.vocab_size)
        arrays: dict[str, Any] = {f"0/{name}": value for name, value in batch.items()}
        np.savez(path, **arrays)
        job = {
            "batches": path,
            "config": config.to_dict(),
            "task": "pretraining",
            "training": True,
            "precision": ours["precision"],
            "compiled": False,
            "recompute": False,
            "device": "cuda" if device == "gpu" else device,
        }
        python = os.environ.get(PEER_PYTHON, sys.executable)
        orders = f"1\n{device_checks.TIMED_STEPS}\n"
        done = _run_python([worker, json.dumps(job)], device, seconds, python, input=orders)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    times = [step["seconds"] for step in answers[2]["steps"]]
    memory = answers[3].get("device_megabytes") or answers[3]["peak_megabytes"]
    return {"seconds": float(np.median(times)), "megabytes": memory}


# A run of the pre-training program that is killed and resumed.


def check_resume(device: str, settings: Settings) -> Outcome:
    """Kills a small pre-training run with SIGKILL, resumes it, and compares it with another one."""
    seconds = min(RUN_SECONDS, settings.check_seconds)
    with tempfile.TemporaryDirectory() as folder:
        _write_records(os.path.join(folder, "records.tfrecord"))
        config = dataclasses.replace(SMALL, hidden_dropout_prob=0.1)
        config.to_json_file(os.path.join(folder, "config.json"))
        whole, resumed = (os.path.join(folder, name) for name in ("whole", "resumed"))
        _run_python(_pretraining(folder, whole, device, settings), device, seconds)
        command = _pretraining(folder, resumed, device, settings)
        killed_at = _kill_in_the_middle(command, resumed, device, seconds)
        _run_python(command, device, seconds)
        ends = [os.path.join(run, f"model.ckpt-{STEPS}") for run in (whole, resumed)]
        worst = _largest_difference(*ends)
    text = f"killed after step {killed_at} of {STEPS}; resumed, the weights differ by {worst:.1e}"
    limit = 1e-5 if device == "tpu" else 0.0
    return Outcome(worst <= limit, text + ("" if worst else ": the same bits"))


def _write_records(path: str) -> None:
    """Writes records of random tokens."""
    batch = device_checks.random_batch(96, LENGTH, PREDICTIONS, SMALL.vocab_size)
    contents = tfrecord.encode_examples(batch)
    with open(path, "wb") as stream:
        stream.writelines(tfrecord.frame_records(contents))


def _pretraining(folder: str, output_dir: str, device: str, settings: Settings) -> list[str]:
    """Returns the arguments of Python for a small pre-training run."""
    flags = [
        f"--albert_config_file={folder}/config.json",
        f"--input_file={folder}/records.tfrecord",
        f"--output_dir={output_dir}",
        f"--max_seq_length={LENGTH}",
        f"--max_predictions_per_seq={PREDICTIONS}",
        f"--num_train_steps={STEPS}",
        f"--save_checkpoints_steps={SAVED_EVERY}",
        "--train_batch_size=8",
        "--learning_rate=0.0001",
        "--num_warmup_steps=10",
        "--optimizer=adamw",
        "--precision=float32",
        "--report_to=none",
        "--noplots",
        "--do_train",
        "--nodo_eval",
    ]
    if device == "tpu":
        flags += ["--use_tpu", *([f"--tpu_name={settings.tpu_name}"] if settings.tpu_name else [])]
    else:
        flags.append("--distribution=one_device")
    code = "import sys; from albert_tf.commands import run_pretraining as r; "
    if device == "gpu":
        code += "import tensorflow as tf; tf.config.experimental.enable_op_determinism(); "
    return ["-c", code + "sys.argv[0] = 'run_pretraining.py'; r.main()", *flags]


def _kill_in_the_middle(command: list[str], output_dir: str, device: str, seconds: float) -> int:
    """Starts a run and kills it after some checkpoints; returns the step of the last one."""
    process = subprocess.Popen(
        [sys.executable, *command],
        env=_environment(device),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    end = time.monotonic() + seconds
    try:
        while process.poll() is None and time.monotonic() < end:
            steps = finding.list_checkpoints(output_dir)
            if max(steps, default=0) >= KILLED_AFTER:
                break
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    last = max(finding.list_checkpoints(output_dir), default=0)
    if not 0 < last < STEPS:
        raise ChildProcessError(f"the run was not killed in the middle: its last step is {last}")
    return last


def _largest_difference(first: str, second: str) -> float:
    """Returns the largest difference between the tensors of two checkpoints."""
    readers = containers.open_checkpoint(first), containers.open_checkpoint(second)
    names = [set(reader.get_variable_to_shape_map()) for reader in readers]
    if names[0] != names[1]:
        raise ValueError(f"other tensors: {sorted(names[0] ^ names[1])[:3]}")
    pairs = [[reader.get_tensor(name) for reader in readers] for name in sorted(names[0])]
    return max(float(np.abs(a.astype(np.float64) - b).max(initial=0)) for a, b in pairs)


def main() -> None:
    """Runs the command line of this process."""
    program.start(Settings, run, __doc__)


if __name__ == "__main__":
    main()
