r"""Measures what every layer of several models does to its input, and plots the models together.

    python experiments/compare_layers.py --model_dir=shared,not_shared --input_file=text.txt \
        --output_dir=layers

Each line of the text is a sequence. All numbers are means over its tokens, [CLS] and [SEP]
included and padding left out:

* the L2 distance, the angle and the cosine of the input and the output of a layer, as in figure 1
  of the paper (arXiv 1909.11942, section 3.1);
* the entropy of the attention and the distance of what a token attends to, means over the heads.

Writes `layers.md`, with a table of all layers and one of all models, `transitions.png` and
`attention.png`. A layer is one application of a block: a model with inner_group_num=2 has twice as
many. The input of the first one is the embedding after its projection to the hidden size.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import albert_tf
from albert_tf import files
from albert_tf.checkpoints.tasks import EMBEDDINGS
from albert_tf.cli import console
from albert_tf.model.config import AlbertConfig
from albert_tf.model.costs import count_blocks
from albert_tf.model.tokenization import Tokenizer
from albert_tf.settings import REQUIRED, SettingsGroup, setting

Numbers = NDArray[np.float64]

# What is measured, in the order of the columns of the tables.
MEASURES = (
    "L2 distance",
    "angle, degrees",
    "cosine",
    "attention entropy, nats",
    "attention distance, tokens",
)
DISTANCE, ANGLE, _, ENTROPY, GAP = MEASURES
# Plot → its panels.
PLOTS = {"transitions.png": (DISTANCE, ANGLE), "attention.png": (ENTROPY, GAP)}
TABLE = "layers.md"
PAPER = (
    "The paper's figure 1, of ALBERT large and BERT large: the transitions from layer to layer are "
    "much smoother in ALBERT than in BERT, but they do not converge to 0."
)
TINY = np.finfo(np.float64).tiny  # in place of 0, by which nothing can be divided


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(SettingsGroup):
    """The models, the text and where the result goes."""

    model_dir: tuple[str, ...] = setting(
        REQUIRED,
        "Folders of models, checkpoints or names of downloaded models, separated by commas.",
    )
    input_file: str = setting(REQUIRED, "Text file; every line that is not empty is a sequence.")
    output_dir: str = setting(REQUIRED, "Folder to write the tables and the plots to.")
    max_seq_length: int = setting(
        128, "Maximum sequence length, in tokens; longer lines are truncated.", minimum=3
    )
    max_lines: int = setting(
        1000, "Number of lines to use, from the start of the text; 0 uses all.", minimum=0
    )
    batch_size: int = setting(16, "Number of sequences per batch.", minimum=1)


def run(settings: Settings) -> str:
    """Measures all models, writes the tables and plots, and returns the path of the tables.

    Raises:
        FileNotFoundError: there is no such model, vocabulary or text.
        ValueError: the text is empty; a model is given twice; a model is too short for
            `max_seq_length`; or its files do not belong together.
    """
    texts = read_texts(settings.input_file, settings.max_lines)
    configs = read_configs(settings.model_dir, settings.max_seq_length)
    outputs = [os.path.join(settings.output_dir, name) for name in (TABLE, *PLOTS)]
    files.check_outputs({"--output_dir": outputs}, {"--input_file": settings.input_file})
    files.ensure_directory(settings.output_dir, "--output_dir")

    measured = {}
    for path, name in zip(settings.model_dir, configs, strict=True):
        encoder, tokenizer = albert_tf.from_pretrained(path, EMBEDDINGS)
        length = settings.max_seq_length
        batch_size = settings.batch_size
        measured[name] = measure(encoder, tokenizer, texts, length, batch_size)  # [L, M]

    for name, measures in PLOTS.items():
        draw(os.path.join(settings.output_dir, name), measured, measures)
    with files.write_atomically(outputs[0]) as stream:
        stream.write(report(configs, measured, settings, len(texts)))
    return outputs[0]


def read_texts(path: str, max_lines: int) -> list[str]:
    """Returns the lines of a text that are not empty, the shortest first, which saves padding.

    Args:
        path: the text.
        max_lines: number of lines to use, from the start; 0 for all.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: all lines are empty.
    """
    files.check_file(path, "--input_file")
    lines = [line.strip() for line in files.read_text(path).splitlines()]
    texts = list(filter(None, lines))[: max_lines or None]
    if not texts:
        raise ValueError(
            f"--input_file: {path} has no text: expected a sequence per line. Choose another file"
        )
    return sorted(texts, key=len)


def read_configs(paths: Sequence[str], max_seq_length: int) -> dict[str, AlbertConfig]:
    """Returns a short name for every model, unlike the others', and its config.

    All models are checked here, before the first one is measured.

    Raises:
        FileNotFoundError, ValueError: see `run`.
    """
    from albert_tf.checkpoints.model_source import ModelSource

    if len(set(paths)) < len(paths):
        raise ValueError(
            f"--model_dir={','.join(paths)}: a model is given twice. Give each model once"
        )
    names = [os.path.basename(os.path.normpath(path)) for path in paths]
    if len(set(names)) < len(names):
        names = list(paths)
    configs = {}
    for name, path in zip(names, paths, strict=True):
        source = ModelSource.open(path)
        configs[name] = source.config
        try:
            source.config.check_length(max_seq_length)
        except ValueError as error:
            raise ValueError(f"{source.config_file}: {error}. Choose a smaller number") from None
        _ = source.tokenizer  # read, and found to be that of the model
    return configs


# Measures


def measure(
    encoder: Any, tokenizer: Tokenizer, texts: Sequence[str], max_length: int, batch_size: int
) -> Numbers:
    """Returns the means of `MEASURES` over all tokens, float64 [L, M], with a row per layer.

    Args:
        encoder: an `AlbertEncoder`.
        tokenizer: its tokenizer.
        texts: the sequences.
        max_length: maximum number of tokens of a sequence.
        batch_size: number of sequences per batch, which the result does not depend on.
    """
    sums = np.zeros(())
    tokens = 0
    for start in range(0, len(texts), batch_size):
        batch = tokenizer(texts[start : start + batch_size], max_length=max_length)
        sums = sums + sum_over_tokens(encoder, batch)  # [L, M]
        tokens += int(batch["input_mask"].sum())
    return sums / tokens


def sum_over_tokens(encoder: Any, batch: Mapping[str, NDArray[np.int32]]) -> Numbers:
    """Returns the sums of `MEASURES` over the tokens of a batch, float64 [L, M], without dropout.

    Args:
        encoder: an `AlbertEncoder`.
        batch: its inputs, int32 [B, S] each.
    """
    outputs = encoder(batch, output_hidden_states=True, output_attentions=True)
    is_token = np.asarray(batch["input_mask"]) == 1  # [B, S]
    states = [np.asarray(x, np.float64) for x in outputs["hidden_states"]]  # L + 1 of [B, S, H]
    rows = []
    for (x, y), probs in zip(itertools.pairwise(states), outputs["attentions"], strict=True):
        values = *transition(x, y), *spread(np.asarray(probs, np.float64))  # M of [B, S]
        rows.append([value[is_token].sum() for value in values])
    return np.array(rows)  # [L, M]


def transition(x: Numbers, y: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Returns the L2 distance, the angle in degrees and the cosine of two vectors, [B, S] each.

    Args:
        x: the input of a layer, float64 [B, S, H].
        y: its output, float64 [B, S, H].
    """
    lengths = np.linalg.norm(x, axis=-1) * np.linalg.norm(y, axis=-1)  # [B, S]
    cosine = np.clip((x * y).sum(-1) / np.maximum(lengths, TINY), -1, 1)  # [B, S]
    return np.linalg.norm(y - x, axis=-1), np.degrees(np.arccos(cosine)), cosine  # [B, S] each


