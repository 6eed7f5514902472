"""Opening, finding and safely writing files: on a local disk, and in a file system of fsspec."""

from __future__ import annotations

import errno
import json
import os
import re
import types

import pytest
from fsspec.registry import known_implementations
from fsspec.spec import AbstractBufferedFile

from albert_tf import files
from albert_tf.checkpoints.model_folder import ModelFolder, ModelPath, find_checkpoint
from albert_tf.files import reading
from albert_tf.model.config import AlbertConfig
from albert_tf.tables import JSON_LINES, open_table


@pytest.fixture(params=["", "file://"], ids=["local", "remote"])
def folder(request, tmp_path):
    """The path of an empty folder; `file://` needs no network, and keeps its files."""
    return f"{request.param}{tmp_path}"


@pytest.fixture
def pipe(tmp_path):
    """A pipe without a writer: opening it for reading would wait forever."""
    os.mkfifo(tmp_path / "pipe")
    return str(tmp_path / "pipe")


@pytest.fixture
def full_disk(monkeypatch):
    def fail(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)


def write(path, *contents, mode="w"):
    with files.write_atomically(path, mode) as stream:
        for content in contents:
            stream.write(content)


# Paths that files name

INSIDE = {"": "", "a.bin": "/a.bin", "1_Dense": "/1_Dense", "a/b..c/..d": "/a/b..c/..d", "~": "/~"}
OUTSIDE = [
    "..",
    "../a",
    "a/../b",
    "a/..",
    "/a",
    "//a",
    "\\a",
    "..\\a",
    "gs://b/a",
    "file:///a",
    "a\0",
]


@pytest.mark.parametrize("name", INSIDE)
def test_a_path_that_a_file_names_is_inside_of_its_folder(folder, name):
    assert files.inside(folder, name, "list.json") == folder + INSIDE[name]


@pytest.mark.parametrize(
    ("name", "is_name"),
    [*((name, False) for name in OUTSIDE), *((name, True) for name in [*OUTSIDE, "", ".", "a/b"])],
)
def test_a_path_that_leads_out_of_its_folder_is_refused(folder, name, is_name):
    expected = "a file" if is_name else "a path"
    said = f"list.json names {name!r}: expected {expected} in the folder {folder}. "
    with pytest.raises(ValueError, match=re.escape(said)):
        files.inside(folder, name, "list.json", is_name=is_name)


def test_links_of_a_folder_are_followed(tmp_path):
    """The cache of the Hugging Face Hub has its files as snapshots/… → ../../blobs/…"""
    (tmp_path / "blob").write_text("rows")
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / "rows.jsonl").symlink_to("../blob")
    path = files.inside(str(tmp_path / "snapshot"), "rows.jsonl", "list.json")
    assert files.read_text(path) == "rows"


# Reading


def test_a_listing_has_the_sizes_of_files_and_a_file_can_be_read_up_to_a_place(folder):
    write(f"{folder}/a", b"0123456789", mode="wb")
    write(f"{folder}/empty", b"", mode="wb")
    files.ensure_directory(f"{folder}/folder")
    assert files.list_sizes(folder) == {"a": 10, "empty": 0}
    assert [files.read_start(f"{folder}/a", size) for size in (3, 10, 99)] == [
        *(b"012", b"0123456789", b"0123456789")
    ]
    assert files.read_start(f"{folder}/empty", 3) == b""
    with pytest.raises(FileNotFoundError):
        files.read_start(f"{folder}/none", 3)
    with pytest.raises(FileNotFoundError):
        files.list_sizes(f"{folder}/none")


def test_bytes_are_read_whole_and_in_parts(folder):
    write(f"{folder}/a", b"01\xff\x00\r\n6789", mode="wb")
    assert files.read_bytes(f"{folder}/a") == b"01\xff\x00\r\n6789"
    assert files.file_size(f"{folder}/a") == 10
    with files.open_binary(f"{folder}/a") as stream:
        assert stream.read(3) == b"01\xff"
        assert stream.seek(-2, os.SEEK_END) == 8
        assert stream.read() == b"89"
        assert stream.seek(1) == stream.tell() == 1
        assert list(stream) == [b"1\xff\x00\r\n", b"6789"]


