"""run_token_classification.py as a user runs it, on sentences about a river and a town."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import token_classification
from albert_tf.checkpoints import store
from albert_tf.cli import programs
from albert_tf.cli.flags import parse
from albert_tf.finetuning.sweeps import TABLE_FILE
from albert_tf.token_classification import task
from albert_tf.tokenization import FullTokenizer
from tests.conftest import TOY_TEXT
from tests.script_runner import killed_at, logged_rates, tensors

PLACES = {"river": "LOC", "landing": "LOC", "sea": "LOC", "boat": "OBJ"}
ALL = ["--do_train", "--do_eval", "--do_predict"]
TO_STEP_5 = ["--train_step=5", "--save_checkpoints_steps=2", "--keep_checkpoint_max=0"]


def conll(has_labels=True):
    """Writes the toy text in columns; words after "the" or "a" are labeled if in the table."""
    lines = []
    for sentence in TOY_TEXT.splitlines():
        for word in sentence.replace(",", " ,").replace(".", " .").split():
            label = f"B-{PLACES[word]}" if word in PLACES else "O"
            lines.append(f"{word} {label}" if has_labels else word)
        lines.append("")
    return "\n".join(lines)


@pytest.fixture(scope="module", name="run")
def with_model(tmp_path_factory, config_file, toy_spm_model):
    data = tmp_path_factory.mktemp("conll")
    for split in ("train", "dev"):
        (data / f"{split}.txt").write_text(conll())
    (data / "test.conll").write_text(conll(has_labels=False))

    def run(*arguments):
        always = [
            *(f"--data_dir={data}", f"--albert_config_file={config_file}"),
            *(f"--spm_model_file={toy_spm_model}", "--max_seq_length=17", "--train_batch_size=5"),
            *("--learning_rate=0.01", "--log_steps=2", "--noplots", "--precision=float32"),
        ]
        settings = parse(token_classification.Settings, [*always, *arguments])
        return programs.run("run-token-classification", settings)

    return run


@pytest.fixture(scope="module", name="finished")
def run_through(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("through")
    run(f"--output_dir={folder}", *ALL, *TO_STEP_5, "--plots")
    return folder


def contents(folder):
    times = {"run.json", "runs.jsonl"}  # these say when and how it was run
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "tfevents" not in path.name and path.name not in times
    }


def columns(path):
    return [line.split("\t") for line in path.read_text().splitlines() if line]


def test_the_learning_rate_depends_on_the_finished_steps(finished):
    assert logged_rates(finished) == pytest.approx({2: 0.008, 4: 0.004, 5: 0.002})


def test_every_checkpoint_is_evaluated_and_the_best_is_kept(finished):
    text = (finished / "eval_results.txt").read_text()
    assert re.findall(r"global_step = (\d+)", text) == ["0", "2", "4", "5"]
    assert "f1_LOC = " in text
    values = [float(value) for value in re.findall(r"\nf1 = (\S+)", text)]
    best = tensors(finished / "model.ckpt-best")["global_step"]
    # Of equally good checkpoints, the last one is kept.
    assert best == max(zip(values, (0, 2, 4, 5), strict=True))[1]


def test_predictions_of_all_tokens_are_written_in_columns(finished):
    rows = columns(finished / "dev_predictions.tsv")
    expected = [line.split() for line in conll().splitlines() if line]
    assert [row[:2] for row in rows] == expected
    assert {row[2] for row in rows} <= {"B-LOC", "B-OBJ", "O"}
    assert (finished / "dev_predictions.tsv").read_text().count("\n\n") == 6
    # They are those of the best checkpoint.
    hits = np.mean([row[1] == row[2] for row in rows])
    accuracies = re.findall(r"accuracy = (\S+)", (finished / "eval_results.txt").read_text())
    assert any(hits == pytest.approx(float(value)) for value in accuracies)
    assert columns(finished / "test_predictions.tsv") == [[row[0], row[2]] for row in rows]
    assert not (finished / "predict_results.txt").exists()


def test_the_curve_is_drawn_without_a_confusion_matrix(finished):
    assert [path.name for path in finished.glob("*.png")] == ["training_curve.png"]


@pytest.mark.slow  # tests/finetuning/test_run.py has it in the default tier
def test_a_killed_run_resumes_bit_for_bit(finished, run, tmp_path):
    arguments = [f"--output_dir={tmp_path}", *ALL, *TO_STEP_5]
    with killed_at(4):
        run(*arguments)
    assert list(store.list_checkpoints(str(tmp_path))) == [0, 2]
    run(*arguments)
    ours, theirs = contents(tmp_path), contents(finished)
    for name in theirs:
        if not name.endswith((".png", ".jsonl")):
            same = ours[name].replace(str(tmp_path).encode(), str(finished).encode())
            assert same == theirs[name], name
    before = contents(tmp_path)
    run(*arguments)
    assert contents(tmp_path) == before


def test_the_exported_model_predicts_like_the_best_checkpoint(finished, run, tmp_path):
    run(f"--output_dir={finished}", f"--export_dir={tmp_path}")
    (path,) = tmp_path.iterdir()
    assert (path / "assets.extra" / "labels.txt").read_text() == "B-LOC\nB-OBJ\nO\n"
    tokenizer = FullTokenizer(spm_model_file=str(path / "assets.extra" / "toy.model"))
    settings = token_classification.Settings(data_dir=str(tmp_path), output_dir="none")
    (tmp_path / "test.txt").write_text(conll())
    data = task.read_sentences(settings, "test")
    labels = ("B-LOC", "B-OBJ", "O")
    windows = task.make_features(data, labels, tokenizer, 17)
    batch = windows.batch(np.arange(len(windows)), 17)
    del batch["label_ids"]
    signatures = tf.saved_model.load(str(path)).signatures
    served = signatures["tensors"](**{name: tf.constant(x) for name, x in batch.items()})
    found = [labels[number] for number in windows.at_tokens(served["predictions"].numpy())]
    assert found == [row[2] for row in columns(finished / "dev_predictions.tsv")]
    assert served["probabilities"].shape == (len(windows), 17, 3)
    words = tf.ragged.constant([sentence.tokens for sentence in data.examples])
    by_words = signatures["words"](words=words.to_tensor(""))
    assert [label.decode() for label in by_words["labels"].numpy().ravel() if label] == found
    expected = windows.at_tokens(served["probabilities"].numpy())
    is_word = by_words["labels"].numpy() != b""
    np.testing.assert_allclose(by_words["probabilities"].numpy()[is_word], expected, atol=1e-6)
    texts = tf.strings.reduce_join(words, axis=1, separator=" ")
    by_texts = signatures["texts"](texts=texts)
    for name in ("labels", "scores", "probabilities"):
        np.testing.assert_array_equal(by_texts[name], by_words[name], name)
    begin, end = by_texts["begins"][0, 1].numpy(), by_texts["ends"][0, 1].numpy()
    assert texts[0].numpy()[begin:end].decode() == data.examples[0].tokens[1]


@pytest.mark.slow  # tests/finetuning/test_run.py has it in the default tier
def test_a_sweep_has_a_row_for_each_run_and_runs_stop_early(run, tmp_path):
    phases = ["--do_train", "--do_eval", "--train_step=9", "--save_checkpoints_steps=1"]
    sweep = ["--num_runs=2", "--seed=7", "--learning_rate=0", "--early_stopping_patience=1"]
    run(f"--output_dir={tmp_path}", *phases, *sweep)
    header, *rows = columns(tmp_path / TABLE_FILE)
    assert "f1" in header
    assert [row[header.index("seed")] for row in rows] == ["7", "8"]
    for seed in (7, 8):
        folder = tmp_path / f"lr0_seed{seed}"
        assert list(store.list_checkpoints(str(folder)))[-1] == 2
        assert (folder / "dev_predictions.tsv").is_file()
