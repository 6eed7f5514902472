r"""Finds the lines of a file that are most similar in meaning to each line of another file.

    python examples/semantic_search.py --model_dir=lcqmc_model --texts_file=answered.txt \
        --queries_file=new_questions.txt

The embedding of a text is the mean of the last four layers over its tokens, and texts are compared
by the cosine similarity of their embeddings. Models fine-tuned on sentence pairs, such as LCQMC's,
find better matches than models that were only pre-trained.
"""

import dataclasses

import numpy as np
from numpy.typing import NDArray

import albert_tf
from albert_tf import files
from albert_tf.cli import console
from albert_tf.settings import REQUIRED, SettingsGroup, setting


@dataclasses.dataclass(frozen=True)
class Settings(SettingsGroup):
    """The model, the texts and the queries."""

    model_dir: str = setting(REQUIRED, "Folder of a model.")
    texts_file: str = setting(REQUIRED, "File with the texts to search, one per line.")
    queries_file: str = setting(REQUIRED, "File with the queries, one per line.")
    count: int = setting(3, "Number of texts to find for each query.", minimum=1)


def unit_vectors(embeddings: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns embeddings, float32 [N, H], normalized to unit length."""
    vectors: NDArray[np.float32] = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    return vectors


def run(settings: Settings) -> str:
    """Returns each query followed by the most similar texts with their cosine similarities."""
    texts = files.read_text(settings.texts_file).splitlines()
    queries = files.read_text(settings.queries_file).splitlines()
    embed = albert_tf.load_predictor(settings.model_dir, "embeddings", pooling="mean_last_4")
    cosines = unit_vectors(embed(queries)) @ unit_vectors(embed(texts)).T  # [queries, texts]
    lines = []
    for query, scores in zip(queries, cosines, strict=True):
        best = np.argsort(-scores, kind="stable")[: settings.count]
        lines += [query, *(f"  {scores[number]:.4f}  {texts[number]}" for number in best)]
    return "\n".join(lines)


if __name__ == "__main__":
    console.start(Settings, run, __doc__)
