"""Hugging Face folders are read in the same way by every program, predictor and conversion."""

from __future__ import annotations

import dataclasses
import logging
import shutil

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf import classification
from albert_tf.checkpoints.huggingface import save_hugging_face
from albert_tf.checkpoints.model_folder import ModelFolder
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import VOCABULARY, FileRecord
from albert_tf.export import convert
from albert_tf.model.tokenization import FullTokenizer, HuggingFaceTokenizer, load_tokenizer
from tests import huggingface_folders as folders
from tests.checkpoints.checkpoint_samples import SHARED, random_arrays, random_weights
from tests.model.test_huggingface_tokenizer import PAIR, UNIGRAM, UNIGRAM_ACCENTS

CONFIG = dataclasses.replace(SHARED, max_position_embeddings=47, type_vocab_size=2)
TASK = {"name": "classification", "labels": ["no", "yes"]}
TEXTS = [PAIR, ("the  café", ""), ("Müller said", "1999, in")]


@pytest.fixture
def folder(tmp_path):
    """A classifier in a folder of transformers 5, whose tokenizer keeps accents."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    weights = {n: x for n, x in random_weights(CONFIG).items() if n.startswith("bert/")}
    weights |= random_arrays({"output_weights": (2, 12), "output_bias": (2,)})
    save_hugging_face(str(folder), weights, CONFIG, task=TASK)
    folders.write_unigram(folder, accents=True)
    return folder


@pytest.fixture
def settings(folder, tmp_path):
    """The settings of a run that starts with the folder."""
    data = tmp_path / "data"
    data.mkdir()
    rows = "the\tin\tyes\nthe café\tin\tno\nMüller said\t1999, in\tyes\n"
    (data / "train.tsv").write_text("text_a\ttext_b\tlabel\n" + rows)
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
    """The tokenizer of a program that starts with the model."""
    return settings.completed().source.unchecked_tokenizer


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
    contradicting = dataclasses.replace(settings, do_lower_case=False)
    with pytest.raises(ValueError, match="do_lower_case=False"):
        tokenizer_of(contradicting)
    with pytest.raises(ValueError, match="do_lower_case=False"):
        albert_tf.load_predictor(str(folder), do_lower_case=False)


@pytest.mark.parametrize(
    ("write", "lower"), [(folders.write_spiece, True), (folders.write_vocabulary, False)]
)
def test_every_door_has_the_case_of_a_folder_of_version_4(folder, settings, write, lower):
    (folder / "tokenizer.json").unlink()
    write(folder, do_lower_case=lower)
    expected = load_tokenizer(str(folder / "tokenizer_config.json"))
    assert expected.do_lower_case == lower
    for door, tokenizer in tokenizers(folder, settings).items():
        assert tokenizer.checksum == expected.checksum, door
        assert tokenizer.encode(PAIR[0]) == expected.encode(PAIR[0]), door


def test_a_vocabulary_beside_the_tokenizer_is_only_used_if_it_is_given(
    folder, settings, toy_spm_model
):
    shutil.copy(toy_spm_model, folder / "spiece.model")
    path = str(folder / "spiece.model")
    assert isinstance(albert_tf.from_pretrained(str(folder))[1], HuggingFaceTokenizer)
    assert isinstance(tokenizer_of(settings), HuggingFaceTokenizer)
    for use in (
        lambda: albert_tf.from_pretrained(str(folder), spm_model_file=path)[1],
        lambda: tokenizer_of(dataclasses.replace(settings, spm_model_file=path)),
    ):
        assert isinstance(use(), FullTokenizer)


def test_case_is_that_of_the_weights_unless_it_is_given(folder, settings, toy_spm_model, caplog):
    """With a vocabulary of its own, which does not know the case of the model."""
    folders.write_config(folder, {"do_lower_case": False})
    given = dataclasses.replace(settings, spm_model_file=toy_spm_model)
    assert not tokenizer_of(given).do_lower_case
    assert "do_lower_case=" not in caplog.text
    with caplog.at_level(logging.WARNING, logger="absl"):
        assert tokenizer_of(dataclasses.replace(given, do_lower_case=True)).do_lower_case
    assert "do_lower_case=True" in caplog.text


@pytest.mark.ci
@pytest.mark.parametrize("output_format", ["tensorflow", "huggingface", "saved_model"])
def test_conversions_keep_the_tokenizer(folder, tmp_path, output_format):
    output = tmp_path / "converted"
    list(convert.run(convert.Settings(str(folder), str(output), output_format)))
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


def answers_of(folder):
    predictor = albert_tf.load_predictor(str(folder))
    return [list(row["probabilities"].values()) for row in predictor(TEXTS)]


@pytest.mark.ci
def test_a_run_and_its_export_keep_the_tokenizer(settings, folder, tmp_path):
    export = tmp_path / "export"
    classification.run(dataclasses.replace(settings, export_dir=str(export)))
    run = tmp_path / "run"
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (run / name).read_bytes() == (folder / name).read_bytes()
    tokenizer = load_tokenizer(str(folder / "tokenizer.json"))
    recorded = RunFolder(str(run)).record.files[VOCABULARY]
    assert recorded == FileRecord.of_vocabulary(
        tokenizer.vocab_size, tokenizer.checksum, f"{folder}/tokenizer.json"
    )

    shutil.rmtree(folder)  # the run is complete without it
    answers = answers_of(run)
    np.testing.assert_allclose(answers_of(export), answers, rtol=0, atol=1e-6)
    served = tf.saved_model.load(ModelFolder(str(export)).newest_export.path)
    assert set(served.signatures) == {"serving_default", "tensors"}
    batch = {name: tf.constant(x) for name, x in tokenizer(TEXTS).items()}
    theirs = served.signatures["tensors"](**batch)["probabilities"]
    np.testing.assert_allclose(theirs, answers, rtol=0, atol=1e-6)

    folders.write_unigram(run)  # another tokenizer
    with pytest.raises(ValueError, match="another vocabulary"):
        albert_tf.load_predictor(str(run))


def test_the_ids_of_a_vocabulary_alone_are_the_numbers_of_its_lines(folder, settings, caplog):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    lines = [
        "[PAD]",
        "",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "the",
        "\u3000",
        "river",
        "the",
        "in",
    ]
    (folder / "vocab.txt").write_text("".join(f"{line}\n" for line in lines))
    predictor = albert_tf.load_predictor(str(folder))
    assert predictor.tokenizer.encode("The river in x") == [9, 8, 10, 2]
    places = {"run": settings.output_dir, "converted": f"{folder}-converted"}
    classification.run(settings)
    list(convert.run(convert.Settings(str(folder), places["converted"])))
    places["export"] = albert_tf.export_saved_model(str(folder), f"{folder}-export")
    expected = predictor("The river")["probabilities"]
    for name, place in places.items():
        again = albert_tf.load_predictor(place)
        assert again.tokenizer.encode("The river in x") == [9, 8, 10, 2], name
        if name != "run":
            assert again("The river")["probabilities"] == pytest.approx(expected, abs=1e-5)
    assert caplog.text.count("the ids are the numbers of the lines") == 1
    (folder / "vocab.txt").write_text("".join(f"{line}\n" for line in dict.fromkeys(lines)))
    assert albert_tf.load_predictor(str(folder)).tokenizer.encode("The river in x") == [6, 8, 9, 2]