def test_text_is_utf8_without_its_byte_order_mark(tmp_path):
    (tmp_path / "a.txt").write_bytes("\ufeff河\ufeff流\n".encode())
    assert files.read_text(str(tmp_path / "a.txt")) == "河\ufeff流\n"


def test_a_large_file_is_not_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("albert_tf.files.reading.MAX_WHOLE", 3 << 20)
    (tmp_path / "a.json").write_bytes(b" " * (3 << 20) + b"{")
    for read in (files.read_bytes, files.read_text, files.read_json):
        with pytest.raises(ValueError, match=r"a\.json: larger than 3 MiB, expected a small"):
            read(str(tmp_path / "a.json"))


def test_another_encoding_is_refused_by_its_line(tmp_path):
    data = b"plain\nplain\n" + "河流".encode("gb18030")
    (tmp_path / "gbk.txt").write_bytes(data)
    with pytest.raises(ValueError, match=r"gbk\.txt, line 3: not UTF-8 \(byte 0xba.*iconv"):
        files.read_text(str(tmp_path / "gbk.txt"))
    with pytest.raises(ValueError, match=r"^big\.txt, line 1003: "):  # of a part of a file
        files.decode_utf8(data, "big.txt", first_line=1001)


def test_what_is_no_file_cannot_be_opened(folder, pipe, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"/none: no such file"):
        files.open_binary(f"{folder}/none")
    with pytest.raises(FileNotFoundError, match=r"^a/none: no such file \(current directory: /"):
        files.open_binary("a/none")
    with pytest.raises(FileNotFoundError, match=r"/none: no such file\. The shell variable before"):
        files.open_binary("/none")
    with pytest.raises(FileNotFoundError, match="expected a file, but this is a directory"):
        files.open_binary(folder)
    with pytest.raises(FileNotFoundError, match=r"pipe: expected a file, but this is a pipe"):
        files.open_binary(pipe)
    with pytest.raises(ValueError, match=r"^nfs://a/b: Protocol not known: nfs"):
        files.open_binary("nfs://a/b")
    unknown = {"class": "no_such_package.Files", "err": "pip install zz"}
    monkeypatch.setitem(known_implementations, "zz", unknown)
    with pytest.raises(ValueError, match=r"^zz://a/b: pip install zz"):
        files.open_binary("zz://a/b")


def test_a_missing_path_is_refused_by_its_flag(folder):
    write(f"{folder}/a")
    files.check_file(f"{folder}/a", "--name")
    files.check_directory(folder, "--name")
    with pytest.raises(FileNotFoundError, match=r"^--name: .*/none: no such file"):
        files.check_file(f"{folder}/none", "--name")
    with pytest.raises(FileNotFoundError, match=r"^--name: .*no such directory"):
        files.check_directory(f"{folder}/a", "--name")


