r"""Predicts the words for [MASK] with a pre-trained model.

    python examples/fill_mask.py --model_dir=albert_tiny_zh --text=北京是[MASK]国的首都

--model_dir is a released archive or the --output_dir of run_pretraining.py. If the folder does not
contain the vocabulary, set --spm_model_file or --vocab_file.
"""

import dataclasses

import albert_tf
from albert_tf.cli import console
from albert_tf.settings import REQUIRED, SettingsGroup, setting


@dataclasses.dataclass(frozen=True)
class Settings(SettingsGroup):
    """The model and the text."""

    model_dir: str = setting(REQUIRED, "Folder of a pre-trained model.")
    text: str = setting(REQUIRED, "Text with at least one [MASK].")
    count: int = setting(5, "Number of words to predict for each mask.", minimum=1)
    spm_model_file: str | None = setting(
        None, "SentencePiece model; if not given, the one in the folder."
    )
    vocab_file: str | None = setting(
        None, "WordPiece vocabulary; if not given, the one in the folder."
    )


def run(settings: Settings) -> str:
    """Returns the text with the best words filled in, and the best words for each mask."""
    fill_mask = albert_tf.load_predictor(
        settings.model_dir,
        "fill_mask",
        top_k=settings.count,
        spm_model_file=settings.spm_model_file,
        vocab_file=settings.vocab_file,
    )
    result = fill_mask(settings.text)
    lines = [result["text"]]
    for number, words in enumerate(result["masks"], 1):
        lines += [f"  [MASK] {number}  {word['score']:.4f}  {word['token']}" for word in words]
    return "\n".join(lines)


if __name__ == "__main__":
    console.start(Settings, run, __doc__)
