"""The text of `--help`, made of the fields of a program's settings."""

from __future__ import annotations

import textwrap

from albert_tf import settings
from albert_tf.cli.compatibility import ALBERT_ZH_DEFAULTS, ALIASES, IGNORED, rows_for
from albert_tf.cli.flags import AUTO
from albert_tf.settings import FieldInfo, SettingsGroup

HELP_FULL = "--helpfull"
HELP = {"--help", "-help", HELP_FULL, "--helpshort", "-h", "-?"}
VERSION = "--version"
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
    if ignored := rows_for(IGNORED, settings_class):
        sections[_IGNORED] = [_indented(", ".join(f"--{name}" for name in ignored), "  ")]
    parts += [f"{heading}:\n" + "\n".join(lines) for heading, lines in sections.items() if lines]
    return "\n\n".join(parts)


def _describe_other_spellings(settings_class: type[SettingsGroup]) -> list[str]:
    """Returns the help texts of aliases and of albert_zh's defaults."""
    texts = [
        f"  --{alias}\n      Same as --{name}."
        for alias, name in rows_for(ALIASES, settings_class).items()
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
        default = AUTO if field.default is None else field.default
        shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
        syntax += f"  (default: {shown})"
    return f"  {syntax}\n{_indented(field.help, '      ')}"
