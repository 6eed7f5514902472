"""Files, and every program, in object stores: servers on this machine, reached over HTTP.

The programs leave the same files as on a local disk, with the same content, also after a kill.
"""

from __future__ import annotations

import glob
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import fsspec
import pytest

from albert_tf import classification, data, files, pretraining
from albert_tf.cli import programs
from albert_tf.cli.flags import parse
from albert_tf.data import train_vocabulary
from tests import object_store_servers
from tests.cli.fine_tuning_programs import write_answerable, write_cola, write_conll, write_race
from tests.conftest import TOY_TEXT
from tests.hub_files import LAYOUTS, class_label
from tests.pretraining_runs import LENGTHS, write_records
from tests.read_classes import read_data
from tests.script_runner import interrupted, killed_at

pytestmark = pytest.mark.slow

# Files that contain times, speeds, or digests of paths and of times.
NOT_COMPARED = re.compile(
    r"(.*/)?(run\.json|(runs|metrics|evaluations)\.jsonl|EVENTS|.*\.(npz|png|pb|safetensors|tflite))"
)
S3_AND_GS = pytest.mark.parametrize("scheme", object_store_servers.STORES, indirect=True)


@pytest.fixture(scope="module", params=["s3"])
def scheme(request):
    """The scheme of an object store that is running."""
    with object_store_servers.running(request.param):
        yield request.param


@pytest.fixture
def bucket(scheme, tmp_path):
    return f"{scheme}://bucket{tmp_path}"


def write(path, content):
    with files.write_atomically(path, "wb") as stream:
        stream.write(content)


@S3_AND_GS
def test_objects_behave_like_files(bucket, tmp_path):
    # aiohttp warns of larger blocks, which gcsfs sends.
    big = os.urandom(9 << 20 if bucket.startswith("s3") else 9 << 16)
    files.ensure_directory(f"{bucket}/a", "--output_dir")
    assert not files.exists(f"{bucket}/a")
    for name in ("a/b/x.txt", "a/[1].txt", "a/c.txt"):
        write(f"{bucket}/{name}", big)
    assert files.list_directory(f"{bucket}/a") == ["[1].txt", "b", "c.txt"]
    assert files.list_sizes(f"{bucket}/a") == {"[1].txt": len(big), "c.txt": len(big)}
    assert files.read_start(f"{bucket}/a/c.txt", 99) == big[:99]
    write(f"{bucket}/short.txt", b"short")
    assert files.read_start(f"{bucket}/short.txt", 99) == b"short"
    patterns = f"{bucket}/a/*.txt,{glob.escape(f'{bucket}/a/[1].txt')},{bucket}/a/b/x.txt"
    names = [f"{bucket}/a/{name}" for name in ("[1].txt", "c.txt", "b/x.txt")]
    assert files.expand_patterns(patterns, "--input_file") == names
    assert files.is_directory(f"{bucket}/a")
    assert files.file_size(names[0]) == len(big)
    with files.open_binary(names[0]) as stream:
        assert stream.read(5) == big[:5]
        stream.seek(-7, os.SEEK_END)
        assert stream.read() == big[-7:]
    files.rename(names[1], f"{bucket}/a/d.txt")
    files.copy(f"{bucket}/a/d.txt", f"{bucket}/a/e.txt")
    files.copy(f"{bucket}/a/e.txt", str(tmp_path / "local"))
    assert (tmp_path / "local").read_bytes() == big
    write(f"{bucket}/a/e.txt", b"new")
    assert files.read_bytes(f"{bucket}/a/e.txt") == b"new"
    files.remove(f"{bucket}/a/e.txt")
    assert files.list_directory(f"{bucket}/a") == ["[1].txt", "b", "d.txt"]
    files.remove_tree(f"{bucket}/a")
    assert not files.exists(f"{bucket}/a")


@S3_AND_GS
def test_a_missing_bucket_is_refused_by_its_name(scheme):
    with pytest.raises((ValueError, FileNotFoundError), match="none"):
        files.expand_patterns(f"{scheme}://none/*", "--x")
    with pytest.raises(FileNotFoundError, match=rf"^{scheme}://none/a: no such file"):
        files.open_binary(f"{scheme}://none/a")
    with pytest.raises(FileNotFoundError):
        write(f"{scheme}://none/a", b"")


def test_a_killed_upload_leaves_the_old_file(scheme, tmp_path):
    path = f"{scheme}://bucket/out"
    write(path, b"old")
    with open(tmp_path / "content", "wb") as stream:
        stream.truncate(250 << 20)  # several parts of 50 MB
    code = f"from albert_tf import files; files.copy({str(tmp_path / 'content')!r}, {path!r})"
    upload = subprocess.Popen([sys.executable, "-c", code])
    client = fsspec.filesystem(scheme)
    until = time.monotonic() + 60
    while "Uploads" not in client.call_s3("list_multipart_uploads", Bucket="bucket"):
        assert upload.poll() is None, "the upload was too fast"
        assert time.monotonic() < until
    upload.kill()
    assert upload.wait() == -signal.SIGKILL
    assert files.read_bytes(path) == b"old"


@pytest.fixture
def folders(tmp_path, bucket):
    """A folder on the disk, and one in the object store."""
    return str(tmp_path / "local"), f"{bucket}/remote"


def root_of(folder):
    """The scheme and the bucket of a folder; "" of a local one."""
    return "/".join(folder.split("/")[:3]) if "://" in folder else ""


