"""The flags that the training scripts share, each defined once, and how the scripts are run.

The only module of the package that knows `absl.flags`. TensorFlow is not imported here, so that
`--help` answers at once; the scripts import it in `main`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from absl import app, flags, logging

from albert_tf import batching, files
from albert_tf.config import AlbertConfig
from albert_tf.tokenization import FullTokenizer

if TYPE_CHECKING:
    from albert_tf.evaluation import CheckpointEvaluator
    from albert_tf.training import Trainer

FLAGS = flags.FLAGS
CONFIG_NAME = "albert_config.json"

# What several programs have: kind, meaning, and the lower bound of numbers. Their defaults differ
# from program to program, as Google's do.
_RUN_FLAGS: dict[str, tuple[Callable[..., Any], str, int | None]] = {
    "data_dir": (flags.DEFINE_string, "Folder of the data.", None),
    "task_name": (flags.DEFINE_string, "Which task.", None),
    "spm_model_file": (flags.DEFINE_string, "SentencePiece model.", None),
    "vocab_file": (flags.DEFINE_string, "WordPiece vocabulary, or .vocab of the model.", None),
    "do_lower_case": (flags.DEFINE_bool, "Lower-case the text; for uncased models.", None),
    "albert_hub_module_handle": (
        flags.DEFINE_string,
        "Folder of a TF-Hub module: its weights are taken as those of --init_checkpoint.",
        None,
    ),
    "max_seq_length": (flags.DEFINE_integer, "Tokens of a sequence at most.", 1),
    "do_train": (flags.DEFINE_bool, "Train.", None),
    "do_eval": (flags.DEFINE_bool, "Evaluate checkpoints and keep the best.", None),
    "do_predict": (flags.DEFINE_bool, "Predict the test split with the best checkpoint.", None),
    "train_batch_size": (flags.DEFINE_integer, "Examples of a training step.", 1),
    "eval_batch_size": (flags.DEFINE_integer, "Examples of an evaluation step.", 1),
    "predict_batch_size": (flags.DEFINE_integer, "Examples of a prediction step.", 1),
    "learning_rate": (flags.DEFINE_float, "Peak learning rate.", 0),
    "train_step": (flags.DEFINE_integer, "Step at which training ends.", 1),
    "warmup_step": (flags.DEFINE_integer, "Steps of the linear warm-up.", 0),
    "num_train_epochs": (flags.DEFINE_float, "Train so many epochs, not --train_step.", 0),
    "warmup_proportion": (flags.DEFINE_float, "Warm-up as share of --num_train_epochs.", 0),
    "pad_to_multiple": (flags.DEFINE_integer, "Pad a batch to a multiple of this length.", 1),
    "batches_to_sort": (
        flags.DEFINE_integer,
        "Put so many training batches together by length, so that little is padded; 1: do not.",
        1,
    ),
    "official_order": (
        flags.DEFINE_bool,
        "Train in the order of the files, drawing from the next 100, as Google's programs.",
        None,
    ),
    "max_bad_rows": (flags.DEFINE_integer, "Unusable examples to skip and report.", 0),
}


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
    define_run_flags(max_seq_length=512)
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


def define_training_flags(save_checkpoints_steps: int = 5000) -> None:
    """How training is kept and logged; the argument is a default."""
    flags.DEFINE_integer(
        "save_checkpoints_steps", save_checkpoints_steps, "Steps between checkpoints.", 1
    )
    flags.DEFINE_integer("keep_checkpoint_max", 5, "Checkpoints to keep; 0 keeps all.", 0)
    flags.DEFINE_integer("log_steps", 100, "Steps between lines of the log.", 1)
    flags.DEFINE_integer("seed", 12345, "Of weights, dropout and the order of the data.", 0)


def define_run_flags(**defaults: Any) -> None:
    """Flags of `_RUN_FLAGS`: name = default."""
    for name, default in defaults.items():
        define, text, lower_bound = _RUN_FLAGS[name]
        bounds = {} if lower_bound is None else {"lower_bound": lower_bound}
        define(name, default, text, **bounds)


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


def require_a_phase() -> None:
    """Raises ValueError when neither training, evaluation nor prediction is asked for."""
    if not (FLAGS.do_train or FLAGS.do_eval or FLAGS.do_predict):
        raise ValueError("nothing to do: give --do_train, --do_eval or --do_predict")


def read_tokenizer(config: AlbertConfig) -> FullTokenizer:
    """Opens the vocabulary of the flags and holds it, and --max_seq_length, against the model.

    Raises:
        ValueError: ids or positions would be out of range; names both numbers.
    """
    tokenizer = FullTokenizer(
        vocab_file=FLAGS.vocab_file,
        do_lower_case=FLAGS.do_lower_case,
        spm_model_file=FLAGS.spm_model_file,
    )
    if tokenizer.vocab_size > config.vocab_size:
        raise ValueError(
            f"{FLAGS.spm_model_file or FLAGS.vocab_file} has {tokenizer.vocab_size} entries, the "
            f"model of {FLAGS.albert_config_file} vocab_size={config.vocab_size}: they do not "
            "belong together"
        )
    if FLAGS.max_seq_length > config.max_position_embeddings:
        raise ValueError(
            f"--max_seq_length={FLAGS.max_seq_length} is larger than "
            f"max_position_embeddings={config.max_position_embeddings} of the model"
        )
    return tokenizer


def first_weights() -> str | None:
    """Where training starts from: --init_checkpoint, or the folder of a TF-Hub module.

    Raises:
        ValueError: both are given, or a module that is not on this disk.
    """
    handle = FLAGS.albert_hub_module_handle
    if not handle:
        return FLAGS.init_checkpoint or None
    if FLAGS.init_checkpoint:
        raise ValueError(
            "--init_checkpoint and --albert_hub_module_handle: only one of them can give the "
            "weights; leave the other out"
        )
    if handle.startswith(("http://", "https://")):
        raise ValueError(
            f"--albert_hub_module_handle={handle}: nothing is downloaded. Unpack the module into a "
            "folder and name that."
        )
    return handle


def training_steps(num_examples: int) -> tuple[int, int]:
    """Steps of training and of its warm-up.

    Returns:
        --train_step and --warmup_step or, with --num_train_epochs, as many steps as these epochs
        have full batches, and --warmup_proportion of them, both rounded down.

    Raises:
        ValueError: the epochs are less than one step.
    """
    if not FLAGS.num_train_epochs:
        return FLAGS.train_step, FLAGS.warmup_step
    steps = int(num_examples / FLAGS.train_batch_size * FLAGS.num_train_epochs)
    if steps < 1:
        raise ValueError(
            f"--num_train_epochs={FLAGS.num_train_epochs} of {num_examples} examples are less than "
            f"one step of --train_batch_size={FLAGS.train_batch_size}"
        )
    return steps, int(steps * FLAGS.warmup_proportion)


def make_trainer(
    task: Any,
    steps: tuple[int, int],
    optimizer: str = "adamw",
    batch_signature: dict[str, Any] | None = None,
) -> Trainer:
    """A trainer as the flags say, at the newest checkpoint of --output_dir or at its start.

    Args:
        task: as in `Trainer`, with `build_model`.
        steps: of training and of its warm-up.
        optimizer: "adamw" or "lamb".
        batch_signature: as in `Trainer`.

    Raises:
        ValueError: what is in --output_dir, or --init_checkpoint, does not fit the model.
    """
    import tf_keras

    from albert_tf import checkpoints, optimization, training

    tf_keras.utils.set_random_seed(FLAGS.seed)
    model = task.build_model()
    schedule = optimization.WarmUpPolynomialDecay(FLAGS.learning_rate, *steps)
    values = {name: FLAGS[name].value for name in training.OPTION_FLAGS if name in FLAGS}
    options = training.TrainingOptions(**values | {"num_train_steps": steps[0]})
    trainer = training.Trainer(
        model, task, optimization.create_optimizer(optimizer, schedule), options, batch_signature
    )
    if trainer.restore_latest():
        logging.info("Going on from step %d of %s", trainer.step, FLAGS.output_dir)
        return trainer
    path = first_weights()
    if path is None:
        logging.warning("No --init_checkpoint: training starts from random weights")
    else:
        checkpoints.load_checkpoint(model, path, FLAGS.allow_partial_init)
    return trainer


def padding() -> batching.Padding:
    """How far the flags say that batches are padded."""
    return batching.Padding(FLAGS.max_seq_length, FLAGS.pad_to_multiple)


def training_order() -> batching.TrainingOrder:
    """The order of training examples that the flags ask for."""
    size, seed = FLAGS.train_batch_size, FLAGS.seed
    if FLAGS.official_order:
        return batching.TrainingOrder(size, seed, batching.OFFICIAL_SHUFFLE_BUFFER)
    return batching.TrainingOrder(size, seed, batches_to_sort=FLAGS.batches_to_sort)


def fine_tune(
    task: Any,
    features: batching.Features,
    evaluator: CheckpointEvaluator | None = None,
    optimizer: str = "adamw",
) -> None:
    """Trains from the newest checkpoint of --output_dir or anew, and evaluates what is saved.

    Args:
        task: as in `make_trainer`.
        features: the training examples.
        evaluator: evaluates each checkpoint as soon as it is written.
        optimizer: as in `make_trainer`.
    """
    from albert_tf import finetuning

    order, signature = training_order(), finetuning.batch_signature(features)
    trainer = make_trainer(task, training_steps(len(features)), optimizer, signature)
    if evaluator is not None:
        evaluator.begin(trainer.step)
    trainer.train(
        lambda step: finetuning.training_dataset(features, order, padding(), step),
        after_save=evaluator.evaluate if evaluator is not None else None,
    )


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
