"""Reports the results of benchmarks: as JSON lines, and as tables in docs/notebook/speed.md.

A benchmark with `--results=docs/notebook/speed.md` replaces the lines between its two markers,
which are comments in Markdown, with the conditions of the run and a table, and leaves everything
else as it is:

    <!-- begin bench_lcqmc.py -->
    <!-- end bench_lcqmc.py -->

Without these markers, a section with them is added at the end of the file. It may be moved to any
place, and text may be written above and below it. `--results=docs/notebook/speed.md#float32` writes
a second table of the same benchmark, between `<!-- begin bench_lcqmc.py, float32 -->` and its
counterpart.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from contenders import ROOT

from albert_tf import files
from albert_tf.data import workers

RESULTS_HELP = (
    "Markdown file in which the table of this benchmark is replaced, such as "
    "docs/notebook/speed.md; docs/notebook/speed.md#NAME for one of several tables"
)
PACKAGES = ("tensorflow", "tensorflow-cpu", "tf_keras", "tf-models-official")
INSTRUCTIONS = {"amx_bf16": "AMX", "avx512_bf16": "AVX-512 bfloat16"}  # flag of the CPU → name
LOAD = round(os.getloadavg()[0], 1)  # before the benchmark adds its own
PLACES = 3  # significant digits of a float in a table


def print_line(benchmark: str, **figures: Any) -> None:
    """Prints the result of a benchmark and the conditions of the run as a JSON line."""
    print(json.dumps({"benchmark": benchmark} | figures | conditions()), flush=True)


def conditions() -> dict[str, Any]:
    """Returns the machine, the versions of the packages and the commit of this run."""
    flags = _cpu_info("flags").split()
    installed = {found.name: found.version for found in importlib.metadata.distributions()}
    return {
        "machine": _cpu_info("model name") or platform.processor(),
        "instructions": [name for flag, name in INSTRUCTIONS.items() if flag in flags],
        "cores": workers.available_cores(),
        "load": LOAD,
        "versions": {name: installed[name] for name in PACKAGES if name in installed},
        "commit": _git("rev-parse", "--short", "HEAD").strip() or "unknown",
    }


def _cpu_info(key: str) -> str:
    """Returns what Linux reports about the first core; "" elsewhere."""
    if not os.path.exists("/proc/cpuinfo"):
        return ""
    with open("/proc/cpuinfo", encoding="utf-8") as stream:
        fields = (line.partition(":") for line in stream)
        return next((value.strip() for name, _, value in fields if name.strip() == key), "")


def _git(*arguments: str) -> str:
    """Returns the output of a git command in this repository; "" if it fails."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout


def add_flag(parser: argparse.ArgumentParser) -> None:
    """Adds the flag `--results`, the path for `write_table`; its file is checked at once."""

    def checked(path: str) -> str:
        try:
            _replaced(path, "")
        except (OSError, ValueError) as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return path

    parser.add_argument("--results", default="", type=checked, help=RESULTS_HELP)


def write_table(
    path: str, rows: Sequence[Mapping[str, Any]], versions: Mapping[str, str] | None = None
) -> None:
    """Replaces the section of the running benchmark in a Markdown file.

    Args:
        path: the file, which is created if it does not exist; "" does nothing. Text after "#" is
            the name of the table, if the benchmark has several.
        rows: the rows of the table: column → text or number. The columns are those of all rows, in
            the order of their first occurrence; a cell that a row lacks is empty.
        versions: package → version, of the other implementations that were measured.

    Raises:
        ValueError: the file has one marker without the other, or has them more than once.
    """
    if not path:
        return
    file = path.partition("#")[0]
    text = _replaced(path, f"{_describe_run(file, versions or {})}\n\n{to_markdown(rows)}")
    with files.write_atomically(file) as stream:
        stream.write(text)


def _replaced(path: str, section: str) -> str:
    """Returns the text of a file, "" if there is none, with a new section of this program."""
    file, _, table = path.partition("#")
    text = files.read_text(file) if files.exists(file) else ""
    name = ", ".join(filter(None, (os.path.basename(sys.argv[0]), table)))
    return replace_section(text, name, section, file)


def replace_section(text: str, name: str, section: str, path: str) -> str:
    """Returns a text in which the section between the markers of a benchmark is replaced.

    Args:
        text: the text.
        name: file name of the benchmark, and the name of its table if it has several.
        section: the new content of the section, without markers.
        path: the file with the text, for error messages.

    Raises:
        ValueError: see `write_table`.
    """
    begin = f"<!-- begin {name} -->"
    end = f"<!-- end {name} -->"
    marked = f"{begin}\n\n{section}\n\n{end}"
    if begin not in text and end not in text:
        parts = text.rstrip("\n"), f"## Latest run of `{name}`", marked
        return "\n\n".join(filter(None, parts)) + "\n"
    first = text.find(begin)
    last = text.find(end)
    if (text.count(begin), text.count(end)) != (1, 1) or last < first:
        raise ValueError(
            f"{path}: expected {begin} once and {end} once, in this order. Remove both, and a new "
            "section is added at the end of the file"
        )
    return text[:first] + marked + text[last + len(end) :]


def to_markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns a Markdown table of rows (column → text or number)."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = [columns, ["---"] * len(columns)]
    lines += [[_cell(row.get(column, "")) for column in columns] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: str | int | float) -> str:
    if isinstance(value, str):
        return value.replace("|", "\\|").replace("\n", " ")
    if isinstance(value, int) or abs(value) >= 10**PLACES:
        return f"{value:,.0f}"
    return f"{value:#.{PLACES}g}".rstrip(".")


def _describe_run(path: str, versions: Mapping[str, str]) -> str:
    """Returns the command of this process as a block of code, and the conditions of the run."""
    command = ["python", os.path.relpath(sys.argv[0], ROOT), *sys.argv[1:]]
    facts = conditions()
    instructions = f" with {' and '.join(facts['instructions'])}" if facts["instructions"] else ""
    packages = facts["versions"] | dict(versions)
    listed = ", ".join(f"{package} {version}" for package, version in packages.items())
    changes = " with uncommitted changes" if _has_changes(path) else ""
    today = time.strftime("%Y-%m-%d")
    return (
        f"    {shlex.join(command)}\n\n"
        f"{facts['cores']} cores of {facts['machine']}{instructions}, load {facts['load']} at the "
        f"start. Commit {facts['commit']}{changes}, {today}. {listed}."
    )


def _has_changes(path: str) -> bool:
    """Returns whether a file of the repository is not as committed, `path` aside."""
    changed = _git("diff", "--name-only", "HEAD").splitlines()
    return any(not _is_same(os.path.join(ROOT, name), path) for name in changed)


def _is_same(path: str, other: str) -> bool:
    return os.path.realpath(path) == os.path.realpath(other)