def contents(folder):
    """Name → content without paths, for all files of a folder."""
    root, found = root_of(folder), {}
    with files.local_copy(folder) as copied:
        for path in sorted(path for path in pathlib.Path(copied).rglob("*") if path.is_file()):
            name = re.sub(r"\b1\d{9}\b", "TIME", str(path.relative_to(copied)))
            content = path.read_bytes().replace(root.encode(), b"")
            content = content.replace(folder.removeprefix(root).encode(), b"HERE")
            found[re.sub(r"events\..*", "EVENTS", name)] = content
    return {name: content for name, content in found.items() if not name.endswith(".lock")}


def assert_same_files(folders, *expected):
    """Compares the contents of the two folders, which must include the names in `expected`."""
    in_local, in_remote = map(contents, folders)
    assert list(in_local) == list(in_remote)
    compared = [name for name in in_local if not NOT_COMPARED.fullmatch(name)]
    assert [name for name in compared if in_local[name] != in_remote[name]] == []
    assert set(expected) <= set(in_local)


def place(path, folder):
    """A path in the file system of `folder`, to which the files are copied."""
    root, path = root_of(folder), pathlib.Path(path)
    for source in [path] if path.is_file() else path.rglob("*"):
        if root and source.is_file() and not {"local", "work"} & set(source.parts):
            files.copy(str(source), f"{root}{source}")
    return f"{root}{path}"


def run_program(module, folder, flags):
    """Runs a program; in an object store, after a run that was killed at step 4."""
    settings = parse(module.Settings, flags)
    if root_of(folder):
        with interrupted():
            module.run(settings, hooks=[killed_at(4)])
    return module.run(settings)


@S3_AND_GS
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_of_the_hub_is_read(tmp_path, bucket, layout):
    rows = [{"text": f"a boat {n}", "label": n % 3} for n in range(9)]
    (tmp_path / "hub").mkdir()
    LAYOUTS[layout](tmp_path / "hub", {"train": rows}, {"label": class_label("x", "y", "z")})
    place(tmp_path, bucket)
    read = []
    for folder in (str(tmp_path / "hub"), f"{bucket}/hub"):
        values = {"task_name": "tsv", "data_dir": folder, "output_dir": "out", "do_train": True}
        task, data = read_data(classification.Settings(**values))
        read.append((task.labels, data["train"].examples))
    assert read[0] == read[1]
    assert read[0][0] == ("x", "y", "z")


@S3_AND_GS
def test_text_becomes_a_vocabulary_and_records(tmp_path, folders):
    (tmp_path / "text.txt").write_text(TOY_TEXT * 20)
    for folder in folders:
        text = f"--input_file={place(tmp_path, folder)}/*.txt"
        vocabulary = [text, f"--output_prefix={folder}/vocabulary/toy", "--vocab_size=80"]
        train_vocabulary.run(parse(train_vocabulary.Settings, vocabulary))
        records = [
            *(text, f"--output_file={folder}/records/train@2", "--max_seq_length=16"),
            f"--work_dir={tmp_path}/work/{len(folder)}",
            f"--spm_model_file={folder}/vocabulary/toy.model",
            *("--num_workers=1", "--dupe_factor=2", "--resume"),
        ]
        assert data.run(parse(data.Settings, records)).metadata["counts"]["instances"] > 0
    assert_same_files(folders, "vocabulary/toy.model", "records/train-00001-of-00002")


@S3_AND_GS
def test_pretraining(tmp_path, folders, config_file):
    write_records(tmp_path / "train.tfrecord", 23)
    losses = []
    for folder in folders:
        flags = [
            *(f"--input_file={tmp_path}/*.tfrecord", f"--output_dir={folder}/out"),
            *(f"--albert_config_file={place(config_file, folder)}", "--do_eval"),
            *(*LENGTHS, "--train_batch_size=5", "--num_train_steps=6", "--num_warmup_steps=1"),
            *("--save_checkpoints_steps=2", "--keep_checkpoint_max=2", "--precision=float32"),
        ]
        losses.append(run_program(pretraining, folder, flags).evaluations[-1].metrics["loss"])
    assert losses[0] == losses[1]
    assert_same_files(folders, "out/model.ckpt-6.index", "out/eval_results.txt", "out/checkpoint")


SQUAD = "--train_file={}/v1.json --predict_file={}/v1.json --num_train_epochs=0 --num_workers=1"


@pytest.mark.parametrize(
    ("name", "prepare", "flags", "result", "export"),
    [
        ("run-classifier", write_cola, "--task_name=cola --data_dir={}", "test_results.tsv", ""),
        ("run-race", write_race, "--max_qa_length=17 --data_dir={}", "race_predictions.jsonl", ""),
        ("run-token-classification", write_conll, "--data_dir={}", "test_predictions.tsv", ""),
        (
            *("run-squad", write_answerable, f"--max_query_length=17 {SQUAD}"),
            *("predictions.json", "saved_model/"),
        ),
    ],
)
def test_fine_tuning(
    tmp_path, folders, config_file, toy_spm_model, name, prepare, flags, result, export
):
    prepare(tmp_path)
    metrics = []
    for folder in folders:
        always = [
            *(f"--albert_config_file={place(config_file, folder)}", f"--output_dir={folder}/out"),
            *(f"--spm_model_file={place(toy_spm_model, folder)}", "--precision=float32"),
            *("--train_step=4", "--warmup_step=1", "--save_checkpoints_steps=2"),
            *("--train_batch_size=3", "--learning_rate=0.01", "--max_seq_length=53", "--noplots"),
            *("--do_train", "--do_eval", "--do_predict", f"--export_dir={folder}/export"),
            *flags.replace("{}", place(tmp_path, folder)).split(),
        ]
        metrics.append(run_program(programs.PROGRAMS[name].load(), folder, always).metrics)
    assert metrics[0] == metrics[1]
    model = f"export/{export}TIME/saved_model.pb"
    best = "out/model.ckpt-best.index"
    assert_same_files(folders, f"out/{result}", "out/eval_results.txt", best, model)
