#!/usr/bin/env python3
"""Mutated files of data, and models with files beside them, into `shunt push`, built with sanitizers: each
is taken or refused, in bounded time and memory, what is taken is a whole set, and no file is sent that is
not the model's.

Without it: a table, an array or a picture from somewhere could end the program that reads it, or become a
set that is not what the file says. The server is played here; what it is sent is read by another reader.

Usage: datasets.py [--count N] [--first I] [--seed S] [--keep DIR]        SHUNT_BIN: where the programs are
"""
import http.server
import io
import json
import math
import os
import struct
import sys
import tarfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import packages  # noqa: E402
packages.enter(__file__)
import cases  # noqa: E402
import datafiles  # noqa: E402
from cases import Finding  # noqa: E402

BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "U64": 8, "I32": 4, "U32": 4, "I16": 2, "U16": 2,
         "I8": 1, "U8": 1, "BOOL": 1}
MAX_SENT = 256 << 20


class Server(http.server.ThreadingHTTPServer):
    """Takes one dataset: what was sent is .sent"""
    daemon_threads = True
    sent = None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def say(self, status, reply):
        body = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.say(404, {"error": "there is no such thing", "code": "NOTFOUND"})

    def do_DELETE(self):
        self.say(404, {"error": "there is no such thing", "code": "NOTFOUND"})

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.say(201, {"name": "d", "version": 1})

    def do_PUT(self):
        n = int(self.headers["Content-Length"])
        if n > MAX_SENT:
            self.close_connection = True
            self.say(413, {"error": "that is too much for here", "code": "TOOBIG"})
            return
        self.server.sent = self.rfile.read(n)
        self.say(200, {"name": "d", "bytes": n, "n_samples": 1, "version": 1, "state": "REGISTERED"})


def check_set(data):
    """A dataset as docs/training.md has it; raises Finding."""
    try:
        (n,) = struct.unpack_from("<Q", data)
        head = json.loads(data[8:8 + n].decode())
        head.pop("__metadata__", None)
        at, samples = 0, set()
        for name, e in sorted(head.items(), key=lambda x: x[1]["data_offsets"]):
            begin, end = e["data_offsets"]
            assert begin == at and end - begin == BYTES[e["dtype"]] * math.prod(e["shape"]), name
            samples.add(e["shape"][0] if e["shape"] else None)
            at = end
        assert 8 + n + at == len(data), "what follows the last tensor"
    except (AssertionError, KeyError, TypeError, ValueError, IndexError, struct.error) as e:
        raise Finding("what was sent is no safetensors file: %r" % e) from e
    return head, samples


class Case(cases.Case):
    endings = (0, 1, 2)  # the last: of options that mean nothing

    def __init__(self, number, seed, folder, server):
        super().__init__(number, seed, folder)
        self.server = server

    def make(self):
        os.makedirs(os.path.join(self.at, "in"))
        os.makedirs(os.path.join(self.at, "tmp"))
        open(os.path.join(self.at, "none.conf"), "w").close()
        make = self.r.choice(datafiles.ALL)
        self.args, what = make(os.path.join(self.at, "in"), self.r)
        self.what = [*what.split(), *self.args]

    def kept(self):
        return {"in": os.path.join(self.at, "in")}

    def run(self):
        self.server.sent = None
        noun = "model" if self.what[0] == "model" else "dataset"
        where = ["--tmp-dir", os.path.join(self.at, "tmp")] if noun == "dataset" else []
        rc, _ = self.program("shunt", "push", noun, "d", *self.args, "--quiet", *where, "--server",
                             "http://127.0.0.1:%d" % self.server.server_port,
                             env={"SHUNT_KEY": "shunt_key", "SHUNT_CONFIG": os.path.join(self.at, "none.conf")})
        left = os.listdir(os.path.join(self.at, "tmp"))
        if left:
            raise Finding("files are left: %s" % left)
        if rc:
            return "refused"
        if self.server.sent is None:
            raise Finding("it said that it had sent what it had not")
        if datafiles.SECRET in self.server.sent:
            raise Finding("it has sent what the file may not name")
        if os.path.isfile(self.args[0]):
            with open(self.args[0], "rb") as f:
                if f.read() == self.server.sent:
                    return "sent as they are"  # the server looks into it
        if noun == "model":
            self.check_packed()
            return "sent"
        _, samples = check_set(self.server.sent)
        if len(samples) != 1 or None in samples:
            raise Finding("what was sent has tensors of %s samples" % samples)
        return "sent"


    def check_packed(self):
        """A tar file of the model and of files that lie below it."""
        try:
            with tarfile.open(fileobj=io.BytesIO(self.server.sent)) as t:
                for m in t.getmembers():
                    path = self.args[0] if m.name == "model.onnx" else \
                        os.path.join(os.path.dirname(self.args[0]), m.name)
                    with open(path, "rb") as f:
                        if not m.isreg() or f.read() != t.extractfile(m).read():
                            raise Finding("%s was sent with other bytes" % m.name)
        except (tarfile.TarError, OSError, ValueError) as e:
            raise Finding("what was sent is no tar file: %r" % e) from e


def start(_):
    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return lambda number, seed, folder: Case(number, seed, folder, server)


def main():
    options = cases.options_of(__doc__, 5000).parse_args()
    return cases.main(options, start, ("sent", "sent as they are", "refused"))


if __name__ == "__main__":
    sys.exit(main())
