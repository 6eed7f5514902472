"""Reports what a corpus consists of and what was left out: report.json, and report.md to read."""

from __future__ import annotations

import collections
import json
import os
from collections.abc import Sequence
from typing import Any

import package_corpus

from albert_tf import files

LARGEST = 25  # packages that the page lists
MAX_EXAMPLE = 200  # letters of an example


def summarize(corpus: package_corpus.Corpus) -> dict[str, Any]:
    """Returns the contents of report.json."""
    parts = {"train": corpus.train, "held_out": corpus.held_out}
    return {
        "files_read": corpus.sources,
        "parts": {name: _sizes(documents) for name, documents in parts.items()},
        "kinds": _by(corpus.train + corpus.held_out, "kind"),
        "packages": {name: _by(documents, "package") for name, documents in parts.items()},
        "dropped": {
            reason: {"count": count, "examples": corpus.dropped.examples(reason)}
            for reason, count in sorted(corpus.dropped.counts.items())
        },
    }


def _sizes(documents: Sequence[package_corpus.Document]) -> dict[str, int]:
    """Returns the numbers of documents, sentences and bytes."""
    return {
        "documents": len(documents),
        "sentences": sum(len(document.sentences) for document in documents),
        "bytes": sum(document.size for document in documents),
    }


def _by(documents: Sequence[package_corpus.Document], attribute: str) -> dict[str, dict[str, int]]:
    """Returns the sizes for each value of an attribute, the largest first."""
    groups: dict[str, list[package_corpus.Document]] = collections.defaultdict(list)
    for document in documents:
        groups[getattr(document, attribute)].append(document)
    sizes = {name: _sizes(group) for name, group in groups.items()}
    return dict(sorted(sizes.items(), key=lambda item: (-item[1]["bytes"], item[0])))


def page(report: dict[str, Any]) -> str:
    """Returns report.md."""
    read = ", ".join(f"{count:,} {kind}" for kind, count in sorted(report["files_read"].items()))
    lines = [
        "# The corpus",
        f"From the documentation installed on this machine. Files read: {read}.",
        *_table("part", report["parts"]),
        *_table("source", report["kinds"]),
        "## Left out",
    ]
    for reason, entry in report["dropped"].items():
        lines.append(f"### {entry['count']:,} times: {reason}")
        lines.extend("    " + _shortened(example) for example in entry["examples"])
    for name, packages in report["packages"].items():
        lines.append(f"## Packages, {name}: the largest {min(LARGEST, len(packages))}")
        lines.append(f"{len(packages)} packages in all.")
        lines.extend(_table("package", dict(list(packages.items())[:LARGEST])))
    return "\n".join(_separated(lines)) + "\n"


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MAX_EXAMPLE else text[:MAX_EXAMPLE] + " ..."


def _table(title: str, rows: dict[str, dict[str, int]]) -> list[str]:
    """Returns the lines of a table of sizes."""
    return [
        f"| {title} | documents | sentences | MB |",
        "|---|---|---|---|",
        *(
            f"| {name} | {row['documents']:,} | {row['sentences']:,} | {row['bytes'] / 1e6:.2f} |"
            for name, row in rows.items()
        ),
    ]


def _separated(lines: Sequence[str]) -> list[str]:
    """Returns the lines with blank lines between blocks; rows of a table and examples are one."""
    result: list[str] = []
    for line in lines:
        together = result and line[:1] in "| " and line[:1] == result[-1][:1]
        if line.startswith("|") and line.endswith("| MB |"):
            together = False
        if result and not together:
            result.append("")
        result.append(line)
    return result


def write(corpus: package_corpus.Corpus, folder: str) -> str:
    """Writes report.json and report.md into a folder and returns the path of the page."""
    report = summarize(corpus)
    with files.write_atomically(os.path.join(folder, "report.json")) as stream:
        json.dump(report, stream, indent=2)
        stream.write("\n")
    path = os.path.join(folder, "report.md")
    with files.write_atomically(path) as stream:
        stream.write(page(report))
    return path
