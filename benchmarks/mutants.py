"""Counts the small mistakes in the library that the tests find: mutation testing with a fixed seed.

    python benchmarks/mutants.py TREE mutants.json results.json --jobs 2

If the first file does not exist, 200 mutants of `albert_tf/` are drawn: in each, a comparison,
operator, constant or `not` is changed, or a statement is dropped. Each is then made in a copy of
TREE, where the tests that execute the changed lines run until one fails: first the default ones,
then those marked `ci`. A mutant is known by its function and statement, so that the list also
serves when files have moved. A run that was stopped continues. Requires `coverage`, besides what
the tests need.

Code that only runs as converted by AutoGraph seems to run in no test: try survivors with 0 tests.
"""

from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import difflib
import importlib
import itertools
import json
import multiprocessing.connection
import os
import random
import re
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import coverage
import pytest

COUNT, SEED = 200, 5
TIERS = {"default": "not ci and not slow", "ci": "ci"}
# A mutant is tried with tests that took so many seconds. The first few spare collecting all.
SECONDS, FIRST_BATCH = 90, 40
UNTESTED = ("version.py", "beam.py")  # the second is tested in an environment of its own
# Statements that no test needs to hold: docstrings, logging, and what does not run.
SKIPPED = re.compile(r"['\"]|\.\.\.|if TYPE_CHECKING|if __name__|[\w.]*\b(logging\.|log_|_?warn)")
# Imported once, in the process from which those of the tests are forked.
PRELOADED = ["tensorflow", "tf_keras", "tensorflow_text", "sentencepiece", "pyarrow.parquet"]
PRELOADED += ["hypothesis.strategies", "fsspec", "matplotlib", "official.common.distribute_utils"]
PAIRS: dict[type, Any] = {ast.Lt: ast.LtE, ast.Gt: ast.GtE, ast.Eq: ast.NotEq, ast.Is: ast.IsNot}
PAIRS |= {ast.In: ast.NotIn, ast.Add: ast.Sub, ast.Mult: ast.Div, ast.And: ast.Or}
FLIPPED = PAIRS | {second: first for first, second in PAIRS.items()}
FLIPPED |= dict.fromkeys((ast.FloorDiv, ast.Mod, ast.Pow), ast.Mult)
COVERAGE = """[run]
include = */albert_tf/*
parallel = True
data_file = {}
context = ${{PYTEST_CURRENT_TEST-}}
disable_warnings = no-data-collected,module-not-measured,module-not-imported
"""


class Mutant(NamedTuple):
    """A mistake: in a statement of a function, `before` becomes `after`."""

    file: str
    function: str
    statement: str
    kind: str
    before: str
    after: str
    nth: int = 0  # of those that are equal in all above


class Place(NamedTuple):
    """Where a mutant is made: the bytes replaced, and the lines that tests of it execute."""

    start: int
    end: int
    lines: range  # empty outside functions, because the first import executes those


Found = dict[Mutant, Place]
Lines = dict[str, dict[int, set[str]]]


