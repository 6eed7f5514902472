"""What a card, the front matter of a repository's README.md, says about the files of splits."""

from __future__ import annotations

import fsspec
import pytest

from albert_tf.tables.card import describes, find_configuration
from albert_tf.tables.splits import ENDINGS, find_described


@pytest.fixture
def write(tmp_path):
    def write(configs, *names, page="---\nlicense: mit\nconfigs:\n{}---\n# A page\n"):
        for name in names:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("text,label\n")
        (tmp_path / "README.md").write_text(page.format(configs), encoding="utf-8")
        return str(tmp_path)

    return write


def found(folder, split, names=(), suffix=""):
    described = find_configuration(folder, names)
    paths = find_described(described, split, suffix, ENDINGS)
    root = folder.removesuffix("/en")
    return [path.removeprefix(f"{root}/") for path in paths]


BOTH = {"train": ["a.csv"], "dev": ["b.csv"], "test": []}
# What `configs` has, the files that are there, and those of each split.
FORMS = {
    "a list of splits": (
        "- config_name: default\n  data_files:\n  - split: train\n    path: a.csv\n"
        "  - split: validation\n    path: b.csv\n",
        BOTH,
    ),
    "a mapping": ("- config_name: default\n  data_files: {train: a.csv, dev: [b.csv]}\n", BOTH),
    "a pattern": (
        '- config_name: x\n  data_files: "?.csv"\n',
        {"train": ["a.csv", "b.csv"], "dev": []},
    ),
    "a list of files": (
        "- config_name: x\n  data_files: [b.csv, a.csv]\n",
        {"train": ["b.csv", "a.csv"], "dev": []},
    ),
    "a list of paths": (
        "- config_name: x\n  data_files:\n  - {split: train, path: [b.csv, ./a.csv]}\n",
        {"train": ["b.csv", "./a.csv"], "test": []},
    ),
    "files in a folder": (
        "- config_name: x\n  data_dir: clean\n  data_files: {train: '*.csv'}\n",
        {"train": ["clean/c.csv"], "dev": []},
    ),
    "folders of any depth": (
        "- config_name: x\n  data_files:\n  - {split: test, path: 'clean/**'}\n",
        {"train": [], "test": ["clean/c.csv", "clean/deep/d.csv"]},
    ),
    "the default by its name": (
        "- config_name: x\n  data_files: c.csv\n- config_name: default\n  data_files: a.csv\n",
        {"train": ["a.csv"]},
    ),
    "the default by its mark": (
        "- config_name: x\n  data_files: c.csv\n"
        "- config_name: y\n  data_files: b.csv\n  default: true\n",
        {"train": ["b.csv"]},
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_card_names_the_files_of_splits(write, form):
    configs, splits = FORMS[form]
    folder = write(
        configs, "a.csv", "b.csv", "train.csv", "clean/c.csv", "clean/deep/d.csv", "clean/x.md"
    )
    assert {split: found(folder, split) for split in splits} == splits


SETS = (
    "- config_name: en\n  data_files:\n  - {split: train, path: en/one.csv}\n"
    "- config_name: de\n  data_files:\n  - {split: train, path: de/one.csv}\n"
)


def test_one_of_several_data_sets_is_asked_for_by_its_name_or_its_folder(write):
    folder = write(SETS, "en/one.csv", "de/one.csv", "train.csv")
    assert found(folder, "train", ["nl", "de"]) == ["de/one.csv"]
    assert found(f"{folder}/en", "train") == ["en/one.csv"]
    said = (
        r"README\.md: describes the configurations en, de, of which none is the default\. Pass the "
        "folder of one as --data_dir, or the files of its splits, as in --train_file"
    )
    with pytest.raises(ValueError, match=said):
        find_configuration(folder, ["nl"])
    write(SETS.replace("\n- ", "\n  default: true\n- ") + "  default: true\n")
    with pytest.raises(ValueError, match="of which several are the default"):
        find_configuration(folder)
    many = "".join(f"- config_name: c{n}\n  data_files: '{n}'\n" for n in range(11))
    with pytest.raises(ValueError, match=r"c8, c9, …, of which none"):
        find_configuration(write(many))


def test_a_card_above_is_not_that_of_a_folder_whose_files_it_does_not_name(write):
    folder = write("- config_name: x\n  data_files: [en/one.csv, one.csv]\n", "en/one.csv")
    assert find_configuration(f"{folder}/en") is None
    assert describes(folder)
    assert not describes(f"{folder}/en")
    assert not describes(write("- config_name: x\n- config_name: y\n  sep: ','\n"))
    assert not describes(write("  data_files: a.csv\n"))


def test_splits_with_a_further_word_are_told_apart(write):
    folder = write(
        "- config_name: x\n  data_files:\n  - {split: validation_matched, path: a.csv}\n"
        "  - {split: validation_mismatched, path: b.csv}\n",
        "a.csv",
        "b.csv",
    )
    assert found(folder, "dev", suffix="mismatched") == ["b.csv"]
    with pytest.raises(ValueError, match="the splits validation_matched and validation_mismatched"):
        found(folder, "dev")


@pytest.mark.parametrize(
    ("path", "error", "said"),
    [
        (
            "missing.csv",
            FileNotFoundError,
            r"'missing\.csv', of the split 'train', is missing in .*\. Download the whole",
        ),
        ("de/*.csv", FileNotFoundError, r"'de/\*\.csv', of the split 'train', is missing"),
        ("*.md", FileNotFoundError, r"'\*\.md', of the split 'train', is missing"),
        ("../a.csv", ValueError, r"names '\.\./a\.csv': expected a path in the folder"),
        ("/etc/hosts", ValueError, "names '/etc/hosts': expected a path in the folder"),
        ("https://a.org/a.csv", ValueError, "names 'https://a.*: expected a path in the folder"),
        ("b-*", ValueError, "the shards -00000-of-00002 are missing"),
    ],
)
def test_files_that_are_not_there_are_named(write, path, error, said):
    configs = f"- config_name: x\n  data_files:\n  - {{split: train, path: '{path}'}}\n"
    folder = write(configs, "a.csv", "b-00001-of-00002.csv")
    with pytest.raises(error, match=said):
        found(folder, "train")


@pytest.mark.parametrize(
    ("configs", "said"),
    [
        ("- data_files: a.csv\n", "config_name None and data_dir '', expected a name and a folder"),
        ("- {config_name: x, data_dir: [a]}\n", r"data_dir \['a'\], expected a name and a folder"),
        (
            "- config_name: x\n  data_files: [{split: train}]\n",
            r"data_files of 'x': \{'train': None\}, expected a split and its files",
        ),
        (
            "- config_name: x\n  data_files: [{split: dev, path: a}, b]\n",
            r"\{None: 'b'\}, expected a split and its files",
        ),
        ("- config_name: x\n  data_files: {train: []}\n", r"\{'train': \[\]\}, expected a split"),
        (
            "- config_name: x\n  data_files: [{split: dev, path: a}, {split: dev, path: b}]\n",
            "the split 'dev' occurs twice",
        ),
        (
            "- config_name: x\n  data_files: a.csv\n  sep: ';'\n",
            "'x' has columns separated by ';', expected a comma or a tab",
        ),
        ("- config_name: x\n  data_dir: ../a\n", r"names '\.\./a': expected a path in the"),
        ("- [\n  data_dir\n", r"line 6: the front matter is not YAML"),
    ],
)
def test_a_damaged_card_is_named(write, configs, said):
    folder = write(configs)
    with pytest.raises(ValueError, match=rf"README\.md.*{said}"):
        assert find_configuration(folder).base


def test_the_front_matter_may_be_a_list(write):
    with pytest.raises(ValueError, match=r"the front matter is .*, expected names: values"):
        find_configuration(write("", page="---\n- data_files\n---\n{}"))


def test_separators_are_heeded_and_other_options_are_named(write, caplog):
    folder = write(
        '- config_name: x\n  data_files: a.csv\n  sep: "\\t"\n  names: [text, label]\n'
        '- config_name: y\n  data_files: a.csv\n  delimiter: ","\n'
    )
    assert [find_configuration(folder, [name]).separator for name in "xy"] == ["\t", ","]
    assert "README.md: names of 'x' has no effect here" in caplog.text


def test_a_remote_card_is_read_as_a_local_one():
    memory = fsspec.filesystem("memory")
    for name in ("clean/b.csv", "clean/a.csv", "train.csv"):
        memory.pipe_file(f"/hub/{name}", b"text,label\n")
    memory.pipe_file(
        "/hub/README.md", b"---\nconfigs:\n- {config_name: x, data_files: 'clean/*'}\n---\n"
    )
    found = find_described(find_configuration("memory://hub"), "train")
    assert found == ["memory://hub/clean/a.csv", "memory://hub/clean/b.csv"]
    memory.rm("/hub", recursive=True)
