"""Hugging Face folders are read in the same way by every program, predictor and conversion."""

from __future__ import annotations

import dataclasses
import logging as python_logging
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf import classification
from albert_tf.checkpoints import finding
from albert_tf.checkpoints.huggingface import save_hugging_face
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import VOCABULARY, FileRecord
from albert_tf.cli import convert_checkpoint
from albert_tf.finetuning.run import read_tokenizer
from albert_tf.huggingface_tokenizer import HuggingFaceTokenizer, load_tokenizer
from albert_tf.tokenization import FullTokenizer
from tests import huggingface_folders as folders
from tests.checkpoints.checkpoint_samples import SHARED, random_arrays, random_weights
from tests.test_huggingface_tokenizer import PAIR, UNIGRAM, UNIGRAM_ACCENTS

CONFIG = dataclasses.replace(SHARED, max_position_embeddings=47, type_vocab_size=2)
TASK = {"name": "classification", "labels": ["no", "yes"]}
TEXTS = [PAIR, ("the  café", ""), ("Müller said", "1999, in")]


def write_weights(folder, **vocabulary):
    head = random_arrays({"output_weights": (2, 12), "output_bias": (2,)})
    encoder = random_weights(CONFIG)
    weights = {name: x for name, x in encoder.items() if name.startswith("bert/")} | head
    save_hugging_face(str(folder), weights, CONFIG, task=TASK, **vocabulary)


