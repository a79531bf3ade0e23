"""What needs no server, and what one that misbehaves does to the client."""
import asyncio
import contextlib
import http.server
import io
import json
import os
import pickle
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import unittest
import unittest.mock

import numpy as np

import shunt
from shunt import _config, _errors, _onnx, _shm, _tensors, _v2
from shunt._sync import http as sending
from shunt._tensors import Payload, safetensors

ERR_H = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "common", "err.h")


class Errors(unittest.TestCase):
    @unittest.skipUnless(os.path.exists(ERR_H), "not in the tree of the server")
    def test_each_reason_code_of_the_server_has_its_exception(self):
        with open(ERR_H, encoding="utf-8") as f:
            codes = dict(re.findall(r"X\(-\d+, (\w+), (\d+),", f.read()))
        self.assertGreater(len(codes), 20)
        self.assertEqual(set(codes), set(_errors.BY_CODE))
        for c in _errors.BY_CODE.values():
            self.assertIs(getattr(shunt, c.__name__), c)

    def test_a_code_of_a_later_release_is_told_by_its_status(self):
        e = _errors.api_error(503, {"code": "NEWER", "detail": "why"}, 2.0)
        self.assertIsInstance(e, shunt.Unavailable)
        self.assertEqual((e.code, e.retry_after_s), ("NEWER", 2.0))
        self.assertIn("why", str(e))

    def test_they_come_out_of_a_worker_process(self):
        job = {"id": 3, "state": "FAILED", "error": "why"}
        for e in (_errors.api_error(503, {"code": "SLO", "detail": "why"}, 2.0), _errors.JobFailed(job),
                  _errors.ModelFailed({"model": "m", "version": 1, "state": "FAILED", "reason": "why"}),
                  _errors.ConnectionFailed("why"), _errors.WaitTimeout("why"), _errors.ConfigError("why")):
            back = pickle.loads(pickle.dumps(e))
            self.assertEqual((type(back), str(back)), (type(e), str(e)))
            self.assertEqual({**vars(back), "made_of": 0}, {**vars(e), "made_of": 0})

    def test_all_that_is_wrong_is_told(self):
        e = _errors.api_error(400, {"code": "INVALID", "detail": "first", "errors": [
            {"pointer": "/a", "detail": "first"}, {"pointer": "/b", "detail": "second"}]}, None)
        self.assertEqual(str(e), "first (INVALID); /b: second")


class Package(unittest.TestCase):
    def test_all_names_are_told_to_those_who_check_types(self):
        errors = {k for k, v in vars(_errors).items() if isinstance(v, type) and issubclass(v, Exception)}
        self.assertLessEqual(errors, set(shunt.__all__))
        self.assertFalse([n for n in shunt.__all__ if not hasattr(shunt, n)])


class Config(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "config")
        here = os.getcwd()
        os.chdir(self.folder.name)
        self.addCleanup(os.chdir, here)

    def find(self, text="", env=(), **given):
        with open(self.path, "w", encoding="utf-8") as f:
            f.write(text)
        with unittest.mock.patch.dict(os.environ, {"SHUNT_CONFIG": self.path, "HOME": "/nonexistent", **dict(env)},
                                      clear=True):
            return _config.find_settings(**given)

    def test_the_first_place_wins(self):
        text = "profile = used\nkey = file\n[used]\nkey = used\nserver = http://used\n[named]\nkey = named\n"
        self.assertEqual(self.find(text).key, "used")
        self.assertEqual(self.find(text, {"SHUNT_KEY": "env"}).key, "env")
        self.assertEqual(self.find(text, {"SHUNT_KEY": "env"}, profile="named").key, "named")
        self.assertEqual(self.find(text, {"SHUNT_KEY": "env"}, profile="named", key="given").key, "given")
        self.assertEqual(self.find(text, profile="").key, "file")
        self.assertEqual(self.find(text).server, "http://used")
        self.assertEqual(self.find(text, {"SHUNT_PROFILE": "named"}).server, _config.DEFAULT_SERVER)

    def test_no_key_and_no_such_profile(self):
        with self.assertRaisesRegex(shunt.ConfigError, "SHUNT_KEY"):
            self.find()
        with self.assertRaisesRegex(shunt.ConfigError, "there is no profile x"):
            self.find(profile="x")

    def test_a_folder_that_is_named_means_its_own_system(self):
        with self.assertRaisesRegex(shunt.ConfigError, "no system runs"):
            self.find(state_dir=self.folder.name, key="k")

    def test_a_key_file(self):
        path = os.path.join(self.folder.name, "k")
        with open(path, "w", encoding="utf-8") as f:
            f.write("secret\n")
        self.assertEqual(self.find(key_file=path).key, "secret")
        with self.assertRaisesRegex(shunt.ConfigError, "cannot read the key"):
            self.find(key_file=path + "x")


    def test_what_is_no_server(self):
        for bad in ("localhost:8000", "ftp://a", "http://", "http://a:b", "http://a:99999", "http://u:p@a", "http://a?b"):
            with self.assertRaisesRegex(shunt.ConfigError, "is no server", msg=bad):
                self.find(server=bad, key="k")
        self.assertEqual(self.find(server="HTTPS://a/b/", key="k").server, "https://a/b")
        self.assertEqual(self.find(server="http://[::1]:80/", key="k").server, "http://[::1]:80")

    def test_keys(self):
        self.assertEqual(self.find(env={"SHUNT_KEY": "secret\n"}).key, "secret")
        for bad in ("a\nb", "a b", "\u00e4"):
            with self.assertRaisesRegex(shunt.ConfigError, "API key"):
                self.find(key=bad)
        self.assertNotIn("secret", repr(self.find(key="secret")))

    def test_authorities_that_are_none(self):
        for path in ("/nonexistent", ERR_H if os.path.exists(ERR_H) else __file__):
            with self.assertRaisesRegex(shunt.ConfigError, "authorities"):
                shunt.Client("https://127.0.0.1:1", "k", ca_file=path)


