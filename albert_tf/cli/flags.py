"""Command line flags made of the fields of settings classes: the only module with absl.flags.

TensorFlow is not imported here, so that `--help` answers at once.
"""

from __future__ import annotations

import textwrap
from typing import Any, TypeVar

from absl import flags, logging

from albert_tf import settings
from albert_tf.settings import FieldInfo, Settings

# Other spellings of flags, those of albert_zh and of single programs of Google's.
ALIASES = {
    "bert_config_file": "albert_config_file",
    "num_keep_checkpoint": "keep_checkpoint_max",
}
# Flags of old command lines that have no effect here.
IGNORED: dict[str, type] = {
    "input_file_mode": str,
    "iterations_per_loop": int,
    "master": str,
    "num_tpu_cores": int,
    "predict_feature_left_file": str,
    "use_einsum": bool,
}
COMPATIBILITY = "compatibility"

SettingsType = TypeVar("SettingsType", bound=Settings)


class _ListParser(flags.ArgumentParser):
    """Values of one type with commas between them, as a tuple; one alone by itself if allowed."""

    def __init__(self, parser: flags.ArgumentParser, keeps_scalar: bool) -> None:
        self._parser, self._keeps_scalar = parser, keeps_scalar
        self.syntactic_help = "values with commas between them"

    def parse(self, argument: Any) -> Any:
        if not isinstance(argument, str):
            return argument
        parts = [part.strip() for part in argument.split(",")]
        found = tuple(self._parser.parse(part) for part in parts if part)
        return found[0] if self._keeps_scalar and len(found) == 1 else found


class _TupleSerializer(flags.ArgumentSerializer):
    """Writes a tuple as `_ListParser` reads it."""

    def serialize(self, value: Any) -> str:
        return ",".join(map(str, value if isinstance(value, tuple) else (value,)))


def _parser(field: FieldInfo) -> flags.ArgumentParser:
    if field.choices is not None:
        return flags.EnumParser(list(field.choices))
    if field.type is int:
        return flags.IntegerParser(field.minimum, field.maximum)
    if field.type is float:
        return flags.FloatParser(field.minimum, field.maximum)
    return flags.ArgumentParser()


def define(settings_class: type[Settings], values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines a flag for each field of a settings class, its aliases, and flags without effect."""
    fields = {field.name: field for field in settings.describe(settings_class)}
    for field in fields.values():
        _define_field(field, values)
        if field.is_required:
            flags.mark_flag_as_required(field.name, values)
    for alias, name in ALIASES.items():
        if name in fields and alias not in fields:
            flags.DEFINE_alias(alias, name, values, module_name=COMPATIBILITY)
    for name, kind in IGNORED.items():
        if name not in fields:
            text = "Accepted for old command lines; has no effect."
            define_one = flags.DEFINE_boolean if kind is bool else flags.DEFINE_string
            define_one(name, None, text, values, module_name=COMPATIBILITY)


def _define_field(field: FieldInfo, values: flags.FlagValues) -> None:
    if field.type is bool:
        flags.DEFINE_boolean(field.name, field.default, field.help, values, field.group)
        return
    parser, serializer = _parser(field), flags.ArgumentSerializer()
    if field.is_tuple:
        parser, serializer = _ListParser(parser, field.is_scalar), _TupleSerializer()
    flags.DEFINE(parser, field.name, field.default, field.help, values, serializer, field.group)


def read(
    settings_class: type[SettingsType], values: flags.FlagValues = flags.FLAGS
) -> SettingsType:
    """The settings that the command line gives; says which flags of it have no effect."""
    for name in IGNORED:
        if name in values and values[name].present:
            logging.info("--%s has no effect", name)
    return settings_class(
        **{field.name: values[field.name].value for field in settings.describe(settings_class)}
    )


def help_text(settings_class: type[Settings], description: str) -> str:
    """The text of `--help`: what the program does, and its flags in groups."""
    groups: dict[str, list[str]] = {}
    for field in settings.describe(settings_class):
        groups.setdefault(field.group, []).append(_describe_flag(field))
    others = [f"  --{alias}: the same as --{name}" for alias, name in ALIASES.items()]
    others += [f"  --{name}: no effect" for name in IGNORED]
    groups[COMPATIBILITY] = others
    parts = [f"{group}:\n" + "\n".join(lines) for group, lines in groups.items()]
    return description.strip() + "\n\n" + "\n\n".join(parts) + "\n"


def _describe_flag(field: FieldInfo) -> str:
    if field.type is bool:
        name = f"--[no]{field.name}"
    else:
        name = f"--{field.name}=" + (
            "|".join(field.choices) if field.choices else field.type.__name__
        )
    default = "required" if field.is_required else f"default: {field.default}"
    text = textwrap.fill(f"{field.help} ({default})", 92)
    return f"  {name}\n{textwrap.indent(text, '      ')}"
