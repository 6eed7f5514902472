"""Programs under the names that they have in google-research/albert and brightmart/albert_zh.

A stub passes its command line on to the program that does its work here. What is run as
`python -m albert.NAME` is found in this folder. albert_zh's commands name files of the root folder,
so that those are there: files instead of links, which a .zip file and Windows do not keep.
"""

from __future__ import annotations

import os
import runpy
import sys

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def forward(script: str, *flags: str) -> None:
    """Runs a script of the repository with the command line of this process.

    Args:
        script: its path, relative to the root folder.
        *flags: put before the flags of the command line, which win.
    """
    sys.argv[1:1] = flags
    runpy.run_path(os.path.join(_ROOT, script), run_name="__main__")