@pytest.mark.parametrize(
    ("path", "kind", "ending", "expected"),
    [
        ("dema/clasifier", "", "", "demo/classifier"),
        ("Demo/", "", "", "demo"),
        ("{here}/demo/./trian.tsv", "file", "", "{here}/demo/train.tsv"),
        ("demo/trains", "directory", "", "demo/train"),
        ("demo/none.tsv", "", "", ""),  # alike in the ending only
        ("demo/train.tsv/a", "", "", ""),
        ("demo/model.ckpt-bets", "", ".index", "demo/model.ckpt-best"),
        ("demo/config", "", "", ""),  # only a hidden one
        ("demo/.confg", "", "", "demo/.config"),
        ("demo/broken-", "", "", ""),
        ("qqq/classifier", "", "", ""),
        ("", "", "", ""),
    ],
)
def test_the_path_that_a_misspelled_one_may_mean_exists(
    tmp_path, monkeypatch, path, kind, ending, expected
):
    monkeypatch.chdir(tmp_path)
    for name in ("demo/classifier/a", "demo/train/b", "demo/.config/c"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("train.tsv", "model.ckpt-best.index"):
        (tmp_path / "demo" / name).touch()
    (tmp_path / "demo" / "broken").symlink_to("nowhere")
    found = files.similar_path(path.format(here=tmp_path), kind, ending)
    assert found == expected.format(here=tmp_path)
    assert not found or os.path.exists(found + ending)


def test_files_and_folders_are_told_apart(folder):
    write(f"{folder}/a")
    found = [
        (files.exists(path), files.is_file(path), files.is_directory(path))
        for path in (f"{folder}/a", folder, f"{folder}/none")
    ]
    assert found == [(True, True, False), (True, False, True), (False, False, False)]
    assert not any(check("") for check in (files.exists, files.is_file, files.is_directory))


def test_patterns_expand_to_sorted_files_without_duplicates(folder):
    for name in ("b.txt", "a.txt", "c.tfrecord", "d,e"):
        write(f"{folder}/{name}")
    found = files.expand_patterns(f"{folder}/*.tfrecord, {folder}/*.txt,{folder}/a.txt", "--x")
    assert found == [f"{folder}/{name}" for name in ("c.tfrecord", "a.txt", "b.txt")]
    assert files.expand_patterns([f"{folder}/d,e"], "--x") == [f"{folder}/d,e"]
    with pytest.raises(ValueError, match=r"--x: '.*/nowhere\*' matches no file"):
        files.expand_patterns(f"{folder}/a.txt,{folder}/nowhere*", "--x")
    for nothing in ("", " , ", []):
        with pytest.raises(ValueError, match="--x: expected at least one file name"):
            files.expand_patterns(nothing, "--x")


def test_a_name_that_exists_is_no_pattern(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in (
        "a[1].txt",
        "a1.txt",
        "b?/c.txt",
        "b?/d.txt",
        "bx/c.txt",
        "e,f.txt",
        "[g]/[h].txt",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    for given, expected in {
        "a[1].txt": ["a[1].txt"],
        "a[0-9].txt": ["a1.txt"],
        "b?/*.txt": ["b?/c.txt", "b?/d.txt"],
        "b?/c.txt,a1.txt": ["b?/c.txt", "a1.txt"],
        "[b]*/c.txt": ["b?/c.txt", "bx/c.txt"],
        "e,f.txt": ["e,f.txt"],
        "[g]/[h].txt": ["[g]/[h].txt"],
        f"{tmp_path}/[g]/*": [f"{tmp_path}/[g]/[h].txt"],
    }.items():
        assert files.expand_patterns(given, "--x") == expected, given
    remote = f"file://{tmp_path}/a[1].txt"
    assert files.expand_patterns(remote, "--x") == [remote]


@pytest.mark.parametrize(
    "read",
    [
        lambda path: files.read_text(path),
        lambda path: files.check_file(path, "--x"),
        lambda path: files.check_directory(path, "--x"),
        lambda path: files.expand_patterns(f"{__file__},{path}", "--x"),
        lambda path: files.list_directory(path),
        find_checkpoint,
        lambda path: ModelPath(path).folder.path,
    ],
)
def test_a_home_that_the_shell_has_not_replaced_is_named_where_it_is_read(read, tmp_path):
    path = os.path.expanduser("~/none/at/all")
    with pytest.raises(ValueError, match=f"~/none/at/all: the shell has .* ~. Write {path}, or"):
        read("~/none/at/all")


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_the_type_of_a_link_is_that_of_what_it_leads_to(tmp_path, scheme):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    for name in ("folder", "file", "none"):
        (tmp_path / f"to {name}").symlink_to(name)
    assert list(files.list_types(f"{scheme}{tmp_path}").items()) == [
        ("file", "file"),
        ("folder", "directory"),
        ("to file", "file"),
        ("to folder", "directory"),
        ("to none", ""),
    ]


def test_lines_of_old_macs_end_in_line_feeds(tmp_path):
    (tmp_path / "mac").write_bytes(b"a\rb\r")
    assert files.read_text(str(tmp_path / "mac")) == "a\nb\n"
    (tmp_path / "other").write_bytes(b"a\rb\r\nc")
    assert files.read_text(str(tmp_path / "other")) == "a\rb\r\nc"


def test_a_link_to_a_folder_that_does_not_exist_is_named(tmp_path):
    (tmp_path / "link").symlink_to("nowhere")
    for path in (f"{tmp_path}/link", f"{tmp_path}/link/", f"{tmp_path}/link/out"):
        with pytest.raises(
            ValueError, match=r"^--x: .*link is a link to nowhere, which does not e"
        ):
            files.check_writable(path, "--x")
    with pytest.raises(ValueError, match=r"^--x: .*link is a link to nowhere"):
        files.ensure_directory(f"{tmp_path}/link/", "--x")
    (tmp_path / "nowhere").mkdir()
    files.check_writable(f"{tmp_path}/link", "--x")


# Writing


@pytest.mark.parametrize(("mode", "content"), [("w", "河流\n"), ("wb", b"\x00\xff")])
def test_a_file_only_appears_when_it_is_complete(folder, mode, content):
    with files.write_atomically(f"{folder}/out", mode) as stream:
        stream.writelines([content, content])
        assert not files.exists(f"{folder}/out")
    expected = content.encode() if mode == "w" else content
    assert files.read_bytes(f"{folder}/out") == 2 * expected
    assert files.list_directory(folder) == ["out"]


def test_a_failed_write_leaves_only_the_old_file(folder):
    write(f"{folder}/out", "old")
    with pytest.raises(TypeError, match="must be str"):
        write(f"{folder}/out", "half of the n", 5)
    assert files.read_text(f"{folder}/out") == "old"
    assert files.list_directory(folder) == ["out"]


def test_a_full_disk_leaves_the_old_file_and_says_what_to_do(tmp_path, full_disk):
    (tmp_path / "out").write_text("old\n")
    said = r"No space left on device\. Free some space and run the same command again: '.*/out'"
    with pytest.raises(OSError, match=said):
        write(str(tmp_path / "out"), "new")
    with pytest.raises(OSError, match=said):
        files.append_json_lines(str(tmp_path / "out"), [{"a": 1}])
    assert (tmp_path / "out").read_text() == "old\n"
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EIO, "Check the disk, or the connection to it, and run the same command again"),
        (errno.EFBIG, r"Raise the limit of the size of files \(ulimit -f\) and run"),
    ],
)
def test_an_error_of_the_disk_names_the_file_and_the_way_out(tmp_path, monkeypatch, number, advice):
    def fail(_):
        raise OSError(number, os.strerror(number))

    path = tmp_path / "out"
    path.write_text("old\n")
    monkeypatch.setattr(os, "fsync", fail)
    for act in (
        lambda: write(str(path), "new"),
        lambda: files.append_json_lines(str(path), [{"a": 1}]),
    ):
        with pytest.raises(OSError, match=f"{os.strerror(number)}. {advice}.*: '.*/out'") as error:
            act()
        assert error.value.errno == number
    assert path.read_text() == "old\n"
    with pytest.raises(OSError, match=f"{advice}.*: 'somewhere'"), files.naming_file("somewhere"):
        fail(None)
    with pytest.raises(OSError, match=r"^what else$"), files.naming_file("somewhere"):
        raise OSError("what else")


