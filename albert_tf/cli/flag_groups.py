"""The flags that the programs share, each defined once.

A program calls the functions for the groups that it has. TensorFlow is not imported here, so that
`--help` answers at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from absl import flags

flags.disclaim_key_flags()  # `--help` lists a flag with the program that asks for it


def _define_optimizer(name: str, default: str, text: str) -> None:
    flags.DEFINE_enum(name, default, ["adamw", "lamb"], text)


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
    "cached_dir": (flags.DEFINE_string, "Folder of features; default: --output_dir.", None),
    "optimizer": (_define_optimizer, "AdamW or LAMB.", None),
    "export_dir": (flags.DEFINE_string, "Folder to put a SavedModel of the best into.", None),
    "early_stopping_patience": (
        flags.DEFINE_integer,
        "Stop training when so many checkpoints in a row are no better on the dev set; 0: do not.",
        0,
    ),
    "early_stopping_min_delta": (flags.DEFINE_float, "What is better by no more is not better.", 0),
    "train_file": (flags.DEFINE_string, "Questions; run_race.py keeps features there.", None),
    "predict_file": (flags.DEFINE_string, "Questions; run_race.py keeps features there.", None),
    "dropout_prob": (flags.DEFINE_float, "Dropout of the head, in [0, 1).", 0),
    "num_workers": (flags.DEFINE_integer, "Processes; 0 for one a core.", 0),
    "num_runs": (flags.DEFINE_integer, "Runs, with the seeds from --seed on.", 1),
    "pictures": (flags.DEFINE_bool, "Draw pictures, if matplotlib is installed.", None),
}


def define_model_flags(needs_config: bool = True) -> None:
    """What the model is and where it comes from; a TF-Hub module may bring its own config."""
    flags.DEFINE_string("albert_config_file", None, "Shape of the model: albert_config.json.")
    flags.DEFINE_alias("bert_config_file", "albert_config_file")  # albert_zh's spelling
    flags.DEFINE_string("output_dir", None, "Folder of checkpoints, logs and results.")
    flags.DEFINE_string("init_checkpoint", None, "Checkpoint to start from, when there is none.")
    flags.DEFINE_bool(
        "allow_partial_init", False, "Go on when init_checkpoint lacks variables of the encoder."
    )
    flags.mark_flags_as_required(["albert_config_file"] * needs_config + ["output_dir"])


def define_input_flags() -> None:
    """What is read, and the lengths of sequences, in the data program and in pre-training."""
    flags.DEFINE_string("input_file", None, "Input files: a comma list of names and globs.")
    define_run_flags(max_seq_length=512)
    flags.DEFINE_integer("max_predictions_per_seq", 20, "The most masked tokens of a sequence.")
    flags.mark_flag_as_required("input_file")


def define_device_flags() -> None:
    """Where a run computes, and how; Google's TPU flags among them."""
    flags.DEFINE_enum(
        "distribution",
        "auto",
        ["auto", "one_device", "mirrored", "multi_worker", "tpu"],
        "Devices: auto takes a TPU with --use_tpu, the workers of TF_CONFIG, all GPUs, or the CPU.",
    )
    flags.DEFINE_integer("num_devices", 0, "Devices of this machine; 0: all GPUs, or one CPU.", 0)
    flags.DEFINE_enum(
        "precision",
        "auto",
        ["auto", "float32", "bfloat16", "float16"],
        "Of products; auto takes bfloat16 where the hardware multiplies it. Weights are float32.",
    )
    flags.DEFINE_enum(
        "jit_compile", "auto", ["auto", "true", "false"], "Compile with XLA; auto: not on a CPU."
    )
    flags.DEFINE_bool("recompute", False, "Keep one layer's activations, and compute them again.")
    flags.DEFINE_integer("threads", 0, "Threads of an operation on the CPU; 0: all cores.", 0)
    flags.DEFINE_bool("use_tpu", False, "Compute on a TPU.")
    flags.DEFINE_string("tpu_name", None, "Name or address of the TPU; default: this machine's.")
    flags.DEFINE_string("tpu_zone", None, "Zone of the Cloud TPU.")
    flags.DEFINE_string("gcp_project", None, "Project of the Cloud TPU.")
    no_effect = "Accepted for old command lines; has no effect."
    flags.DEFINE_string("master", None, no_effect)
    flags.DEFINE_integer("num_tpu_cores", 8, no_effect)
    flags.DEFINE_integer("iterations_per_loop", 1000, no_effect)


