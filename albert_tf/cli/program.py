"""How the training scripts are run, and what they do with the flags that they share.

With `flag_groups` the only module of the package that knows `absl.flags`. TensorFlow is not
imported here, so that `--help` answers at once; the scripts import it in `main`.
"""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from absl import app, flags, logging

from albert_tf.cli import flags as settings_flags
from albert_tf.cli.trainer_setup import (
    begin_run,
    first_weights,
    is_chief,
    leave_the_rest_to_the_chief,
    make_trainer,
    needs_fixed_shapes,
    strategy,
)
from albert_tf.config import AlbertConfig
from albert_tf.finetuning import batching
from albert_tf.settings import SettingsGroup
from albert_tf.tokenization import FullTokenizer
from albert_tf.training.interruption import EXIT_STATUS, InterruptedRunError

if TYPE_CHECKING:
    from albert_tf.training.evaluation import CheckpointEvaluator

__all__ = [
    "begin_run",
    "first_weights",
    "leave_the_rest_to_the_chief",
    "make_trainer",
    "strategy",
]

SettingsType = TypeVar("SettingsType", bound=SettingsGroup)
HELP = {"--help", "-help", "--helpfull", "--helpshort", "-h", "-?"}

FLAGS = flags.FLAGS
HUB_VOCABULARY = "from_tf_hub"  # what Google's notebook gives as --spm_model_file


def read_config(output_dir: str, path: str) -> AlbertConfig:
    """As `session.keep_config`, which is imported late with TensorFlow."""
    from albert_tf.training import session

    return session.keep_config(output_dir, path)


def require_a_phase() -> None:
    """Raises ValueError when neither training, evaluation, prediction nor export is asked for."""
    exports = "export_dir" in FLAGS
    if not (FLAGS.do_train or FLAGS.do_eval or FLAGS.do_predict or (exports and FLAGS.export_dir)):
        other = ", --export_dir" if exports else ""
        raise ValueError(f"nothing to do: give --do_train, --do_eval or --do_predict{other}")


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
    config.check_length(FLAGS.max_seq_length)
    return tokenizer


def training_steps(num_examples: int) -> tuple[int, int]:
    """Steps of training and of its warm-up.

    Returns:
        --train_step and --warmup_step or, with --num_train_epochs, as many steps as these epochs
        have full batches, and --warmup_proportion of them, both rounded down.

    Raises:
        ValueError: the epochs are less than one step.
    """
    if not FLAGS.num_train_epochs and "train_step" in FLAGS:
        return FLAGS.train_step, FLAGS.warmup_step
    steps = int(num_examples / FLAGS.train_batch_size * FLAGS.num_train_epochs)
    if steps < 1:
        raise ValueError(
            f"--num_train_epochs={FLAGS.num_train_epochs} of {num_examples} examples are less than "
            f"one step of --train_batch_size={FLAGS.train_batch_size}"
        )
    return steps, int(steps * FLAGS.warmup_proportion)


def padding() -> batching.Padding:
    """How far the flags say that batches are padded."""
    takes_mean = "use_pooled_output" in FLAGS and not FLAGS.use_pooled_output
    if takes_mean or needs_fixed_shapes():  # the mean is of the padding too
        return batching.Padding(FLAGS.max_seq_length, FLAGS.max_seq_length)
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
    num_examples: int | None = None,
) -> None:
    """Trains from the newest checkpoint of --output_dir or anew, and evaluates what is saved.

    Args:
        task: as in `make_trainer`.
        features: the training examples.
        evaluator: evaluates each checkpoint as soon as it is written.
        optimizer: as in `make_trainer`.
        num_examples: what epochs count, where several features may be made of an example.
    """
    from albert_tf import optimization
    from albert_tf.finetuning import prediction
    from albert_tf.training import devices

    order, signature = training_order(), prediction.batch_signature(features)
    steps = training_steps(num_examples or len(features))
    schedule = optimization.WarmUpPolynomialDecay(FLAGS.learning_rate, *steps)
    trainer = make_trainer(task, schedule, optimizer, signature)
    rows = devices.local_rows(strategy(), FLAGS.train_batch_size)
    if evaluator is not None and is_chief():
        evaluator.begin(trainer.step)
        if evaluator.stops_training:
            logging.info("Stopped early, at step %d: nothing to train", trainer.step)
            return
    trainer.train(
        lambda step: prediction.training_dataset(features, order, padding(), step, rows),
        after_save=evaluator.after_save if evaluator is not None else None,
    )
    leave_the_rest_to_the_chief()