def expressions(node: ast.AST) -> Iterator[ast.AST]:
    """The expressions of a statement, without nested statements, annotations and f-strings."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            other = (ast.stmt, ast.excepthandler, ast.match_case, ast.JoinedStr)
            hidden = name in ("annotation", "returns", "decorator_list")
            hidden |= getattr(child, "arg", "") == "strict"  # of zip: a check of the program
            if isinstance(child, ast.AST) and not isinstance(child, other) and not hidden:
                yield child
                yield from expressions(child)


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST, str]]:
    """Kind, replaced node and new text of each mutant of an expression, or of a test."""
    match node:
        case ast.Compare(left, [operator, *others], right):
            compared = ast.Compare(left, [FLIPPED[type(operator)](), *others], right)
            yield "comparison", node, ast.unparse(compared)
        case ast.BinOp(left, operator, right) if type(operator) in FLIPPED:
            if not {'"', "'"} & {ast.unparse(side)[-1] for side in (left, right)}:  # texts
                computed = ast.BinOp(left, FLIPPED[type(operator)](), right)
                yield "operator", node, ast.unparse(computed)
        case ast.BoolOp(operator, values):
            yield "operator", node, ast.unparse(ast.BoolOp(FLIPPED[type(operator)](), values))
        case ast.UnaryOp(ast.Not(), operand):
            yield "not", node, ast.unparse(operand)
        case ast.Constant(bool(value)):
            yield "constant", node, repr(not value)
        case ast.Constant(int() | float() as value):
            yield "constant", node, repr(value + 1 if isinstance(value, int) else value * 2 or 1.0)
        case ast.If(test) | ast.While(test) | ast.IfExp(test) if not isinstance(test, ast.UnaryOp):
            yield "not", test, f"not ({ast.unparse(test)})"


def dropped(statement: ast.stmt) -> list[ast.stmt]:
    """The statements for which `pass` may stand: this one, or those below an `if`."""
    match statement:
        case ast.If(_, body) if len(body) > 1 or not dropped(body[0]):
            return body
        case ast.Assign([ast.Attribute() | ast.Subscript()]) | ast.Expr() | ast.Raise():
            return [statement]
        case ast.AugAssign() | ast.Assert():
            return [statement]
    return []


def statements(
    node: ast.AST, function: str = "", lines: range = range(0)
) -> Iterator[tuple[str, range, ast.stmt]]:
    """Each statement, with the qualified name and the lines of the function that it is in."""
    for child in ast.iter_child_nodes(node):
        name, inside = function, lines
        if isinstance(child, (ast.ClassDef, ast.FunctionDef)):
            name = f"{function}.{child.name}".lstrip(".")
        if isinstance(child, ast.FunctionDef):
            inside = range(child.lineno, (child.end_lineno or 0) + 1)
        if isinstance(child, ast.stmt):
            if SKIPPED.match(ast.unparse(child)):
                continue
            yield name, inside, child
        yield from statements(child, name, inside)


def mutants_of(file: str, text: bytes) -> Iterator[tuple[Mutant, Place]]:
    """Every mutant of a file, and where it is made."""
    starts = [0, *itertools.accumulate(map(len, text.splitlines(keepends=True)))]
    counts: collections.Counter[Mutant] = collections.Counter()
    for function, inside, statement in statements(ast.parse(text)):
        options: list[tuple[str, list[Any], str]] = []
        if not isinstance(statement, ast.Raise):  # its numbers are those of a message
            for node in (statement, *expressions(statement)):
                options += [(kind, [old], new) for kind, old, new in changes(node)]
        if body := dropped(statement):
            options.append(("drop", body, "pass"))
        said = getattr(statement, "name", "") or ast.unparse(statement).split("\n")[0]
        for kind, nodes, after in options:
            first, last = nodes[0], nodes[-1]
            before = "\n".join(map(ast.unparse, nodes))
            mutant = Mutant(file, function, said, kind, before, after)
            counts[mutant] += 1
            start = starts[first.lineno - 1] + first.col_offset
            end = starts[last.end_lineno - 1] + last.end_col_offset
            if inside and not isinstance(statement, ast.FunctionDef):
                inside = range(first.lineno, last.end_lineno + 1)
            yield mutant._replace(nth=counts[mutant] - 1), Place(start, end, inside)


def draw(found: Found) -> list[Mutant]:
    """`COUNT` mutants, evenly spread over the statements of all files, and any kind alike."""
    of_statements = [list(group) for _, group in itertools.groupby(found, lambda m: m[:3])]
    generator, drawn = random.Random(SEED), []
    for number in range(COUNT):
        place = (number + generator.random()) / COUNT
        options = of_statements[int(place * len(of_statements))]
        kind = generator.choice(sorted({mutant.kind for mutant in options}))
        drawn.append(generator.choice([mutant for mutant in options if mutant.kind == kind]))
    return drawn


def find(mutant: Mutant, found: Found) -> Mutant | None:
    """The mutant in a tree whose files may have moved, or the one most like it."""

    def likeness(other: Mutant) -> float:
        pairs = zip(map(str, mutant), map(str, other), strict=True)
        ratios = [difflib.SequenceMatcher(None, *pair).ratio() for pair in pairs]
        is_near = ratios[2] > 0.7  # the statement
        return 0.1 * ratios[0] + sum(ratios[1:]) if is_near else 0.0

    if mutant in found:
        return mutant
    name = mutant.function.split(".")[-1]
    near = [m for m in found if (m.kind, m.function.split(".")[-1]) == (mutant.kind, name)]
    best = max(near, key=likeness, default=None)
    return best if best and likeness(best) > 5 else None


class Watch:
    """Chooses tests, notes their seconds and failures, and tells `measured` which one runs."""

    def __init__(self, chosen: list[str], measured: coverage.Coverage):
        self.chosen, self.measured = chosen, measured
        self.failed: list[str] = []
        self.seconds: dict[str, float] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keeps the chosen tests, in their order."""
        if self.chosen:
            named = {item.nodeid: item for item in items}
            items[:] = [named[name] for name in self.chosen if name in named]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Begins a test."""
        self.seconds[nodeid] = 0
        if self.measured:
            self.measured.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Ends the setup, the call or the teardown of a test."""
        self.seconds[report.nodeid] += report.duration
        if report.failed:
            self.failed.append(report.nodeid)


