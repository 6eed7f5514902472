"""What a run records of its task."""

import hashlib

import pytest

from albert_tf.finetuning.classification import Settings
from albert_tf.finetuning.classification.task import Classifier
from albert_tf.finetuning.classification.tasks import TASKS
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.fine_tune import describe_task
from albert_tf.finetuning.settings import FineTuningSettings
from tests.finetuning.test_run import WordTask


class OwnTask(WordTask):
    """A task whose examples are lists, or what a test gives it."""

    labels = ("no", "yes")
    checksum = WordTask.__mro__[1].checksum

    def details(self):
        return {"unit": "word"}


@pytest.fixture(name="describe")
def describe_with_vocabulary(tokenizer, tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes(tokenizer.vocabulary_files["vocab.txt"])

    def describe(task, train, name=""):
        settings = FineTuningSettings(output_dir="out", vocab_file=str(path))
        return describe_task(settings, tokenizer, task, train, name)

    return describe


def test_the_data_are_known_by_their_content_and_path_and_a_users_task_by_its_file(describe):
    task = OwnTask(None)
    record = describe(task, ["a", "b"])
    assert record.files["training examples"].path == ""
    content = hashlib.sha256(repr(["a", "b"]).encode()).hexdigest()
    assert content[:16] in record.files["training examples"].digest
    assert record.files["task module"].path == __file__
    assert record.task == {
        "name": "",
        "labels": ["no", "yes"],
        "selection_metric": "accuracy",
        "unit": "word",
    }
    data = Examples("/data/train.tsv", ["a", "b"])
    assert describe(task, data).files["training examples"].path == "/data/train.tsv"
    assert "training examples" not in describe(task, None).files
    with pytest.raises(TypeError, match=r"OwnTask\.read returns dict: expected a list, or an obj"):
        describe(task, {"a": "b"})


def test_a_task_of_the_package_has_no_file_and_its_own_name(describe):
    settings = Settings(task_name="rte", data_dir="none", output_dir="none")
    record = describe(Classifier(settings, None, None, (TASKS["rte"], {})), None, "spans")
    assert (record.task["name"], "task module" in record.files) == ("classification", False)
    with pytest.raises(ValueError, match="task='poems': expected one of"):
        describe(OwnTask(None), None, "poems")
