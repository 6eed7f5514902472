"""Defines command line flags from the fields of settings classes; only this folder uses absl.flags.

TensorFlow is not imported here, so that `--help` is fast.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Sequence
from typing import Any, TypeVar

from absl import flags, logging

from albert_tf import data, files, pretraining, settings
from albert_tf.cli.recipes import recipe_file
from albert_tf.data import settings as data_settings
from albert_tf.data import train_vocabulary
from albert_tf.finetuning import classification, race, squad
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.settings import FieldInfo, SettingsGroup
from albert_tf.training.settings import DeviceSettings, ModelSettings

# Aliases of flags in albert_zh, in some of Google's programs and in spm_train: settings class →
# alias → name of the field.
ALIASES: dict[type[SettingsGroup], dict[str, str]] = {
    ModelSettings: {"bert_config_file": "albert_config_file"},
    race.Settings: {"num_keep_checkpoint": "keep_checkpoint_max"},
    FineTuningSettings: {"num_train_steps": "train_step", "num_warmup_steps": "warmup_step"},
    pretraining.Settings: {"train_step": "num_train_steps", "warmup_step": "num_warmup_steps"},
    train_vocabulary.Settings: {"input": "input_file", "model_prefix": "output_prefix"},
}
# Flags of old command lines that are accepted without effect: settings class → name → type, `bool`,
# or `str` for any value.
IGNORED: dict[type[SettingsGroup], dict[str, type]] = {
    data.Settings: {"input_file_mode": str},
    train_vocabulary.Settings: dict.fromkeys(
        ("model_type", "control_symbols", "pad_id", "unk_id", "bos_id", "eos_id"), str
    ),
    pretraining.Settings: {"masked_lm_budget": str, "export_dir": str},
    classification.Settings: {"cached_dir": str},
    race.Settings: {"train_file": str, "eval_file": str, "predict_file": str},
    squad.Settings: {
        "train_feature_file": str,
        "predict_feature_file": str,
        "predict_feature_left_file": str,
        "use_einsum": bool,
    },
    DeviceSettings: {"master": str, "num_tpu_cores": str, "iterations_per_loop": str},
}


@dataclasses.dataclass(frozen=True)
class OtherDefaults:
    """Defaults of albert_zh that differ from Google's.

    Attributes:
        spellings: flags, or flags with a value, that only exist in albert_zh. A command line with
            one of them was written for albert_zh, so its defaults apply.
        values: name of the field → default.
    """

    spellings: tuple[str, ...] = ()
    values: dict[str, Any] = dataclasses.field(default_factory=dict)


# The defaults of albert_zh's programs: settings class of the corresponding program → defaults.
ALBERT_ZH_DEFAULTS: dict[type[SettingsGroup], OtherDefaults] = {
    data.Settings: OtherDefaults(("non_chinese",), data_settings.ALBERT_ZH_DEFAULTS),
    pretraining.Settings: OtherDefaults(
        ("bert_config_file",),
        {
            "max_seq_length": 128,
            "do_train": False,
            "train_batch_size": 32,
            "eval_batch_size": 8,
            "optimizer": "lamb_albert_zh",
            "learning_rate": 5e-5,
            "num_train_steps": 100000,
            "num_warmup_steps": 10000,
            "save_checkpoints_steps": 1000,
            "keep_checkpoint_max": 20,
        },
    ),
    classification.Settings: OtherDefaults(
        ("bert_config_file", "task_name=lcqmc_pair"),
        {"max_seq_length": 128, "num_train_epochs": 3.0},
    ),
}

_ALL_PROGRAMS, _COMPATIBILITY, _IGNORED = "all programs", "compatibility", "accepted and ignored"
# The headings of `--help` in order.
GROUPS = (
    "flags",
    "model",
    "data",
    "text",
    "instances",
    "masking",
    "training",
    "evaluation",
    "prediction and export",
    "logging",
    "devices",
    "output and resources",
    "web page",
    _ALL_PROGRAMS,
    _COMPATIBILITY,
    _IGNORED,
)
_ALWAYS_THERE = ("absl.app", "absl.logging")  # modules whose flags every program has
_COMMON_HELP = """\
  --flagfile=FILE
      Read flags from a file with one flag per line, or from a recipe of this package, such as
      glue_mrpc; may be given several times.
  --verbosity=INT  (default: 0)
      Amount of logging: 1 also shows debug messages and the traceback of an error, 0 shows
      information and warnings, -1 shows warnings only.
  --version
      Show the version of this package.
  --help
      Show the essential flags.
  --helpfull
      Show all flags."""
_HELP_WIDTH = 90
_AUTO = "auto"  # the value of a flag that leaves the choice to the program
_FLAGFILE = ("--flagfile", "-flagfile")

SettingsType = TypeVar("SettingsType", bound=SettingsGroup)


class _TupleParser(flags.ArgumentParser):
    """Parses comma-separated values into a tuple, or into a scalar if there is only one."""

    def __init__(self, parser: flags.ArgumentParser, keeps_scalar: bool) -> None:
        self._parser = parser
        self._keeps_scalar = keeps_scalar

    def parse(self, argument: Any) -> Any:
        if not isinstance(argument, str):
            return argument
        parts = [part.strip() for part in argument.split(",")]
        values = tuple(self._parser.parse(part) for part in parts if part)
        return values[0] if self._keeps_scalar and len(values) == 1 else values


class _OptionalParser(flags.ArgumentParser):
    """Parses a number that need not be given; None for `auto`."""

    def __init__(self, parser: flags.ArgumentParser) -> None:
        self._parser = parser

    def parse(self, argument: Any) -> Any:
        is_given = str(argument).strip().lower() != _AUTO
        return self._parser.parse(argument) if is_given else None


def _parser(field: FieldInfo) -> flags.ArgumentParser:
    if field.choices is not None:
        choices = list(field.choices)
        parser: flags.ArgumentParser = flags.EnumParser(choices, case_sensitive=False)
    elif field.type is int:
        parser = flags.IntegerParser(field.minimum, field.maximum)
    elif field.type is float:
        parser = flags.FloatParser(field.minimum, field.maximum)
    else:
        parser = flags.ArgumentParser()
    if field.is_optional:
        parser = _OptionalParser(parser)
    return _TupleParser(parser, field.is_scalar) if field.is_tuple else parser


def define(settings_class: type[SettingsGroup]) -> flags.FlagValues:
    """Returns the flags of a program: fields, aliases, ignored flags, and those of absl."""
    values = flags.FlagValues()
    for module, defined in flags.FLAGS.flags_by_module_dict().items():
        for flag in defined if module in _ALWAYS_THERE else ():
            values[flag.name] = flag
    for field in settings.fields_of(settings_class):
        if field.type is bool:
            flags.DEFINE_boolean(field.name, field.default, field.help, values)
        elif field.is_repeated:
            flags.DEFINE_multi_string(field.name, field.default, field.help, values)
        else:
            flags.DEFINE(_parser(field), field.name, field.default, field.help, values)
    for alias, name in _rows(ALIASES, settings_class).items():
        flags.DEFINE_alias(alias, name, values)
    for name, kind in _rows(IGNORED, settings_class).items():
        define_flag = flags.DEFINE_boolean if kind is bool else flags.DEFINE_string
        define_flag(name, None, "Accepted and ignored.", values)
    return values


def _rows(
    table: dict[type[SettingsGroup], dict[str, Any]], settings_class: type[SettingsGroup]
) -> dict[str, Any]:
    """Returns the rows of `ALIASES` or `IGNORED` that belong to a settings class."""
    rows = {}
    for group, group_rows in table.items():
        if issubclass(settings_class, group):
            rows.update(group_rows)
    return rows


def parse(settings_class: type[SettingsType], arguments: Sequence[str]) -> SettingsType:
    """Returns the settings for command line arguments.

    Args:
        settings_class: the class of the settings.
        arguments: the arguments after the program's name; `--flagfile` is supported, and may name a
            recipe of this package.

    Raises:
        flags.Error: a flag is unknown, missing or has an invalid value, or an argument is not a
            flag. The message names it.
        ValueError: values contradict each other.
        OSError: a flag file cannot be read.
    """
    values = define(settings_class)
    if settings_class.ARGUMENT:
        values.set_gnu_getopt()  # flags may follow the argument
    _, *words = values(["program", *_find_recipes(arguments)])
    if words and settings_class.ARGUMENT:
        values[settings_class.ARGUMENT].parse(words.pop(0))
    if words:
        raise flags.Error(f"{words[0]!r} is not a flag: flags start with --")
    for name in _rows(IGNORED, settings_class):
        if values[name].present:
            logging.warning("--%s has no effect", name)
    names = [field.name for field in settings.fields_of(settings_class)]
    given = {name: _value(values[name]) for name in names if _is_given(values[name])}
    given = _albert_zh_defaults(settings_class, values, given) | given
    completed = settings_class.with_derived_values(given)
    for field in settings.fields_of(settings_class):
        if field.is_required and field.name not in completed:
            raise flags.Error(f"--{field.name} is required: {field.help}")
    return settings_class(**completed)


def _find_recipes(arguments: Sequence[str]) -> list[str]:
    """Returns the arguments, in which `--flagfile` names paths in place of recipes."""
    resolved: list[str] = []
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if equals and name in _FLAGFILE:
            argument = f"{name}={_flag_file(path)}"
        elif resolved and resolved[-1] in _FLAGFILE:
            argument = _flag_file(argument)
        resolved.append(argument)
    return resolved


def _flag_file(name: str) -> str:
    """Returns the path of a flag file or a recipe; reading a device such as /dev/zero never ends.

    Raises:
        FileNotFoundError: there is no such file, or it is a device. The message names the flag.
    """
    path = recipe_file(name)
    files.check_file(path, "--flagfile")
    return path


def _albert_zh_defaults(
    settings_class: type[SettingsGroup], values: flags.FlagValues, given: dict[str, Any]
) -> dict[str, Any]:
    """Returns albert_zh's defaults of flags not given, if one has albert_zh's spelling."""
    table = ALBERT_ZH_DEFAULTS.get(settings_class, OtherDefaults())
    spelling = next((s for s in table.spellings if _is_spelled(values, s)), None)
    if spelling is None:
        return {}
    defaults = {name: value for name, value in table.values.items() if name not in given}
    if "train_step" in given:  # num_train_epochs would override it
        defaults.pop("num_train_epochs", None)
    if defaults:
        logging.warning(  # shown before absl knows the verbosity
            "--%s is albert_zh's spelling, so albert_zh's defaults apply: %s",
            spelling,
            " ".join(f"--{name}={value}" for name, value in defaults.items()),
        )
    return defaults


def _is_spelled(values: flags.FlagValues, spelling: str) -> bool:
    """Returns whether a flag is given, and has the value after the equals sign, if any."""
    name, _, value = spelling.partition("=")
    flag = values[name]
    return bool(flag.present) and (not value or str(flag.value).lower() == value)


def _is_given(flag: flags.Flag) -> bool:
    """Returns whether a flag is given on the command line, directly or by an alias."""
    return not flag.using_default_value or flag.value != flag.default


def _value(flag: flags.Flag) -> Any:
    """Returns the value of a flag; that of a flag that was repeated is a tuple."""
    if not isinstance(flag.value, list):
        return flag.value
    return flag.value[0] if len(flag.value) == 1 else tuple(flag.value)


def help_text(settings_class: type[SettingsGroup], description: str, is_full: bool = True) -> str:
    """Returns the text of `--help`: the description of the program and its flags in groups.

    Args:
        settings_class: the program's settings.
        description: the docstring of the script.
        is_full: whether to describe all flags, as `--helpfull` does, or the essential ones, if the
            program distinguishes them.
    """
    fields = settings.fields_of(settings_class)
    parts = [description.strip()]
    if settings_class.ESSENTIAL and not is_full:
        by_name = {field.name: field for field in fields}
        shown = [_describe_flag(by_name[name]) for name in settings_class.ESSENTIAL]
        parts += ["essential flags:\n" + "\n".join(shown)]
        return "\n\n".join([*parts, f"--helpfull describes all {len(fields)} flags."])
    fields.sort(key=lambda field: not field.is_required)
    sections = {
        group: [_describe_flag(field) for field in fields if field.group == group]
        for group in GROUPS
    }
    sections[_ALL_PROGRAMS] = [_COMMON_HELP]
    sections[_COMPATIBILITY] += _describe_other_spellings(settings_class)
    if ignored := _rows(IGNORED, settings_class):
        sections[_IGNORED] = [_indented(", ".join(f"--{name}" for name in ignored), "  ")]
    parts += [f"{heading}:\n" + "\n".join(lines) for heading, lines in sections.items() if lines]
    return "\n\n".join(parts)


def _describe_other_spellings(settings_class: type[SettingsGroup]) -> list[str]:
    """Returns the help texts of aliases and of albert_zh's defaults."""
    texts = [
        f"  --{alias}\n      Same as --{name}."
        for alias, name in _rows(ALIASES, settings_class).items()
    ]
    if settings_class in ALBERT_ZH_DEFAULTS:
        table = ALBERT_ZH_DEFAULTS[settings_class]
        defaults = " ".join(f"--{name}={value}" for name, value in table.values.items())
        spellings = " or ".join(f"--{spelling}" for spelling in table.spellings)
        texts.append(_indented(f"With {spellings}, albert_zh's defaults apply: {defaults}", "  "))
    return texts


def _indented(text: str, indent: str) -> str:
    """Returns an indented text, wrapped at the width of `--help`."""
    lines = textwrap.fill(text, _HELP_WIDTH, break_long_words=False, break_on_hyphens=False)
    return textwrap.indent(lines, indent)


def _describe_flag(field: FieldInfo) -> str:
    if field.type is bool:
        syntax = f"--[no]{field.name}"
    else:
        choices = "|".join(filter(None, field.choices or ()))
        values = choices or field.type.__name__.upper()
        syntax = f"--{field.name}={values}" + (
            ",..." if field.is_tuple and not field.is_repeated else ""
        )
    if field.is_required:
        syntax += "  (required)"
    elif field.default not in (None, "", ()) or field.is_optional:
        default = _AUTO if field.default is None else field.default
        shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
        syntax += f"  (default: {shown})"
    return f"  {syntax}\n{_indented(field.help, '      ')}"
