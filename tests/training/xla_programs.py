"""What would keep a `tf.function` from a GPU or TPU, found in its graph and its XLA program."""

from __future__ import annotations

import re

import tensorflow as tf

# Operations of a graph that call Python or print on the host, or whose results have any shape.
HOST = re.compile(r"PyFunc|^Print|^Assert$|Summary|^Host|OutfeedEnqueue|InfeedDequeue")
ANY_SHAPE = re.compile(r"^(Where|Unique|NonMaxSuppression|DynamicPartition)")
WIDE = {tf.float64, tf.complex64, tf.complex128}
# Instructions of an HLO program by which a device waits for the host.
HLO_HOST = {"custom-call", "infeed", "outfeed", "send", "recv", "send-done", "recv-done"}
HLO_ENTRY = re.compile(r"^ENTRY .*$", re.MULTILINE)
HLO_LINE = re.compile(r"^\s*(?:ROOT )?%?[\w.-]+ = (.*?) ([a-z-]+)\(", re.MULTILINE)


def graph_problems(graph_def):
    """Returns a line for every operation of a graph and its functions that is out of place."""
    functions = [function.node_def for function in graph_def.library.function]
    found = []
    for node in [node for nodes in [graph_def.node, *functions] for node in nodes]:
        if HOST.search(node.op):
            found.append(f"{node.op} {node.name} runs on the host")
        if ANY_SHAPE.search(node.op):
            found.append(f"{node.op} {node.name} has a result of any shape")
        types = [value.type for value in node.attr.values()]
        types += [enum for value in node.attr.values() for enum in value.list.type]
        if WIDE & {tf.as_dtype(enum) for enum in types if enum}:
            found.append(f"{node.op} {node.name} computes in float64")
    return found


def hlo_problems(text):
    """Returns a line for every kind of instruction of an HLO program that is out of place."""
    found = set()
    for shape, instruction in HLO_LINE.findall(text):
        if instruction in HLO_HOST:
            found.add(f"{instruction} waits for the host")
        if "<=" in shape:  # as in f32[<=5]
            found.add(f"{instruction} returns the dynamic shape {shape}")
        if re.search(r"\b(f64|c64|c128)\[", shape):
            found.add(f"{instruction} computes in float64")
    return sorted(found)


def value_problems(text, num_inputs):
    """Returns a line if a program holds the values of inputs or variables, of which it has copies.

    It would then be compiled again for every batch, or whenever a weight changes.
    """
    found = re.findall(r' constant\(.* op_type="ReadVariableOp" op_name="([^"]*)"', text)
    entry = HLO_ENTRY.search(text)[0]
    missing = num_inputs - len(re.findall(r"\barg\d+", entry))
    lines = [f"{found[0]} and {len(found) - 1} others are constants"] if found else []
    return lines + ([f"the values of {missing} inputs are constants"] if missing else [])


def compile_problems(function, *args, compiles=False):
    """Returns the problems of a function with `jit_compile=True` for these arguments.

    Args:
        function: the `tf.function`.
        *args: its arguments.
        compiles: whether to compile the program for this CPU as well, which fails with an error.
    """
    concrete = function.get_concrete_function(*args)
    if found := graph_problems(concrete.graph.as_graph_def()):
        return found  # XLA would refuse most of them
    compiler = function.experimental_get_compiler_ir(*args)
    text = compiler(stage="hlo")
    if not HLO_LINE.search(text):
        raise ValueError(f"not an HLO program: {text[:200]!r}")
    if compiles:
        compiler(stage="optimized_hlo")
    return hlo_problems(text) + value_problems(text, len(concrete.inputs))
