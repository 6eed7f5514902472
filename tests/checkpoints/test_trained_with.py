"""`trained_with.json`: what the checkpoints of a folder were trained with."""

from __future__ import annotations

import json

import pytest

from albert_tf.checkpoints import trained_with
from albert_tf.checkpoints.trained_with import TrainedWith
from albert_tf.tokenization import FullTokenizer

KNOWN = TrainedWith(
    {"seed": "7", "vocabulary": "97 entries, sha256 0a"}, {"vocabulary": "/a/b"}, {"log_steps": "9"}
)


def test_written_values_are_read_back_and_other_folders_have_none(tmp_path):
    assert trained_with.read(str(tmp_path)) is None
    trained_with.write(str(tmp_path), KNOWN)
    assert trained_with.read(str(tmp_path)) == KNOWN


def test_settings_of_earlier_versions_are_read_under_current_names(tmp_path):
    earlier = TrainedWith({"seed": "7"}, {}, {"recompute": "True", "pictures": "None"})
    trained_with.write(str(tmp_path), earlier)
    found = trained_with.read(str(tmp_path))
    assert found is not None
    assert found.others == {"gradient_checkpointing": "True", "plots": "None"}


@pytest.mark.parametrize(
    "content", ["{", "[]", "{}", '{"identity": {"seed": 7}, "paths": {}, "others": {}}']
)
def test_a_damaged_file_is_reported(tmp_path, content):
    (tmp_path / "trained_with.json").write_text(content)
    with pytest.raises(ValueError, match=r"trained_with\.json: "):
        trained_with.read(str(tmp_path))


def test_a_part_of_it_keeps_its_paths():
    assert KNOWN.only({"seed"}) == TrainedWith({"seed": "7"})
    assert KNOWN.only({"vocabulary", "other"}) == TrainedWith(
        {"vocabulary": "97 entries, sha256 0a"}, {"vocabulary": "/a/b"}
    )
    assert KNOWN.show("seed") == "7"
    assert KNOWN.show("vocabulary") == "97 entries, sha256 0a (/a/b)"


def test_a_vocabulary_is_identified_by_its_content(tmp_path, monkeypatch):
    path, copy = tmp_path / "vocab.txt", tmp_path / "copy.txt"
    path.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nsea\n")
    copy.write_bytes(path.read_bytes())
    monkeypatch.chdir(tmp_path)
    found = trained_with.of_tokenizer(FullTokenizer(str(path)), str(path))
    same = trained_with.of_tokenizer(FullTokenizer(str(copy)), "copy.txt")
    assert found.identity == same.identity
    assert found.identity["vocabulary"].startswith("6 entries, sha256 ")
    assert same.paths == {"vocabulary": str(copy)}
    copy.write_bytes(path.read_bytes().replace(b"sea", b"sky"))
    other = trained_with.of_tokenizer(FullTokenizer("copy.txt", do_lower_case=False), "copy.txt")
    assert not other.is_same(found, "vocabulary")
    assert not other.is_same(found, "do_lower_case")


@pytest.mark.parametrize("labels", [("可", "no"), ("no", "可", "?"), ("no",), ()])
def test_labels_are_compared_in_number_and_order(tmp_path, labels):
    folder = str(tmp_path)
    trained_with.check_labels(folder, labels)
    trained_with.write(folder, KNOWN)  # of a model without labels
    trained_with.check_labels(folder, labels)
    trained_with.write(folder, KNOWN.with_labels(("no", "可")))
    trained_with.check_labels(folder, ("no", "可"))
    with pytest.raises(
        ValueError, match=r"but the model was trained with \[\"no\", \"可\"\]"
    ) as error:
        trained_with.check_labels(folder, labels)
    listed = json.dumps(labels, ensure_ascii=False)
    assert f"task.json lists the labels {listed}, but" in str(error.value)
