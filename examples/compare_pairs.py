r"""Ranks pairs of sentences by whether they mean the same, as albert_zh's similarity.py does.

    python examples/compare_pairs.py --model_dir=lcqmc_model --pairs_file=pairs.tsv

--model_dir is the --output_dir of run_classifier.py, fine-tuned on LCQMC or on other pairs with the
labels 0 (different) and 1 (same meaning). --pairs_file has one pair per line, separated by a tab.
Prints the pairs with the probability that they mean the same, the most similar first.
"""

import dataclasses

import albert_tf
from albert_tf import files
from albert_tf.cli import console
from albert_tf.settings import REQUIRED, SettingsGroup, setting

SAME = "1"


@dataclasses.dataclass(frozen=True)
class Settings(SettingsGroup):
    """The model and the pairs."""

    model_dir: str = setting(REQUIRED, "Folder of a classifier of sentence pairs.")
    pairs_file: str = setting(REQUIRED, "File with one tab-separated pair per line.")


def read_pairs(path: str) -> list[tuple[str, str]]:
    """Returns the first two columns of a tab-separated file."""
    pairs = []
    for number, line in enumerate(files.read_text(path).splitlines(), 1):
        cells = line.split("\t")
        if len(cells) < 2:
            raise ValueError(f"{path}, line {number}: expected two sentences separated by a tab")
        pairs.append((cells[0], cells[1]))
    return pairs


def run(settings: Settings) -> str:
    """Returns a line for each pair: probability, first and second sentence."""
    pairs = read_pairs(settings.pairs_file)
    classify = albert_tf.load_predictor(settings.model_dir)  # loaded once for all pairs
    rows = [
        (result["probabilities"][SAME], *pair)
        for result, pair in zip(classify(pairs), pairs, strict=True)
    ]
    return "\n".join(f"{same:.4f}\t{a}\t{b}" for same, a, b in sorted(rows, reverse=True))


if __name__ == "__main__":
    console.start(Settings, run, __doc__)
