"""What is found and read of packages and manual pages."""

from __future__ import annotations

import gzip

import installed_documentation as documentation
import pytest

MODULE = '''"""The mill grinds corn all day long."""


class Mill:
    """The stones of the mill are old."""

    def grind(self):
        """The corn becomes flour by and by."""


def stop():
    "no docstring to keep"
'''


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """site-packages with two packages, and a folder of manual pages."""
    root = tmp_path_factory.mktemp("installed")
    package = root / "site-packages" / "mill"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(MODULE)
    (package / "broken.py").write_text('"""A docstring before what cannot be parsed."""\n%%%\n')
    (package / "README.md").write_text("The readme tells what the mill is for.\n")
    (package / "LICENSE.txt").write_text("Everybody may use the mill at their own risk.\n")
    (package / "tests").mkdir()
    (package / "tests" / "test_mill.py").write_text('"""The tests are no documentation at all."""')
    metadata = root / "site-packages" / "mill-1.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: mill\n\nThe description tells how to grind corn.\n")
    (metadata / "RECORD").write_text("mill/__init__.py,,\n")
    (root / "site-packages" / "single.py").write_text('"""One module is a package of its own."""')
    pages = root / "man" / "man1"
    pages.mkdir(parents=True)
    with gzip.open(pages / "mill-grind.1.gz", "wt") as stream:
        stream.write(".SH NAME\nThis page describes how the corn is ground.\n")
    (pages / "alias.1.gz").symlink_to("mill-grind.1.gz")
    return str(root / "site-packages"), str(root / "man")


@pytest.fixture(scope="module")
def sources(folders):
    packages, pages = folders
    return documentation.find_sources([packages], pages)


def test_packages_descriptions_and_manual_pages_are_found(sources):
    found = [(source.package, source.path.rsplit("/", 1)[1], source.kind) for source in sources]
    assert found == [
        ("man:mill", "mill-grind.1.gz", documentation.MANUAL_PAGE),
        ("mill", "METADATA", documentation.TEXT),
        ("mill", "README.md", documentation.TEXT),
        ("mill", "__init__.py", documentation.DOCSTRINGS),
        ("mill", "broken.py", documentation.DOCSTRINGS),
        ("single", "single.py", documentation.DOCSTRINGS),
    ]


def test_every_kind_is_read(sources):
    readings = [documentation.read_source(source) for source in sources]
    assert [reading.documents for reading in readings] == [
        [["This page describes how the corn is ground."]],
        [["The description tells how to grind corn."]],
        [["The readme tells what the mill is for."]],
        [
            ["The mill grinds corn all day long."],
            ["The stones of the mill are old."],
            ["The corn becomes flour by and by."],
        ],
        [],
        [["One module is a package of its own."]],
    ]


def test_processes_read_the_same_as_one(sources):
    assert documentation.read_all(sources, 2) == [documentation.read_source(s) for s in sources]


def test_a_machine_without_manual_pages_has_the_packages(folders, tmp_path):
    found = documentation.find_sources([folders[0]], str(tmp_path / "no_man"))
    assert {source.package for source in found} == {"mill", "single"}


def test_the_running_interpreter_has_its_packages_and_library():
    paths = {source.path.rsplit("/", 2)[-2] for source in documentation.find_sources()}
    assert {"numpy", "json"} <= paths