def adopt_hub_module() -> None:
    """Takes config and vocabulary out of --albert_hub_module_handle where no flag names them.

    Raises:
        ValueError: there is no config then.
    """
    assets = os.path.join(FLAGS.albert_hub_module_handle or "", "assets")
    if FLAGS.spm_model_file == HUB_VOCABULARY:
        FLAGS.spm_model_file = None
    has_vocabulary = FLAGS.spm_model_file or FLAGS.vocab_file
    wanted = {"albert_config_file": "albert_config*.json"}
    wanted |= {} if has_vocabulary else {"spm_model_file": "*.model", "vocab_file": "*vocab*.txt"}
    for name, pattern in wanted.items() if FLAGS.albert_hub_module_handle else ():
        found = sorted(glob.glob(os.path.join(glob.escape(assets), pattern)))
        if found and not FLAGS[name].value:
            FLAGS[name].value = found[0]
            logging.info("--%s=%s", name, found[0])
    if not FLAGS.albert_config_file:
        raise ValueError(
            "--albert_config_file is needed: the albert_config.json that came with the model (a "
            "TF-Hub module may have it in its assets)"
        )


def run(main: Callable[[list[str]], None]) -> None:
    """Runs a script's `main` with the flags parsed.

    What a user can put right (ValueError, OSError and the like) ends the script with its message
    and exit status 1; with --verbosity=1 the traceback is shown as well. A run that was asked to
    stop ends with status 75, as one that the same command goes on with.
    """

    def with_clear_errors(argv: list[str]) -> None:
        if not FLAGS["verbosity"].present:
            logging.set_verbosity(logging.INFO)
        if len(argv) > 1:
            raise app.UsageError(f"{argv[1]!r} is no flag: flags begin with --")
        try:
            main(argv)
        except InterruptedRunError as error:
            sys.stderr.write(f"{os.path.basename(sys.argv[0])}: {error}\n")
            sys.exit(EXIT_STATUS)
        except (ValueError, OSError, ArithmeticError) as error:
            if logging.get_verbosity() >= logging.DEBUG:
                raise
            sys.exit(f"{os.path.basename(sys.argv[0])}: {error}")

    # Before TensorFlow is imported: without its notes on the processor and missing GPUs. Its
    # errors reach Python as exceptions.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # And without Keras 3, which it imports otherwise, in almost two seconds, for no use here.
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    app.run(with_clear_errors)


def start(
    settings_class: type[SettingsType], run: Callable[[SettingsType], Any], description: str | None
) -> None:
    """Runs a root script: makes settings of its command line, and prints what `run` returns.

    A command line that is wrong, and what a user can put right (ValueError, OSError and the like)
    end the script with one line on standard error and exit status 1; with --verbosity=1 the
    traceback of an error is shown. A run that was asked to stop ends with status 75: the same
    command resumes it.

    Args:
        settings_class: the program's settings.
        run: the program. The `str` of what it returns is printed, unless that is None or empty.
        description: the docstring of the script, for `--help`.
    """
    # Before `run` imports TensorFlow. Without notes on the processor and missing GPUs: errors
    # reach Python as exceptions. Without Keras 3, whose import takes almost two seconds.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    if not HELP.isdisjoint(sys.argv[1:]):
        sys.stdout.write(settings_flags.help_text(settings_class, description or "") + "\n")
        return
    app.run(
        lambda settings: _run_settings(run, settings),
        flags_parser=lambda argv: _parse(settings_class, argv),
    )


def _parse(settings_class: type[SettingsType], argv: Sequence[str]) -> SettingsType:
    """Returns the settings of a command line; ends the process if it is wrong."""
    FLAGS.mark_as_parsed()  # absl's own flags; those of the program are in a table of their own
    try:
        return settings_flags.parse(settings_class, argv[1:])
    except (flags.Error, ValueError, OSError) as error:
        sys.exit(f"{_script_name()}: {error}\nPass --help to see all flags.")


def _run_settings(run: Callable[[SettingsType], Any], settings: SettingsType) -> None:
    """Runs a program and prints its result; see `start`."""
    try:
        result = run(settings)
    except InterruptedRunError as error:
        sys.stderr.write(f"{_script_name()}: {error}\n")
        sys.exit(EXIT_STATUS)
    except KeyboardInterrupt as error:
        sys.exit(f"{_script_name()}: {str(error) or 'interrupted'}")
    except (ValueError, OSError, ArithmeticError) as error:
        if logging.get_verbosity() >= logging.DEBUG:
            raise
        sys.exit(f"{_script_name()}: {error}")
    text = "" if result is None else str(result)
    if text:
        sys.stdout.write(text + "\n")


def _script_name() -> str:
    return os.path.basename(sys.argv[0])
