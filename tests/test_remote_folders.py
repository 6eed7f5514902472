"""Tests every program with folders in an object store on this machine.

The same files appear as on a local disk, with the same content, also after an interruption.
"""

from __future__ import annotations

import pathlib
import re

import pytest

import albert_tf
from albert_tf import (
    data,
    files,
    pretraining,
)
from albert_tf.cli import convert_checkpoint, plot_results, programs, train_vocabulary
from albert_tf.cli.flags import parse
from tests.cli.fine_tuning_programs import (
    ANSWERABLE,
    CHOICES,
    PASSAGE,
    conll,
    write_article,
    write_cola,
    write_squad,
)
from tests.conftest import MAX_PREDICTIONS, SEQ_LENGTH, TOY_TEXT
from tests.object_stores import SERVERS
from tests.script_runner import interrupted, killed_at
from tests.training.test_loop import write_records

pytestmark = pytest.mark.slow

# Files that contain times, speeds, or digests of paths and of times.
NOT_COMPARED = re.compile(
    r"(.*/)?(run\.json|(runs|metrics|evaluations)\.jsonl|EVENTS|"
    r".*\.(npz|png|pb|safetensors))"
)
ALL = ["--do_train", "--do_eval", "--do_predict"]


@pytest.fixture(scope="module", name="scheme", params=["s3"])
def store(request):
    """The scheme of an object store that is running."""
    if request.param == "file":  # without a server
        yield request.param
        return
    with SERVERS[request.param]():
        yield request.param


def root_of(folder):
    """Returns the scheme and the bucket of a folder."""
    return "/".join(folder.split("/")[:3])


ANY_STORE = pytest.mark.parametrize("scheme", ["file", "s3", "gs"], indirect=True)


@pytest.fixture(name="folders")
def make_folders(tmp_path, scheme):
    """Returns a folder with a local path, and one whose path has a scheme."""
    bucket = "" if scheme == "file" else "bucket"
    return str(tmp_path / "local"), f"{scheme}://{bucket}{tmp_path}/remote"


def contents(folder):
    """Returns relative name → content without paths, for all files of a folder."""
    root = root_of(folder) if "://" in folder else ""
    found = {}
    with files.local_copy(folder) as copied:
        for path in sorted(path for path in pathlib.Path(copied).rglob("*") if path.is_file()):
            name = re.sub(r"\b1\d{9}\b", "TIME", str(path.relative_to(copied)))
            name = re.sub(r"events\..*", "EVENTS", name)
            content = path.read_bytes().replace(root.encode(), b"")
            found[name] = content.replace(folder.removeprefix(root).encode(), b"HERE")
    return {name: content for name, content in found.items() if not name.endswith(".lock")}


def assert_same_files(folders, *expected):
    """Compares the contents of the two folders, which must include the names in `expected`."""
    in_local, in_remote = map(contents, folders)
    assert list(in_local) == list(in_remote)
    compared = [name for name in in_local if not NOT_COMPARED.fullmatch(name)]
    assert [name for name in compared if in_local[name] != in_remote[name]] == []
    assert set(expected) <= set(in_local)


def place(path, folder):
    """Returns a path in the file system of `folder`, to which the files are copied."""
    if "://" not in folder:
        return str(path)
    root, path = root_of(folder), pathlib.Path(path)
    for source in [path] if path.is_file() else path.rglob("*"):
        is_input = source.is_file() and not {"local", "work"} & set(source.parts)
        if is_input and root != "file://":
            files.copy(str(source), f"{root}{source}")
    return f"{root}{path}"


@pytest.fixture(name="fine_tune")
def with_model(config_file, toy_spm_model):
    """Returns a function that fine-tunes into a folder; a run in a remote one is interrupted."""

    def fine_tune(name, folder, *flags):
        always = [
            *(f"--albert_config_file={place(config_file, folder)}", f"--output_dir={folder}/out"),
            *(f"--spm_model_file={place(toy_spm_model, folder)}", "--precision=float32"),
            *("--train_step=4", "--warmup_step=1", "--save_checkpoints_steps=2"),
            *("--train_batch_size=3", "--learning_rate=0.01", "--log_steps=2"),
        ]
        program = programs.PROGRAMS[name].load()
        settings = parse(program.Settings, [*always, *flags])
        if "://" in folder:
            with interrupted():
                program.run(settings, hooks=[killed_at(4)])
        result = program.run(settings)
        plot_results.plot_result(settings, result)
        return result.metrics

    return fine_tune


@ANY_STORE
def test_text_becomes_a_vocabulary_and_records(tmp_path, folders):
    (tmp_path / "text.txt").write_text(TOY_TEXT * 20)
    for folder in folders:
        text = f"--input_file={place(tmp_path, folder)}/*.txt"
        vocabulary = [text, f"--output_prefix={folder}/vocabulary/toy", "--vocab_size=80"]
        train_vocabulary.run(parse(train_vocabulary.Settings, vocabulary))
        records = [
            *(text, f"--output_file={folder}/records/train@2", f"--work_dir={tmp_path}/work"),
            *(f"--spm_model_file={folder}/vocabulary/toy.model", "--max_seq_length=16"),
            *("--num_workers=1", "--dupe_factor=2"),
        ]
        data.run(parse(data.Settings, records))
        again = data.run(parse(data.Settings, [*records, "--resume"]))
        assert again.metadata["counts"]["instances"] > 0
    assert_same_files(folders, "vocabulary/toy.model", "records/train-00001-of-00002")


