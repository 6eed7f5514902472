"""The names of ALBERT's weights in each family of checkpoints.

The model's variables have Google's names. For each other family, a table maps Google's names to
the family's names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from albert_tf.model.objectives import SCOPE
from albert_tf.model.optimizer_names import OPTIMIZERS

if TYPE_CHECKING:
    import tensorflow as tf

GLOBAL_STEP = "global_step"
WORDS = "bert/embeddings/word_embeddings"
MASKED_LM_BIAS = "cls/predictions/output_bias"  # a number for each entry of the vocabulary
# Hugging Face's copies of word embeddings and bias; a model may have a decoder of its own instead.
DECODER, DECODER_BIAS = "predictions.decoder.weight", "predictions.decoder.bias"
WORDS_2 = "bert/embeddings/word_embeddings_2"  # albert_zh's projection from E to H
ADAPTERS = "adapters/"  # prefix of the weights of layers that replace ours, such as LoRA
POOLER = "bert/pooler/"  # prefix of the pooler, which only some tasks use
# A variable of the head of each kind, by which the head of a checkpoint is recognized.
SHARED_HEAD = "output_weights"  # of most tasks
SPANS_HEAD = "cls/squad/output_weights"
ANSWERABLE_SPANS_HEAD = "start_logits/dense/kernel"
PROJECTION = "bert/encoder/embedding_hidden_mapping_in"  # Google's projection from E to H
BLOCK = "bert/encoder/transformer/group_{g}/inner_group_{n}"
# Google's scope → scope in another family; `{block}` is replaced by BLOCK.
ALBERT_ZH = {  # other scopes are Google's
    "{block}/attention_1/self/query": "bert/encoder/layer_shared/attention/self/query",
    "{block}/attention_1/self/key": "bert/encoder/layer_shared/attention/self/key",
    "{block}/attention_1/self/value": "bert/encoder/layer_shared/attention/self/value",
    "{block}/attention_1/output/dense": "bert/encoder/layer_shared/attention/output/dense",
    "{block}/LayerNorm": "bert/encoder/layer_shared/attention/output/LayerNorm",
    "{block}/ffn_1/intermediate/dense": "bert/encoder/layer_shared/intermediate/dense",
    "{block}/ffn_1/intermediate/output/dense": "bert/encoder/layer_shared/output/dense",
    "{block}/LayerNorm_1": "bert/encoder/layer_shared/output/LayerNorm",
}
_LAYER = "albert.encoder.albert_layer_groups.{g}.albert_layers.{n}"
HUGGING_FACE = {
    WORDS: "albert.embeddings.word_embeddings.weight",
    "bert/embeddings/token_type_embeddings": "albert.embeddings.token_type_embeddings.weight",
    "bert/embeddings/position_embeddings": "albert.embeddings.position_embeddings.weight",
    "bert/embeddings/LayerNorm": "albert.embeddings.LayerNorm",
    PROJECTION: "albert.encoder.embedding_hidden_mapping_in",
    "{block}/attention_1/self/query": f"{_LAYER}.attention.query",
    "{block}/attention_1/self/key": f"{_LAYER}.attention.key",
    "{block}/attention_1/self/value": f"{_LAYER}.attention.value",
    "{block}/attention_1/output/dense": f"{_LAYER}.attention.dense",
    "{block}/LayerNorm": f"{_LAYER}.attention.LayerNorm",
    "{block}/ffn_1/intermediate/dense": f"{_LAYER}.ffn",
    "{block}/ffn_1/intermediate/output/dense": f"{_LAYER}.ffn_output",
    "{block}/LayerNorm_1": f"{_LAYER}.full_layer_layer_norm",
    "bert/pooler/dense": "albert.pooler",
    "cls/predictions/transform/dense": "predictions.dense",
    "cls/predictions/transform/LayerNorm": "predictions.LayerNorm",
    MASKED_LM_BIAS: "predictions.bias",
    "cls/seq_relationship/output_": "sop_classifier.classifier",
    "cls/squad/output_": "qa_outputs",
    "output_": "classifier",
}
MODEL_GARDEN = {
    WORDS: "word_embeddings/embeddings",
    "bert/embeddings/token_type_embeddings": "type_embeddings/embeddings",
    "bert/embeddings/position_embeddings": "position_embedding/embeddings",
    "bert/embeddings/LayerNorm": "embeddings/layer_norm",
    PROJECTION: "embedding_projection",
    "{block}/attention_1/self/query": "transformer/self_attention/query",
    "{block}/attention_1/self/key": "transformer/self_attention/key",
    "{block}/attention_1/self/value": "transformer/self_attention/value",
    "{block}/attention_1/output/dense": "transformer/self_attention/attention_output",
    "{block}/LayerNorm": "transformer/self_attention_layer_norm",
    "{block}/ffn_1/intermediate/dense": "transformer/intermediate",
    "{block}/ffn_1/intermediate/output/dense": "transformer/output",
    "{block}/LayerNorm_1": "transformer/output_layer_norm",
    "bert/pooler/dense": "pooler_transform",
    "cls/predictions/transform/dense": "bert/cls/predictions/transform/dense",
    "cls/predictions/transform/LayerNorm": "bert/cls/predictions/transform/LayerNorm",
    MASKED_LM_BIAS: "bert/cls/predictions/output_bias/bias",
}

FAMILY_NAMES = {
    "albert_zh": ALBERT_ZH,
    "hugging_face": HUGGING_FACE,
    "model_garden": MODEL_GARDEN,
}

# Names of optimizers' and programs' variables besides weights. Hugging Face stores some weights
# twice (the decoder is the word embeddings) and the position ids 0 to 511; TF-Hub modules have a
# variable for do_lower_case.
_SLOTS = "|".join(slot for spec in OPTIMIZERS.values() for slot in spec.slots)
_BOOKKEEPING = re.compile(
    rf"(^|/)({_SLOTS})$|(^|/)(AdamWeightDecayOptimizer|LAMBOptimizer)"
    r"|^(Adam|AdamW|Lamb|LAMB)/"
    r"|^(global_step|save_counter|_CHECKPOINTABLE_OBJECT_GRAPH|do_lower_case|Variable)$"
    r"|embeddings\.(position_ids|token_type_ids)$|predictions\.decoder\.(weight|bias)$"
)
_HUGGING_FACE_ENCODER = re.compile(r"^(?=(embeddings|encoder|pooler)\.)")

PARTS = {
    "embeddings": ("bert/embeddings/", PROJECTION),
    "encoder": ("bert/encoder/",),
    "pooler": (POOLER,),
    "masked-LM head": ("cls/predictions/",),
    "sentence head": (SCOPE,),
    "adapters": (ADAPTERS,),
    "other heads": ("",),
}


def variable_name(variable: tf.Variable) -> str:
    """Returns the name of a variable in checkpoints, without ":0"."""
    return str(variable.name).split(":")[0]


def by_name(variables: Iterable[tf.Variable]) -> dict[str, tf.Variable]:
    """Returns name in checkpoints → variable.

    Raises:
        ValueError: two variables have the same name, so that a checkpoint would only have one.
    """
    named: dict[str, tf.Variable] = {}
    for variable in variables:
        name = variable_name(variable)
        if variable is not named.setdefault(name, variable):
            raise ValueError(
                f"two variables of the model are called {name!r}, and a checkpoint can only have "
                "one of them: give each layer that you add names of its own"
            )
    return named


def is_bookkeeping(name: str) -> bool:
    """Returns whether a name in a checkpoint is an optimizer variable, a counter or a copy."""
    return bool(_BOOKKEEPING.search(name))


def unwrap(name: str) -> str:
    """Returns a name without TF-Hub's prefix `module/`, and with Hugging Face's `albert.`."""
    return _HUGGING_FACE_ENCODER.sub("albert.", name.removeprefix("module/"))


def part_of(name: str) -> str:
    """Returns the part of the model, a key of `PARTS`, for a weight with Google's name."""
    return next(part for part, prefixes in PARTS.items() if name.startswith(prefixes))


