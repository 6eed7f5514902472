"""Calls signatures of a SavedModel as TensorFlow Serving's REST interface does.

After https://www.tensorflow.org/tfx/serving/api_rest: rows (`instances`) or columns (`inputs`) by
name; strings as text or `{"b64": …}`. Numbers come back as numbers, strings as text.
"""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import threading

import numpy as np
import tensorflow as tf


def respond(signatures, body):
    """Returns the JSON response to a request."""
    request = json.loads(body)
    signature = signatures[request["signature_name"]]
    specs = signature.structured_input_signature[1]
    columns = request.get("inputs") or columns_of_rows(request["instances"])
    found = signature(
        **{name: tf.constant(decoded(columns[name]), spec.dtype) for name, spec in specs.items()}
    )
    outputs = {name: encoded(value.numpy()) for name, value in found.items()}
    if "inputs" in request:
        return {"outputs": outputs}
    rows = zip(*outputs.values(), strict=True)
    return {"predictions": [dict(zip(outputs, values, strict=True)) for values in rows]}


def columns_of_rows(rows):
    return {key: [row[key] for row in rows] for key in rows[0]}


def decoded(value):
    if isinstance(value, list):
        return [decoded(item) for item in value]
    return base64.b64decode(value["b64"], validate=True) if isinstance(value, dict) else value


def encoded(value):
    if value.dtype != np.dtype(object):
        return value.tolist()
    return [item.decode() for item in value]


@contextlib.contextmanager
def served(signatures, name):
    """Serves a model on this machine, and yields its URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            is_known = self.path == f"/v1/models/{name}:predict"
            error = {"error": f"Malformed request: POST {self.path}"}
            content = respond(signatures, body) if is_known else error
            self.send_response(200 if is_known else 400)
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
