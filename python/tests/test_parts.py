"""What needs no server, and what one that misbehaves does to the client."""
import contextlib
import http.server
import json
import os
import re
import tempfile
import threading
import unittest
import unittest.mock

import numpy as np

import shunt
from shunt import _config, _errors, _tensors, _v2
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

    def test_all_that_is_wrong_is_told(self):
        e = _errors.api_error(400, {"code": "INVALID", "detail": "first", "errors": [
            {"pointer": "/a", "detail": "first"}, {"pointer": "/b", "detail": "second"}]}, None)
        self.assertEqual(str(e), "first (INVALID); /b: second")


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
        self.assertEqual(_tensors.cast(np.zeros(1), "FP32").dtype, np.float32)
        self.assertEqual(_tensors.cast(np.zeros(1), "INT64").dtype, np.float64)
        self.assertEqual(_tensors.cast(np.zeros(1, np.int64), "FP32").dtype, np.float32)

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
def server(*script, reads=0):
    s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Script)
    s.daemon_threads, s.script, s.seen, s.reads = True, list(script), [], reads
    thread = threading.Thread(target=s.serve_forever, daemon=True)
    thread.start()
    try:
        with shunt.Client("http://127.0.0.1:%d" % s.server_port, "k", retry_for=5) as c:
            yield c, s
    finally:
        s.shutdown()
        s.server_close()


def refusal(status, code, **headers):
    return status, {k.replace("_", "-"): v for k, v in headers.items()}, json.dumps(
        {"code": code, "detail": "because"}).encode()


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
        with server((201, {}, b"{}"), "cut", (200, {}, b'{"bytes": 1000}'), (200, {}, b'{"state": "READY"}'),
                    reads=1000) as (c, s):
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

    def test_names_that_are_no_part_of_a_path(self):
        with server() as (c, s):
            for bad in ("", "a/b", ".."):
                with self.assertRaises(shunt.InvalidRequest):
                    c.infer(bad, {"x": np.zeros(1, np.float32)})
            self.assertEqual(s.seen, [])

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


if __name__ == "__main__":
    unittest.main()
