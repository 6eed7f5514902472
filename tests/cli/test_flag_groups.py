"""Flags belong to the program that asks for them, and have the defaults that it names."""

from __future__ import annotations

import pytest
from absl import flags

from albert_tf.cli import flag_groups


def test_every_flag_is_explained_in_a_sentence():
    for name, (_, text, _) in flag_groups._RUN_FLAGS.items():
        assert text.endswith("."), name
        assert text[0].isupper(), name


def test_a_program_gives_the_defaults(monkeypatch):
    made = flags.FlagValues()
    for kind in ("DEFINE_string", "DEFINE_integer", "DEFINE_bool"):
        define = getattr(flags, kind)
        monkeypatch.setitem(
            flag_groups._RUN_FLAGS,
            kind,
            (
                lambda name, default, text, define=define, **bounds: define(
                    name, default, text, flag_values=made, **bounds
                ),
                "A text.",
                1 if kind == "DEFINE_integer" else None,
            ),
        )
    flag_groups.define_run_flags(DEFINE_string="x", DEFINE_integer=5, DEFINE_bool=True)
    made(["program"])
    assert (made.DEFINE_string, made.DEFINE_integer, made.DEFINE_bool) == ("x", 5, True)
    with pytest.raises(flags.IllegalFlagValueError):
        made(["program", "--DEFINE_integer=0"])


def test_unknown_names_are_errors():
    with pytest.raises(KeyError):
        flag_groups.define_run_flags(no_such_flag=1)
