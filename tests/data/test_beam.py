"""The Beam pipeline writes the same records as the local program."""

from __future__ import annotations

import collections
import importlib.util
import json
from pathlib import Path

import pytest

from albert_tf.data.beam import (
    COUNTS,
    Counts,
    _among_empty_packs,
    _encode,
    _finish,
    _read,
    _write_group,
    create_pretraining_data,
)
from albert_tf.data.chunks import pack_files
from albert_tf.data.create import RecordOutputs
from albert_tf.data.sources import TextSource, find_sources
from tests.conftest import TOY_TEXT
from tests.data.conftest import all_records, contents, write

needs_beam = pytest.mark.skipif(
    importlib.util.find_spec("apache_beam") is None, reason="apache_beam is not installed"
)
IN_MEMORY = {
    "create": create_pretraining_data,
    "runner": "DirectRunner",
    "beam_pipeline_options": ("direct_num_workers=1", "direct_running_mode=in_memory"),
}


def by_hand(settings):
    """Runs the steps of the pipeline without Beam, with all elements in a different order."""
    outputs = RecordOutputs.parse(settings.output_file)
    text = settings.chunk_bytes, settings.input_format
    packs = pack_files(find_sources(settings.input_file.split(",")), *text)
    packs = _among_empty_packs(packs, settings.chunk_bytes)
    groups = collections.defaultdict(list)
    for pack in reversed(packs):
        for chunk in _read(pack, *text):
            for key, value in _encode(chunk, settings, len(outputs.paths)):
                groups[key].insert(0, value)
    written = [_write_group(group, outputs, settings.random_seed)[1] for group in groups.items()]
    _finish(written[::-1], outputs, settings.random_seed, {})
    return json.loads(Path(outputs.metadata_file).read_text("utf-8"))


def test_the_steps_write_the_same_bytes_as_the_local_program(tmp_path, make, corpus_file):
    inputs = [corpus_file, write(tmp_path / "small.txt", TOY_TEXT)]
    expected = make("local/train@3", inputs=inputs)
    (tmp_path / "beam").mkdir()
    made = make("beam/train@3", inputs=inputs, create=by_hand)
    assert made == {name: expected[name] for name in ("text_checksum", "counts", "files")}
    found, local = contents(tmp_path / "beam"), contents(tmp_path / "local")
    assert found.keys() == local.keys()
    assert all(found[entry["name"]] == local[entry["name"]] for entry in made["files"])


@pytest.mark.parametrize(
    ("files", "chunks", "elements"),
    [(1, 1, 1), (1, 17, 17), (3, 17, 51), (5000, 1, 5000), (2, 3000, 4096), (0, 0, 0)],
)
def test_files_are_spread_over_as_many_elements_as_there_are_chunks(files, chunks, elements):
    packs = [(TextSource(number, "text", 700 * chunks),) for number in range(files)]
    found = _among_empty_packs(packs, 700)
    assert [pack for pack in found if pack] == packs
    assert len(found) == elements
    half = elements // 2
    filled = [sum(map(bool, part)) for part in (found[:half], found[half:])]
    assert abs(filled[0] - filled[1]) <= 1


def test_outputs_without_records_are_written_too(tmp_path):
    outputs = RecordOutputs.parse(str(tmp_path / "train@2"))
    entry = {"name": "train-00001-of-00002", "instances": 1, "bytes": 5}
    counts = Counts(collections.Counter(instances=1), {(0, 0): "0a"})
    _finish([(COUNTS, counts), (1, entry)], outputs, 5, {"settings": {}, "vocabulary": {}})
    assert (tmp_path / "train-00000-of-00002").read_bytes() == b""
    metadata = json.loads((tmp_path / "train.records.json").read_text("utf-8"))
    empty = {"name": "train-00000-of-00002", "instances": 0, "bytes": 0}
    assert metadata["files"] == [empty, entry]


def test_text_without_instances_writes_nothing(tmp_path):
    outputs = RecordOutputs.parse(str(tmp_path / "train@2"))
    counts = Counts(collections.Counter(documents=1), {(0, 0): "0a"})
    with pytest.raises(ValueError, match="--input_file: no text in these files"):
        _finish([(COUNTS, counts)], outputs, 5, {})
    assert not list(tmp_path.iterdir())


@needs_beam
def test_the_local_runner_creates_the_same_instances_once(tmp_path, make):
    expected = make("local/train@3")
    assert make("beam/train@3", **IN_MEMORY) == expected
    assert sorted(all_records(tmp_path / "beam")) == sorted(all_records(tmp_path / "local"))
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "beam").iterdir()}
    assert make("beam/train@3", resume=True, **IN_MEMORY) == expected
    assert before == {path.name: path.stat().st_mtime_ns for path in (tmp_path / "beam").iterdir()}


@needs_beam
@pytest.mark.parametrize("name", ["NoRunner", "no_such_module.Runner"])
def test_an_unknown_runner_is_refused(tmp_path, make, name):
    with pytest.raises(ValueError, match=rf"--runner={name}: expected a runner of Apache Beam"):
        make("beam/train", **IN_MEMORY | {"runner": name})
    assert not (tmp_path / "beam").exists()
