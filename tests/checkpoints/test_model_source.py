"""What a folder, its record and what is given say of a model: letter case, vocabulary, record."""

from __future__ import annotations

import json

import pytest
from fsspec.implementations.local import LocalFileSystem

from albert_tf.checkpoints.model_folder import ModelPath
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.model.config import AlbertConfig

CONFIG = AlbertConfig(vocab_size=7, hidden_size=12, num_attention_heads=4)
TRUE, FALSE = {"do_lower_case": True}, {"do_lower_case": False}


def write_model(folder, record=None, beside=None, entries=7, name="best"):
    """A folder with an empty checkpoint, a config, a vocabulary, and what is known of them."""
    folder.mkdir(exist_ok=True)
    for suffix in (".index", ".data-00000-of-00001"):
        (folder / f"model.ckpt-{name}{suffix}").touch()
    CONFIG.to_json_file(str(folder / "albert_config.json"))
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef"]
    (folder / "vocab.txt").write_text("\n".join(words[:entries]))
    if record is not None:
        RunFolder(str(folder)).write_record(RunRecord(settings=record))
    if beside is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(beside))
    return str(folder)


def source_of(path, given=None):
    """Of a vocabulary of its own, which does not know the case, unlike a tokenizer."""
    return ModelSource.open(path, vocab_file=f"{path}/vocab.txt", do_lower_case=given)


@pytest.mark.parametrize(
    ("record", "beside", "expected"),
    [
        (None, None, True),
        ({}, {}, True),
        (TRUE, None, True),
        (FALSE, None, False),
        ({}, FALSE, False),
        (TRUE, FALSE, True),
        (FALSE, TRUE, False),
        ({"do_lower_case": None}, FALSE, False),
    ],
)
def test_case_is_that_of_the_record_or_else_that_beside_the_weights(
    tmp_path, caplog, record, beside, expected
):
    folder = write_model(tmp_path, record, beside)
    source = source_of(folder)
    assert source.do_lower_case == source.tokenizer.do_lower_case == expected
    assert not caplog.text
    is_known = bool((record and record["do_lower_case"] is not None) or beside)
    for given in (True, False):
        caplog.clear()
        source = source_of(folder, given)
        assert source.tokenizer.do_lower_case == given
        said = f"do_lower_case={given}, but {folder} says {expected}"
        assert caplog.messages == [said] * (is_known and given != expected)


@pytest.mark.parametrize(("record", "beside", "warns"), [(FALSE, None, False), (None, FALSE, True)])
def test_a_run_compares_the_recorded_case_itself(tmp_path, caplog, record, beside, warns):
    source = source_of(write_model(tmp_path, record, beside), given=True)
    assert source.unchecked_tokenizer.do_lower_case
    assert ("do_lower_case=True" in caplog.text) == warns


def test_a_run_that_goes_on_knows_the_case_and_random_weights_have_none(tmp_path):
    weights = write_model(tmp_path / "weights", TRUE)
    own = RunFolder(write_model(tmp_path / "run", FALSE, name="20"))
    vocabulary = {"vocab_file": f"{weights}/vocab.txt"}
    assert not ModelSource(ModelPath(weights), own, **vocabulary).do_lower_case
    assert ModelSource(ModelPath(weights), RunFolder(weights), **vocabulary).do_lower_case
    # Its record is that of a failed start.
    random = ModelSource(ModelPath(own.path), None, **vocabulary)
    assert random.do_lower_case
    (tmp_path / "run" / "run.json").unlink()
    (tmp_path / "run" / "tokenizer_config.json").write_text(json.dumps(FALSE))
    assert not ModelSource(ModelPath(weights), RunFolder(own.path), **vocabulary).do_lower_case


def test_weights_that_do_not_exist_are_reported_when_the_case_is_asked_for(tmp_path):
    folder = write_model(tmp_path)
    absent = ModelSource(ModelPath(f"{folder}/model.ckpt-7"), RunFolder(f"{folder}/none"))
    assert absent.config == CONFIG
    with pytest.raises(FileNotFoundError, match=r"ckpt-7: no such checkpoint"):
        _ = absent.do_lower_case
    recorded = write_model(tmp_path / "recorded", FALSE, name="3")
    with_record = ModelSource(ModelPath(f"{folder}/model.ckpt-7"), RunFolder(recorded))
    assert not with_record.do_lower_case


@pytest.mark.parametrize("entries", [6, 7, 8])
def test_a_vocabulary_has_at_most_the_entries_of_the_model(tmp_path, caplog, entries):
    source = source_of(write_model(tmp_path, entries=entries))
    if entries == 8:
        with pytest.raises(ValueError, match=r"8 entries, the model of .* has vocab_size=7: they"):
            _ = source.tokenizer
    else:
        assert source.tokenizer.vocab_size == entries
        assert ("make sure that they belong together" in caplog.text) == (entries == 6)
    assert source.unchecked_tokenizer.vocab_size == entries  # a run has its own message


def test_what_is_given_is_not_looked_for(tmp_path):
    folder = write_model(tmp_path / "model")
    other = write_model(tmp_path / "other")
    given = {"config_file": f"{other}/albert_config.json", "spm_model_file": f"{other}/x.model"}
    source = ModelSource.open(folder, **given)
    assert (source.config_file, source.vocabulary_file) == tuple(given.values())
    found = ModelSource.open(f"{folder}/model.ckpt-best.index")
    assert found.config_file == f"{folder}/albert_config.json"
    assert found.vocabulary == (f"{folder}/vocab.txt", None)
    assert found.run.path == found.folder == ModelPath(folder).folder.path == folder
    assert ModelSource.open(folder, "albert_base").config.hidden_size == 768


def test_a_folder_is_listed_once(tmp_path, monkeypatch):
    listed, listing = [], LocalFileSystem.ls

    def ls(system, path, **options):
        listed.append(path)
        return listing(system, path, **options)

    monkeypatch.setattr(LocalFileSystem, "ls", ls)
    folder = f"file://{write_model(tmp_path, TRUE)}"
    for path in (folder, f"{folder}/model.ckpt-best"):
        listed.clear()
        source = ModelSource.open(path)
        assert source.tokenizer.do_lower_case
        assert source.run.path == folder
        assert not source.is_of_sentence_transformers
        assert source.sentence_modules is None
        assert listed == [str(tmp_path)]
