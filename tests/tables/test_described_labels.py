"""Names of labels that a repository describes beside its files."""

import json

import pytest

from albert_tf.tables import LabelNames
from albert_tf.tables.label_names import find_labels

PAGE = """---
license: mit
dataset_info:
- config_name: small
  features:
  - name: text
    dtype: string
  - name: label
    dtype:
      class_label:
        names:
          '0': no
          '1': yes
          '10': k
          '2': "c"
          '3': d
          '4': e
          '5': f
          '6': g
          '7': h
          '8': i
          '9': j
  - name: tags
    sequence:
      class_label:
        names: [O, 7]
- config_name: large
  features:
  - name: label
    dtype:
      class_label:
        names: {'0': a}
---
# A page
"""
SMALL = {
    "label": LabelNames(("no", "yes", *"cdefghijk")),
    "tags": LabelNames(("O", "7"), is_list=True),
}
LARGE = {"label": LabelNames(("a",))}
BINARY = {"label": {"names": ["no", "yes"], "_type": "ClassLabel"}}
NAMES = {"label": LabelNames(("no", "yes"))}


@pytest.fixture
def write(tmp_path):
    def write(**contents):
        for name, content in contents.items():
            path = tmp_path / name.replace("__", "/").replace("_json", ".json").replace(
                "_md", ".md"
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            if not isinstance(content, bytes):
                text = content if isinstance(content, str) else json.dumps(content)
                content = text.encode("utf-8")
            path.write_bytes(content)
        return tmp_path

    return write


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("small/train.csv", SMALL),
        ("small/train/0.csv", SMALL),
        ("large/train.csv", LARGE),
        ("train.csv", {}),  # which of the two is not known
        ("other/train.csv", {}),
        ("small/a/b/c.csv", {}),
    ],
)
@pytest.mark.parametrize("page", [PAGE, "\ufeff" + PAGE.replace("\n", "\r\n")])
def test_the_front_matter_of_a_page_has_names_by_configuration(write, page, file, expected):
    labels, source = find_labels(str(write(README_md=page) / file))
    assert labels == expected
    assert source == (str(write() / "README.md") if expected else "")


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        ({"dataset_info_json": {"features": BINARY}}, NAMES),
        ({"data__dataset_infos_json": {"default": {"features": BINARY}}}, NAMES),
        ({"dataset_infos_json": {"x": {"features": BINARY}, "y": {"features": BINARY}}}, NAMES),
        ({"dataset_infos_json": {"x": {"features": BINARY}, "y": {"features": None}}}, {}),
        ({"dataset_infos_json": {"x": {"features": BINARY}}, "README_md": PAGE}, NAMES),
        ({"dataset_info_json": {"features": None}, "README_md": "# A page"}, {}),
        ({"README_md": "---\ndataset_info: {features: [{name: class_label}]}\n---\n"}, {}),
        ({"README_md": "---\nclass_label: 1\n---\n"}, {}),
        ({"README_md": b"---\ntitle: \xe4\n---\n"}, {}),
    ],
)
def test_older_repositories_have_names_in_json(write, contents, expected):
    assert find_labels(str(write(**contents) / "data" / "train.jsonl"))[0] == expected


@pytest.mark.parametrize(
    ("contents", "problem"),
    [
        ({"README_md": b"---\nclass_label: \xe4\n---\n"}, r"README\.md, line 2: not UTF-8"),
        (
            {"README_md": "---\nclass_label: [\n---\n"},
            r"README\.md, line 3: the front matter is not YAML: did not find expected node [^\n]*$",
        ),
        (
            {"README_md": "---\na: b\nclass_label: \x07\n---\n"},
            r"README\.md: the front matter is not YAML: [^\n]*not allowed$",
        ),
        (
            {"README_md": f"---\nclass_label: {'[' * 480}{']' * 480}\n---\n"},
            r"README\.md: the front matter is nested hundreds of levels$",
        ),
        (
            {"README_md": "---\n- &a [class_label, *a]\n---\n"},
            r"README\.md, line 2: the front matter is not YAML: found unconstructable recursive",
        ),
        (
            {"README_md": f"---\nclass_label: [{'a, ' * 400_000}]\n---\n"},
            r"README\.md: its front matter has 1,200,016 bytes, expected up to 1,048,576\. Leave",
        ),
        (
            {"README_md": PAGE.replace("'10'", "'11'")},
            r"README\.md: the description of the data is damaged: KeyError\('10'\)",
        ),
        ({"dataset_infos_json": {"x": 7}}, r"dataset_infos\.json: the description of the data is"),
        ({"dataset_info_json": "["}, r"dataset_info\.json: not JSON"),
    ],
)
def test_a_damaged_description_is_named(write, contents, problem):
    with pytest.raises(ValueError, match=problem):
        find_labels(str(write(**contents) / "train.csv"))
