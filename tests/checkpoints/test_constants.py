"""Values that nobody passes, but that files or outputs depend on: change them here as well."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

from albert_tf.checkpoints import download, evaluations, loading, run_record
from albert_tf.export import (
    convert,
    embeddings,
    formats,
    hub_module,
    saved_model,
    signatures,
    text_graph,
    tflite,
)
from albert_tf.settings import REQUIRED


@pytest.mark.parametrize(
    ("settings", "defaults"),
    [
        (
            convert.Settings,
            {
                "spm_model_file": None,
                "vocab_file": None,
                "input": REQUIRED,
                "output": None,
                "output_format": "tensorflow",
                "inspect": False,
                "merge_embeddings": False,
                "num_hidden_groups": None,
                "albert_config_file": None,
                "do_lower_case": None,
            },
        ),
        (download.Settings, {"name": None, "cache_dir": None, "hub": False}),
    ],
)
def test_settings_have_these_defaults(settings, defaults):
    assert {field.name: field.default for field in dataclasses.fields(settings)} == defaults


def test_the_number_of_groups_to_write_is_at_least_1():
    assert convert.Settings("in", num_hidden_groups=1).num_hidden_groups == 1
    with pytest.raises(ValueError, match="num_hidden_groups=0: expected 1 or more"):
        convert.Settings("in", num_hidden_groups=0)


@pytest.mark.parametrize(
    ("function", "defaults"),
    [
        (loading.load_checkpoint, {"allow_partial": False, "init_from_group0": False}),
        (evaluations.best_of, {"official_order": False}),
        (signatures.token_signatures, {"takes_examples": True, "any_length": True}),
        (text_graph.text_signatures, {"pad_to": None}),
        (text_graph.compute_in_batches, {"is_trimmed": False}),
        (
            embeddings.embeddings_export,
            {"poolings": ("mean", "mean_last_4", "pooled"), "modules": None},
        ),
        (tflite.write_tflite, {"quantization": "none"}),
        (
            hub_module.save_hub_module,
            {"has_masked_lm": True, "has_sentence_head": True, "tokenizer": None},
        ),
        (saved_model.export, {}),
    ],
)
def test_arguments_have_these_defaults(function, defaults):
    parameters = inspect.signature(inspect.unwrap(function)).parameters.values()
    found = {x.name: x.default for x in parameters if x.default is not inspect.Parameter.empty}
    assert found == defaults


def test_files_of_others_have_these_names_and_numbers():
    assert run_record.FORMAT == 1  # docs/devices.md
    of_weights = {name: row for name, row in formats.FORMATS.items() if row.write_weights}
    assert {name: (row.has_own_files, row.has_task) for name, row in of_weights.items()} == {
        "tensorflow": (False, True),
        "huggingface": (True, True),
        "tf_hub": (True, False),
        "saved_model": (False, False),
    }
    assert tflite.TFLITE_FILE == "albert_model.tflite"  # of Google's programs
    assert text_graph.BATCH_SIZE == 32  # bounds the memory of a server