@ANY_STORE
def test_pretraining(tmp_path, folders, config_file):
    write_records(tmp_path / "train.tfrecord", 23)
    losses = []
    for folder in folders:
        flags = [
            *(f"--input_file={tmp_path}/*.tfrecord", f"--output_dir={folder}/out"),
            *(f"--albert_config_file={place(config_file, folder)}", "--do_eval"),
            *(f"--max_seq_length={SEQ_LENGTH}", f"--max_predictions_per_seq={MAX_PREDICTIONS}"),
            *("--train_batch_size=5", "--num_train_steps=6", "--num_warmup_steps=1"),
            *("--save_checkpoints_steps=2", "--keep_checkpoint_max=2", "--precision=float32"),
        ]
        settings = parse(pretraining.Settings, flags)
        if "://" in folder:
            with interrupted():
                pretraining.run(settings, hooks=[killed_at(4)])
        losses.append(pretraining.run(settings).evaluations[-1].metrics["loss"])
    assert losses[0] == losses[1]
    assert_same_files(folders, "out/model.ckpt-6.index", "out/eval_results.txt", "out/checkpoint")


def test_classification_with_an_export(tmp_path, folders, fine_tune):
    write_cola(tmp_path)
    metrics = [
        fine_tune(
            *("run-classifier", folder, *ALL, "--task_name=cola"),
            *(f"--data_dir={place(tmp_path, folder)}", f"--export_dir={folder}/export"),
            *("--max_seq_length=23", "--noplots"),
        )
        for folder in folders
    ]
    assert metrics[0] == metrics[1]
    names = ("out/model.ckpt-best.index", "out/test_results.tsv", "export/TIME/saved_model.pb")
    assert_same_files(folders, *names)


def test_a_sweep_with_plots(tmp_path, folders, fine_tune):
    write_cola(tmp_path)
    _, folder = folders
    fine_tune(
        *("run-classifier", folder, "--do_train", "--do_eval", "--plots"),
        *("--task_name=cola", f"--data_dir={place(tmp_path, folder)}", "--max_seq_length=23"),
        *("--learning_rate=0.01,0.02", "--log_steps=1"),
    )
    found = contents(folder)
    assert "out/sweep_results.tsv" in found
    for rate in (0.01, 0.02):
        run = f"out/lr{rate}_seed12345"
        assert {f"{run}/model.ckpt-4.index", f"{run}/training_curve.png"} <= found.keys()


def test_question_answering(tmp_path, folders, fine_tune):
    questions = write_squad(tmp_path / "v1.json", ANSWERABLE)
    metrics = [
        fine_tune(
            *("run-squad", folder, "--do_train", "--do_predict", "--num_train_epochs=0"),
            *(f"--{split}_file={place(questions, folder)}" for split in ("train", "predict")),
            *("--max_seq_length=53", "--max_query_length=17", "--num_workers=1", "--noplots"),
        )
        for folder in folders
    ]
    assert metrics[0] == metrics[1]
    assert_same_files(folders, "out/predictions.json", "out/eval_results.txt")


def test_multiple_choice(tmp_path, folders, fine_tune):
    for split in ("train", "dev", "test"):
        write_article(tmp_path / "RACE" / split / "high", "1", PASSAGE, CHOICES)
    metrics = [
        fine_tune(
            *("run-race", folder, *ALL, f"--data_dir={place(tmp_path, folder)}"),
            *("--max_seq_length=53", "--max_qa_length=17", "--noplots"),
        )
        for folder in folders
    ]
    assert metrics[0] == metrics[1]
    assert_same_files(folders, "out/model.ckpt-best.index", "out/race_predictions.jsonl")


def test_token_classification(tmp_path, folders, fine_tune):
    for split in ("train", "dev", "test"):
        (tmp_path / f"{split}.txt").write_text(conll())
    metrics = [
        fine_tune(
            *("run-token-classification", folder, *ALL),
            *(f"--data_dir={place(tmp_path, folder)}", "--max_seq_length=17", "--noplots"),
        )
        for folder in folders
    ]
    assert metrics[0] == metrics[1]
    assert_same_files(folders, "out/model.ckpt-best.index", "out/test_predictions.tsv")


def test_conversion_and_opening(tmp_path, folders, config_file, toy_spm_model):
    config = albert_tf.AlbertConfig.from_json_file(str(config_file))
    albert_tf.AlbertForPretraining(config).save_weights(str(tmp_path / "source" / "model"))
    for folder in folders:
        source = place(tmp_path / "source", folder)
        flags = [f"--albert_config_file={place(config_file, folder)}"]
        for form in ("tensorflow", "huggingface", "tf_hub"):
            flags += [f"--spm_model_file={place(toy_spm_model, folder)}", f"--input={source}"]
            flags += [f"--output={folder}/{form}", f"--output_format={form}"]
            assert convert_checkpoint.convert(parse(convert_checkpoint.Settings, flags))
            source, flags = f"{folder}/{form}", []
        _, tokenizer = albert_tf.from_pretrained(f"{folder}/huggingface")
        assert tokenizer.vocab_size == 82
    assert_same_files(folders, "huggingface/model.safetensors", "tf_hub/saved_model.pb")