def is_encoder(name: str) -> bool:
    """Returns whether a weight with Google's name belongs to encoder, embeddings or pooler."""
    return name.startswith("bert/")


def name_map(family: str, num_groups: int = 1, num_inner: int = 1) -> dict[str, str]:
    """Returns Google's name → the family's name for the weights of the family's table.

    Args:
        family: a key of `FAMILY_NAMES`.
        num_groups: number of hidden groups, 1 for families without groups.
        num_inner: number of blocks per layer.
    """
    names = {}
    for google_scope, scope in FAMILY_NAMES[family].items():
        for google_suffix, suffix in _suffixes(google_scope, family):
            google = google_scope.replace("{block}", BLOCK) + google_suffix
            for g in range(num_groups if "{g}" in google else 1):
                for n in range(num_inner if "{n}" in google else 1):
                    names[google.format(g=g, n=n)] = (scope + suffix).format(g=g, n=n)
    return names


def _suffixes(google_scope: str, family: str) -> list[tuple[str, str]]:
    """Returns the suffixes of the weights in a scope as (Google's, the family's) pairs."""
    if google_scope.endswith(("_embeddings", "/output_bias")):
        return [("", "")]
    if google_scope.endswith("output_"):
        endings = ("weights", "bias")
    else:
        is_norm = "LayerNorm" in google_scope
        endings = ("/gamma", "/beta") if is_norm else ("/kernel", "/bias")
    others = (".weight", ".bias") if family == "hugging_face" else endings
    return list(zip(endings, others, strict=True))
