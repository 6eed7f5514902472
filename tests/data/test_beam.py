"""The Beam pipeline writes the same records as the local program."""

from __future__ import annotations

import collections
import dataclasses
import importlib.util
import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from albert_tf.data import beam, corpus
from albert_tf.data.beam import COUNTS, _encode, _finish, _jobs, _pieces, _write_group
from albert_tf.data.create import create_pretraining_data
from albert_tf.data.records import Outputs, exclude_metadata, read_records
from albert_tf.data.settings import MEGABYTE, Settings
from albert_tf.data.sources import find_sources
from tests.conftest import ROOT, TOY_TEXT

SETTINGS = Settings(
    input_file="none",
    output_file="none",
    max_seq_length=37,
    dupe_factor=3,
    max_predictions_per_seq=7,
    chunk_megabytes=5000 / MEGABYTE,
    num_workers=1,
    show_progress=False,
)
IN_MEMORY = {
    "runner": "DirectRunner",
    "beam_pipeline_options": ("direct_num_workers=1", "direct_running_mode=in_memory"),
}
# One of two processes encodes each chunk and writes each output.
OPTIONS = ["direct_num_workers=2", "direct_running_mode=multi_processing"]


@pytest.fixture(scope="module")
def corpus_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    rng = random.Random(5)
    lines = TOY_TEXT.splitlines()
    documents = ["\n".join(rng.choices(lines, k=rng.randint(1, 9))) for _ in range(60)]
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return str(path)


@pytest.fixture
def make(tmp_path, corpus_file, toy_spm_model):
    """Runs the local program, or the given one."""

    def run(output, create=create_pretraining_data, **changes):
        settings = dataclasses.replace(
            SETTINGS,
            input_file=corpus_file,
            output_file=str(tmp_path / output),
            spm_model_file=toy_spm_model,
        )
        return create(dataclasses.replace(settings, **changes))

    return run


def needs_beam():
    if not importlib.util.find_spec("apache_beam"):
        pytest.skip("apache_beam is not installed")


def by_hand(settings):
    """Runs the steps of the pipeline without Beam, with all elements in a different order."""
    outputs = Outputs.parse(settings.output_file, settings.compression)
    text = settings.chunk_bytes, settings.input_format
    sources = find_sources([settings.input_file])
    jobs = [job for share in range(3) for job in _jobs(share, 3, sources, *text)]
    assert len(jobs) > 3
    groups = collections.defaultdict(list)
    for job in reversed(jobs):
        for chunk in corpus.read_job(job, *text):
            for key, value in _encode(chunk, settings, len(outputs.paths)):
                groups[key].insert(0, value)
    written = [_write_group(group, outputs, settings.random_seed)[1] for group in groups.items()]
    _finish(written[::-1], outputs, settings.random_seed, {})
    return json.loads(Path(outputs.metadata_file).read_text("utf-8"))


@pytest.mark.parametrize("changes", [{}, {"compression": "gzip"}])
def test_the_steps_write_the_same_bytes_as_the_local_program(tmp_path, make, changes):
    expected = make("local/train@3", **changes)
    (tmp_path / "beam").mkdir()
    made = make("beam/train@3", by_hand, **changes)
    assert made == {name: expected[name] for name in ("text_checksum", "counts", "files")}
    for entry in made["files"]:
        assert entry["name"] in contents(tmp_path / "beam")
    found = contents(tmp_path / "beam")
    del found["train.records.json"]
    for name, content in found.items():
        assert content == (tmp_path / "local" / name).read_bytes(), name


def test_outputs_without_records_are_written_too(tmp_path):
    outputs = Outputs.parse(str(tmp_path / "train@2"))
    entry = {"name": "train-00001-of-00002", "instances": 1, "bytes": 5}
    counts = collections.Counter(instances=1), {(0, 0): "0a"}
    _finish([(COUNTS, counts), (1, entry)], outputs, 5, {"settings": {}, "vocabulary": {}})
    assert (tmp_path / "train-00000-of-00002").read_bytes() == b""
    metadata = json.loads((tmp_path / "train.records.json").read_text("utf-8"))
    assert metadata["files"] == [
        {"name": "train-00000-of-00002", "instances": 0, "bytes": 0},
        entry,
    ]


def test_text_without_instances_writes_nothing(tmp_path):
    outputs = Outputs.parse(str(tmp_path / "train@2"))
    with pytest.raises(ValueError, match="--input_file: no text in these files"):
        _finish([(COUNTS, (collections.Counter(documents=1), {(0, 0): "0a"}))], outputs, 5, {})
    assert not list(tmp_path.iterdir())


def test_splitting_a_batch_by_output_loses_nothing():
    chunk = beam.corpus.Chunk((7, 11), (), 0)
    slots = beam.np.array([1365 * 2, 3, 1365, 1, 4094])
    batch = beam.EncodedBatch([b"a", b"b", b"c", b"d", b"e"], slots, {})
    assert list(_pieces(chunk, 4, batch, 3)) == [
        (0, ((7, 11), 4, [3, 1], [b"b", b"d"])),
        (1, ((7, 11), 4, [1365], [b"c"])),
        (2, ((7, 11), 4, [2730, 4094], [b"a", b"e"])),
    ]


