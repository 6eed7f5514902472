"""Pre-trains, evaluates and fine-tunes a small ALBERT from text, in one command.

    python examples/demo.py --demo_dir=demo

Creates an English corpus from the documentation of TensorFlow, Keras, NumPy, Matplotlib,
TensorBoard and Python, trains a vocabulary, writes records, pre-trains a small model and evaluates
it on held-out modules, and fine-tunes it to predict which of three packages a sentence documents.
Then plots the learning curve and explains the metrics. Each step is an ordinary command, printed
before it runs. Run the same command again to resume the demo. Nothing is deleted: results of
another version of the demo or of Python are moved aside.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shlex
import subprocess
import sys
import time
from typing import Any

import demo_report
from absl import app, flags

import albert_tf
from albert_tf import files
from albert_tf.model.tokenization import FullTokenizer

FLAGS = flags.FLAGS

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CONFIG = os.path.join("configs", "albert_mini_en.json")
VOCAB_SIZE = demo_report.VOCAB_SIZE
# All of them are requirements of this package, so that what else is installed does not matter.
PACKAGES = ("keras", "matplotlib", "numpy", "tensorboard", "tensorflow")
LABELS = ("keras", "matplotlib", "numpy")
LENGTHS = {"max_seq_length": 96, "max_predictions_per_seq": 14}

Options = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Step:
    """A step of the demo: what `python` runs, its flags and its last output file."""

    name: str
    program: str
    options: Options
    output: str

    def command(self) -> list[str]:
        """Returns the command line, as it can be pasted into a shell."""
        return [
            "python",
            *self.program.split(),
            *(f"--{key}={value}" for key, value in self.options.items()),
        ]


def make_steps(demo_dir: str, seed: int = 2) -> list[Step]:
    """Returns the steps, in order; `seed` is that of pre-training."""
    text = {name: os.path.join(demo_dir, "corpus", f"{name}.txt") for name in ("train", "held_out")}
    records = {name: os.path.join(demo_dir, f"{name}.tfrecord") for name in text}
    model_dir = os.path.join(demo_dir, "model")
    return [
        corpus_step(demo_dir),
        vocabulary_step(text["train"], demo_dir),
        record_step("write training records", text["train"], records["train"], demo_dir, dupe=2),
        record_step(
            "write held-out records", text["held_out"], records["held_out"], demo_dir, dupe=1
        ),
        pretraining_step(records["train"], records["held_out"], model_dir, seed),
        fine_tuning_step(demo_dir, model_dir),
    ]


def corpus_step(demo_dir: str) -> Step:
    """Returns the command that makes the corpus and the task, each with a part held out."""
    options: Options = {
        "source": "packages",
        "packages": ",".join(PACKAGES),
        "corpus_dir": os.path.join(demo_dir, "corpus"),
        "task_dir": os.path.join(demo_dir, "task"),
        "task_packages": ",".join(LABELS),
        "dev_one_in": 10,
    }
    name = "make a corpus from the documentation of installed packages"
    result = os.path.join(demo_dir, "task", "dev.tsv")
    return Step(name, "examples/make_corpus.py", options, result)


def vocabulary_step(text_file: str, demo_dir: str, vocab_size: int = VOCAB_SIZE) -> Step:
    """Returns the command that trains the SentencePiece vocabulary."""
    prefix = os.path.join(demo_dir, "vocabulary")
    options: Options = {
        "input_file": text_file,
        "vocab_size": vocab_size,
        "output_prefix": prefix,
        "overwrite": True,  # demo_dir contains only files of the demo
    }
    return Step("train a vocabulary", "-m albert_tf train-vocabulary", options, f"{prefix}.model")


def record_step(name: str, text_file: str, record_file: str, demo_dir: str, dupe: int) -> Step:
    """Returns the command that creates masked instances from one part of the corpus."""
    options: Options = {
        "input_file": text_file,
        "output_file": record_file,
        "vocab_file": os.path.join(demo_dir, "vocabulary.vocab"),
        "spm_model_file": os.path.join(demo_dir, "vocabulary.model"),
        **LENGTHS,
        "dupe_factor": dupe,
        "num_logged_instances": 0,
    }
    return Step(name, "create_pretraining_data.py", options, record_file)


def pretraining_step(record_file: str, held_out_file: str, model_dir: str, seed: int) -> Step:
    """Returns the command that pre-trains the model, and then evaluates its checkpoints."""
    options: Options = {
        "albert_config_file": CONFIG,
        "input_file": record_file,
        "eval_input_file": held_out_file,
        "output_dir": model_dir,
        **LENGTHS,
        "seed": seed,
        "do_train": True,
        "do_eval": True,
        "train_batch_size": 64,
        "eval_batch_size": 64,
        "optimizer": "adamw",
        "learning_rate": 6e-4,
        "num_train_steps": 250,
        "num_warmup_steps": 60,
        "save_checkpoints_steps": 125,
        "log_steps": 25,
    }
    result = os.path.join(model_dir, "eval_results.txt")
    return Step("pre-train, and evaluate on held-out text", "run_pretraining.py", options, result)


def fine_tuning_step(demo_dir: str, model_dir: str) -> Step:
    """Returns the command that fine-tunes the model on the task."""
    output_dir = os.path.join(demo_dir, "classifier")
    options: Options = {
        "task_name": "tsv",
        "data_dir": os.path.join(demo_dir, "task"),
        "albert_config_file": CONFIG,
        "spm_model_file": os.path.join(demo_dir, "vocabulary.model"),
        "init_checkpoint": os.path.join(model_dir, "model.ckpt-best"),
        "output_dir": output_dir,
        "do_train": True,
        "do_eval": True,
        "max_seq_length": LENGTHS["max_seq_length"],
        "train_batch_size": 64,
        "pad_to_multiple": 16,  # XLA compiles fewer lengths, which pays off in a short run
        "eval_batch_size": 64,
        "learning_rate": 6e-4,
        "train_step": 600,
        "warmup_step": 60,
        "save_checkpoints_steps": 600,
        "log_steps": 50,
    }
    result = os.path.join(output_dir, "confusion_matrix.png")
    return Step("fine-tune: which package is it?", "run_classifier.py", options, result)


class Progress:
    """The finished steps, recorded in a file so that the demo can be resumed.

    Args:
        demo_dir: folder of the demo.
        fingerprint: checksum of what determines the results; files with another one are not used.
    """

    def __init__(self, demo_dir: str, fingerprint: str) -> None:
        self._path = os.path.join(demo_dir, "progress.json")
        self._fingerprint = fingerprint
        self.done: list[str] = []
        if not os.path.exists(self._path):
            return
        earlier = json.loads(files.read_text(self._path))
        if earlier["fingerprint"] == fingerprint:
            self.done = earlier["done"]
        else:
            move_aside(demo_dir)

    def covers(self, step: Step) -> bool:
        """Returns whether a step is done; if its output is gone, it and later steps are redone."""
        if step.name in self.done and os.path.exists(step.output):
            return True
        if step.name in self.done:
            self.done = self.done[: self.done.index(step.name)]
        return False

    def add(self, step: Step) -> None:
        """Records that a step is done."""
        self.done.append(step.name)
        with files.write_atomically(self._path) as stream:
            json.dump({"fingerprint": self._fingerprint, "done": self.done}, stream, indent=2)


def move_aside(demo_dir: str) -> None:
    """Moves the files of an earlier demo into a folder `earlier-<time>`."""
    aside = os.path.join(demo_dir, time.strftime("earlier-%Y%m%d-%H%M%S"))
    print(f"{demo_dir} was made with other settings or another Python: moved to {aside}")
    names = os.listdir(demo_dir)
    os.makedirs(aside)
    for name in names:
        if not name.startswith("earlier-"):
            os.rename(os.path.join(demo_dir, name), os.path.join(aside, name))


def fingerprint_of(steps: list[Step]) -> str:
    """Returns a checksum of what determines the results: versions, model's config and commands."""
    digest = hashlib.sha256(f"{albert_tf.__version__} {sys.version}".encode())
    with files.open_binary(CONFIG) as stream:
        digest.update(stream.read())
    for step in steps:
        digest.update(repr(step).encode())
    return digest.hexdigest()


