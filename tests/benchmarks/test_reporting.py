"""Tests of the tables that benchmarks write into docs/notebook/speed.md."""

import argparse

import bench_train_step
import pytest
import reporting

ROWS = [{"contender": "ours", "rate": 2345.6}, {"contender": "a | b", "rate": 12, "ratio": 0.52}]
TABLE = """\
| contender | rate | ratio |
| --- | --- | --- |
| ours | 2,346 |  |
| a \\| b | 12 | 0.520 |"""
BY_HAND = "# Speed\n\nMeasured by hand.\n\n| a |\n|---|\n| 1 |\n"


@pytest.fixture
def running(monkeypatch):
    """Returns a function that pretends that a benchmark runs with some flags."""

    def run(name, *flags):
        monkeypatch.setattr("sys.argv", [f"{reporting.ROOT}/benchmarks/{name}", *flags])

    return run


def test_a_table_has_the_columns_of_all_rows():
    assert reporting.to_markdown(ROWS) == TABLE


@pytest.mark.parametrize(
    ("value", "cell"),
    [(0.70312, "0.703"), (1.0, "1.00"), (2.4e-7, "2.40e-07"), (123.4, "123"), (98765.4, "98,765")],
)
def test_floats_have_three_digits(value, cell):
    assert reporting.to_markdown([{"x": value}]).splitlines()[-1] == f"| {cell} |"


def test_a_section_is_added_with_the_conditions_and_later_replaced(tmp_path, running):
    path = tmp_path / "RESULTS.md"
    path.write_text(BY_HAND)
    running("bench_serving.py", "--rounds=3", "--contenders=ours; theirs")
    reporting.write_table(str(path), ROWS, {"openvino": "2025.3"})
    first = path.read_text()
    assert first.startswith(f"{BY_HAND}\n## Latest run of `bench_serving.py`\n\n<!-- begin")
    assert "    python benchmarks/bench_serving.py --rounds=3 '--contenders=ours; theirs'" in first
    assert " cores of " in first
    assert f"Commit {reporting.conditions()['commit']}" in first
    assert "tensorflow 2.20" in first
    assert "openvino 2025.3" in first
    assert f"{TABLE}\n\n<!-- end bench_serving.py -->\n" in first

    path.write_text(
        first.replace("## Latest run of `bench_serving.py`", "## Serving") + "\nNote.\n"
    )
    running("bench_serving.py", "--rounds=9")
    reporting.write_table(str(path), ROWS[:1])
    second = path.read_text()
    assert second.startswith(f"{BY_HAND}\n## Serving\n\n<!-- begin")
    assert second.endswith("| ours | 2,346 |\n\n<!-- end bench_serving.py -->\n\nNote.\n")
    assert "--rounds=3" not in second
    assert "openvino" not in second


def test_the_sections_of_other_benchmarks_stay_as_they_are(tmp_path, running):
    path = tmp_path / "new.md"
    running("bench_a.py")
    reporting.write_table(str(path), ROWS)
    of_a = path.read_text()
    running("bench_b.py")
    reporting.write_table(str(path), ROWS)
    assert path.read_text().startswith(f"{of_a}\n## Latest run of `bench_b.py`\n")


def test_a_benchmark_may_have_several_tables(tmp_path, running):
    path = tmp_path / "RESULTS.md"
    running("bench_a.py")
    reporting.write_table(str(path), ROWS)
    reporting.write_table(f"{path}#float32", ROWS)
    both = path.read_text()
    assert "<!-- begin bench_a.py, float32 -->" in both
    reporting.write_table(f"{path}#float32", ROWS[:1])
    again = path.read_text()
    assert again.startswith(both.partition("<!-- begin bench_a.py, float32 -->")[0])
    assert again.count("a \\| b") == 1
    assert [file.name for file in tmp_path.iterdir()] == ["RESULTS.md"]


def test_nothing_is_written_without_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reporting.write_table("", ROWS)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "markers",
    [
        "<!-- begin b.py -->",
        "<!-- end b.py -->\n<!-- begin b.py -->",
        2 * "<!-- begin b.py --><!-- end b.py -->",
    ],
)
def test_damaged_markers_are_refused(markers):
    with pytest.raises(ValueError, match=r"R\.md: expected <!-- begin b\.py --> once and"):
        reporting.replace_section(f"text\n{markers}\n", "b.py", "table", "R.md")


def test_a_damaged_file_is_refused_before_the_benchmark_runs(tmp_path, running, capsys):
    path = tmp_path / "RESULTS.md"
    path.write_text("<!-- begin b.py -->\n")
    running("b.py")
    parser = argparse.ArgumentParser()
    reporting.add_flag(parser)
    with pytest.raises(SystemExit):
        parser.parse_args([f"--results={path}"])
    assert "argument --results" in capsys.readouterr().err
    assert parser.parse_args([f"--results={tmp_path / 'new.md'}"]).results


def test_the_table_of_steps_compares_with_the_first_contender_and_lists_who_was_skipped():
    first = {"seconds": 0.5, "own_megabytes": 100, "share_of_matmul_rate": 0.9}
    results = {
        "ours": first,
        "theirs": {"seconds": 1.0, "own_megabytes": 80},
        "another": {"skipped": "no module named torch"},
    }
    assert bench_train_step.table_of("configs/a.json", "8x128", results)[1:] == [
        {
            "config": "a.json",
            "shape": "8x128",
            "contender": "theirs",
            "seconds": 1.0,
            "own MB": 80,
            "time, ours / this": 0.5,
            "own memory, ours / this": 1.25,
        },
        {
            "config": "a.json",
            "shape": "8x128",
            "contender": "another",
            "seconds": "skipped: no module named torch",
        },
    ]


def test_only_changes_of_other_files_make_a_tree_dirty(monkeypatch, tmp_path):
    changed = ["docs/notebook/speed.md"]
    monkeypatch.setattr(reporting, "_git", lambda *_: "".join(f"{name}\n" for name in changed))
    assert not reporting._has_changes(f"{reporting.ROOT}/docs/notebook/speed.md")
    assert reporting._has_changes(str(tmp_path / "RESULTS.md"))
    changed.append("albert_tf/modeling.py")
    assert reporting._has_changes(f"{reporting.ROOT}/docs/notebook/speed.md")


def test_the_processor_is_read_from_linux(monkeypatch):
    info = {"model name": "A CPU", "flags": "avx2 avx512_bf16 amx_bf16"}
    monkeypatch.setattr(reporting, "_cpu_info", lambda key: info[key])
    found = reporting.conditions()
    assert found["machine"] == "A CPU"
    assert found["instructions"] == ["AMX", "AVX-512 bfloat16"]