def field(number, value):
    """Of a message of protobuf."""
    def varint(n):
        out = b""
        while n > 127:
            out, n = out + bytes([n & 127 | 128]), n >> 7
        return out + bytes([n])
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def external(location):
    entry = field(13, field(1, b"location") + field(2, location.encode()))
    return field(7, field(5, field(8, b"w") + field(2, 1) + field(1, 1) + entry))


class Onnx(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, data, name="m.onnx"):
        path = os.path.join(self.folder.name, "models", name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(data)
        return path

    def test_weights_from_outside_of_the_folder_are_not_sent(self):
        secret = self.write(b"abcd", "../secret")
        for bad in ("../secret", secret, "a/../../secret", "..\\secret", "\\\\host\\secret"):
            path = self.write(external(bad))
            for read in (_onnx.payload, _onnx.initializers):
                with self.assertRaisesRegex(ValueError, "not in its folder", msg=bad):
                    read(path)
        for link, to in (("w", secret), ("d", os.path.dirname(secret))):
            os.symlink(to, self.write(b"", "m.onnx").replace("m.onnx", link))
            with self.assertRaisesRegex(ValueError, "is a link"):
                _onnx.payload(self.write(external("w" if link == "w" else "d/secret")))
        self.write(b"abcd", "a/w:0")
        path = self.write(external("a/w:0"))
        self.assertIn(b"abcd", b"".join(_onnx.payload(path).chunks()))
        self.assertEqual(_onnx.initializers(path)["w"].tobytes(), b"abcd")

    def test_what_is_said_of_a_model_is_a_part_of_it(self):
        said = _onnx.metadata("shunt.preprocess", json.dumps({"image": {"mean": [0.5] * 40}}))
        (number, entry), = _onnx._fields(memoryview(said))
        self.assertEqual(number, 14)
        self.assertEqual({n: bytes(v) for n, v in _onnx._fields(entry)}[1], b"shunt.preprocess")
        model = external("w")
        self.write(b"abcd", "w")
        with tarfile.open(fileobj=io.BytesIO(b"".join(_onnx.payload(self.write(model), said).chunks()))) as tar:
            files = {m.name: tar.extractfile(m).read() for m in tar}
        self.assertEqual(files, {"m.onnx": model + said, "w": b"abcd"})
        alone = self.write(field(7, b""), "alone.onnx")
        self.assertEqual(b"".join(_onnx.payload(alone, said).chunks()), field(7, b"") + said)

    def test_damaged_files(self):
        deep = b""
        for _ in range(3000):
            deep = field(1, field(5, field(6, deep)))
        good = external("w")
        for data in (b"", b"\x3a", b"\xff" * 1000000, b"\x3a\xff\xff", field(7, deep), b"PK\x03\x04" + bytes(90), good[:-3]):
            with self.assertRaises(ValueError, msg=data[:20]):
                _onnx.payload(self.write(data))

    def test_unsigned_numbers(self):
        def tensor(kind, value):
            return field(5, field(8, b"w%d" % kind) + field(2, kind) + field(1, 1) + field(11, value))
        got = _onnx.initializers(self.write(field(7, tensor(12, 1 << 31) + tensor(13, 1 << 63))))
        self.assertEqual({k: v.tolist() for k, v in got.items()}, {"w12": [1 << 31], "w13": [1 << 63]})


@unittest.skipUnless(os.path.isdir(_shm.FOLDER), "shared memory is Linux's")
class Regions(unittest.TestCase):
    def test_shapes(self):
        r = _shm.Region(1024)
        self.addCleanup(r.close)
        self.assertEqual([r.array(s).shape for s in (3, (), (0, 4), [2, 2])], [(3,), (), (0, 4), (2, 2)])
        for bad in ((-4,), (-1, 2)):
            with self.assertRaises(ValueError):
                r.array(bad)
        with self.assertRaises(MemoryError):
            r.array((1 << 32, 1 << 32))

    def test_nothing_is_left_behind_without_close(self):
        said = subprocess.run([sys.executable, "-c", "from shunt._shm import Region; import os\nr = Region(64)\n"
                               "if not os.fork(): raise SystemExit\nos.wait()\n"
                               "assert os.path.exists('/dev/shm' + r.key)\nprint(r.key)"],
                              check=True, stdout=subprocess.PIPE, text=True, env=os.environ)
        self.assertFalse(os.path.exists(_shm.FOLDER + said.stdout.strip()))

    def test_elsewhere_it_is_said(self):
        with unittest.mock.patch.object(_shm, "FOLDER", "/nonexistent"):
            with self.assertRaisesRegex(shunt.ShuntError, "shared memory"):
                _shm.Region(64)


class Tensors(unittest.TestCase):
    KINDS = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()

    def test_all_kinds_there_and_back(self):
        for kind in self.KINDS:
            a = np.arange(6).reshape(2, 3).astype(kind)
            t = _tensors.to_tensor("a", a)
            b = _tensors.to_array(t.datatype, t.shape, bytes(t.data))
            self.assertEqual((b.dtype, b.tolist()), (a.dtype, a.tolist()))

    def test_any_layout(self):
        a = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
        for b in (a.transpose(2, 0, 1), a[:, ::2], a[..., None][:, 1], a.astype(">f4"), a[0, 0, 0], a[:0]):
            t = _tensors.to_tensor("b", b)
            np.testing.assert_array_equal(_tensors.to_array(t.datatype, t.shape, bytes(t.data)), b)

    def test_what_is_no_number_is_refused(self):
        with self.assertRaisesRegex(TypeError, "tensor x has elements of type"):
            _tensors.to_tensor("x", ["a"])

    def test_casts_lose_no_kind(self):
        def cast(a, to):
            t = _tensors.cast("x", _tensors.to_tensor("x", a), to)
            return t.datatype, t.array.tolist()
        self.assertEqual(cast([0.5], "FP32"), ("FP32", [0.5]))
        self.assertEqual(cast([0.5], "INT64"), ("FP64", [0.5]))
        self.assertEqual(cast([1], "FP32"), ("FP32", [1.0]))
        self.assertEqual(cast([[0, 255]], "UINT8"), ("UINT8", [[0, 255]]))
        self.assertEqual(cast([], "INT64"), ("FP64", []))
        for bad, to in (([-1], "UINT8"), ([256], "UINT8"), ([1 << 31], "INT32")):
            with self.assertRaisesRegex(ValueError, "tensor x has numbers from"):
                cast(bad, to)

    def test_casts_to_bf16_round(self):
        t = _tensors.cast("x", _tensors.to_tensor("x", [1.0, -2.0, 1.00390625, 1.01171875, np.nan, np.inf]), "BF16")
        self.assertEqual((t.datatype, t.array.tolist()), ("BF16", [0x3F80, 0xC000, 0x3F80, 0x3F82, 0x7FC0, 0x7F80]))

    def test_bf16_without_its_type_is_widened(self):
        bits = np.array([0x3F80, 0xC000], "<u2").tobytes()
        got = _tensors.to_array("BF16", [2], bits)
        self.assertEqual(got.astype(np.float32).tolist(), [1.0, -2.0])

    def test_a_payload_from_any_position(self):
        with tempfile.NamedTemporaryFile() as f:
            f.write(bytes(range(200)))
            f.flush()
            p = Payload([b"ab", (f.name, 200), memoryview(b"cd"), b""])
            whole = b"ab" + bytes(range(200)) + b"cd"
            self.assertEqual(p.size, len(whole))
            for start in (0, 1, 2, 3, 150, 201, 202, 203, 204):
                self.assertEqual(b"".join(p.chunks(start, 7)), whole[start:])

    def test_safetensors_there_and_back(self):
        some = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "label": np.array([1, 2]), "none": np.zeros((0, 4))}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a")
            with open(path, "wb") as f:
                f.writelines(safetensors(some).chunks())
            got = _tensors.read_safetensors(path)
            self.assertEqual(list(got), list(some))
            for k, a in some.items():
                np.testing.assert_array_equal(got[k], a)

    def test_damaged_safetensors(self):
        good = b"".join(safetensors({"x": np.zeros(4, np.float32)}).chunks())
        size = int.from_bytes(good[:8], "little")

        def with_head(head):
            text = json.dumps(head).encode()
            return len(text).to_bytes(8, "little") + text + bytes(16)
        some = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
        damaged = [b"", good[:5], good[:20], good[:-1], (1 << 62).to_bytes(8, "little") + good[8:],
                   (size + 17).to_bytes(8, "little") + good[8:], with_head([]), with_head({"x": 1}),
                   with_head({"x": {**some, "dtype": "F8"}}), with_head({"x": {**some, "data_offsets": [-4, 12]}}),
                   with_head({"x": {**some, "data_offsets": [8, 24]}}), with_head({"x": {**some, "shape": [5]}})]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a")
            for data in damaged:
                with open(path, "wb") as f:
                    f.write(data)
                with self.assertRaises(ValueError, msg=data):
                    _tensors.read_safetensors(path)

    def test_a_smaller_result_in_shared_memory(self):
        placed = np.full((8, 2), 7, np.float32)

        def answer(shape, datatype="FP32"):
            text = json.dumps({"outputs": [{"name": "y", "datatype": datatype, "shape": shape, "parameters": {
                "shared_memory_region": "r", "shared_memory_byte_size": 64}}]}).encode()
            return _v2.answer(text, None, {"y": placed})["y"]
        self.assertIs(answer([8, 2]), placed)
        self.assertEqual(answer([3, 2]).shape, (3, 2))
        self.assertTrue(np.shares_memory(answer([3, 2]), placed))
        self.assertEqual((answer([2, 2], "INT64").shape, answer([2, 2], "INT64").dtype), ((2, 2), np.int64))

    def test_an_answer_that_is_none(self):
        for body, size in ((b"<html>", None), (b"{}", None), (b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": '
                                                              b'[4], "parameters": {"binary_data_size": 16}}]}', None)):
            with self.assertRaisesRegex(shunt.ShuntError, "answer"):
                _v2.answer(body, size, {})

    def test_rows_of_a_dataset(self):
        row = _tensors.Tensor("BF16", np.zeros(3, np.int16))
        self.assertEqual(_tensors.stacked("x", [row, row]).datatype, "BF16")
        self.assertEqual(_tensors.stacked("x", [1, 2.5]).array.tolist(), [1.0, 2.5])

    def test_a_request_and_its_answer(self):
        x = _tensors.to_tensor("x", np.arange(3, dtype=np.float32))
        headers, body = _v2.request({"x": x}, _v2.Wish(["y"], id="7", priority=2, timeout_s=0.5))
        n = int(headers["Inference-Header-Content-Length"])
        head = json.loads(body[:n])
        self.assertEqual(head, {
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [3], "parameters": {"binary_data_size": 12}}],
            "parameters": {"binary_data_output": True, "priority": 2, "timeout": 500000}, "outputs": [{"name": "y"}],
            "id": "7"})
        self.assertEqual(body[n:], x.data)
        text = json.dumps({"model_name": "m", "model_version": "4", "outputs": [
            {"name": "y", "datatype": "FP32", "shape": [3], "parameters": {"binary_data_size": 12}}]}).encode()
        got = _v2.answer(text + bytes(x.data), str(len(text)), {})
        self.assertEqual((got["y"].tolist(), got.model, got.version), ([0, 1, 2], "m", 4))


