"""Downloads a folder of the Hugging Face Hub with its own library, `huggingface_hub`."""

from __future__ import annotations

# A model in safetensors, its configs and its vocabulary; not the same weights in other formats.
_FILES = ("*.json", "*.model", "vocab.txt", "model*.safetensors")


def download(name: str, cache_dir: str | None = None) -> str:
    """Downloads the files of a model from the Hugging Face Hub, and returns their folder.

        hub.download("textattack/albert-base-v2-imdb")

    Args:
        name: the repository, as `organization/name`.
        cache_dir: folder of the downloaded files; defaults to that of `huggingface_hub`.

    Raises:
        ValueError: `huggingface_hub` is not installed, or the name is not that of a repository.
        OSError: the Hub cannot be reached, or has no such model.
    """
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise ValueError(
            "downloading from the Hugging Face Hub requires huggingface_hub: pip install "
            "'albert-tf2[hf]'"
        ) from None
    try:
        return str(snapshot_download(name, allow_patterns=list(_FILES), cache_dir=cache_dir))
    except (OSError, ValueError) as error:
        kind = OSError if isinstance(error, OSError) else ValueError
        reason = " ".join(str(error).split())
        raise kind(f"{name}: not downloaded from the Hugging Face Hub: {reason}") from None
