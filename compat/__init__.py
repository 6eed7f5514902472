"""Provides programs under their names in google-research/albert and brightmart/albert_zh.

Each stub forwards its command line to the program of this repository that does the same work.
Commands of the form `python -m albert.NAME` are found in this folder. albert_zh's commands use
files in the root folder, which therefore contains stubs as well; these are not symbolic links,
because .zip files do not preserve them.
"""

from __future__ import annotations

import os
import runpy
import sys

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def forward(script: str, *flags: str) -> None:
    """Runs a script of the repository with the command line of this process.

    Args:
        script: path of the script, relative to the root folder.
        *flags: default flags; flags on the command line override them.
    """
    sys.argv[1:1] = flags
    runpy.run_path(os.path.join(_ROOT, script), run_name="__main__")
