"""Opens, finds and safely writes local and remote files: `files.read_json(path)`.

A path with a scheme, such as `gs://bucket/name`, belongs to a file system of fsspec, which is
imported on first use with the package that the scheme needs (an extra). Credentials, time limits
and errors are those of that package.

Object stores have no directories, only names with slashes, and an object appears whole or not at
all, when its upload is complete.
"""

from albert_tf.files.checks import (
    check_directory,
    check_file,
    check_outputs,
    check_writable,
    ensure_directory,
)
from albert_tf.files.disk_errors import naming_file
from albert_tf.files.hidden_directory import hidden_directory, remove_abandoned
from albert_tf.files.included import find_included
from albert_tf.files.json_files import (
    Json,
    JsonFields,
    JsonObject,
    RepeatedNameError,
    append_json_lines,
    check_fields,
    load_json,
    parse_json,
    read_json,
    read_json_if_there,
    read_own_json_lines,
    unique_object,
    write_json,
    write_json_lines,
)
from albert_tf.files.paths import (
    check_path,
    exists,
    expand_patterns,
    inside,
    is_directory,
    is_file,
    is_remote,
    join,
    list_directory,
    list_sizes,
    list_types,
    real_path,
    unset_variable,
)
from albert_tf.files.quoting import quote, quote_all
from albert_tf.files.reading import (
    MAX_LINE,
    MAX_WHOLE,
    decode_utf8,
    file_size,
    local_copy,
    open_binary,
    read_bytes,
    read_lines,
    read_start,
    read_text,
)
from albert_tf.files.replacement import current, finish_replacing, replacing
from albert_tf.files.writing import (
    HALF_WRITTEN,
    copy,
    publish_directory,
    remove,
    remove_half_written,
    remove_tree,
    rename,
    write_atomically,
    write_file,
)

__all__ = [
    "HALF_WRITTEN",
    "MAX_LINE",
    "MAX_WHOLE",
    "Json",
    "JsonFields",
    "JsonObject",
    "RepeatedNameError",
    "append_json_lines",
    "check_directory",
    "check_fields",
    "check_file",
    "check_outputs",
    "check_path",
    "check_writable",
    "copy",
    "current",
    "decode_utf8",
    "ensure_directory",
    "exists",
    "expand_patterns",
    "file_size",
    "find_included",
    "finish_replacing",
    "hidden_directory",
    "inside",
    "is_directory",
    "is_file",
    "is_remote",
    "join",
    "list_directory",
    "list_sizes",
    "list_types",
    "load_json",
    "local_copy",
    "naming_file",
    "open_binary",
    "parse_json",
    "publish_directory",
    "quote",
    "quote_all",
    "read_bytes",
    "read_json",
    "read_json_if_there",
    "read_lines",
    "read_own_json_lines",
    "read_start",
    "read_text",
    "real_path",
    "remove",
    "remove_abandoned",
    "remove_half_written",
    "remove_tree",
    "rename",
    "replacing",
    "unique_object",
    "unset_variable",
    "write_atomically",
    "write_file",
    "write_json",
    "write_json_lines",
]
