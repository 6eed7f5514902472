"""The flags that the training scripts share, each defined once, and how the scripts are run.

The only module of the package that knows `absl.flags`. TensorFlow is not imported here, so that
`--help` answers at once; the scripts import it in `main`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from absl import app, flags, logging

from albert_tf import files
from albert_tf.config import AlbertConfig

FLAGS = flags.FLAGS
CONFIG_NAME = "albert_config.json"


def define_model_flags() -> None:
    """What the model is and where it comes from."""
    flags.DEFINE_string("albert_config_file", None, "Shape of the model: albert_config.json.")
    flags.DEFINE_alias("bert_config_file", "albert_config_file")  # albert_zh's spelling
    flags.DEFINE_string("output_dir", None, "Folder of checkpoints, logs and results.")
    flags.DEFINE_string("init_checkpoint", None, "Checkpoint to start from, when there is none.")
    flags.DEFINE_bool(
        "allow_partial_init", False, "Go on when init_checkpoint lacks variables of the encoder."
    )
    flags.mark_flags_as_required(["albert_config_file", "output_dir"])


def define_input_flags() -> None:
    """What is read, and the lengths of sequences, in the data program and in pre-training."""
    flags.DEFINE_string("input_file", None, "Input files: a comma list of names and globs.")
    flags.DEFINE_integer("max_seq_length", 512, "Tokens of a sequence.", 1)
    flags.DEFINE_integer("max_predictions_per_seq", 20, "The most masked tokens of a sequence.")
    flags.mark_flag_as_required("input_file")


def define_device_flags() -> None:
    """Google's TPU flags."""
    flags.DEFINE_bool("use_tpu", False, "Train on a TPU; this version cannot.")
    for name in ("tpu_name", "tpu_zone", "gcp_project", "master"):
        flags.DEFINE_string(name, None, "Accepted for old command lines; has no effect.")
    flags.DEFINE_integer("num_tpu_cores", 8, "Accepted for old command lines; has no effect.")
    flags.DEFINE_integer(
        "iterations_per_loop", 1000, "Accepted for old command lines; has no effect."
    )


def define_training_flags() -> None:
    """How long and how to train."""
    flags.DEFINE_integer("save_checkpoints_steps", 5000, "Steps between checkpoints.", 1)
    flags.DEFINE_integer("keep_checkpoint_max", 5, "Checkpoints to keep; 0 keeps all.", 0)
    flags.DEFINE_integer("log_steps", 100, "Steps between lines of the log.", 1)
    flags.DEFINE_integer("seed", 12345, "Of weights, dropout and the order of the data.", 0)


def refuse_or_ignore_device_flags() -> None:
    """Refuses --use_tpu and says which other device flags have no effect.

    Raises:
        ValueError: --use_tpu was given.
    """
    if FLAGS.use_tpu:
        raise ValueError("--use_tpu: TPUs are not supported yet. Leave it out to use GPU or CPU.")
    for name in ("tpu_name", "tpu_zone", "gcp_project", "master"):
        if FLAGS[name].present:
            logging.info("--%s has no effect", name)


def read_config(output_dir: str, path: str) -> AlbertConfig:
    """Reads the model's config and keeps a copy of it in the output directory.

    Raises:
        ValueError: the directory cannot be written to, or holds another model's checkpoints.
    """
    config = AlbertConfig.from_json_file(path)
    files.make_directory(output_dir, "--output_dir")
    copy = os.path.join(output_dir, CONFIG_NAME)
    if not os.path.exists(copy):
        config.to_json_file(copy)
        return config
    here, there = config.to_dict(), AlbertConfig.from_json_file(copy).to_dict()
    differing = [
        f"{key} is {there.get(key)} there, {here.get(key)} in {path}"
        for key in sorted(here.keys() | there.keys())
        if here.get(key) != there.get(key)
    ]
    if differing:
        raise ValueError(
            f"--output_dir={output_dir} holds another model ({copy}): {'; '.join(differing)}. "
            "Use another folder."
        )
    return config


def run(main: Callable[[list[str]], None]) -> None:
    """Runs a script's `main` with the flags parsed.

    What a user can put right (ValueError, OSError and the like) ends the script with its message
    and exit status 1; with --verbosity=1 the traceback is shown as well.
    """

    def with_clear_errors(argv: list[str]) -> None:
        if not FLAGS["verbosity"].present:
            logging.set_verbosity(logging.INFO)
        if len(argv) > 1:
            raise app.UsageError(f"{argv[1]!r} is no flag: flags begin with --")
        try:
            main(argv)
        except (ValueError, OSError, ArithmeticError) as error:
            if logging.get_verbosity() >= logging.DEBUG:
                raise
            sys.exit(f"{os.path.basename(sys.argv[0])}: {error}")

    # Before TensorFlow is imported: without its notes on the processor and missing GPUs. Its
    # errors reach Python as exceptions.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    app.run(with_clear_errors)