def pytest_in(tree: Path, answer: Any, settings: Path | None, chosen: list[str], *arguments: str):
    """Runs tests in `tree`, and sends what became of them."""
    os.setsid()
    os.chdir(tree)
    log = os.open(f"{tree}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.path.insert(0, str(tree))
    os.environ["PYTHONPATH"] = str(tree)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # would import hypothesis anew
    measured = settings and coverage.Coverage(config_file=str(settings))
    if measured:
        os.environ["COVERAGE_PROCESS_START"] = str(settings)
        measured.start()
    watch = Watch(chosen, measured)
    always = ["-q", "-p", "pytest_timeout", "-p", "no:cacheprovider", f"--basetemp={tree}.tmp"]
    status = pytest.main([*always, *arguments], [watch])
    if measured:
        measured.stop()
        measured.save()
    failed = watch.failed or ([] if status in (0, 5) else [str(status)])
    answer.send({"failed": failed, "seconds": watch.seconds})


def forked(limit: float, *arguments: Any) -> dict[str, Any]:
    """What `pytest_in` sends from a process of its own, which is killed after `limit` seconds."""
    context = multiprocessing.get_context("fork")
    receiver, answer = context.Pipe(duplex=False)
    process = context.Process(target=pytest_in, args=(arguments[0], answer, *arguments[1:]))
    process.start()
    multiprocessing.connection.wait([receiver, process.sentinel], limit)
    result = receiver.recv() if receiver.poll() else {"failed": ["crash or timeout"]}
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.join()
    return result


def own_tree(tree: Path, work: Path) -> Path:
    """The copy of `tree` of this thread, beside the reference data that tests find there."""
    copy = work / threading.current_thread().name
    if not copy.exists():
        ignored = shutil.ignore_patterns(".venv", ".git", ".hypothesis", "__pycache__")
        shutil.copytree(tree, copy, symlinks=True, ignore=ignored)
        with contextlib.suppress(FileExistsError):
            (work / "shared").symlink_to(tree.parent / "shared")
    return copy


def cover(copy: Path, folder: Path, tier: str, entry: str) -> None:
    """Runs the tests of a file or folder, and notes which lines each of them executes."""
    settings = folder / "settings"
    run = forked(7200, copy, settings, [], f"tests/{entry}", "-m", TIERS[tier], "--timeout=1800")
    (folder / f"{entry}.json").write_text(json.dumps(run))


def read_coverage(folder: Path) -> tuple[dict[str, float], Lines]:
    """The seconds of each test that passes, and the tests that execute each line of each file."""
    runs = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    failed = {name for run in runs for name in run["failed"]}
    seconds = {n: s for run in runs for n, s in run.get("seconds", {}).items() if n not in failed}
    lines: Lines = collections.defaultdict(lambda: collections.defaultdict(set))
    for path in folder.glob(".coverage*"):
        data = coverage.CoverageData(str(path))
        with contextlib.suppress(coverage.CoverageException):  # its process was killed
            data.read()
        for file in data.measured_files():
            of_file = lines["albert_tf/" + file.rpartition("/albert_tf/")[2]]
            for line, contexts in data.contexts_by_lineno(file).items():
                names = {re.sub(r" \((setup|call|teardown)\)$", "", name) for name in contexts}
                of_file[line] |= names & seconds.keys()
    return seconds, lines


def file_of(test: str) -> str:
    """The file of a test."""
    return test.split("::")[0]


def choose(place: Place, seconds: dict[str, float], lines: dict[int, set[str]]) -> list[list[str]]:
    """Two batches of tests that execute a place, short ones first."""
    tests = set().union(*(lines[number] for number in place.lines or tuple(lines)))
    count, hits = (collections.Counter(map(file_of, names)) for names in (seconds, tests))

    def order(name: str) -> tuple[float, float, str]:  # those of files that test little else first
        file = file_of(name)
        return round(seconds[name], 1), -hits[file] / count[file], name

    ordered = sorted(tests, key=order)
    total = itertools.accumulate(seconds[name] for name in ordered)
    ordered = [name for name, taken in zip(ordered, total, strict=True) if taken < SECONDS]
    files = list(dict.fromkeys(map(file_of, ordered)))
    batches = [ordered[:FIRST_BATCH], ordered[FIRST_BATCH:]]
    return [sorted(batch, key=lambda name: files.index(file_of(name))) for batch in batches]


def attempt(
    copy: Path, mutant: Mutant, place: Place, batches: list[list[str]], limit: float
) -> str:
    """Makes a mutant, and returns the first test that fails, or an empty text."""
    path, failed = copy / mutant.file, list[str]()
    text, status = path.read_bytes(), path.stat()
    after = mutant.after if mutant.kind == "drop" else f"({mutant.after})"
    path.write_bytes(text[: place.start] + after.encode() + text[place.end :])
    for batch in batches:
        if batch and not failed:
            limits = [f"--timeout={limit:.0f}", "--timeout-method=thread"]  # also in C++
            arguments = [*dict.fromkeys(map(file_of, batch)), "-x", "-m", "", *limits]
            failed = forked(limit + 5 * SECONDS, copy, None, batch, *arguments)["failed"]
    path.write_bytes(text)
    os.utime(path, (status.st_atime, status.st_mtime))  # for the bytecode
    return failed[0] if failed else ""


def run_tier(
    tier: str, pool: Executor, tree: Path, output: Path, found: Found, results: list[dict[str, Any]]
) -> None:
    """Tries the tests of a tier with each mutant that none has killed, and writes the results."""
    work = output.with_suffix(".work")
    folder = work / tier
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "settings").write_text(COVERAGE.format(folder / ".coverage"))
    tests = tree.glob("tests/**/test_*.py")
    entries = sorted({path.relative_to(tree).parts[1] for path in tests})
    entries = [entry for entry in entries if not (folder / f"{entry}.json").exists()]
    list(pool.map(lambda entry: cover(own_tree(tree, work), folder, tier, entry), entries))
    seconds, lines = read_coverage(folder)
    left = [r for r in results if r["made"] and not r["killer"] and tier not in r["tests"]]

    def run(result: dict[str, Any]) -> tuple[int, str]:
        mutant = Mutant(*result["made"])
        batches = choose(found[mutant], seconds, lines[mutant.file])
        tests = list(itertools.chain(*batches))
        limit = 60 + 10 * max(map(seconds.__getitem__, tests), default=0)
        killer = attempt(own_tree(tree, work), mutant, found[mutant], batches, limit)
        return len(tests), killer

    for result, (count, killer) in zip(left, pool.map(run, left), strict=True):
        result["tests"][tier] = count
        result["killer"] = killer
        output.with_suffix(".new").write_text(json.dumps(results, indent=1))
        output.with_suffix(".new").replace(output)