def spread(probs: Numbers) -> tuple[Numbers, Numbers]:
    """Returns the entropy in nats and the mean distance in tokens of the attention, [B, S] each.

    Both are means over the heads.

    Args:
        probs: attention probabilities, float64 [B, A, S, S], which are 0 for padding.
    """
    entropy = -(probs * np.log(np.maximum(probs, TINY))).sum(-1)  # [B, A, S]
    positions = np.arange(probs.shape[-1])
    gaps = np.abs(positions[:, None] - positions)  # [S, S]
    return entropy.mean(1), (probs * gaps).sum(-1).mean(1)  # [B, S] each


# Tables


def report(
    configs: Mapping[str, AlbertConfig],
    measured: Mapping[str, Numbers],
    settings: Settings,
    num_texts: int,
) -> str:
    """Returns the content of `layers.md`."""
    text = f"{num_texts:,} lines of {os.path.basename(settings.input_file)}"
    parts = [
        "# What every layer does to its input",
        f"Means over the tokens of {text}, up to {settings.max_seq_length} tokens each; angles and "
        "distances are those of the input and the output of a layer.",
        PAPER,
        "## Models",
        "Modules are different ones, of attention and of the feed-forward network. Change is the "
        "mean change from a layer to the next, without sign.",
        to_markdown(list(summaries(configs, measured))),
        "## Layers",
        to_markdown(list(rows_of(measured))),
        *(f"![{' and '.join(measures)}]({name})" for name, measures in PLOTS.items()),
    ]
    return "\n\n".join(parts) + "\n"