def define_training_flags(save_checkpoints_steps: int = 5000) -> None:
    """How training is kept and logged, and how a step is taken; the argument is a default."""
    flags.DEFINE_integer(
        "save_checkpoints_steps", save_checkpoints_steps, "Steps between checkpoints.", 1
    )
    flags.DEFINE_float("save_checkpoints_secs", 0, "And seconds between them; 0: any.", 0)
    flags.DEFINE_integer("keep_checkpoint_max", 5, "Checkpoints to keep; 0 keeps all.", 0)
    flags.DEFINE_integer("log_steps", 100, "Steps between lines of the log.", 1)
    flags.DEFINE_integer("seed", 12345, "Of weights, dropout and the order of the data.", 0)
    flags.DEFINE_integer(
        "gradient_accumulation_steps", 1, "Parts that a device makes of its batch, in turns.", 1
    )
    flags.DEFINE_integer(
        "max_batch_per_device", 0, "As many parts as make them no larger than this; 0: any.", 0
    )
    flags.DEFINE_bool(
        "clip_per_replica", False, "Clip each device's gradient, then add, as Google's on TPUs."
    )
    flags.DEFINE_enum(
        "nan_policy", "stop", ["stop", "skip"], "When loss or gradient are not finite."
    )


def define_run_flags(**defaults: Any) -> None:
    """Flags of `_RUN_FLAGS`: name = default."""
    for name, default in defaults.items():
        define, text, lower_bound = _RUN_FLAGS[name]
        bounds = {} if lower_bound is None else {"lower_bound": lower_bound}
        define(name, default, text, **bounds)


class _NumbersParser(flags.ArgumentParser):
    """A positive number, or several with commas between them, as a tuple."""

    syntactic_help = "a number, or several with commas between them"

    def parse(self, argument: Any) -> float | tuple[float, ...]:
        if not isinstance(argument, str):
            return argument
        parser = flags.FloatParser(0)
        values = tuple(parser.parse(part) for part in argument.split(","))
        return values[0] if len(values) == 1 else values


def define_learning_rates(default: float) -> None:
    """--learning_rate as one number or several: a float or a tuple of floats."""
    text = "Peak learning rate; several with commas between them are tried one after the other."
    flags.DEFINE(_NumbersParser(), "learning_rate", default, text)


def define_own_data_flags() -> None:
    """Where the files of a custom task have what."""
    for name, what in (
        *(("text_a", "text"), ("text_b", "second text")),
        *(("label", "label"), ("guid", "row's name")),
    ):
        text = f"Custom task: column of the {what}, name or number from 0."
        flags.DEFINE_string(f"{name}_column", None, text)
    flags.DEFINE_bool("has_header", None, "Custom task: whether the files have a header.")
    flags.DEFINE_bool("is_regression", False, "Custom task: labels are numbers to be predicted.")
    flags.DEFINE_list(
        "labels", [], "Custom task: labels in order; default: those of the train file."
    )


def define_squad_flags() -> None:
    """What only question answering has: Google's flags for both versions, and a few more."""
    flags.DEFINE_bool("version_2_with_negative", None, "SQuAD 2.0; default: model or data tell.")
    flags.DEFINE_string("train_feature_file", "", "An .npz file to keep training features in.")
    flags.DEFINE_string("predict_feature_file", "", "An .npz file to keep other features in.")
    flags.DEFINE_string("predict_feature_left_file", "", "No effect: one file holds all of them.")
    for name, default, text in (
        ("doc_stride", 128, "Tokens from one window over a long context to the next."),
        ("max_query_length", 64, "First tokens of a question that are kept."),
        ("n_best_size", 20, "Length of n-best lists; in SQuAD 1.1 also starts, and ends, tried."),
        ("max_answer_length", 30, "Tokens of an answer at most."),
        ("start_n_top", 5, "SQuAD 2.0: starts of answers that are followed."),
        ("end_n_top", 5, "SQuAD 2.0: ends for each of these."),
    ):
        flags.DEFINE_integer(name, default, text, 1)
    flags.DEFINE_bool("use_einsum", True, "Accepted for old command lines; has no effect.")
    flags.DEFINE_bool("official_threshold", False, "SQuAD 2.0: score as Google's program does.")
    flags.DEFINE_float(
        "null_score_diff_threshold",
        None,
        "SQuAD 2.0: no answer above these null odds; default: what is best for --predict_file, or "
        "was best when the model was evaluated.",
    )
    flags.DEFINE_bool(
        "mixed_segmentation", None, "Score as CMRC 2018 does; default: Chinese SQuAD 1.1 data."
    )
    flags.DEFINE_string("question", "", "A question about --context, to be answered.")
    flags.DEFINE_string("context", "", "The text that answers --question.")