class Script(http.server.BaseHTTPRequestHandler):
    """Answers what the test has prepared, in turn: (status, headers, body), or "cut"."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def answer(self):
        server = self.server
        server.peers.append(self.client_address)
        size = int(self.headers.get("Content-Length") or 0)
        step = server.script.pop(0) if server.script else (200, {}, b"{}")
        if step == "cut":
            got = self.rfile.read(min(size, server.reads))
            server.seen.append((self.command, self.path, dict(self.headers), got))
            self.close_connection = True
            return
        server.seen.append((self.command, self.path, dict(self.headers), self.rfile.read(size)))
        status, headers, body = step
        self.send_response(status)
        for k, v in {"Content-Length": len(body), **headers}.items():
            self.send_header(k, str(v))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_DELETE = answer

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def server(*script, reads=0, retry_for=5):
    s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Script)
    s.daemon_threads, s.script, s.seen, s.reads, s.peers = True, list(script), [], reads, []
    thread = threading.Thread(target=s.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        with shunt.Client("http://127.0.0.1:%d" % s.server_port, "k", retry_for=retry_for) as c:
            yield c, s
    finally:
        s.shutdown()
        s.server_close()


def refusal(status, code, **headers):
    return status, {k.replace("_", "-"): v for k, v in headers.items()}, json.dumps(
        {"code": code, "detail": "because"}).encode()


@contextlib.contextmanager
def raw_server(*replies):
    """Each connection sends a request, gets the next of these bytes and is closed, or stays open for one more."""
    listening = socket.create_server(("127.0.0.1", 0))
    got = []

    def answer():
        for reply in replies:
            c, _ = listening.accept()
            with c:
                for part in reply if isinstance(reply, tuple) else (reply,):
                    text = b""
                    while b"\r\n\r\n" not in text:
                        text += c.recv(65536)
                    got.append(text)
                    c.sendall(part)
    threading.Thread(target=answer, daemon=True).start()
    try:
        with shunt.Client("http://127.0.0.1:%d" % listening.getsockname()[1], "k", retry_for=0) as c:
            yield c, got
    finally:
        listening.close()


class Replies(unittest.TestCase):
    """What a server or a proxy may write, and what none should."""

    JSON = b'{"model_name": "m", "model_version": "1", "outputs": []}'

    def head(self, *lines, status=b"200 OK", version=b"HTTP/1.1"):
        return version + b" " + status + b"\r\n" + b"".join(x + b"\r\n" for x in lines) + b"\r\n"

    def test_forms_of_a_reply(self):
        sized = b"Content-Length: %d" % len(self.JSON)
        for reply in (self.head(sized) + self.JSON,
                      self.head(b"content-length:%d" % len(self.JSON), b"Connection: close") + self.JSON,
                      self.head(b"Transfer-Encoding: chunked") + b"10;x=y\r\n" + self.JSON[:16] + b"\r\n%x\r\n" % len(
                          self.JSON[16:]) + self.JSON[16:] + b"\r\n0\r\nTrailer: 1\r\n\r\n",
                      self.head(b"X: y") + self.JSON,
                      self.head(sized, version=b"HTTP/1.0") + self.JSON,
                      self.head(status=b"100 Continue") + self.head(sized) + self.JSON,
                      b"HTTP/1.1 200\n" + sized + b"\n\n" + self.JSON):
            with raw_server(reply) as (c, got):
                self.assertEqual(c.infer("m", X).model, "m", reply)
                self.assertIn(b"\r\nHost: 127.0.0.1:", got[0])

    def test_a_connection_is_used_again_if_it_may_be(self):
        sized = self.head(b"Content-Length: %d" % len(self.JSON)) + self.JSON
        with raw_server((sized, sized)) as (c, got):
            c.infer("m", X), c.infer("m", X)
        with raw_server(self.head(b"Connection: close", b"Content-Length: %d" % len(self.JSON)) + self.JSON,
                        sized) as (c, got):
            c.infer("m", X), c.infer("m", X)
        with raw_server(sized, sized) as (c, got):  # the first is closed between the two
            c.infer("m", X), c.infer("m", X)

    def test_what_is_no_reply(self):
        for reply in (b"", b"SSH-2.0-x\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70000,
                      self.head(b"Content-Length: 100") + b"short", self.head(b"Content-Length: -1") + b"x",
                      self.head(b"Content-Length: 1x") + b"x", self.head(b"Transfer-Encoding: chunked") + b"zz\r\n",
                      self.head(b"Transfer-Encoding: chunked") + b"5\r\nab", b"HTTP/1.1 200 OK\r\nX: y\r\n",
                      b"HTTP/1.1 200 OK\r\n" + b"".join(b"X%d: y\r\n" % i for i in range(300)) + b"\r\n"):
            with raw_server(reply) as (c, got), self.assertRaises(shunt.ConnectionFailed, msg=reply[:60]):
                c.infer("m", X)

    def test_a_name_cannot_add_a_header(self):
        with shunt.Client("http://127.0.0.1:1", "k", retry_for=0) as c:
            wire = c._http.wire
            for path, headers in (("/v2/m\r\nX-Evil: 1", {}), ("/v2/m x", {}), ("/v2/m", {"X": "1\r\nY: 2"}),
                                  ("/v2/m", {"X": "1\n"}), ("/v2/m", {"X\r": "1"})):
                with self.assertRaises(ValueError):
                    wire.post(path, {}, b"", headers, None)


class Misbehaving(unittest.TestCase):
    def test_what_may_be_repeated_is(self):
        with server(refusal(503, "DBDOWN", Retry_After=0), "cut", (200, {}, b'{"role": "read"}')) as (c, s):
            self.assertEqual(c.whoami(), {"role": "read"})
            self.assertEqual(len(s.seen), 3)

    def test_a_submission_carries_the_same_key_again(self):
        job = {"id": 1, "name": "", "state": "QUEUED"}
        with server("cut", (201, {}, json.dumps(job).encode()), reads=10) as (c, s):
            self.assertEqual(c.jobs.submit({}).id, 1)
            keys = {h["Idempotency-Key"] for _, _, h, _ in s.seen}
            self.assertEqual((len(s.seen), len(keys)), (2, 1))

    def test_a_request_has_the_same_id_again(self):
        """An alias chooses the version by it; another request has another."""
        with server(refusal(503, "DBDOWN", Retry_After=0), "cut", ANSWER, ANSWER) as (c, s):
            c.infer("m", X)
            c.infer("m", X)
            ids = [h.get("X-Request-ID") for _, _, h, _ in s.seen]
            self.assertEqual([len(set(ids[:3])), len(set(ids)), None in ids], [1, 2, False])

    def test_a_refusal_is_told_at_once(self):
        with server(refusal(404, "NOTFOUND")) as (c, s):
            with self.assertRaises(shunt.NotFound) as e:
                c.jobs.get(3)
            self.assertEqual((e.exception.detail, len(s.seen)), ("because", 1))

    def test_a_latency_target_that_cannot_be_met_is_told_at_once(self):
        with server(refusal(503, "SLO", Retry_After=1)) as (c, s):
            with self.assertRaises(shunt.DeadlineMissed) as e:
                c.infer("m", {"x": np.zeros(1, np.float32)})
            self.assertEqual((e.exception.retry_after_s, len(s.seen)), (1.0, 1))

    def test_a_server_that_is_not_there(self):
        with shunt.Client("http://127.0.0.1:1", "k", retry_for=0.3) as c:
            with self.assertRaisesRegex(shunt.ConnectionFailed, "127.0.0.1:1"):
                c.whoami()
            with self.assertRaises(shunt.ConnectionFailed):
                c.infer("m", {"x": np.zeros(1, np.float32)})

    def test_what_is_no_json_is_shown(self):
        with server((500, {}, b"<html>oops")) as (c, _), self.assertRaisesRegex(shunt.ServerFault, "oops"):
            c.whoami()

    def test_an_upload_goes_on_where_it_broke_off(self):
        data = {"x": np.arange(300000, dtype=np.float32)}
        whole = b"".join(safetensors(data).chunks())
        with server((201, {}, b"{}"), "cut", (200, {}, b"{}"), (200, {}, b'{"bytes": 1000}'),
                    (200, {}, b'{"state": "READY"}'), reads=1000) as (c, s):
            self.assertEqual(c.datasets.push("d", data)["state"], "READY")
            method, path, headers, body = s.seen[-1]
            self.assertEqual((method, path), ("PUT", "/api/v1/datasets/d/artifact"))
            self.assertEqual(headers["Content-Range"], f"bytes 1000-{len(whole) - 1}/{len(whole)}")
            self.assertEqual(body, whole[1000:])

    def test_a_refused_file_leaves_nothing(self):
        with server((201, {}, b"{}"), refusal(422, "UNSUPPORTED"), (204, {}, b"")) as (c, s):
            with self.assertRaises(shunt.Unsupported):
                c.datasets.push("d", {"x": np.zeros(3)})
            self.assertEqual(s.seen[-1][0], "DELETE")

    def test_what_a_file_declares_can_be_taken_back(self):
        path = os.path.join(tempfile.mkdtemp(), "m.onnx")
        self.addCleanup(shutil.rmtree, os.path.dirname(path))
        with open(path, "wb") as f:
            f.write(field(7, b""))
        for said in (None, {}):
            with server((201, {}, b"{}"), (201, {}, b'{"version": 1}')) as (c, s):
                c.models.push("m", path, preprocess=said, wait=False)
                want = b"" if said is None else _onnx.metadata("shunt.preprocess", "{}")
                self.assertEqual([x[3] for x in s.seen if x[0] == "PUT"], [field(7, b"") + want])

    def test_names_that_are_no_part_of_a_path(self):
        with server() as (c, s):
            for bad in ("", "a/b", "..", "a b", "a?b", "a#b", "\u00e4", "a%2fb", "a\n", "m:", "m:x/y", "m:-1", "m:0", "m:X"):
                with self.assertRaises(shunt.InvalidRequest, msg=bad):
                    c.infer(bad, {"x": np.zeros(1, np.float32)})
                with self.assertRaises(shunt.InvalidRequest, msg=bad):
                    c.models.promote(bad, 1)
                with self.assertRaises(shunt.InvalidRequest, msg=bad):
                    c.jobs.train(bad, "d", steps=1)
            with self.assertRaises(shunt.InvalidRequest):  # what is trained is a version
                c.jobs.train("m:canary", "d", steps=1)
            self.assertEqual(s.seen, [])

    def test_an_alias_stands_where_a_version_does(self):
        with server(*[(200, {}, b"{}")] * 4) as (c, s):
            c.metadata("m:canary")
            c.models.promote("m", 3)
            c.models.promote("m:stable", "canary")
            c.models.set_alias("m:canary", {1: 9, 2: 1}, rollback={})
            at = "/api/v1/models/m/aliases/"
            self.assertEqual([(x[0], x[1], json.loads(x[3] or b"null")) for x in s.seen], [
                ("GET", "/v2/models/m/versions/canary", None),
                ("POST", at + "stable/promote", {"version": 3}), ("POST", at + "stable/promote", {"from": "canary"}),
                ("PUT", at + "canary", {"targets": [{"version": 1, "weight": 9}, {"version": 2, "weight": 1}],
                                        "rollback": {}})])

    def test_pages_are_read_as_one_goes_on(self):
        def page(ids, more):
            return 200, {}, json.dumps({"items": [{"id": i, "name": "", "state": "QUEUED"} for i in ids],
                                        **({"next_cursor": more} if more else {})}).encode()
        with server(page([3, 2], "c1"), page([1], None)) as (c, s):
            jobs = c.jobs.list()
            self.assertEqual(next(jobs).id, 3)
            self.assertEqual(len(s.seen), 1)
            self.assertEqual([j.id for j in jobs], [2, 1])
            self.assertIn("cursor=c1", s.seen[1][1])

    def test_events_go_on_behind_the_last_one(self):
        stream = b"retry: 2000\n\nid: 7\nevent: state\ndata: {\"to\": \"RUNNING\"}\n\n: still here\n\n"
        more = b"id: 8\ndata: {\"to\": \"FAILED\"}\n\n"
        job = json.dumps({"id": 1, "name": "", "state": "RUNNING"}).encode()
        with server((200, {}, job), (200, {}, stream), (200, {}, more), (204, {}, b"")) as (c, s):
            self.assertEqual([e["to"] for e in c.jobs.get(1).events()], ["RUNNING", "FAILED"])
            self.assertEqual([h.get("Last-Event-ID") for _, _, h, _ in s.seen[1:]], [None, "7", "8"])


X = {"x": np.zeros(1, np.float32)}
ANSWER = 200, {}, b'{"outputs": []}'


class Repeating(unittest.TestCase):
    """What is sent again, and when not."""

    def test_a_submission_whose_first_is_still_carried_out(self):
        busy = 409, {}, json.dumps({"code": "CONFLICT", "detail": "a request with this Idempotency-Key is being "
                                                                  "carried out; ask again in a moment"}).encode()
        job = 201, {}, json.dumps({"id": 1, "name": "", "state": "QUEUED"}).encode()
        with server("cut", busy, busy, job, reads=10) as (c, s):
            self.assertEqual(c.jobs.submit({}).id, 1)
        with server(busy) as (c, s), self.assertRaises(shunt.Conflict):
            c.jobs.submit({})

    def test_a_deletion_whose_answer_was_lost(self):
        with server("cut", refusal(404, "NOTFOUND")) as (c, s):
            c.datasets.delete("d")
        with server(refusal(404, "NOTFOUND")) as (c, s), self.assertRaises(shunt.NotFound):
            c.datasets.delete("d")

    def test_an_own_time_limit_is_the_end(self):
        with server(refusal(504, "TIMEOUT")) as (c, s):
            with self.assertRaises(shunt.ServerTimeout):
                c.infer("m", X)
            self.assertEqual(len(s.seen), 1)
        with server(*[refusal(503, "QUEUEFULL", Retry_After=0)] * 500, retry_for=60) as (c, s):
            begin = time.monotonic()
            with self.assertRaises(shunt.QueueFull):
                c.infer("m", X, timeout=0.4)
            self.assertLess(time.monotonic() - begin, 30)

    def test_where_it_does_not_help(self):
        for status, code in ((503, "NOMEM"), (429, "QUOTA")):
            with server(refusal(status, code)) as (c, s), self.assertRaises(shunt.ApiError):
                c.whoami()
            self.assertEqual(len(s.seen), 1)
        with server((503, {}, b"a proxy"), ANSWER) as (c, s):
            c.infer("m", X)

    def test_at_once_is_not_without_a_pause(self):
        with server(*[refusal(503, "DBDOWN", Retry_After=0)] * 10000) as (c, s):
            c._http.retry_s = 1.0
            with self.assertRaises(shunt.DatabaseDown):
                c.whoami()
            self.assertLess(len(s.seen), 12)

    def test_not_all_at_the_same_moment(self):
        waits = {sending._Patience(9).next_s(1.0) for _ in range(20)}
        self.assertGreater(len(waits), 10)
        self.assertTrue(all(1 <= w <= 1.2 for w in waits), waits)

    def test_longer_than_the_patience(self):
        with server(refusal(503, "DBDOWN", Retry_After=100)) as (c, s):
            with self.assertRaises(shunt.DatabaseDown) as e:
                c.whoami()
            self.assertEqual(e.exception.retry_after_s, 100)

    def test_a_key_is_not_rotated_twice(self):
        with server("cut") as (c, s), self.assertRaises(shunt.ConnectionFailed):
            c.request("POST", "/api/v1/tenants/t/keys/3/rotate")

    def test_what_a_wait_adds_is_no_more_than_its_time(self):
        with server(*[refusal(503, "DBDOWN", Retry_After=0)] * 500, retry_for=60) as (c, s):
            begin = time.monotonic()
            with self.assertRaises(shunt.DatabaseDown):
                shunt.Job(c._http, {"id": 1, "name": "", "state": "RUNNING"}).wait(0.3)
            self.assertLess(time.monotonic() - begin, 30)

    def test_a_redirection_is_no_answer(self):
        for status in (301, 308):
            with server((status, {"Location": "https://other/"}, b"")) as (c, s):
                with self.assertRaisesRegex(shunt.ApiError, "https://other/"):
                    c.whoami()

    def test_an_answer_of_something_else(self):
        with server((200, {}, b"<html>hello")) as (c, s), self.assertRaisesRegex(shunt.ServerFault, "hello"):
            c.whoami()

    def test_a_certificate_that_is_not_trusted_is_told_at_once(self):
        e = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")
        begin = time.monotonic()
        with shunt.Client("https://127.0.0.1:1", "k", retry_for=60) as c:
            for ask in (lambda: c.infer("m", X), c.whoami):
                with unittest.mock.patch("socket.create_connection", side_effect=e):
                    with self.assertRaises(shunt.ConnectionFailed):
                        ask()
        self.assertLess(time.monotonic() - begin, 30)

    def test_one_output_by_its_name(self):
        with server(ANSWER) as (c, s):
            c.infer("m", X, outputs="logits")
            head = s.seen[0][3][:int(s.seen[0][2]["Inference-Header-Content-Length"])]
            self.assertEqual(json.loads(head)["outputs"], [{"name": "logits"}])

    def test_a_model_that_is_another_by_now(self):
        def takes(kind):
            return 200, {}, json.dumps({"inputs": [{"name": "x", "datatype": kind, "shape": [-1]}]}).encode()
        with server(takes("FP32"), ANSWER, refusal(400, "INVALID"), takes("FP16"), ANSWER) as (c, s):
            c.infer("m", [1.0])
            with self.assertRaises(shunt.InvalidRequest):
                c.infer("m", [1.0])
            c.infer("m", [1.0])
            self.assertIn(b'"FP16"', s.seen[-1][3])


class Connections(unittest.TestCase):
    def test_cancelled_requests_leave_none_busy(self):
        async def cancel_some(port):
            async with shunt.AsyncClient("http://127.0.0.1:%d" % port, "k", max_connections=1, retry_for=0) as c:
                for i in range(150):
                    task = asyncio.ensure_future(c.infer("m", X) if i % 2 else c.whoami())
                    for _ in range(i % 50):
                        await asyncio.sleep(0)
                    if i % 3:
                        await asyncio.sleep(1e-4 * (i % 29))
                    task.cancel()
                    await asyncio.wait([task])
                await asyncio.wait_for(c.infer("m", X), 60)
        with server(*[ANSWER] * 1000) as (_, s), contextlib.redirect_stderr(io.StringIO()):
            asyncio.run(cancel_some(s.server_port))

    def test_they_are_kept(self):
        with server(ANSWER, ANSWER) as (c, s):
            c.infer("m", X)
            c.infer("m", X)
            self.assertEqual(len(set(s.peers)), 1)

    def test_one_event_loop_after_the_other(self):
        with server(*[ANSWER] * 4) as (_, s):
            c = shunt.AsyncClient("http://127.0.0.1:%d" % s.server_port, "k", retry_for=0)
            for _ in range(2):
                self.assertEqual(asyncio.run(c.infer("m", X)), {})
            asyncio.run(c.aclose())

    @unittest.skipUnless(hasattr(os, "fork"), "no fork here")
    def test_a_forked_process_has_its_own(self):
        with server(*[ANSWER] * 2, (200, {}, b"{}"), ANSWER, (200, {}, b"{}")) as (c, s):
            c.infer("m", X)
            wire, pool = c._http.wire, c._http.pool
            pid = os.fork()
            if not pid:
                try:
                    is_wrong = c._http.wire is wire or c._http.pool is pool or c.infer("m", X) != {}
                    os._exit(int(is_wrong))
                finally:
                    os._exit(2)
            self.assertEqual(os.waitpid(pid, 0)[1], 0)
            self.assertIs(c._http.wire, wire)
            self.assertEqual(len(set(s.peers)), 2)

    def test_an_address_with_colons_and_no_port(self):
        for url, port in (("http://[::1]", 80), ("https://[::1]/at", 443), ("http://[::1]:7", 7)):
            with shunt.Client(url, "k") as c:
                self.assertEqual((c._http.wire.host, c._http.wire.port), ("::1", port))
                with unittest.mock.patch("socket.create_connection", side_effect=ConnectionRefusedError) as connect:
                    c._http.retry_s = 0
                    with self.assertRaises(shunt.ConnectionFailed):
                        c.infer("m", X)
                    self.assertEqual(connect.call_args[0][0], ("::1", port))


class Files(unittest.TestCase):
    def test_an_upload_whose_answer_was_lost(self):
        body = safetensors({"x": np.zeros(3)})
        has = json.dumps({"state": "READY", "digest": body.sha256().hex()}).encode()
        with server((201, {}, b"{}"), "cut", (200, {}, has), reads=10000) as (c, s):
            self.assertEqual(c.datasets.push("d", {"x": np.zeros(3)})["state"], "READY")
            self.assertEqual([m for m, _, _, _ in s.seen], ["POST", "PUT", "GET"])

    def test_a_position_that_cannot_be(self):
        for has in (10 ** 9, -5, "x"):
            with server((201, {}, b"{}"), "cut", (200, {}, b"{}"), (200, {}, json.dumps({"bytes": has}).encode()),
                        (200, {}, b"{}"), reads=10) as (c, s):
                c.datasets.push("d", {"x": np.zeros(3)})
                self.assertIn(int(s.seen[-1][2]["Content-Length"]), (1, len(b"".join(
                    safetensors({"x": np.zeros(3)}).chunks()))))

    def test_the_server_has_less_than_it_said(self):
        less = 409, {}, json.dumps({"code": "CONFLICT", "detail": "why", "bytes": 3}).encode()
        with server((201, {}, b"{}"), "cut", (200, {}, b"{}"), (200, {}, b'{"bytes": 9}'), less, (200, {}, b"{}"),
                    (200, {}, b'{"bytes": 3}'), (200, {}, b"{}"), reads=10) as (c, s):
            c.datasets.push("d", {"x": np.zeros(3)})
            self.assertTrue(s.seen[-1][2]["Content-Range"].startswith("bytes 3-"))

    def test_a_dataset_that_was_not_sent_to_its_end(self):
        with server(refusal(409, "CONFLICT"), (200, {}, b'{"state": "UPLOADING"}'), (200, {}, b'{"bytes": 5}'),
                    (200, {}, b'{"state": "READY"}')) as (c, s):
            self.assertEqual(c.datasets.push("d", {"x": np.zeros(3)})["state"], "READY")
            self.assertTrue(s.seen[-1][2]["Content-Range"].startswith("bytes 5-"))
        with server(refusal(409, "CONFLICT"), (200, {}, b'{"state": "READY"}')) as (c, s):
            with self.assertRaises(shunt.Conflict):
                c.datasets.push("d", {"x": np.zeros(3)})

    def test_a_file_that_cannot_be_read_makes_no_dataset(self):
        with server() as (c, s):
            for bad in ("/nonexistent", os.path.dirname(os.path.abspath(__file__))):
                with self.assertRaises(OSError):
                    c.datasets.push("d", bad)
            self.assertEqual(s.seen, [])

    def download(self, *script):
        with server(*script) as (c, s), tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "f")
            try:
                c._http.download("/api/v1/jobs/1/result/artifact", path)
            finally:
                self.assertEqual(os.listdir(folder), ["f"] if os.path.exists(path) else [])
            with open(path, "rb") as f:
                return f.read(), [h for _, _, h, _ in s.seen]

    def test_a_download_goes_on_where_it_broke_off(self):
        part = 200, {"Content-Length": 9, "ETag": '"a"', "Connection": "close"}, b"0123"
        rest = 206, {"Content-Range": "bytes 4-8/9", "ETag": '"a"'}, b"45678"
        got, headers = self.download(part, refusal(503, "DBDOWN", Retry_After=0), rest)
        self.assertEqual(got, b"012345678")
        self.assertEqual((headers[-1]["Range"], headers[-1]["If-Range"], headers[-1]["Accept-Encoding"]),
                         ("bytes=4-", '"a"', "identity"))

    def test_a_download_that_is_another_file_by_now(self):
        part = 200, {"Content-Length": 9, "ETag": '"a"', "Connection": "close"}, b"0123"
        self.assertEqual(self.download(part, (200, {"ETag": '"b"'}, b"xyz"))[0], b"xyz")
        self.assertEqual(self.download(part, refusal(416, "INVALID"), (200, {}, b"xyz"))[0], b"xyz")
        part = 200, {"Content-Length": 9, "Connection": "close"}, b"0123"  # nothing says which
        got, headers = self.download(part, (200, {}, b"xyz"))
        self.assertEqual((got, headers[-1].get("Range")), (b"xyz", None))

    def test_a_download_of_the_wrong_part(self):
        part = 200, {"Content-Length": 9, "ETag": '"a"', "Connection": "close"}, b"0123"
        with self.assertRaises(shunt.ServerFault):
            self.download(part, (206, {"Content-Range": "bytes 0-3/9"}, b"0123"))


class Weight:
    """What shunt.torch needs of a PyTorch tensor."""

    requires_grad = True

    def __init__(self, array):
        self.array, self.shape = array, array.shape

    def data_ptr(self):
        return self.array.__array_interface__["data"][0]

    def copy_(self, of):
        self.array[...] = of


class Modules(unittest.TestCase):
    def load(self, module, trained, **options):
        import types
        import shunt.torch
        fake = types.SimpleNamespace(no_grad=contextlib.nullcontext, from_numpy=lambda a: a)
        with unittest.mock.patch.dict(sys.modules, {"torch": fake}):
            return shunt.torch.load(unittest.mock.Mock(weights=lambda: trained), unittest.mock.Mock(
                state_dict=lambda: module, named_parameters=lambda: {id(w): (n, w) for n, w in reversed(
                    module.items())}.values()), **options)

    def test_a_module_is_not_left_with_some_of_both(self):
        for second, said in ((np.ones(3), "was trained as"), (None, "has no b")):
            m = {"a": Weight(np.zeros(2)), "b": Weight(np.zeros(2))}
            trained = {"a": np.ones(2), **({} if second is None else {"b": second})}
            with self.assertRaisesRegex(shunt.ShuntError, said):
                self.load(m, trained)
            self.assertEqual(m["a"].array.tolist(), [0, 0])
        self.assertEqual(self.load(m, trained, ignore=["b"]), ["a"])
        self.assertEqual(self.load(m, trained, strict=False), ["a"])
        self.assertEqual((m["a"].array.tolist(), m["b"].array.tolist()), ([1, 1], [0, 0]))

    def test_a_tied_parameter_has_one_name(self):
        one = Weight(np.zeros(2))
        self.assertEqual(self.load({"in": one, "out": one}, {"out": np.ones(2)}), ["out"])
        self.assertEqual(one.array.tolist(), [1, 1])


class Streams(unittest.TestCase):
    def test_what_is_alive_may_break_at_any_time(self):
        quiet = 200, {}, b": still here\n\n"
        with server(*[quiet] * 12, (200, {}, b"id: 1\ndata: {}\n\n"), (204, {}, b"")) as (c, s):
            with unittest.mock.patch.multiple("shunt._sync.http", UPLOAD_PATIENCE_S=0.3, FIRST_DELAY_S=0.02,
                                              MOST_DELAY_S=0.1):
                c._http.retry_s = 0.3
                self.assertEqual(list(c._http.events("/api/v1/events")), [{}])

    def test_one_that_says_nothing_ends(self):
        with server(*[(200, {}, b"")] * 50) as (c, s):
            with unittest.mock.patch("shunt._sync.http.UPLOAD_PATIENCE_S", 0.3):
                c._http.retry_s = 0.3
                with self.assertRaises(shunt.ConnectionFailed):
                    list(c._http.events("/api/v1/events"))

    def test_lines_end_at_newlines_only(self):
        name = "a\u2028b\x85c"
        text = "id: 1\ndata: %s\n\n" % json.dumps({"name": name}, ensure_ascii=False)
        with server((200, {}, text.encode()), (204, {}, b"")) as (c, s):
            self.assertEqual(list(c._http.events("/api/v1/events")), [{"name": name}])


if __name__ == "__main__":
    unittest.main()
