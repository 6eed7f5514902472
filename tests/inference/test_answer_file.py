"""`albert predict --output_file`, and the best run of a sweep as `--model_dir`."""

from __future__ import annotations

import csv
import json
import os
import shutil

import pytest

import albert_tf
from albert_tf.checkpoints import model_folder
from albert_tf.finetuning import sweep
from albert_tf.finetuning.result import RunResult
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.inference import answer_file
from tests.inference.conftest import TEXTS

HEADER = ["id", "text", "label", "note"]
ROWS = [["7", TEXTS[0], "water", 'a "quoted" note'], ["8", TEXTS[1], "land", "two\nlines, a comma"]]


@pytest.fixture
def rows_file(tmp_path):
    path = tmp_path / "new.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows([HEADER, *ROWS])
    return path


def read(path):
    with open(path, encoding="utf-8", newline="") as stream:
        return list(csv.reader(stream))


def test_a_csv_has_the_columns_of_the_input_and_the_answers(predict, saved, rows_file, tmp_path):
    model, output = f"--model_dir={saved('classification')}", tmp_path / "new" / "answers.csv"
    flags = [model, f"--input_file={rows_file}", "--precision=float32"]
    assert predict(*flags, f"--output_file={output}") == []
    header, *rows = read(output)
    answers = ["predicted_label", "probabilities_water", "probabilities_land"]
    assert header == [*HEADER, *answers]
    assert [row[:4] for row in rows] == ROWS
    printed = predict(*flags)
    expected = [[x["label"], *map(str, x["probabilities"].values())] for x in printed]
    assert [row[4:] for row in rows] == expected
    assert [path.name for path in output.parent.iterdir()] == ["answers.csv"]


def test_inputs_without_names_and_given_texts_have_the_usual_ones(predict, saved, tmp_path):
    model, output = f"--model_dir={saved('classification')}", tmp_path / "answers.csv"
    lines = tmp_path / "texts.txt"
    lines.write_text("".join(f"{text}\n" for text in TEXTS[:2]))
    predict(model, f"--input_file={lines}", f"--output_file={output}")
    header, *rows = read(output)
    assert header == ["text", "label", "probabilities_water", "probabilities_land"]
    assert [row[0] for row in rows] == TEXTS[:2]
    predict(model, "--text=The sea", "--text_b=A lake", f"--output_file={output}")
    header, row = read(output)
    assert (
        dict(zip(header, row, strict=True)).items()
        >= {"text": "The sea", "text_b": "A lake"}.items()
    )


def test_json_lines_keep_lists_which_are_json_in_csv(predict, saved, tmp_path):
    model = f"--model_dir={saved('token_classification')}"
    for name in ("answers.jsonl", "answers.csv"):
        predict(model, "--text=The river", f"--output_file={tmp_path / name}")
    row = json.loads((tmp_path / "answers.jsonl").read_text(encoding="utf-8"))
    cells = dict(zip(*read(tmp_path / "answers.csv"), strict=True))
    lists = {name for name, value in row.items() if isinstance(value, list)}
    assert lists
    for name in lists:
        assert json.loads(cells[name]) == row[name]


def test_a_file_that_is_not_complete_does_not_appear(tmp_path):
    path = tmp_path / "answers.csv"
    path.write_text("of yesterday")

    def blocks():
        yield [({"text": "a"}, {"label": "x"})]
        raise ValueError("in the second block")

    with pytest.raises(ValueError, match="second block"):
        answer_file.write(str(path), blocks(), ["text"])
    assert path.read_text() == "of yesterday"
    assert [each.name for each in tmp_path.iterdir()] == ["answers.csv"]


def test_embeddings_have_a_file_of_their_own(predict, pretrained_dir, tmp_path):
    with pytest.raises(ValueError, match="embeddings are written to --embeddings_file"):
        predict(f"--model_dir={pretrained_dir}", "--text=a", f"--output_file={tmp_path}/a.csv")


# The folder of a sweep.


def write_sweep(folder, models, home="elsewhere"):
    """The runs of a sweep in a folder that was moved from `home`; the last one is the best."""
    results = []
    for number, model in enumerate(models):
        shutil.copytree(model, folder / f"lr1e-05_seed{number}")
        settings = FineTuningSettings(
            output_dir=f"{home}/lr1e-05_seed{number}", learning_rate=1e-5, do_eval=True
        )
        results.append(RunResult(settings, 1, {"eval_accuracy": number / 4}))
    sweep.write_comparison(str(folder), results, "eval_accuracy")


@pytest.mark.parametrize("home", ["elsewhere", "/of/another/machine", "C:\\runs"])
def test_the_folder_of_a_sweep_opens_its_best_run(predict, saved, tmp_path, home):
    write_sweep(tmp_path / "sweep", [saved("regression"), saved("classification")], home)
    best = tmp_path / "sweep" / "lr1e-05_seed1"
    found = model_folder.ModelPath(str(tmp_path / "sweep"))
    assert found.checkpoint.startswith(str(best))
    assert found.folder.path == str(best)
    flags = ["--text=The river", "--precision=float32"]
    expected = predict(f"--model_dir={saved('classification')}", *flags)
    assert predict(f"--model_dir={tmp_path}/sweep", *flags) == expected
    if home == "elsewhere":
        model, _ = albert_tf.from_pretrained(str(tmp_path / "sweep"))
        assert model.labels == ["water", "land"]


@pytest.mark.parametrize(
    ("last", "said"),
    [
        ("best: ../../secret/..", r"names '\.\.': expected a file in the folder"),
        ("   5e-05          0          -", "names no best run: pass the folder of a run"),
        ("", "names no best run"),
        ("best: gone", "gone: this folder contains no checkpoint"),
    ],
)
def test_a_sweep_without_a_best_run_says_so(saved, tmp_path, last, said):
    write_sweep(tmp_path / "sweep", [saved("classification")])
    (tmp_path / "sweep" / "sweep_results.txt").write_text(f"learning_rate\n{last}\n")
    with pytest.raises((ValueError, OSError), match=said):
        _ = model_folder.ModelPath(str(tmp_path / "sweep")).checkpoint


def test_a_folder_with_a_checkpoint_is_no_sweep(saved, tmp_path):
    shutil.copytree(saved("classification"), tmp_path / "run")
    (tmp_path / "run" / "sweep_results.txt").write_text("best: other\n")
    found = model_folder.ModelPath(str(tmp_path / "run"))
    assert os.path.dirname(found.checkpoint) == str(tmp_path / "run")
