"""Files, and every program, in object stores: servers on this machine, reached over HTTP.

The programs leave the same files as on a local disk, with the same content, also after a kill.
"""

from __future__ import annotations

import contextlib
import glob
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import fsspec
import pytest

from albert_tf import data, files, pretraining, squad
from albert_tf.cli import programs, train_vocabulary
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
from tests.conftest import MAX_PREDICTIONS, SEQ_LENGTH, TOY_TEXT, free_ports
from tests.script_runner import interrupted, killed_at
from tests.training.test_loop import write_records

pytestmark = pytest.mark.slow

# Files that contain times, speeds, or digests of paths and of times.
NOT_COMPARED = re.compile(
    r"(.*/)?(run\.json|(runs|metrics|evaluations)\.jsonl|EVENTS|.*\.(npz|png|pb|safetensors))"
)
S3 = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ENDPOINT_URL": "{}",
}
GS = {"STORAGE_EMULATOR_HOST": "{}", "GOOGLE_CLOUD_PROJECT": "test"}
GS_CODE = (
    "import sys; from gcp_storage_emulator.server import create_server; "
    "create_server('127.0.0.1', int(sys.argv[1]), in_memory=True, default_bucket='bucket').run()"
)
# The emulator has no gRPC, by which gcsfs asks for the kind of a bucket; read when it is imported.
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
S3_AND_GS = pytest.mark.parametrize("scheme", ["s3", "gs"], indirect=True)


@contextlib.contextmanager
def server(environment, *command):
    """Runs a server, whose last argument is its port, with variables that lead fsspec to it."""
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    with (
        subprocess.Popen(
            [sys.executable, *command, str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONWARNINGS": "ignore"},
        ) as process,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in environment.items():
            patch.setenv(name, value.format(url))
        try:
            until = time.monotonic() + 60
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                assert process.poll() is None, "the server has ended"
                assert time.monotonic() < until
                time.sleep(0.1)
            yield
        finally:
            process.kill()


@pytest.fixture(scope="module", params=["s3"])
def scheme(request):
    """The scheme of an object store that is running."""
    if request.param == "s3":
        with s3_server():
            yield "s3"
    else:
        with gs_server():
            yield "gs"


@contextlib.contextmanager
def s3_server():
    """An S3 server with the bucket `s3://bucket`."""
    for package in ("s3fs", "moto", "flask", "flask_cors"):
        pytest.importorskip(package)
    with server(S3, "-m", "moto.server", "-H", "127.0.0.1", "-p"):
        fsspec.get_filesystem_class("s3").clear_instance_cache()  # of an earlier server
        fsspec.filesystem("s3").mkdir("bucket")
        yield


@contextlib.contextmanager
def gs_server():
    """A GCS server with the bucket `gs://bucket`."""
    for package in ("gcsfs", "gcp_storage_emulator"):
        pytest.importorskip(package)
    with server(GS, "-c", GS_CODE):
        fsspec.get_filesystem_class("gs").clear_instance_cache()
        yield


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
def test_text_becomes_a_vocabulary_and_records(tmp_path, folders):
    (tmp_path / "text.txt").write_text(TOY_TEXT * 20)
    for folder in folders:
        text = f"--input_file={place(tmp_path, folder)}/*.txt"
        vocabulary = [text, f"--output_prefix={folder}/vocabulary/toy", "--vocab_size=80"]
        train_vocabulary.run(parse(train_vocabulary.Settings, vocabulary))
        records = [
            *(
                text,
                f"--output_file={folder}/records/train@2",
                f"--work_dir={tmp_path}/work/{len(folder)}",
            ),
            *(f"--spm_model_file={folder}/vocabulary/toy.model", "--max_seq_length=16"),
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
            *(f"--max_seq_length={SEQ_LENGTH}", f"--max_predictions_per_seq={MAX_PREDICTIONS}"),
            *("--train_batch_size=5", "--num_train_steps=6", "--num_warmup_steps=1"),
            *("--save_checkpoints_steps=2", "--keep_checkpoint_max=2", "--precision=float32"),
        ]
        losses.append(run_program(pretraining, folder, flags).evaluations[-1].metrics["loss"])
    assert losses[0] == losses[1]
    assert_same_files(folders, "out/model.ckpt-6.index", "out/eval_results.txt", "out/checkpoint")


def write_race(folder):
    for split in ("train", "dev", "test"):
        write_article(folder / "RACE" / split / "high", "1", PASSAGE, CHOICES)


def write_conll(folder):
    for split in ("train", "dev", "test"):
        (folder / f"{split}.txt").write_text(conll())


@pytest.mark.parametrize(
    ("name", "prepare", "flags", "result"),
    [
        ("run-classifier", write_cola, ["--task_name=cola"], "test_results.tsv"),
        ("run-race", write_race, ["--max_qa_length=17"], "race_predictions.jsonl"),
        ("run-token-classification", write_conll, [], "test_predictions.tsv"),
    ],
)
def test_fine_tuning(tmp_path, folders, config_file, toy_spm_model, name, prepare, flags, result):
    prepare(tmp_path)
    metrics = []
    for folder in folders:
        always = [
            *(f"--albert_config_file={place(config_file, folder)}", f"--output_dir={folder}/out"),
            *(f"--spm_model_file={place(toy_spm_model, folder)}", "--precision=float32"),
            *("--train_step=4", "--warmup_step=1", "--save_checkpoints_steps=2"),
            *("--train_batch_size=3", "--learning_rate=0.01", "--max_seq_length=53", "--noplots"),
            *("--do_train", "--do_eval", "--do_predict", f"--export_dir={folder}/export"),
            *(f"--data_dir={place(tmp_path, folder)}", *flags),
        ]
        metrics.append(run_program(programs.PROGRAMS[name].load(), folder, always).metrics)
    assert metrics[0] == metrics[1]
    names = ("out/model.ckpt-best.index", "export/TIME/saved_model.pb")
    assert_same_files(folders, f"out/{result}", *names)


def test_question_answering(tmp_path, folders, config_file, toy_spm_model):
    write_squad(tmp_path / "v1.json", ANSWERABLE)
    for folder in folders:
        questions = place(tmp_path / "v1.json", folder)
        always = [
            *(f"--albert_config_file={place(config_file, folder)}", f"--output_dir={folder}/out"),
            *(f"--spm_model_file={place(toy_spm_model, folder)}", "--precision=float32"),
            *(f"--train_file={questions}", f"--predict_file={questions}", "--do_train"),
            *("--do_predict", "--num_train_epochs=0", "--train_step=4", "--warmup_step=1"),
            *("--train_batch_size=3", "--save_checkpoints_steps=2", "--noplots"),
            *("--max_seq_length=53", "--max_query_length=17", "--num_workers=1"),
        ]
        run_program(squad, folder, always)
    assert_same_files(folders, "out/predictions.json", "out/eval_results.txt")
