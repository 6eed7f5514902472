"""Opening, finding and safely writing local and remote files."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys

import pytest

from albert_tf import files
from albert_tf.classification import custom
from albert_tf.classification.settings import CustomDataSettings
from albert_tf.config import AlbertConfig
from albert_tf.data import corpus
from albert_tf.data.settings import TextSettings
from albert_tf.data.text_formats import sentences_of
from albert_tf.finetuning.texts import parse_pair
from albert_tf.inference import reading
from tests.file_events import folders_at_each_event


@pytest.mark.parametrize("name", ["text.txt", "below/../text.txt", "link.txt", "folder/text.txt"])
def test_an_output_that_is_an_input_is_rejected_under_each_of_its_names(tmp_path, name):
    text = tmp_path / "text.txt"
    text.write_text("the only copy")
    (tmp_path / "below").mkdir()
    (tmp_path / "folder").symlink_to(tmp_path)
    (tmp_path / "link.txt").symlink_to(text)
    output = f"{tmp_path}/{name}"
    inputs = {"--vocab_file": None, "--input_file": [f"{tmp_path}/other", str(text)]}
    with pytest.raises(ValueError, match=f"--output: {output} is an input, --input_file, and"):
        files.check_outputs({"--output": output}, inputs)
    files.check_outputs({"--output": [f"{tmp_path}/new.txt", f"{tmp_path}/below/text.txt"]}, inputs)


def test_each_file_of_a_folder_is_an_input_but_new_ones_are_not(tmp_path):
    for folder in (f"{tmp_path}/model",):
        files.ensure_directory(f"{folder}/variables", "--model_dir")
        for name in ("vocab.txt", "variables/index"):
            with files.write_atomically(f"{folder}/{name}") as stream:
                stream.write("of weeks")
            with pytest.raises(ValueError, match=f"--output: .*{name} is an input, --model_dir"):
                files.check_outputs({"--output": f"{folder}/{name}"}, {"--model_dir": folder + "/"})
        files.check_outputs({"--output": f"{folder}/new.txt"}, {"--model_dir": folder})


def test_a_path_with_a_scheme_is_remote():
    assert files.is_remote("gs://bucket/model.ckpt")
    assert not files.is_remote("/data/model.ckpt")


def test_bytes_are_read_unchanged(tmp_path):
    path = tmp_path / "blob"
    path.write_bytes(b"\xff\x00\r\n")
    with files.open_binary(str(path)) as stream:
        assert stream.read() == b"\xff\x00\r\n"


def test_the_error_for_a_missing_file_names_the_current_directory():
    with pytest.raises(FileNotFoundError, match=r"nowhere/a\.txt: no such file.*directory: /"):
        files.open_binary("nowhere/a.txt")


def test_a_directory_cannot_be_opened(tmp_path):
    with pytest.raises(FileNotFoundError, match="this is a directory"):
        files.open_binary(str(tmp_path))


@pytest.fixture
def pipe(tmp_path):
    """A pipe without a writer: opening it for reading would wait forever."""
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def test_opening_a_pipe_does_not_block(pipe):
    with pytest.raises(FileNotFoundError, match=r"pipe: expected a file, but this is a pipe"):
        files.open_binary(str(pipe))


def test_a_pipe_or_a_device_is_never_replaced_by_a_file(pipe):
    for path in (str(pipe), os.devnull):
        with (
            pytest.raises(ValueError, match=f"{path}: cannot write a file here"),
            files.write_atomically(path),
        ):
            pass
    assert pipe.is_fifo()
    assert not os.path.isfile(os.devnull)


def test_text_is_read_as_utf8_without_its_byte_order_mark(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeff河流\nriver\n".encode())
    assert files.read_text(str(path)) == "河流\nriver\n"


def test_a_byte_order_mark_in_the_middle_is_kept(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("a\ufeffb".encode())
    assert files.read_text(str(path)) == "a\ufeffb"


def test_the_error_for_another_encoding_names_the_line_and_the_remedy(tmp_path):
    path = tmp_path / "gbk.txt"
    path.write_bytes(b"plain\nplain\n" + "河流".encode("gb18030"))
    with pytest.raises(ValueError, match=r"gbk\.txt, line 3: not UTF-8 \(byte 0xba.*iconv"):
        files.read_text(str(path))


def test_lines_are_counted_from_the_first_line_of_the_part():
    with pytest.raises(ValueError, match=r"big\.txt, line 1002: "):
        files.decode_utf8(b"one\n\xff", "big.txt", first_line=1001)


def make(folder, *names):
    for name in names:
        (folder / name).write_text(name)
    return [str(folder / name) for name in names]


def test_patterns_expand_to_sorted_files_without_duplicates(tmp_path):
    b, a, c = make(tmp_path, "b.txt", "a.txt", "c.tfrecord")
    found = files.expand_patterns(f"{tmp_path}/*.tfrecord, {tmp_path}/*.txt,{a}", "--input_file")
    assert found == [c, a, b]


def test_patterns_may_be_a_list(tmp_path):
    (a,) = make(tmp_path, "a,b.txt")
    assert files.expand_patterns([a], "--input_file") == [a]


def test_the_error_for_a_pattern_without_a_match_names_its_flag(tmp_path):
    (a,) = make(tmp_path, "a.txt")
    with pytest.raises(ValueError, match=r"--input_file: '.*/b\*' matches no file"):
        files.expand_patterns(f"{a},{tmp_path}/b*", "--input_file")


@pytest.mark.parametrize("nothing", ["", " , ", []])
def test_an_empty_list_of_patterns_is_rejected(nothing):
    with pytest.raises(ValueError, match="--input_file: expected at least one file name"):
        files.expand_patterns(nothing, "--input_file")


def test_a_directory_is_created_empty_with_its_parents(tmp_path):
    path = tmp_path / "a" / "b"
    files.ensure_directory(str(path), "--output_dir")
    files.ensure_directory(str(path))
    assert path.is_dir()
    assert not list(path.iterdir())
    files.ensure_directory("")  # the current one


def test_an_existing_directory_keeps_its_files(tmp_path):
    make(tmp_path, "mine.txt")
    files.ensure_directory(str(tmp_path), "--output_dir")
    assert (tmp_path / "mine.txt").read_text() == "mine.txt"


def test_the_error_for_a_directory_that_cannot_be_created_names_its_flag(tmp_path):
    (a,) = make(tmp_path, "a")
    with pytest.raises(ValueError, match=r"--output_dir: cannot write to '.*/a/b'"):
        files.ensure_directory(f"{a}/b", "--output_dir")
    with pytest.raises(NotADirectoryError):
        files.ensure_directory(f"{a}/b")


def test_a_directory_without_write_permission_is_rejected(tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(ValueError, match=r"--output_dir: cannot write to .*[Pp]ermission"):
        files.ensure_directory(str(tmp_path), "--output_dir")


@pytest.mark.parametrize(("mode", "content"), [("w", "河流\n"), ("wb", b"\x00\xff")])
def test_a_file_only_appears_when_it_is_complete(tmp_path, mode, content):
    path = tmp_path / "out"
    with files.write_atomically(str(path), mode) as stream:
        stream.write(content)
        assert not path.exists()
    assert path.read_bytes() == (content.encode() if mode == "w" else content)
    assert os.listdir(tmp_path) == ["out"]


def write(path, content):
    with files.write_atomically(path) as stream:
        stream.write(content)


def write_half(path):
    with files.write_atomically(path) as stream:
        stream.write("half of the n")
        raise RuntimeError("disk")


def test_a_failed_write_leaves_only_the_old_file(tmp_path):
    path = tmp_path / "out"
    path.write_text("old")
    with pytest.raises(RuntimeError, match="disk"):
        write_half(str(path))
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out"]


def test_a_full_disk_is_reported_and_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "out"
    path.write_text("old")

    def fail(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with (
        pytest.raises(OSError, match=r"No space left on device\. Free.*run.*again: '.*/out'"),
        files.write_atomically(str(path)) as stream,
    ):
        stream.write("new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out"]


def test_a_missing_folder_is_not_created_silently(tmp_path):
    with (
        pytest.raises(FileNotFoundError),
        files.write_atomically(str(tmp_path / "no" / "out")) as stream,
    ):
        stream.write("")


@pytest.mark.parametrize("check", [files.check_file, files.check_directory])
def test_the_error_for_a_missing_path_names_its_flag(tmp_path, check):
    with pytest.raises(FileNotFoundError, match=r"^--name: .*/none: no such .*current directory"):
        check(f"{tmp_path}/none", "--name")
    with pytest.raises(ValueError, match=r"^nfs://host: .*nfs"):
        check("nfs://host", "--name")


def test_files_and_directories_are_distinguished(tmp_path):
    (a,) = make(tmp_path, "a")
    files.check_file(a, "--name")
    files.check_directory(str(tmp_path), "--name")
    with pytest.raises(FileNotFoundError, match="expected a file"):
        files.check_file(str(tmp_path), "--name")
    with pytest.raises(FileNotFoundError, match="no such directory"):
        files.check_directory(a, "--name")


def test_an_output_folder_is_checked_without_creating_it(tmp_path, monkeypatch):
    (a,) = make(tmp_path, "a")
    files.check_writable(f"{tmp_path}/b/c", "--output_dir")
    files.check_writable("", "--output_dir")
    files.check_writable(f"file://{tmp_path}/remote", "--output_dir")
    assert os.listdir(tmp_path) == ["a"]
    with pytest.raises(ValueError, match=r"--output_dir: cannot write to '.*/c': .*/a is not a"):
        files.check_writable(f"{a}/b/c", "--output_dir")
    monkeypatch.setattr(os, "access", lambda path, mode: path != f"{tmp_path}/.")
    with pytest.raises(ValueError, match=r"--output_dir: cannot write to '.*/b': .* is not a"):
        files.check_writable(f"{tmp_path}/b", "--output_dir")


@pytest.fixture
def remote(tmp_path):
    """A folder in the file system of fsspec that needs no network and keeps its files."""
    folder = f"file://{tmp_path}"
    files.ensure_directory(folder, "--output_dir")
    return folder


def test_remote_folders_are_created_empty(remote):
    files.ensure_directory(f"{remote}/a/b", "--output_dir")
    assert files.list_directory(remote) == ["a"]
    assert files.list_directory(f"{remote}/a/b") == []
    assert files.is_directory(f"{remote}/a")
    assert not files.is_directory(f"{remote}/b")
    assert not files.exists(f"{remote}/b")
    with pytest.raises(FileNotFoundError):
        files.list_directory(f"{remote}/b")


@pytest.mark.parametrize(("mode", "content"), [("w", "河流\n"), ("wb", b"\x00\xff")])
def test_a_remote_file_only_appears_when_it_is_complete(remote, mode, content):
    with files.write_atomically(f"{remote}/out", mode) as stream:
        stream.writelines([content, content])
        assert files.list_directory(remote) == []
    expected = content.encode() if mode == "w" else content
    with files.open_binary(f"{remote}/out") as stream:
        assert stream.read() == 2 * expected
    assert files.list_directory(remote) == ["out"]
    assert files.file_size(f"{remote}/out") == 2 * len(expected)
    assert files.is_file(f"{remote}/out")
    assert not files.is_directory(f"{remote}/out")


def test_a_failed_remote_write_leaves_only_the_old_file(remote):
    write(f"{remote}/out", "old")
    with pytest.raises(RuntimeError, match="disk"):
        write_half(f"{remote}/out")
    assert files.read_text(f"{remote}/out") == "old"
    assert files.list_directory(remote) == ["out"]


def test_remote_files_are_renamed_copied_and_removed(remote):
    write(f"{remote}/a", "one")
    write(f"{remote}/b", "two")
    files.rename(f"{remote}/a", f"{remote}/b")
    files.copy(f"{remote}/b", f"{remote}/c")
    assert files.list_directory(remote) == ["b", "c"]
    assert files.read_text(f"{remote}/b") == files.read_text(f"{remote}/c") == "one"
    files.remove(f"{remote}/b")
    files.ensure_directory(f"{remote}/d/e", "--output_dir")
    files.remove_tree(f"{remote}/d")
    assert files.list_directory(remote) == ["c"]


def test_remote_files_can_be_read_in_parts(remote):
    write(f"{remote}/a", "0123456789")
    with files.open_binary(f"{remote}/a") as stream:
        assert stream.read(3) == b"012"
        assert stream.seek(-2, os.SEEK_END) == 8
        assert stream.read() == b"89"
        assert stream.seek(1) == stream.tell() == 1
        stream.seek(2, os.SEEK_CUR)
        assert list(stream) == [b"3456789"]


def test_remote_patterns_expand_to_sorted_files(remote):
    for name in ("b.txt", "a.txt", "c"):
        write(f"{remote}/{name}", "")
    found = files.expand_patterns(f"{remote}/*.txt,{remote}/c", "--input_file")
    assert found == [f"{remote}/{name}" for name in ("a.txt", "b.txt", "c")]
    with pytest.raises(ValueError, match=r"--input_file: '.*nowhere/\*' matches no file"):
        files.expand_patterns(f"{remote}/nowhere/*", "--input_file")


def test_the_error_for_a_missing_remote_file_names_it(remote):
    with pytest.raises(FileNotFoundError, match=r"/b: no such file"):
        files.open_binary(f"{remote}/b")
    with pytest.raises(FileNotFoundError, match="this is a directory"):
        files.open_binary(remote)


@pytest.mark.parametrize(
    "use",
    [
        files.check_writable,
        files.ensure_directory,
        lambda path, what: write(path, what),
    ],
)
def test_a_tilde_that_the_shell_left_in_a_path_is_refused(tmp_path, monkeypatch, use):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").touch()
    monkeypatch.setenv("HOME", "/home/me")
    message = r"~/zz: the shell has not replaced ~\. Write /home/me/zz, or \./~/zz for"
    with pytest.raises(ValueError, match=message):
        use("~/zz", "--name")
    assert os.listdir() == ["a.txt"]
    files.ensure_directory("./~/zz", "--name")
    write("~no-such-user", "")
    assert {"~", "~no-such-user"} <= set(os.listdir())


def test_no_client_is_imported_before_it_is_needed(tmp_path):
    pytest.importorskip("s3fs", reason="needs the extra s3")
    make(tmp_path, "a.txt")
    code = (
        "import sys; from albert_tf import files; assert 'fsspec' not in sys.modules; "
        f"files.read_text(files.expand_patterns({str(tmp_path / '*')!r}, 'x')[0]); "
        "files.check_path('s3://bucket/a'); "
        "sys.exit(bool({'tensorflow', 's3fs', 'gcsfs', 'aiohttp'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_file_size_is_in_bytes(tmp_path):
    (tmp_path / "text.txt").write_text("字\n", encoding="utf-8", newline="")
    assert files.file_size(str(tmp_path / "text.txt")) == 4


def test_folders_are_not_files(tmp_path):
    (tmp_path / "a").touch()
    assert files.is_file(str(tmp_path / "a"))
    assert not files.is_file(str(tmp_path / "b"))
    assert not files.is_file(str(tmp_path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"a": ', "not JSON: Expecting value"),
        ("[1]", "expected a JSON object, got list"),
    ],
)
def test_invalid_json_is_rejected(tmp_path, content, message):
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=rf"a\.json: {message}"):
        files.read_json(str(path))


FIELDS = {"step": int, "metrics": dict[str, float], "labels": list[str], "note": dict | None}
OWN = {"step": 3, "metrics": {"loss": 1, "accuracy": 0.5}, "labels": ["a"]}


def test_json_written_by_this_package_can_be_read(tmp_path):
    path = tmp_path / "a.jsonl"
    assert files.read_own_json_lines(str(path), FIELDS) == []
    path.write_text("")
    assert files.read_own_json_lines(str(path), FIELDS) == []
    more = OWN | {"note": {"x": [1]}, "other": 5}
    path.write_text(json.dumps(OWN) + "\n" + json.dumps(more) + "\n")
    assert files.read_own_json_lines(str(path), FIELDS) == [OWN, more]
    path.write_text(json.dumps(OWN))
    assert files.read_json(str(path), FIELDS) == OWN


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step": None}, "'step' is None, expected int"),
        ({"step": True}, "'step' is True, expected int"),
        ({"step": 3.0}, "'step' is 3.0, expected int"),
        ({"metrics": [1]}, r"'metrics' is \[1\], expected dict"),
        ({"labels": "a"}, "'labels' is 'a', expected list"),
        ({"note": 5}, r"'note' is 5, expected dict \| None"),
    ],
)
def test_json_with_a_field_of_the_wrong_type_is_rejected(tmp_path, changes, message):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(OWN) + "\n" + json.dumps(OWN | changes) + "\n")
    with pytest.raises(ValueError, match=rf"a\.jsonl, line 2: {message}"):
        files.read_own_json_lines(str(path), FIELDS)


def test_the_part_of_a_line_that_a_kill_left_is_ignored_and_replaced(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(OWN) + "\n" + '{"step": 4, "met')
    assert files.read_own_json_lines(str(path), FIELDS) == [OWN]
    files.append_json_lines(str(path), [OWN, OWN])
    assert files.read_own_json_lines(str(path), FIELDS) == [OWN, OWN, OWN]


@pytest.mark.parametrize("line", ["", "{", "[]", "{}", '{"step": 3'])
def test_the_error_for_damaged_json_names_the_line(tmp_path, line):
    path = tmp_path / "a.jsonl"
    path.write_text(f"{json.dumps(OWN)}\n{line}\n{json.dumps(OWN)}\n")
    with pytest.raises(ValueError, match=r"a\.jsonl, line 2: "):
        files.read_own_json_lines(str(path), FIELDS)


def read_task(path):
    custom.find_task("tsv", os.path.dirname(path), CustomDataSettings())


def read_text(path):
    for chunk in corpus.read_chunks([path], 1 << 20, "jsonl"):
        list(sentences_of(chunk.parts, TextSettings(input_format="jsonl")))


def read_inputs(path):
    list(reading.read_blocks(path, "jsonl", parse_pair))


READERS = [read_task, read_text, read_inputs, AlbertConfig.from_json_file]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("keys", [[f"key {n}" for n in range(3000)], ["long" * 3000]])
def test_an_error_about_a_file_quotes_little_of_it(tmp_path, read, keys):
    path = tmp_path / "train.jsonl"
    path.write_text(json.dumps(dict.fromkeys(keys, "x")) + "\n")
    with pytest.raises(ValueError, match=r"'key 0', |'longlong") as caught:
        read(str(path))
    assert len(str(caught.value)) < 1000 + len(str(path))


def test_a_failed_append_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "log"
    files.append_json_lines(str(path), [{"the": "boat"}])

    def fail(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match=r"Free some space and run the same command again: '.*log'"):
        files.append_json_lines(str(path), [{"at the": "landing"}])
    assert path.read_text() == '{"the": "boat"}\n'


def test_no_path_is_no_file_and_no_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert not any(check("") for check in (files.exists, files.is_file, files.is_directory))


def test_a_kill_while_a_folder_is_checked_leaves_nothing(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    for place in folders_at_each_event(
        folder, tmp_path / "at", lambda: files.ensure_directory(str(folder), "--output_dir")
    ):
        assert not list(place.iterdir())


def test_what_a_kill_left_of_a_file_is_removed(tmp_path):
    left = ["a.npy.0a1b2c3d.tmp", "a.npy", "a.npy.tmp", "b.npy.0a1b2c3d.tmp"]
    for name in left:
        (tmp_path / name).write_text("x")
    files.remove_half_written([str(tmp_path / "a.npy")])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(left[1:])
