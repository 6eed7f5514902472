"""A run that is refused anyway does not read and tokenize its data before."""

import dataclasses

import numpy as np
import pytest

from albert_tf.checkpoints import run_record
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import FileRecord
from albert_tf.checkpoints.store import save_checkpoint
from albert_tf.finetuning.run import open_source
from albert_tf.finetuning.token_classification import Settings, run
from albert_tf.training.admission import make_record


@pytest.fixture(name="run_again")
def fixture_run_again(tmp_path, config_file, toy_spm_model):
    """Returns a function that starts a run again, whose data have been deleted."""
    values = {
        "albert_config_file": str(config_file),
        "data_dir": str(tmp_path),
        "do_eval": False,
        "do_train": True,
        "max_seq_length": 12,
        "output_dir": str(tmp_path / "out"),
        "spm_model_file": str(toy_spm_model),
    }
    settings = Settings(**values).completed()
    known = run_record.of_tokenizer(open_source(settings).unchecked_tokenizer, str(toy_spm_model))
    record = make_record(settings, open_source(settings).config, "float32", known)
    other = {run_record.VOCABULARY: FileRecord("5 entries, sha256 1", "spm.model")}

    def run_again(other_vocabulary=False, **changes):
        folder = RunFolder(values["output_dir"])
        (tmp_path / "out").mkdir(exist_ok=True)
        save_checkpoint(folder.file("model.ckpt-5"), {"global_step": np.int64(5)})
        files = {**record.files, **(other if other_vocabulary else {})}
        folder.write_record(dataclasses.replace(record, files=files))
        run(Settings(**values | changes))

    return run_again


@pytest.mark.parametrize(
    ("other_vocabulary", "changes", "said"),
    [
        (False, {"learning_rate": 0.5, "seed": 9}, r"learning_rate: .* → 0\.5\n  seed: "),
        (True, {}, r"vocabulary: 5 entries, sha256 1 .* → \d+ entries"),
    ],
)
def test_a_changed_run_is_refused_before_its_data_are_read(
    run_again, other_vocabulary, changes, said
):
    with pytest.raises(ValueError, match=rf"(?s)out contains a run with other settings:.*{said}"):
        run_again(other_vocabulary, **changes)


def test_what_is_allowed_or_the_same_is_read(run_again, caplog):
    for changes in ({}, {"learning_rate": 0.5, "allow_changed_settings": True}):
        with pytest.raises(FileNotFoundError, match="no train data"):
            run_again(**changes)
    assert not caplog.messages
