"""Calls signatures of a SavedModel as TensorFlow Serving's REST interface does.

After https://www.tensorflow.org/tfx/serving/api_rest: rows (`instances`) or columns (`inputs`), by
name or, where there is only one, without; strings as text or `{"b64": …}`. Numbers come back as
numbers, strings as text, and outputs whose names end in `_bytes` as `{"b64": …}`.
"""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import threading

import numpy as np
import tensorflow as tf

DEFAULT_SIGNATURE = "serving_default"


def respond(signatures, body):
    """Returns the JSON response to a request; raises ValueError for status 400."""
    request = json.loads(body)
    name = request.get("signature_name", DEFAULT_SIGNATURE)
    if name not in signatures:
        raise ValueError(f'Serving signature name: "{name}" not found in signature def')
    if ("instances" in request) == ("inputs" in request):
        raise ValueError("Missing 'inputs' or 'instances' key")
    specs = signatures[name].structured_input_signature[1]
    by_rows = "instances" in request
    columns = columns_of_rows(request["instances"]) if by_rows else request["inputs"]
    if not is_object(columns):
        if len(specs) != 1:
            raise ValueError(f"named inputs were expected: {sorted(specs)}")
        columns = {next(iter(specs)): columns}
    if columns.keys() != specs.keys():
        raise ValueError(f"inputs {sorted(columns)}: the signature has {sorted(specs)}")
    outputs = signatures[name](
        **{key: tf.constant(decoded(columns[key]), spec.dtype) for key, spec in specs.items()}
    )
    found = {key: encoded(key, value.numpy()) for key, value in outputs.items()}
    if not by_rows:
        return {"outputs": found if len(found) > 1 else next(iter(found.values()))}
    if any(not value.shape.rank for value in outputs.values()):
        raise ValueError("Tensor has no batch dimension: ask by columns")
    rows = [dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)]
    return {"predictions": [row if len(row) > 1 else next(iter(row.values())) for row in rows]}


def is_object(value):
    return isinstance(value, dict) and value.keys() != {"b64"}


def columns_of_rows(rows):
    if not is_object(rows[0]):
        return rows
    if any(row.keys() != rows[0].keys() for row in rows):
        raise ValueError("all rows must have the same keys")
    return {key: [row[key] for row in rows] for key in rows[0]}


def decoded(value):
    if isinstance(value, list):
        return [decoded(item) for item in value]
    return base64.b64decode(value["b64"], validate=True) if isinstance(value, dict) else value


def encoded(name, value):
    if value.dtype != np.dtype(object):
        return value.tolist()
    if value.ndim:
        return [encoded(name, np.array(item, object)) for item in value]
    if name.endswith("_bytes"):
        return {"b64": base64.b64encode(value.item()).decode()}
    return value.item().decode()


@contextlib.contextmanager
def served(signatures, name):
    """Serves a model on this machine, and yields its URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, content = 200, None
            try:
                if self.path != f"/v1/models/{name}:predict":
                    raise ValueError(f"Malformed request: POST {self.path}")
                content = respond(signatures, body)
            except ValueError as error:
                status, content = 400, {"error": str(error)}
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        def log_message(self, *args):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/models/{name}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