@pytest.fixture
def folder(tmp_path):
    """A classifier in a folder of transformers 5, whose tokenizer keeps accents."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    write_weights(folder)
    folders.write_unigram(folder, accents=True)
    return folder


@pytest.fixture
def settings(folder, tmp_path):
    """Returns the settings of a run that starts with the folder."""
    data = tmp_path / "data"
    data.mkdir()
    rows = [f"{a}\t{b or 'in'}\t{label}\n" for (a, b), label in zip(TEXTS, "yny", strict=True)]
    rows = [row.replace("\ty\n", "\tyes\n").replace("\tn\n", "\tno\n") for row in rows]
    (data / "train.tsv").write_text("text_a\ttext_b\tlabel\n" + "".join(rows))
    return classification.Settings(
        task_name="tsv",
        data_dir=str(data),
        init_checkpoint=str(folder),
        output_dir=str(tmp_path / "run"),
        max_seq_length=47,
        train_step=1,
        train_batch_size=3,
        precision="float32",
        do_train=True,
    )


def tokenizer_of(settings):
    """Returns the tokenizer of a program that starts with the model."""
    completed = settings.completed()
    return read_tokenizer(completed, CONFIG, finding.records_of(completed.model_folder))


def tokenizers(folder, settings):
    """Door → the tokenizer that it reads from a folder."""
    return {
        "from_pretrained": albert_tf.from_pretrained(str(folder))[1],
        "load_predictor": albert_tf.load_predictor(str(folder), "classification").tokenizer,
        "programs": tokenizer_of(settings),
    }


def test_every_door_has_the_tokenizer_of_the_folder(folder, settings):
    for door, tokenizer in tokenizers(folder, settings).items():
        batch = tokenizer([PAIR])
        assert batch["input_ids"].tolist() == [UNIGRAM_ACCENTS], door
        assert not batch["segment_ids"].any(), door


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("write", [folders.write_spiece, folders.write_vocabulary])
def test_every_door_has_the_case_of_a_folder_of_version_4(folder, settings, write, lower):
    (folder / "tokenizer.json").unlink()
    write(folder, do_lower_case=lower)
    expected = load_tokenizer(str(folder / "tokenizer_config.json"))
    assert expected.do_lower_case == lower
    for door, tokenizer in tokenizers(folder, settings).items():
        assert tokenizer.checksum == expected.checksum, door
        assert tokenizer.encode(PAIR[0]) == expected.encode(PAIR[0]), door


def test_programs_refuse_a_flag_that_contradicts_the_folder(folder, settings):
    contradicting = dataclasses.replace(settings, do_lower_case=False)
    with pytest.raises(ValueError, match="do_lower_case=False"):
        tokenizer_of(contradicting)
    with pytest.raises(ValueError, match="do_lower_case=False"):
        albert_tf.load_predictor(str(folder), do_lower_case=False)


def test_a_vocabulary_beside_the_tokenizer_is_only_used_if_it_is_given(
    folder, settings, toy_spm_model, caplog
):
    shutil.copy(toy_spm_model, folder / "spiece.model")
    path = str(folder / "spiece.model")
    for door, tokenizer in tokenizers(folder, settings).items():
        assert isinstance(tokenizer, HuggingFaceTokenizer), door
    caplog.clear()
    with caplog.at_level(python_logging.WARNING, logger="absl"):
        _, tokenizer = albert_tf.from_pretrained(str(folder), spm_model_file=path)
    assert isinstance(tokenizer, FullTokenizer)
    assert any("tokenizer.json" in message for message in caplog.messages)
    caplog.clear()
    with caplog.at_level(python_logging.WARNING, logger="absl"):
        dataclasses.replace(settings, spm_model_file=path).completed()
    assert any("tokenizer.json" in message for message in caplog.messages)


def test_case_is_that_of_the_weights_unless_it_is_given(
    folder, settings, toy_spm_model, tmp_path, caplog
):
    """With a vocabulary of its own, which does not know the case of the model."""
    folders.write_config(folder, {"do_lower_case": False})
    given = dataclasses.replace(settings, spm_model_file=toy_spm_model)
    assert not tokenizer_of(given).do_lower_case
    assert not any("do_lower_case=" in message for message in caplog.messages)
    with caplog.at_level(python_logging.WARNING, logger="absl"):
        assert tokenizer_of(dataclasses.replace(given, do_lower_case=True)).do_lower_case
    assert any("do_lower_case=True" in message for message in caplog.messages)


@pytest.mark.ci
def test_the_record_of_a_conversion_says_that_the_vocabulary_is_the_models(
    tmp_path, toy_spm_model, folder
):
    google = tmp_path / "google"
    albert_tf.save_pretrained(
        albert_tf.from_pretrained(str(folder), "classification")[0],
        str(google),
        FullTokenizer(spm_model_file=toy_spm_model),
    )
    output = str(tmp_path / "converted")
    convert_checkpoint.convert(
        convert_checkpoint.Settings(input=str(google), output=output, output_format="huggingface")
    )
    assert os.path.exists(os.path.join(output, "tokenizer.json"))
    assert finding.find_vocabulary(output) == (None, os.path.join(output, "spiece.model"))
    os.remove(os.path.join(output, "run.json"))  # as after a conversion by somebody else
    assert finding.find_vocabulary(output) == (os.path.join(output, "tokenizer.json"), None)


@pytest.mark.ci
@pytest.mark.parametrize("output_format", ["tensorflow", "huggingface", "saved_model"])
def test_conversions_keep_the_tokenizer(folder, tmp_path, output_format):
    output = tmp_path / "converted"
    convert_checkpoint.convert(
        convert_checkpoint.Settings(
            input=str(folder), output=str(output), output_format=output_format
        )
    )
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (output / name).read_bytes() == (folder / name).read_bytes()
    tokenizer = albert_tf.from_pretrained(str(output))[1]
    assert tokenizer([PAIR])["input_ids"].tolist() == [UNIGRAM_ACCENTS]


@pytest.mark.parametrize("write", [folders.write_unigram, folders.write_spiece])
def test_a_saved_model_has_its_tokenizer(folder, tmp_path, write):
    (folder / "tokenizer.json").unlink()
    write(folder)
    model, tokenizer = albert_tf.from_pretrained(str(folder), "classification")
    saved = str(tmp_path / "saved")
    albert_tf.save_pretrained(model, saved, tokenizer, ["no", "yes"])
    _, loaded = albert_tf.from_pretrained(saved)
    assert loaded.checksum == tokenizer.checksum
    assert loaded([PAIR])["input_ids"].tolist() == [UNIGRAM]
    folders.write_unigram(tmp_path / "saved", accents=True)
    with pytest.raises(ValueError, match="another vocabulary"):
        albert_tf.from_pretrained(saved)


def answers_of(predictor):
    return [list(row["probabilities"].values()) for row in predictor(TEXTS)]


@pytest.mark.ci
def test_a_run_and_its_export_keep_the_tokenizer(settings, folder, tmp_path, caplog):
    export = tmp_path / "export"
    with caplog.at_level(python_logging.WARNING, logger="absl"):
        classification.run(dataclasses.replace(settings, export_dir=str(export)))
    assert sum("ids, not texts" in message for message in caplog.messages) == 1
    run = tmp_path / "run"
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (run / name).read_bytes() == (folder / name).read_bytes()
    tokenizer = load_tokenizer(str(folder / "tokenizer.json"))
    recorded = RunFolder(str(run)).record.files[VOCABULARY]
    assert recorded == FileRecord.of_vocabulary(
        tokenizer.vocab_size, tokenizer.checksum, f"{folder}/tokenizer.json"
    )

    shutil.rmtree(folder)  # the run is complete without it
    predictor = albert_tf.load_predictor(str(run))
    assert predictor.tokenizer.checksum == tokenizer.checksum
    served = tf.saved_model.load(finding.newest_export(str(export)))
    assert set(served.signatures) == {"serving_default", "tensors"}
    batch = {name: tf.constant(x) for name, x in tokenizer(TEXTS).items()}
    theirs = served.signatures["tensors"](**batch)["probabilities"]
    np.testing.assert_allclose(theirs, answers_of(predictor), rtol=0, atol=1e-6)
    exported = albert_tf.load_predictor(str(export))
    np.testing.assert_allclose(answers_of(exported), answers_of(predictor), rtol=0, atol=1e-6)

    resumed = dataclasses.replace(settings, init_checkpoint=None, train_step=2)
    folders.write_unigram(run)  # another tokenizer
    with pytest.raises(ValueError, match="vocabulary"):
        classification.run(resumed)
    with pytest.raises(ValueError, match="another vocabulary"):
        albert_tf.load_predictor(str(run))