def summaries(
    configs: Mapping[str, AlbertConfig], measured: Mapping[str, Numbers]
) -> Iterable[dict[str, str]]:
    """Yields a row for every model: its shape, and how smooth its transitions are."""
    for name, values in measured.items():
        config = configs[name]
        modules = [len(set(pattern)) for pattern in config.modules_of_layers()]
        row = {
            "model": name,
            "layers": str(count_blocks(config)),
            "hidden size": str(config.hidden_size),
            "modules": " + ".join(str(count * config.inner_group_num) for count in modules),
        }
        for measure_name in (DISTANCE, ANGLE):
            column = values[:, MEASURES.index(measure_name)]  # [L]
            changes = np.abs(np.diff(column))  # [L - 1]
            change = f"{changes.mean():.3g}" if len(changes) else ""
            short = measure_name.partition(",")[0]
            row |= {f"{short}: mean": f"{column.mean():.3g}", f"{short}: change": change}
            row[f"{short}: smallest"] = f"{column.min():.3g}"
        yield row


def rows_of(measured: Mapping[str, Numbers]) -> Iterable[dict[str, str]]:
    """Yields a row for every layer of every model."""
    for name, values in measured.items():
        for number, layer in enumerate(values, 1):
            cells = (f"{value:.3f}" for value in layer)
            yield {"model": name, "layer": str(number)} | dict(zip(MEASURES, cells, strict=True))


def to_markdown(rows: Sequence[Mapping[str, str]]) -> str:
    """Returns a Markdown table of rows (column → text) with the same columns."""
    lines = [list(rows[0]), ["---"] * len(rows[0])]
    lines += [[cell.replace("|", "\\|") for cell in row.values()] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


# Plots


def draw(path: str, measured: Mapping[str, Numbers], measures: Sequence[str]) -> None:
    """Draws a panel for every measure, with a line for every model over its layers.

    Args:
        path: path of the plot, PNG.
        measured: name of a model → its means, float64 [L, M].
        measures: what to draw, of `MEASURES`.
    """
    from matplotlib.figure import Figure  # without pyplot, whose state is global

    figure = Figure(figsize=(4.5 * len(measures), 3.4), layout="constrained")
    panels = figure.subplots(1, len(measures), squeeze=False)[0]
    for axes, measure_name in zip(panels, measures, strict=True):
        for name, values in measured.items():
            layers = np.arange(1, len(values) + 1)
            label = name.replace("$", r"\$")  # matplotlib would read a dollar sign as math
            axes.plot(layers, values[:, MEASURES.index(measure_name)], "o-", label=label)
        axes.set(title=measure_name, xlabel="layer")
        axes.set_ylim(bottom=0)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
    panels[0].legend(fontsize="small")
    with files.write_atomically(path, "wb") as stream:
        figure.savefig(stream, format="png", dpi=80)


if __name__ == "__main__":
    console.start(Settings, run, __doc__)
