"""Runs a root script inside the test process, with flags of its own.

Two scripts define flags of the same name with different defaults, so one process can import only
one of them, unless each finds an empty table of flags.
"""

from __future__ import annotations

import contextlib
import importlib
import sys

from absl import flags

ALWAYS_THERE = ("absl.app", "absl.logging")


def _empty_table():
    """The state of a `FlagValues` that has absl's own flags only."""
    table = flags.FlagValues()
    for module, defined in flags.FLAGS.flags_by_module_dict().items():
        for flag in defined if module in ALWAYS_THERE else ():
            table[flag.name] = flag
    table.mark_as_parsed()
    return table.__dict__


@contextlib.contextmanager
def script(name):
    """Imports the script `name`; gives a function that runs its `main` with arguments."""
    kept = dict(flags.FLAGS.__dict__)
    flags.FLAGS.__dict__.update(_empty_table())
    sys.modules.pop(name, None)
    try:
        module = importlib.import_module(name)
        defaults = {flag: flags.FLAGS[flag].default for flag in flags.FLAGS}

        def run(*arguments):
            for flag, default in defaults.items():
                flags.FLAGS[flag].value, flags.FLAGS[flag].present = default, 0
            flags.FLAGS([name, *map(str, arguments)])
            module.main([])

        yield run
    finally:
        flags.FLAGS.__dict__.clear()
        flags.FLAGS.__dict__.update(kept)
        sys.modules.pop(name, None)
