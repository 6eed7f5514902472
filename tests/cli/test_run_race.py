"""What run_race.py alone does; `test_programs.py` has what all programs do."""

from __future__ import annotations

import json
import re

import pytest

from albert_tf.checkpoints.run_folder import RunFolder
from tests.cli.fine_tuning_programs import CHOICES, PASSAGE
from tests.script_runner import tensors

pytestmark = pytest.mark.ci


def test_the_accuracy_is_that_of_both_levels_together(race):
    for block in (race.out / "eval_results.txt").read_text().split("=" * 50 + "\n")[:-1]:
        values = dict(re.findall(r"(\w+) = (\S+)\n", block))
        high, middle = float(values["eval_accuracy_high"]), float(values["eval_accuracy_middle"])
        assert float(values["eval_accuracy"]) == pytest.approx((5 * high + 5 * middle) / 10)
    best = tensors(race.out / "model.ckpt-best")
    assert best["output_weights"].shape == best["output_weights/adam_m"].shape == (1, 12)


def test_questions_of_the_test_split_are_answered_and_evaluated(race):
    finished = race.out
    lines = (finished / "race_predictions.jsonl").read_text().splitlines()
    answers = [json.loads(line) for line in lines]
    assert [answer["id"] for answer in answers] == ["middle0.txt"] * 3 + ["high0.txt"] * 3
    assert [answer["question"] for answer in answers][:3] == [text for text, *_ in CHOICES]
    right = [answer["answer"] == "ABC"[i % 3] for i, answer in enumerate(answers)]
    text = (finished / "predict_results.txt").read_text()
    assert text.startswith("***** Predict results *****\neval_accuracy = ")
    values = dict(re.findall(r"(\w+) = (\S+)\n", text))
    assert float(values["eval_accuracy"]) == pytest.approx(sum(right) / 6)
    assert list(values)[-1] == "best"


def test_a_model_can_be_evaluated_and_used_without_training(race, tmp_path):
    race.run(
        *(f"--output_dir={tmp_path}", f"--init_checkpoint={race.out}/model.ckpt-best"),
        *("--do_train=False", "--do_predict", "--middle_only"),
    )
    text = (tmp_path / "eval_results.txt").read_text()
    assert "eval_accuracy_middle" in text
    assert "eval_accuracy_high" not in text
    assert len((tmp_path / "race_predictions.jsonl").read_text().splitlines()) == 3
    assert not list(tmp_path.glob("*.index"))


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_custom_questions_have_two_or_more_options(race, tmp_path):
    def rows(count):
        return [
            {
                "id": f"q{number}",
                "passage": PASSAGE,
                "question": "Where does it go?",
                "options": ["sea", "town", "rain", "boat", "winter"][: 2 + number % 4],
                "label": number % 2,
            }
            for number in range(count)
        ]

    data = tmp_path / "data"
    data.mkdir()
    write_lines(data / "train.jsonl", rows(11))
    write_lines(data / "dev.jsonl", rows(5))
    unanswered = [{key: row[key] for key in row if key != "label"} for row in rows(3)]
    write_lines(data / "test.jsonl", unanswered)
    race.run(
        "--task_name=choice",
        f"--data_dir={data}",
        f"--output_dir={tmp_path}/out",
        "--do_predict",
        "--num_train_epochs=2",
        "--save_checkpoints_steps=3",
        "--official_order",
    )
    assert list(RunFolder(f"{tmp_path}/out").checkpoints()) == [0, 3, 4]  # int(11 / 5 · 2)
    lines = (tmp_path / "out" / "choice_predictions.jsonl").read_text().splitlines()
    assert [len(json.loads(line)["probabilities"]) for line in lines] == [2, 3, 4]
    assert all(sum(json.loads(line)["probabilities"]) == pytest.approx(1) for line in lines)
    assert not (tmp_path / "out" / "predict_results.txt").exists()
