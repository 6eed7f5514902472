"""Defines command line flags from the fields of settings classes; only this folder uses absl.flags.

TensorFlow is not imported here, so that `--help` is fast.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeVar

from absl import flags, logging

from albert_tf import files, settings
from albert_tf.cli.compatibility import (
    ALBERT_ZH_DEFAULTS,
    ALIASES,
    GPU_NAMES,
    IGNORED,
    OTHER_NAMES,
    OtherDefaults,
    rows_for,
)
from albert_tf.settings import FieldInfo, SettingsGroup

_ALWAYS_THERE = ("absl.app", "absl.logging")  # modules whose flags every program has
AUTO = "auto"  # the value of a flag that leaves the choice to the program
_TRUTH_VALUES = ("true", "false", "1", "0", "yes", "no", "t", "f")
_FLAGFILE = ("--flagfile", "-flagfile")
# Flags that an argument without one may belong to, if it is an existing folder or file.
_TAKE_FOLDERS = ("model_dir", "input", "data_dir", "output_dir")
_TAKE_FILES = ("input_file", "input", "train_file")

SettingsType = TypeVar("SettingsType", bound=SettingsGroup)


class _TupleParser(flags.ArgumentParser):
    """Parses comma-separated values into a tuple, or into a scalar if there is only one."""

    def __init__(self, parser: flags.ArgumentParser, keeps_scalar: bool) -> None:
        self._parser = parser
        self._keeps_scalar = keeps_scalar

    def parse(self, argument: object) -> object:
        if not isinstance(argument, str):
            return argument
        parts = [part.strip() for part in argument.split(",")]
        values = tuple(self._parser.parse(part) for part in parts if part)
        return values[0] if self._keeps_scalar and len(values) == 1 else values


class _OptionalParser(flags.ArgumentParser):
    """Parses a number that need not be given; None for `auto`."""

    def __init__(self, parser: flags.ArgumentParser) -> None:
        self._parser = parser

    def parse(self, argument: object) -> object:
        text = str(argument)
        return self._parser.parse(text) if text.strip().lower() != AUTO else None


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
    for alias, name in rows_for(ALIASES, settings_class).items():
        flags.DEFINE_alias(alias, name, values)
    for name, kind in rows_for(IGNORED, settings_class).items():
        define_flag = flags.DEFINE_boolean if kind is bool else flags.DEFINE_string
        define_flag(name, None, "Accepted and ignored.", values)
    return values


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
    given_arguments = _find_recipes(arguments)
    names = [field.name for field in settings.fields_of(settings_class)]
    try:
        _, *words = values(["program", *given_arguments])
    except flags.UnrecognizedFlagError as error:
        raise flags.Error(_with_suggestion(error, names)) from None
    if words and settings_class.ARGUMENT:
        values[settings_class.ARGUMENT].parse(words.pop(0))
    if words:
        unset = {name for name in names if not values[name].present}
        raise flags.Error(_describe_word(words[0], given_arguments, unset))
    for name in rows_for(IGNORED, settings_class):
        if values[name].present:
            logging.warning("--%s has no effect", name)
    given = {name: _value(values[name]) for name in names if _is_given(values[name])}
    given = _albert_zh_defaults(settings_class, values, given) | given
    completed = settings_class.with_derived_values(given)
    for field in settings.fields_of(settings_class):
        if field.is_required and field.name not in completed:
            raise flags.Error(f"--{field.name} is required: {field.help}")
    return settings_class(**completed)


def _with_suggestion(error: flags.UnrecognizedFlagError, names: Sequence[str]) -> str:
    """Returns the message about an unknown flag, with the name of what others call so.

    Args:
        error: the error of absl, which suggests similar names.
        names: the flags of the program.
    """
    unknown = str(error.flagname)
    name = unknown.replace("-", "_")
    meant = [other for other in OTHER_NAMES.get(name, ()) if other in names]
    if name in GPU_NAMES and not meant:
        return (
            f"--{unknown} is not a flag of this program, which uses a GPU if TensorFlow finds one "
            "(nvidia-smi shows NVIDIA's; the extra cuda has what it needs)"
        )
    if not meant:
        return str(error)
    return f"--{unknown} is not a flag of this program. Did you mean --{meant[0]}?"


def _describe_word(word: str, arguments: Sequence[str], unset: Collection[str]) -> str:
    """Returns what is wrong with an argument that is not a flag.

    Args:
        word: the argument.
        arguments: all arguments of the program.
        unset: the flags of the program that are not given.
    """
    place = arguments.index(word) if word in arguments else 0
    before = arguments[place - 1] if place else ""
    if before.startswith("-") and "=" not in before and word.lower() in _TRUTH_VALUES:
        name = before.lstrip("-")
        return f"{word!r} is not a flag: write --{name}={word.lower()}, or --{name} or --no{name}"
    takers = _TAKE_FOLDERS if files.is_directory(word) else _TAKE_FILES
    meant = next((name for name in takers if name in unset), None)
    if meant is not None and files.exists(word):
        return f"{word!r} is not a flag. Did you mean --{meant}={word}?"
    return f"{word!r} is not a flag: flags start with --"


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
    settings_class: type[SettingsGroup], values: flags.FlagValues, given: dict[str, object]
) -> dict[str, object]:
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


def _value(flag: flags.Flag) -> object:
    """Returns the value of a flag; that of a flag that was repeated is a tuple."""
    if not isinstance(flag.value, list):
        return flag.value
    return flag.value[0] if len(flag.value) == 1 else tuple(flag.value)


def recipe_file(path: str) -> str:
    """Returns the path of a flag file, given a path or the name of a recipe of this package.

    Args:
        path: a file, or a name such as `glue_mrpc`. An existing file takes precedence.

    Raises:
        FileNotFoundError: a name without a dot or slash is neither a file nor a recipe of this
            package. The message lists the names.
    """
    return files.find_included(path, "recipe", "configs/recipes", ".flags")
