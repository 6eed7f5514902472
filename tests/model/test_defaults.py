"""Values of the constructors' arguments that nobody passes, and constants: what changes numbers.

Each change is to be made here as well.
"""

from __future__ import annotations

import inspect

import pytest

from albert_tf.model import config, heads, modeling, ops, optimization, optimizer, schedules
from albert_tf.model.tokenization import loading, special_tokens, tokenizer, wordpiece_encoder
from albert_tf.model.tokenization.full_tokenizer import FullTokenizer
from albert_tf.model.tokenization.huggingface_tokenizer import HuggingFaceTokenizer
from albert_tf.model.tokenization.wordpiece_encoder import BasicTokenizer
from tests.conftest import needs_text

ADAM = {"weight_decay": 0.01, "beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-6}
OPTIMIZER = {"weight_decay": 0.01, "exclude": "LayerNorm|layer_norm|bias"}
CALL = {
    "text_pair": None,
    "max_length": None,
    "padding": "longest",
    "pad_to_multiple": 1,
    "truncation": True,
    "return_tensors": None,
}
VOCABULARY = {"vocab_file": None, "spm_model_file": None, "max_length": 512}

# Without the functions and classes of a module that have no defaults.
DEFAULTS = [
    (modeling.Sublayer, {"group": 0, "inner": 0}),
    (modeling.SelfAttention, {"group": 0, "inner": 0}),
    (modeling.FeedForward, {"group": 0, "inner": 0}),
    (modeling.TransformerBlock, {"attention": None, "feed_forward": None}),
    (modeling.AlbertEncoder, {"recompute": False, "add_pooling_layer": True}),
    (modeling.AlbertForPretraining, {"sentence_objective": "sop"}),
    (
        heads.AlbertForClassification,
        {"is_regression": False, "use_pooled_output": True, "is_multi_label": False, "labels": ()},
    ),
    (heads.AlbertForMultipleChoice, {"dropout_prob": 0.1}),
    (heads.AlbertForTokenClassification, {"dropout_prob": 0.1, "labels": ()}),
    (
        heads.AlbertForAnswerableSpans,
        {"start_n_top": 5, "end_n_top": 5, "dropout_prob": 0.1},
    ),
    (heads.Answerability, {"dropout_prob": 0.1}),
    (schedules.WarmUpPolynomialDecay, {"num_warmup_steps": 0, "start_warmup_step": 0, "power": 1}),
    (optimizer.Optimizer, OPTIMIZER | {"name": None, "jit_compile": False}),
    (optimization.AdamW, ADAM),
    (optimization.Lamb, ADAM),
    (optimization.LambAlbertZh, ADAM),
    (
        optimization.fine_tuning_optimizer,
        {"num_train_steps": None, "warmup_proportion": 0.1, "weight_decay": 0.01},
    ),
    (optimization.create_optimizer, {"weight_decay": 0.01}),
    (FullTokenizer, VOCABULARY | {"do_lower_case": True}),
    (loading.load_tokenizer, VOCABULARY | {"do_lower_case": None}),
    (HuggingFaceTokenizer, {"max_length": 512}),
    (BasicTokenizer, {"do_lower_case": True}),
    (tokenizer.Tokenizer.__call__, CALL),
]


def defaults_of(function):
    """Returns name → default of a function's arguments."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


@pytest.mark.parametrize(
    ("function", "expected"), DEFAULTS, ids=[function.__qualname__ for function, _ in DEFAULTS]
)
def test_arguments_have_these_defaults(function, expected):
    assert defaults_of(function) == expected


@needs_text
def test_the_layer_of_a_tokenizer_has_these_defaults():
    from albert_tf.model.tokenizer_layer import TokenizerLayer

    assert defaults_of(TokenizerLayer) == {"max_length": None, "padding": "longest"}


def names_with_defaults(module):
    """Returns name → function or class that a module defines with defaults, but `TypedDict`s."""
    found = {}
    for name, value in vars(module).items():
        is_class = inspect.isclass(value) and not issubclass(value, dict)
        is_own = getattr(value, "__module__", "") == module.__name__ and not name.startswith("_")
        if is_own and (is_class or inspect.isfunction(value)) and defaults_of(value):
            found[name] = value
    return found


@pytest.mark.parametrize("module", [modeling, heads, schedules, optimizer, optimization])
def test_all_layers_models_and_optimizers_are_in_the_table(module):
    listed = {function for function, _ in DEFAULTS}
    found = names_with_defaults(module)
    assert found
    assert listed.issuperset(found.values()), found.keys()


def test_numbers_of_google_and_bert_are_kept():
    assert config.LAYER_NORM_EPSILON == 1e-12
    assert ops.MASKED_SCORE == -10_000
    assert (heads.HEAD_STDDEV, heads.CLASSIFICATION_DROPOUT) == (0.02, 0.1)
    assert heads.FORBIDDEN_SCORE == -1e30
    assert optimizer.WEIGHT_DECAY == 0.01
    assert special_tokens.PAD_ID == 0
    assert wordpiece_encoder.MAX_INPUT_CHARS_PER_WORD == 200