def test_what_is_no_file_is_not_replaced(tmp_path, pipe):
    for path in (pipe, os.devnull, str(tmp_path)):
        with pytest.raises(ValueError, match=f"{path}: cannot write a file here"):
            write(path)
    with pytest.raises(FileNotFoundError):
        write(f"{tmp_path}/none/out")
    assert os.listdir(tmp_path) == ["pipe"]


def test_files_are_renamed_copied_and_removed(folder):
    write(f"{folder}/a", "one")
    write(f"{folder}/b", "two")
    files.rename(f"{folder}/a", f"{folder}/b")
    files.copy(f"{folder}/b", f"{folder}/c")
    assert files.list_directory(folder) == ["b", "c"]
    assert files.read_text(f"{folder}/b") == files.read_text(f"{folder}/c") == "one"
    files.remove(f"{folder}/b")
    for _ in range(2):  # an existing one keeps its files
        files.ensure_directory(f"{folder}/d/e", "--output_dir")
        assert files.list_directory(f"{folder}/d") == ["e"]
    files.remove_tree(f"{folder}/d")
    assert files.list_directory(folder) == ["c"]


def test_a_published_folder_is_complete_or_absent(folder):
    with files.publish_directory(f"{folder}/out", "--output") as unfinished:
        os.makedirs(os.path.join(unfinished, "variables"))
        write(os.path.join(unfinished, "variables", "index"), "the weights")
        assert not files.exists(f"{folder}/out")
    with files.local_copy(f"{folder}/out") as copied:
        assert files.read_text(os.path.join(copied, "variables", "index")) == "the weights"
    with pytest.raises(KeyError), files.publish_directory(f"{folder}/other", "--output"):
        raise KeyError
    assert files.list_directory(folder) == ["out"]


