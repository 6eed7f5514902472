"""Sentence objectives: the registry, and runs from text to a loaded model, also of one's own."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

from albert_tf import from_pretrained
from albert_tf.data.create import create_pretraining_data
from albert_tf.data.settings import Settings
from albert_tf.model.objectives import NONE, NSP, OBJECTIVES, SentenceObjective, register
from tests.conftest import ROOT, TOY_TEXT

# Of three classes, as in StructBERT, in a script that a user would write.
SCRIPT = """
import sys
from albert_tf.cli.programs import main
from albert_tf.model.objectives import SentenceObjective, register


def make_pair(a, b, rng, random_segment):
    if b is None or rng.random() < 1 / 3:
        return a, random_segment(), 2
    return (b, a, 1) if rng.random() < 0.5 else (a, b, 0)


CLASSES = ("in order", "swapped", "from another document")
THREE = register(SentenceObjective("sentence_structure", "sop3", CLASSES, make_pair))

if __name__ == "__main__":
    main(sys.argv.pop(1))
"""


@pytest.fixture(name="sop3")
def register_three_classes():
    """Registers the objective of `SCRIPT`, and forgets it at the end."""
    names: dict = {"__name__": "script"}
    exec(SCRIPT, names)
    yield names["THREE"]
    del OBJECTIVES["sop3"]


@pytest.fixture(scope="module", name="text_file")
def write_text(tmp_path_factory):
    """Documents of 1 to 6 sentences."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    lines = TOY_TEXT.splitlines()
    path.write_text("\n\n".join("\n".join(lines[i % 6 :]) for i in range(30)) + "\n")
    return path


@pytest.fixture(name="make_records")
def make_record_maker(tmp_path, text_file, toy_spm_model):
    """A function that creates records of a sentence objective, and returns their path."""

    def make(objective):
        settings = Settings(
            input_file=str(text_file),
            output_file=f"{tmp_path}/{objective}.tfrecord",
            spm_model_file=toy_spm_model,
            sentence_objective=objective,
            max_seq_length=61,
            dupe_factor=1,
            num_workers=1,
        )
        create_pretraining_data(settings)
        return settings.output_file

    return make


@pytest.mark.parametrize(
    ("name", "abbreviation", "said"),
    [
        ("sentence_order", "mine", "'sentence_order': the name is taken"),
        ("mine", "nsp", "'nsp': the name is taken; those in use are .*none, nsp, sentence_"),
    ],
)
def test_a_name_of_another_objective_is_refused(name, abbreviation, said):
    before = dict(OBJECTIVES)
    with pytest.raises(ValueError, match=said):
        register(SentenceObjective(name, abbreviation, ("no", "yes"), lambda *_: None))
    assert before == OBJECTIVES


@pytest.mark.slow
@pytest.mark.parametrize("objective", [NSP, NONE, "sop3"])
def test_an_objective_goes_from_text_in_the_shell_to_a_loaded_model(
    tmp_path, text_file, toy_spm_model, config_file, sop3, objective
):
    (tmp_path / "own_objective.py").write_text(SCRIPT)

    def run(*arguments):
        done = subprocess.run(
            [sys.executable, "own_objective.py", *arguments, "--max_seq_length=37"],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT), "PATH": ""},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(
        *("create-pretraining-data", f"--input_file={text_file}", "--output_file=records@2"),
        *(f"--sentence_objective={objective}", f"--spm_model_file={toy_spm_model}"),
        *("--dupe_factor=2", "--num_workers=2", "--chunk_megabytes=0.001"),
    )
    metrics = run(  # the records say which objective
        *("run-pretraining", f"--albert_config_file={config_file}", "--input_file=records-*"),
        *("--output_dir=out", "--train_batch_size=8", "--num_train_steps=2", "--do_eval"),
        *("--num_warmup_steps=1", "--noplots"),
    )
    found = OBJECTIVES[objective]
    names = {found.loss_name, found.accuracy_name} if found.has_head else set()
    found_names = set(re.findall(r"^(\w+) = ", metrics, re.MULTILINE))
    assert found_names - {"global_step", "loss"} == {"masked_lm_loss", "masked_lm_accuracy"} | names
    model, _ = from_pretrained(f"{tmp_path}/out", "pretraining", spm_model_file=toy_spm_model)
    assert type(model).from_config(model.get_config()).sentence_objective == objective
    shapes = {name: x.shape for name, x in model(np.full((3, 5), 7, np.int32)).items()}
    del shapes["masked_lm_logits"]
    assert shapes == ({found.logits_name: (3, found.num_classes)} if names else {})
