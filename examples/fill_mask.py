r"""Shows what a pre-trained model expects in place of [MASK].

    python examples/fill_mask.py --model_dir=albert_tiny_zh --text=北京是[MASK]国的首都

--model_dir is a released archive or the --output_dir of run_pretraining.py; name the vocabulary
(--spm_model_file or --vocab_file) where it is not in that folder.
"""

import dataclasses

import albert_tf
from albert_tf.cli import program
from albert_tf.settings import REQUIRED, SettingsGroup, setting


@dataclasses.dataclass(frozen=True)
class Settings(SettingsGroup):
    """Which model, and which text."""

    model_dir: str = setting(REQUIRED, "Folder of a pre-trained model.")
    text: str = setting(REQUIRED, "A text with one [MASK] or more.")
    count: int = setting(5, "Number of words for each mask.", minimum=1)
    spm_model_file: str | None = setting(None, "SentencePiece model, if the folder has none.")
    vocab_file: str | None = setting(None, "WordPiece vocabulary, if the folder has none.")


def run(settings: Settings) -> str:
    """Returns the text with the best words, and the best words of each mask."""
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
    program.start(Settings, run, __doc__)
