"""Tests that releases are recognized by the checksums of their tensors."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from albert_tf.checkpoints import loading, releases
from albert_tf.checkpoints.releases import ReleaseReport, checksum, known_releases
from albert_tf.checkpoints.store import save_checkpoint
from albert_tf.cli import check_release, convert_checkpoint
from albert_tf.config import AlbertConfig
from albert_tf.modeling import AlbertEncoder
from tests.checkpoints.checkpoint_samples import ALBERT_ZH, GOOGLE, as_hugging_face, random_weights
from tests.conftest import ROOT
from tests.test_configs import count_parameters

RELEASED = ROOT.parent / "shared" / "released"
POLYNOMIAL = 0x82F63B78  # CRC-32C, reflected
NEW_VALUES = {"cls/new_head/output_bias": np.zeros(2, np.float32)}


def crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (POLYNOMIAL if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = crc_table()


def with_checksum(values, masked):
    """Returns an array with the last four bytes chosen to produce a given checksum.

    The state of the CRC after these bytes is known, and each step of the CRC is invertible.
    """
    rotated = (masked - 0xA282EAD8) & 0xFFFFFFFF
    after = (rotated >> 17 | rotated << 15) & 0xFFFFFFFF ^ 0xFFFFFFFF
    data = values.astype(np.float32).tobytes()
    before = 0xFFFFFFFF
    for byte in data[:-4]:
        before = before >> 8 ^ TABLE[(before ^ byte) & 255]
    steps = []
    for _ in range(4):
        index = next(number for number in range(256) if TABLE[number] >> 24 == after >> 24)
        after = (after ^ TABLE[index]) << 8 & 0xFFFFFFFF
        steps.insert(0, index)
    last = bytearray()
    for index in steps:
        last.append((before ^ index) & 255)
        before = before >> 8 ^ TABLE[index]
    return np.frombuffer(data[:-4] + bytes(last), np.float32).reshape(values.shape)


@pytest.fixture(name="known")
def make_known(monkeypatch):
    """Two releases, one of each family, and their weights."""
    weights = {name: random_weights(config) for name, config in SHAPES.items()}
    table = tuple(
        releases.Release(name, f"ALBERT {name}", {key: checksum(value) for key, value in w.items()})
        for name, w in weights.items()
    )
    monkeypatch.setattr(releases, "table", lambda: table)
    return weights


SHAPES: dict[str, AlbertConfig] = {"google": GOOGLE, "albert_zh": ALBERT_ZH}


def saved(folder, weights):
    prefix = str(folder / "model.ckpt-best")
    save_checkpoint(prefix, weights)
    return prefix


def identify(path):
    return releases.identify(path, loading.read_weights(path))


def test_the_table_has_nine_releases_without_optimizer_slots():
    assert len(known_releases()) == 9
    for release in known_releases():
        assert len(release.tensors) in (25, 31, 32)
        assert all(name.startswith(("bert/", "cls/")) for name in release.tensors)
        assert not [name for name in release.tensors if name.endswith(("adam_m", "adam_v"))]


@pytest.mark.skipif(not RELEASED.exists(), reason="the released variables are not here")
def test_the_table_has_the_checksums_of_the_released_index_files():
    for release in known_releases():
        folders = (RELEASED / name for name in (release.name, *release.aliases))
        (folder,) = (folder for folder in folders if folder.exists())
        text = (folder / "variables.txt").read_text()
        rows = dict(line.split(" [")[::1] for line in text.splitlines() if " [" in line)
        for name, crc in release.tensors.items():
            assert rows[name].endswith(f"crc32c(masked) {crc:#010x}"), name


def test_every_name_is_that_of_one_release():
    rows = releases.downloadable()
    names = [name for row in rows for name in (row.name, *row.aliases)]
    assert len(names) == len(set(names))
    assert [releases.named(name) for row in rows for name in (row.name, *row.aliases)] == [
        row for row in rows for _ in (row.name, *row.aliases)
    ]
    assert len({row.url for row in rows}) == len(rows) == 18 + 12
    assert releases.named("albert_tiny_brightmart") is None  # it has no archive


@pytest.mark.parametrize("row", releases.downloadable(), ids=lambda row: row.name)
def test_the_rows_of_the_table_are_those_of_the_configs(row):
    assert row.url.startswith(("https://storage.googleapis.com/albert_", "https://tfhub.dev/"))
    assert row.config or "albert_zh" in row.url
    if row.config:
        config = AlbertConfig.from_json_file(row.config)
        assert row.parameters == count_parameters(config)[0]
        assert row.vocabulary == {30000: "SentencePiece", 21128: "WordPiece"}[config.vocab_size]


def test_the_page_of_the_models_has_the_rows_of_the_table():
    text = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| `albert download (\w+)` .*?\| ([\d,]{7,}) \|", text, re.MULTILINE)
    rows = [row for row in releases.downloadable() if "tfhub" not in row.url]
    found = {releases.named(name).name: count for name, count in shown}
    assert found == {row.name: f"{row.parameters:,}" for row in rows}
    checked = text.split("They are known for")[1].split("\n-")[0]
    names = re.findall(r"`(\w+)`", checked)
    assert [releases.named(name) for name in names] == [row for row in rows if row.tensors]


@pytest.mark.parametrize("name", SHAPES)
def test_a_release_is_recognized(known, tmp_path, name):
    moments = {f"{key}/adam_m": np.zeros_like(value) for key, value in known[name].items()}
    step = {"global_step": np.int64(125000)}
    report = identify(saved(tmp_path, known[name] | moments | step))
    assert report.is_release
    assert report.release is not None
    assert report.release.name == name
    assert f"ALBERT {name}, {name}; all {len(known[name])} tensors match the release" in str(report)


def test_a_release_is_named_where_its_encoder_is_loaded(known, tmp_path, caplog):
    def logged(weights, folder):
        caplog.clear()
        folder.mkdir()
        with caplog.at_level("INFO", "absl"):
            loading.load_checkpoint(AlbertEncoder(GOOGLE), saved(folder, weights))
        return caplog.text

    release = "They are those of ALBERT google, google"
    weights = {name: value for name, value in known["google"].items() if name.startswith("bert/")}
    assert release in logged(known["google"], tmp_path / "all")
    assert release in logged(weights, tmp_path / "encoder")
    weights["bert/pooler/dense/bias"] = weights["bert/pooler/dense/bias"] + 1
    assert release not in logged(weights, tmp_path / "altered")


def test_a_release_is_named_where_it_is_inspected(known, tmp_path, capsys):
    saved(tmp_path, known["google"])
    GOOGLE.to_json_file(str(tmp_path / "albert_config.json"))
    convert_checkpoint.convert(convert_checkpoint.Settings(str(tmp_path), inspect=True))
    assert capsys.readouterr().out.endswith("  all weights are those of ALBERT google, google\n")


def test_the_command_reports_a_release(known, tmp_path):
    saved(tmp_path, known["google"])
    report = check_release.run(check_release.Settings(input=str(tmp_path)))
    assert report.endswith(
        f"ALBERT google, google; all {len(known['google'])} tensors match the release"
    )


def test_altered_missing_and_added_tensors_are_listed(known, tmp_path):
    weights = dict(known["google"])
    bias = weights["bert/pooler/dense/bias"]
    weights["bert/pooler/dense/bias"] = np.nextafter(bias, np.float32(9))  # in the last bit
    del weights["cls/seq_relationship/output_bias"]
    report = identify(saved(tmp_path, weights | NEW_VALUES))
    assert not report.is_release
    assert report.altered == ["bert/pooler/dense/bias"]
    assert report.missing == ["cls/seq_relationship/output_bias"]
    assert report.added == list(NEW_VALUES)
    lines = str(report).splitlines()
    assert f"{len(weights) - 1} of {len(known['google'])} tensors match ALBERT" in lines[0]
    assert "  altered bert/pooler/dense/bias" in lines


def test_another_model_is_not_a_release(known, tmp_path):
    weights = {name: value + 1 for name, value in known["google"].items()}
    report = identify(saved(tmp_path, weights))
    assert report.release is None
    assert not report.is_release
    assert "no tensor matches a known release" in str(report)


def test_a_release_is_recognized_in_the_hugging_face_format(known, tmp_path):
    from safetensors.numpy import save_file

    path = tmp_path / "model.safetensors"
    tensors = as_hugging_face(known["google"], GOOGLE)
    save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, path)
    report = identify(str(path))
    assert report.is_release, str(report)


def test_a_long_list_is_truncated():
    release = releases.Release("x", "X", {str(n): n for n in range(40)})
    names = [str(n) for n in range(39)]
    text = str(ReleaseReport("p", release, ["39"], names, [], []))
    assert "and 27 more altered" in text
    assert len(text.splitlines()) == 14


@pytest.mark.ci
def test_a_checkpoint_with_the_released_checksums_is_a_release(tmp_path):
    release = next(r for r in known_releases() if r.name == "albert_tiny_brightmart")
    config = AlbertConfig(
        vocab_size=21128,
        embedding_size=128,
        hidden_size=312,
        num_hidden_layers=4,
        num_attention_heads=12,
        intermediate_size=1248,
        layout="albert_zh",
    )
    weights = random_weights(config)
    forged = {name: with_checksum(weights[name], crc) for name, crc in release.tensors.items()}
    report = identify(saved(tmp_path, forged))
    assert report.is_release, str(report)
    assert "ALBERT tiny, Chinese (albert_zh), albert_tiny_brightmart" in str(report)


def test_a_config_that_is_not_that_of_the_release_is_named(caplog):
    release = next(row for row in releases.table() if row.name == "albert_tiny_zh_google")
    config = AlbertConfig.from_json_file("albert_tiny_zh")
    wrong = dataclasses.replace(config, num_hidden_layers=1)  # as in the archive
    for given in (config, None, wrong):  # None: of a model without a config
        assert not caplog.messages
        loading._warn_of_config(release, given)
    (message,) = caplog.messages
    assert "num_hidden_layers=1, but ALBERT tiny" in message
    assert message.endswith("has 4: pass --albert_config_file=albert_tiny_zh")