@pytest.mark.parametrize("name", ["text.txt", "below/../text.txt", "link.txt", "folder/text.txt"])
def test_an_output_that_is_an_input_is_refused_under_each_of_its_names(tmp_path, name):
    write(f"{tmp_path}/text.txt", "the only copy")
    (tmp_path / "below").mkdir()
    (tmp_path / "folder").symlink_to(tmp_path)
    (tmp_path / "link.txt").symlink_to(tmp_path / "text.txt")
    output, said = f"{tmp_path}/{name}", f"--output: {tmp_path}/{name} is an input, --input_file"
    inputs = {"--vocab_file": None, "--input_file": [f"{tmp_path}/no", f"{tmp_path}/text.txt"]}
    with pytest.raises(ValueError, match=said):
        files.check_outputs({"--output": output}, inputs)
    with pytest.raises(ValueError, match=said):
        files.check_outputs({"--output": output}, {"--input_file": f"{tmp_path}/"})
    new = [f"{tmp_path}/new.txt", f"{tmp_path}/below/text.txt"]
    files.check_outputs({"--output": new}, inputs | {"--folder": str(tmp_path)})
    with pytest.raises(ValueError, match="below: cannot write a file here"):
        files.check_outputs({"--output": f"{tmp_path}/below"}, {})


# Folders for output


def test_an_output_folder_is_checked_without_creating_it(tmp_path, monkeypatch):
    write(f"{tmp_path}/a")
    for path in (f"{tmp_path}/b/c", "", f"file://{tmp_path}/remote"):
        files.check_writable(path, "--output_dir")
    assert os.listdir(tmp_path) == ["a"]
    for check in (files.check_writable, files.ensure_directory):
        with pytest.raises(ValueError, match=r"--output_dir: cannot write to '.*/a/b/c'"):
            check(f"{tmp_path}/a/b/c", "--output_dir")
    with pytest.raises(NotADirectoryError):
        files.ensure_directory(f"{tmp_path}/a/b")
    monkeypatch.setattr(os, "access", lambda path, mode: path != f"{tmp_path}/.")
    with pytest.raises(ValueError, match=r"--output_dir: cannot write to '.*/b': .* is not a"):
        files.check_writable(f"{tmp_path}/b", "--output_dir")


def test_a_folder_that_only_seems_to_be_writable_is_found_before_it_is_used(tmp_path, monkeypatch):
    """Such as /proc, of which the permissions say that root may write to it."""

    def refuse(**arguments):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    with pytest.raises(ValueError, match=r"--output_dir: cannot write to '.*/new'"):
        files.check_writable(f"{tmp_path}/new", "--output_dir")


def test_what_a_kill_left_of_a_file_is_removed(tmp_path):
    left = ["a.npy.0a1b2c3d.tmp", "a.npy", "a.npy.tmp", "b.npy.0a1b2c3d.tmp"]
    for name in left:
        write(f"{tmp_path}/{name}")
    files.remove_half_written([f"{tmp_path}/a.npy"])
    assert sorted(os.listdir(tmp_path)) == sorted(left[1:])


@pytest.mark.parametrize("use", [files.check_writable, files.ensure_directory, write])
def test_a_tilde_that_the_shell_left_in_a_path_is_refused(tmp_path, monkeypatch, use):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    message = r"~/zz: the shell has not replaced ~\. Write /home/me/zz, or \./~/zz for"
    with pytest.raises(ValueError, match=message):
        use("~/zz", "--name")
    assert os.listdir() == []
    files.ensure_directory("./~/zz", "--name")
    write("~no-such-user")
    assert {"~", "~no-such-user"} <= set(os.listdir())


# JSON

FIELDS = {"step": int, "seconds": float, "metrics": dict[str, float], "labels": list[str]}
FIELDS |= {"note": dict | None}
OWN = {"step": 3, "seconds": 2, "metrics": {"loss": 1, "accuracy": 0.5}, "labels": ["a"]}


def test_json_lines_are_appended_and_read_back(folder):
    path = f"{folder}/a.jsonl"
    assert files.read_own_json_lines(path, FIELDS) == []
    more = OWN | {"note": {"x": [1]}, "other": 5}
    files.append_json_lines(path, [OWN])
    files.append_json_lines(path, [more, OWN])
    assert files.read_own_json_lines(path, FIELDS) == [OWN, more, OWN]
    files.write_json(path, OWN)
    assert files.read_json(path, FIELDS) == OWN


