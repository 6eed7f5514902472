"""How a folder of sentence-transformers computes embeddings, as its `modules.json` says.

The file lists modules, which are applied one after the other: a `Transformer`, the `Pooling` of its
outputs, and maybe `Normalize`. Other modules are refused, because without them the embeddings would
be others in silence; no ALBERT is known with one, such as `Dense`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from albert_tf import files
from albert_tf.checkpoints import run_record
from albert_tf.checkpoints.model_folder import MODULES_FILE, ModelFolder
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.model.poolings import CLS, EMBEDDING, MAX, MEAN
from albert_tf.model.tokenization import TOKENIZER_CONFIG_FILE

RECORDED = "sentence_modules"  # entry of the task in the record of an exported model
_SETTINGS_FILE = "config_sentence_transformers.json"
_TRANSFORMER_FILE = "sentence_bert_config.json"
_CONFIG_FILE = "config.json"
_EMBEDDING = "sentence_embedding"  # what modules read and write, unless their config says otherwise
# Keys of the pooling's config before version 6, in the order in which several are concatenated.
_OLD_POOLINGS = {
    "pooling_mode_cls_token": CLS,
    "pooling_mode_max_tokens": MAX,
    "pooling_mode_mean_tokens": MEAN,
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_POOLINGS = (CLS, MAX, MEAN)
_LARGE = 1 << 24  # transformers writes 1e30 where a tokenizer has no maximum


@dataclasses.dataclass(frozen=True)
class SentenceModules:
    """How embeddings are computed.

    Attributes:
        poolings: the poolings whose results are concatenated.
        are_normalized: whether embeddings are divided by their length.
        max_seq_length: maximum number of tokens; None if nothing says so.
        lowercases: whether texts are lowercased before they are tokenized.
        exported_size: size of an embedding that an exported model computes; None for any other.
    """

    poolings: tuple[str, ...]
    are_normalized: bool
    max_seq_length: int | None
    lowercases: bool
    exported_size: int | None = None

    def size(self, hidden_size: int) -> int:
        """Returns the size of an embedding, given that of the model's hidden layers."""
        return self.exported_size or hidden_size * len(self.poolings)

    def describe(self, hidden_size: int) -> files.JsonObject:
        """Returns what the record of an exported model says of them; see `exported_modules`."""
        return {"size": self.size(hidden_size), "lowercases": self.lowercases}


def exported_modules(record: RunRecord) -> SentenceModules | None:
    """Returns what the record of an exported model says of its modules; None if it has none.

    The output `EMBEDDING` of the model is what all of them compute.

    Raises:
        ValueError: the record is damaged.
    """
    found = record.task.get(RECORDED)
    if found is None:
        return None
    files.check_fields({RECORDED: found}, run_record.FILE, {RECORDED: dict})
    files.check_fields(found, run_record.FILE, {"size": int, "lowercases": bool})
    return SentenceModules((EMBEDDING,), False, None, found["lowercases"], found["size"])


def read_modules(folder: ModelFolder) -> SentenceModules | None:
    """Returns what a folder says of its embeddings; None if it is not of sentence-transformers.

    Args:
        folder: the folder with `modules.json`.

    Raises:
        ValueError: it has a module or an option that is not supported; the message names it.
        FileNotFoundError: a file of a module is missing.
    """
    modules = folder.modules
    if modules is None:
        return None
    path = folder.file(MODULES_FILE)
    kinds = [_kind(module) for module in modules]
    if kinds[:2] != ["Transformer", "Pooling"]:
        raise ValueError(
            f"{path}: the modules are {', '.join(kinds) or 'none'}; expected a Transformer, a "
            "Pooling, and maybe Normalize"
        )
    _check_prompts(folder.file(_SETTINGS_FILE))
    for number, kind in enumerate(kinds[2:], 2):
        if kind != "Normalize":
            raise ValueError(
                f"{path}: the module {modules[number]['type']} is not supported; expected "
                'Normalize. Pass a pooling, such as pooling="mean", to do without all of them'
            )
        # Only version 6 writes it.
        config = folder.folder_of_module(number).file(_CONFIG_FILE)
        _check_names(config, files.read_json_if_there(config))
    inner = folder.transformer
    return SentenceModules(
        _read_poolings(folder.folder_of_module(1).file(_CONFIG_FILE)),
        len(modules) > 2,
        *_read_options(inner),
    )


def _kind(module: Mapping[str, object]) -> str:
    """Returns the class of a module, without its package, which versions have moved."""
    package, _, name = str(module["type"]).rpartition(".")
    return name if package.split(".")[0] == "sentence_transformers" else str(module["type"])


def _check_prompts(path: str) -> None:
    """Raises ValueError if a prompt is put before each text."""
    options = files.read_json_if_there(path)
    files.check_fields(options, path, {"default_prompt_name": str | None, "prompts": dict | None})
    name = options.get("default_prompt_name")
    if name is not None and (options.get("prompts") or {}).get(name) != "":
        raise ValueError(
            f"{path}: default_prompt_name={name!r} is not supported. Put the prompt before the "
            'texts yourself, and pass a pooling, such as pooling="mean"'
        )


def _read_options(folder: ModelFolder) -> tuple[int | None, bool]:
    """Returns the maximum number of tokens, and whether texts are lowercased before.

    The number is left to the tokenizer's options in version 6.
    """
    path = folder.file(_TRANSFORMER_FILE)
    options = files.read_json_if_there(path)
    fields = {"max_seq_length": int | None, "do_lower_case": bool | None}
    files.check_fields(options, path, fields)
    tokenizer = files.read_json_if_there(folder.file(TOKENIZER_CONFIG_FILE))
    limit = options.get("max_seq_length") or tokenizer.get("model_max_length")
    is_limit = type(limit) is int and 0 < limit < _LARGE
    return limit if is_limit else None, bool(options.get("do_lower_case"))


def _read_poolings(path: str) -> tuple[str, ...]:
    config = files.read_json(path)
    files.check_fields(config, path, {"pooling_mode": str | list | None})
    files.check_fields(config, path, dict.fromkeys(_OLD_POOLINGS, bool | None))
    modes = config.get("pooling_mode")
    if modes is None:
        modes = [mode for key, mode in _OLD_POOLINGS.items() if config.get(key)] or [MEAN]
    poolings = [modes] if isinstance(modes, str) else modes
    for pooling in poolings or ["none"]:
        if pooling not in _POOLINGS:
            raise ValueError(
                f"{path}: the pooling {files.quote(pooling)} is not supported; expected one of "
                f"{', '.join(_POOLINGS)}"
            )
    return tuple(poolings)


def _check_names(path: str, config: Mapping[str, object]) -> None:
    """Raises ValueError if a module computes something else than an embedding of one."""
    expected = {"module_input_name": _EMBEDDING, "module_output_name": _EMBEDDING}
    for key, value in (expected | {"use_residual": False}).items():
        if config.get(key) not in (None, value):
            raise ValueError(f"{path}: {key}={config[key]!r} is not supported; expected {value!r}")