def test_without_beam_the_error_names_the_extra(make, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(ValueError, match=r"--runner requires Apache Beam: .*\[beam\]"):
        make("beam/train", beam.create_pretraining_data)


def contents(folder):
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def records_of(folder):
    paths = exclude_metadata(map(str, folder.iterdir()))
    return sorted(record for path in paths for record in read_records(path))


def test_the_local_runner_creates_the_same_instances(tmp_path, make):
    needs_beam()
    expected = make("local/train@3")
    program = beam.create_pretraining_data
    assert make("beam/train@3", program, **IN_MEMORY) == expected
    assert records_of(tmp_path / "beam") == records_of(tmp_path / "local")
    # Already complete: nothing is recreated.
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "beam").iterdir()}
    assert make("beam/train@3", program, resume=True, **IN_MEMORY) == expected
    assert before == {path.name: path.stat().st_mtime_ns for path in (tmp_path / "beam").iterdir()}


def test_several_processes_create_the_same_instances(tmp_path, make, corpus_file, toy_spm_model):
    needs_beam()
    make("local/train@3")
    command = [
        *(sys.executable, str(ROOT / "create_pretraining_data.py")),
        *(f"--input_file={corpus_file}", f"--output_file={tmp_path}/beam/train@3"),
        *(f"--spm_model_file={toy_spm_model}", "--max_seq_length=37", "--dupe_factor=3"),
        *("--max_predictions_per_seq=7", f"--chunk_megabytes={5000 / (1 << 20)}"),
        *("--num_logged_instances=0", "--runner=DirectRunner"),
        f"--beam_pipeline_options={','.join(OPTIONS)}",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert records_of(tmp_path / "beam") == records_of(tmp_path / "local")
    metadata = [
        json.loads((tmp_path / folder / "train.records.json").read_text("utf-8"))
        for folder in ("beam", "local")
    ]
    assert metadata[0] == metadata[1]


@pytest.fixture
def dask_cluster(tmp_path):
    """A scheduler and two worker processes of Dask; yields the scheduler file and the workers."""
    needs_beam()
    if not importlib.util.find_spec("distributed"):
        pytest.skip("dask is not installed: pip install 'albert-tf2[dask]' in a new environment")
    address = tmp_path / "scheduler.json"
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host=127.0.0.1"]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--nthreads=1", "--no-nanny"]
    options = [f"--scheduler-file={address}", "--no-dashboard"]
    processes = []
    try:
        with open(tmp_path / "dask.log", "wb") as log:
            for start in ([*command, "--port=0"], worker, worker):
                processes.append(
                    subprocess.Popen([*start, *options], cwd=tmp_path, stdout=log, stderr=log)
                )
        yield address, processes[1:]
    finally:
        for process in processes[::-1]:
            process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_dask_cluster_writes_the_same_bytes_also_if_a_worker_is_killed(
    tmp_path, make, corpus_file, toy_spm_model, dask_cluster
):
    address, workers = dask_cluster
    make("local/train@40")
    expected = contents(tmp_path / "local")
    command = [
        *(sys.executable, str(ROOT / "create_pretraining_data.py")),
        *(f"--input_file={corpus_file}", f"--spm_model_file={toy_spm_model}"),
        *("--max_seq_length=37", "--dupe_factor=3", "--max_predictions_per_seq=7"),
        *(f"--chunk_megabytes={5000 / (1 << 20)}", "--num_logged_instances=0"),
        *("--runner=DaskRunner", f"--beam_pipeline_options=dask_scheduler_file={address}"),
    ]
    for name, is_killed in {"all": False, "killed": True}.items():
        folder = tmp_path / name
        process = subprocess.Popen(
            [*command, f"--output_file={folder}/train@40"], stderr=subprocess.PIPE, text=True
        )
        while is_killed and len(list(folder.glob("train-*-of-00040"))) < 3:
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.01)
        if is_killed:
            assert not (folder / "train.records.json").exists()
            workers[0].kill()
        _, log = process.communicate(timeout=240)
        assert process.returncode == 0, log
        assert contents(folder) == expected
    assert [worker.poll() for worker in workers] == [-9, None]


def test_an_unknown_runner_is_an_error(tmp_path, make):
    needs_beam()
    for name in ("NoRunner", "no_such_module.Runner", "apache_beam.NoRunner"):
        with pytest.raises(ValueError, match=rf"--runner={name}: expected a runner of Apache Beam"):
            make("beam/train", beam.create_pretraining_data, runner=name)
    assert not (tmp_path / "beam").exists()


def test_text_that_cannot_be_read_fails_the_pipeline_and_names_the_line(tmp_path, make):
    needs_beam()
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"a sentence\n\nin Latin-1: \xe9\n")
    with pytest.raises((ValueError, RuntimeError), match=r"bad\.txt, line 3: not UTF-8"):
        make("beam/train", beam.create_pretraining_data, input_file=str(bad), **IN_MEMORY)
    assert not (tmp_path / "beam" / "train").exists()


def test_text_without_tokens_leaves_earlier_outputs_alone(tmp_path, make):
    needs_beam()
    make("beam/train@2")
    before = contents(tmp_path / "beam")
    blank = tmp_path / "blank.txt"
    blank.write_text("\n\n \n", encoding="utf-8")
    with pytest.raises((ValueError, RuntimeError), match="--input_file: no text in these files"):
        make("beam/train@2", beam.create_pretraining_data, input_file=str(blank), **IN_MEMORY)
    assert contents(tmp_path / "beam") == before