def test_the_part_of_a_line_that_a_kill_left_is_ignored_and_replaced(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(OWN) + "\n" + '{"step": 4, "met')
    assert files.read_own_json_lines(str(path), FIELDS) == [OWN]
    files.append_json_lines(str(path), [OWN, OWN])
    assert files.read_own_json_lines(str(path), FIELDS) == [OWN, OWN, OWN]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "not JSON: Expecting value"),
        ("[]", "expected a JSON object, got list"),
        ("{}", "'step' is missing, expected int"),
        ({"step": True}, "'step' is True, expected int"),
        ({"seconds": "2"}, "'seconds' is '2', expected float"),
        ({"metrics": [1]}, r"'metrics' is \[1\], expected dict"),
        ({"metrics": {"f1": [1]}}, r"'metrics' is {'f1': \[1\]}, expected dict\[str, float\]"),
        ({"labels": "a"}, "'labels' is 'a', expected list"),
        ({"labels": ["a", None]}, r"'labels' is \['a', None\], expected list\[str\]"),
        ({"note": 5}, r"'note' is 5, expected dict \| None"),
        ({"note": {"\ud800": 1}}, "not JSON: a text has half of a surrogate pair"),
        ({"seconds": 10**400}, "not JSON: a number of 401 digits, expected up to 300"),
    ],
)
def test_a_damaged_line_is_refused_by_its_number_and_field(tmp_path, line, said):
    path = tmp_path / "a.jsonl"
    line = line if isinstance(line, str) else json.dumps(OWN | line)
    path.write_text(f"{json.dumps(OWN)}\n{line}\n{json.dumps(OWN)}\n")
    with pytest.raises(ValueError, match=rf"a\.jsonl, line 2: {said}"):
        files.read_own_json_lines(str(path), FIELDS)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], "none"),
        ([7] * 10, ", ".join(["7"] * 10)),
        ([7] * 11, ", ".join(["7"] * 10 + ["…"])),
        (["a" * 48], repr("a" * 48)),
        (["a" * 49], "'" + "a" * 49 + "…"),
    ],
)
def test_quotations_of_values_are_short(values, expected):
    assert files.quote_all(values) == expected


@pytest.mark.parametrize("keys", [[f"key {n}" for n in range(3000)], ["long" * 3000]])
def test_an_error_about_a_file_quotes_little_of_it(tmp_path, keys):
    path = tmp_path / "albert_config.json"
    path.write_text(json.dumps(dict.fromkeys(keys, "x")))
    with pytest.raises(ValueError, match=r"'key 0', |'longlong") as caught:
        AlbertConfig.from_json_file(str(path))
    assert len(str(caught.value)) < 1000 + len(str(path))


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (files.read_json, r"config\.json: JSON is nested too deeply"),
        (AlbertConfig.from_json_file, r"config\.json: JSON is nested too deeply"),
        (
            lambda path: ModelFolder(os.path.dirname(path)).modules,
            r"modules\.json: JSON is nested too",
        ),
        (lambda path: list(open_table(path, JSON_LINES)), r"line 1: not JSON: nested too deep"),
    ],
)
def test_json_that_is_nested_too_deeply_is_an_error_of_one_line(tmp_path, read, said):
    for name in ("config.json", "modules.json"):
        (tmp_path / name).write_text("[" * 100_000)
    try:
        found = read(str(tmp_path / "config.json"))
    except ValueError as error:
        found = str(error)
    assert re.search(said, found)
    assert "\n" not in found


def test_lines_of_a_store_have_a_limit(monkeypatch):
    class Stored(AbstractBufferedFile):
        """A file of a store, whose `readline` takes no limit."""

        def _fetch_range(self, start, end):
            return b"one\ntwo\nthree"[start:end]

    def lines():
        system = types.SimpleNamespace(protocol="store")
        stream = Stored(system, "store://rows", size=13, block_size=5)
        return list(files.read_lines(stream, "store://rows"))

    assert lines() == [b"one\n", b"two\n", b"three"]
    monkeypatch.setattr(reading, "MAX_LINE", 4)
    with pytest.raises(ValueError, match=r"store://rows, line 3: longer than"):
        lines()