def print_table(results: list[dict[str, Any]]) -> None:
    """Prints the survivors, and how many mutants of each folder were killed by which tests."""
    rows: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for result in results:
        mutant = Mutant(**result["mutant"])
        state = [*result["tests"]][-1] if result["killer"] else "survived"
        state = state if result["made"] else "not found"
        if not result["killer"]:
            print(state, *mutant, sep="\n    ")
        for name in (os.path.dirname(mutant.file), "total"):
            rows[name][state] += 1
    for name, row in rows.items():
        print(f"{name}: {row.total()} mutants, {dict(row)}")


def main() -> None:
    """Runs what is left of the list."""
    parser = argparse.ArgumentParser()
    for name in ("tree", "mutants", "results"):
        parser.add_argument(name, type=lambda path: Path(path).resolve())
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    paths = sorted((args.tree / "albert_tf").rglob("*.py"))
    files = [str(p.relative_to(args.tree)) for p in paths if p.name not in UNTESTED]
    found = dict(m for file in files for m in mutants_of(file, (args.tree / file).read_bytes()))
    if not args.mutants.exists():
        args.mutants.write_text(json.dumps([m._asdict() for m in draw(found)], indent=1))
    if args.results.exists():
        results = json.loads(args.results.read_text())
    else:
        drawn = [Mutant(**row) for row in json.loads(args.mutants.read_text())]
        results = [
            {"mutant": mutant._asdict(), "made": find(mutant, found), "tests": {}, "killer": ""}
            for mutant in drawn
        ]
    for old in args.results.with_suffix(".work").glob("ThreadPool*_?"):
        shutil.rmtree(old)  # may have a mutant in it
    for module in PRELOADED:
        importlib.import_module(module)
    with ThreadPoolExecutor(args.jobs) as pool:
        for tier in TIERS:
            run_tier(tier, pool, args.tree, args.results, found, results)
    print_table(results)


if __name__ == "__main__":
    main()