def run_step(step: Step) -> None:
    """Runs a step in the repository's folder, and exits if it fails."""
    environment = {**os.environ, "PYTHONPATH": ROOT}
    command = [sys.executable, *step.command()[1:]]
    code = subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode
    if code:
        sys.exit(f"\n{step.program} stopped with exit code {code}; see its last lines above.")


def run_steps(steps: list[Step], progress: Progress) -> None:
    """Runs the remaining steps, and exits at the first one that fails."""
    for number, step in enumerate(steps, 1):
        print(f"\n[{number}/{len(steps)}] {step.name}")
        if progress.covers(step):
            print("    done earlier")
            continue
        print("    " + shlex.join(step.command()).replace(" --", " \\\n        --"), flush=True)
        start = time.monotonic()
        run_step(step)
        progress.add(step)
        print(f"    took {time.monotonic() - start:.0f} s", flush=True)


def main(argv: list[str]) -> None:
    """Runs the demo."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments: {' '.join(argv[1:])}")
    # The printed commands are to be run in the repository's folder.
    demo_dir = os.path.relpath(FLAGS.demo_dir, ROOT)
    os.chdir(ROOT)
    start = time.monotonic()
    steps = make_steps(demo_dir, FLAGS.seed)
    files.ensure_directory(demo_dir, "--demo_dir")
    progress = Progress(demo_dir, fingerprint_of(steps))
    try:
        run_steps(steps, progress)
    except KeyboardInterrupt:
        sys.exit("\nStopped. Run the same command again to resume.")

    model_dir = os.path.join(demo_dir, "model")
    results = demo_report.read_results(os.path.join(model_dir, "eval_results.txt"))
    chance = demo_report.count_chance(os.path.join(demo_dir, "held_out.tfrecord"))
    tokenizer = FullTokenizer(spm_model_file=os.path.join(demo_dir, "vocabulary.model"))
    plot_file = os.path.join(demo_dir, "learning_curve.png")
    demo_report.draw_curves(model_dir, results, chance, plot_file)
    print(demo_report.describe(results[-1], chance, tokenizer.pieces[chance.token_id]))
    task_result = demo_report.read_task_result(demo_dir)
    print(demo_report.describe_task(task_result))
    print(f"\n{demo_report.about_the_long_run()}")
    print(f"\nPlots: {plot_file}, {steps[-1].output}")
    print(f"Models: {model_dir}, {os.path.dirname(steps[-1].output)}")
    print(f"Took {time.monotonic() - start:.0f} s")
    if not demo_report.has_learned(results[-1], chance, task_result):
        sys.exit(demo_report.TOO_LITTLE)


if __name__ == "__main__":
    flags.DEFINE_string("demo_dir", "demo", "Folder that all files are written to.")
    flags.DEFINE_integer("seed", 2, "Seed of the weights and of the order of records.")
    flags.register_validator("demo_dir", bool, "expected a folder, got an empty string")
    app.run(main)
