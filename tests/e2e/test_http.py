#!/usr/bin/env python3
"""HTTP at its border, over raw sockets: what the library underneath takes and we do not, and the limits
that one client meets.

Without it: two parsers could read one stream differently, so that behind a proxy one client puts words
into another's connection; and a client that is slow, greedy or gone could keep memory and places that
others need. Each hole that is known of libmicrohttpd 0.9.75 has its test here.

Usage: test_http.py [-v] [name ...]
"""
import contextlib
import json
import os
import re
import signal
import socket
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as onnx  # noqa: E402
from system import WAIT_S, Story, System, st_bytes, until  # noqa: E402

GOOD = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 0, 0, 0]}]}
NEXT = "GET /v2/health/live HTTP/1.1\r\nHost: smuggled\r\n\r\n"


class Raw:
    """A connection, and the replies on it."""

    def __init__(self, port, source=None):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S,
                                             source_address=source and (source, 0))
        self.got = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, data):
        self.sock.sendall(data.encode() if isinstance(data, str) else data)
        return self

    def _more(self):
        try:
            piece = self.sock.recv(65536)
        except ConnectionError:
            piece = b""
        self.got += piece
        return bool(piece)

    def reply(self, head_only=False):
        """(status, {header: value}, body), or None when the server has closed."""
        while b"\r\n\r\n" not in self.got:
            if not self._more():
                return None
        head, _, self.got = self.got.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {k.lower(): v for k, v in (x.split(": ", 1) for x in lines)}
        length = 0 if head_only else int(headers.get("content-length", 0))
        while len(self.got) < length:
            if not self._more():
                return None
        body, self.got = self.got[:length], self.got[length:]
        return int(first.split()[1]), headers, body

    def closed(self):
        """Waits for the end; true if nothing came before it."""
        while self._more():
            pass
        return not self.got


class Served(Story):
    """A system with one small model `lin` of tenant `vision`."""
    OPTIONS = {}

    @classmethod
    def setUpClass(cls):
        cls.s = s = System("--workers=2", KEEP_RENEW_S="0", **cls.OPTIONS)
        cls.addClassCleanup(s.stop)
        cls.key = s.tenant("vision")
        s.push(cls.key, "lin", onnx.linear(), max_batch=16)
        cls.pids = s.pids()

    def tearDown(self):
        self.assertEqual(self.s.pids(), self.pids, "a process has died")
        r = self.infer()
        self.assertEqual(r.status, 200, r)

    def infer(self, key=None):
        return self.s.infer(key or self.key, "lin", GOOD["inputs"])

    def raw(self, data="", source=None):
        return Raw(self.s.port, source).send(data)

    def request(self, method, path, *lines, body="", key=None):
        return "%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s\r\n%s" % (
            method, path, key or self.key, "".join(x + "\r\n" for x in lines), body)

    def infer_text(self, *lines, key=None):
        text = json.dumps(GOOD)
        return self.request("POST", "/v2/models/lin/infer", "Content-Length: %d" % len(text), *lines,
                            body=text, key=key)

    def serves_on(self, c):
        """The connection is in step: the next request on it is answered."""
        self.assertEqual(c.send(self.infer_text()).reply()[0], 200)


class Holes(Served):
    OPTIONS = {"UPLOAD_GRACE_S": "1", "MAX_MODEL_BYTES": "1M"}
    TARGETS = (("GET", "/v2"), ("POST", "/v2/models/lin/infer"), ("PATCH", "/api/v1/models/lin"),
               ("DELETE", "/api/v1/models/none"), ("POST", "/api/v1/models"))

    def refused(self, data, pattern, status=400, what=""):
        """One problem document, then the end: nothing behind it is taken for a request."""
        with self.raw(data) as c:
            got = c.reply()
            self.assertIsNotNone(got, (what, data))
            self.assertEqual(got[0], status, (what, data, got))
            self.assertRegex(json.loads(got[2])["detail"], pattern)
            self.assertTrue(json.loads(got[2])["request_id"], got)
            self.assertEqual(got[1].get("connection"), "close", got)
            self.assertTrue(c.closed(), (what, data, c.got))

    # ------------------------------------------------------------ where a body ends
    def test_two_ways_to_say_the_length(self):
        both = ["Content-Length: 5", "Transfer-Encoding: chunked"]
        for method, path in self.TARGETS:
            for lines in (both, both[::-1]):
                with self.subTest(method=method, path=path, lines=lines):
                    self.refused(self.request(method, path, *lines, body="0\r\n\r\n" + NEXT), "together")

    def test_two_lengths(self):
        for method, path in self.TARGETS:
            for a, b in (("0", "43"), ("43", "0"), ("5", "5")):
                with self.subTest(method=method, path=path, lengths=(a, b)):
                    self.refused(self.request(method, path, "Content-Length: " + a,
                                              "Content-Length: " + b, body=NEXT), "more than one")

    def test_lengths_that_are_none(self):
        """The library refuses them by itself, and would send the head of its reply twice."""
        for n in ("5, 5", "+5", "-1", "0x5", "5 5", "abc", "", "5;a", "99999999999999999999", "9" * 200):
            for method, path in self.TARGETS[1:]:
                with self.subTest(length=n, method=method):
                    self.refused(self.request(method, path, "Content-Length: " + n, body=NEXT), "decimal")
        # Its headers come in pieces, and others' have begun and are in order.
        with contextlib.ExitStack() as stack:
            others = [stack.enter_context(self.raw(self.request("GET", "/v2")[:-2])) for _ in range(3)]
            c = stack.enter_context(self.raw("POST /api/v1/models HTTP/1.1\r\nHost: x\r\nContent-Le"))
            for piece in ("ngth: +", "5\r\n", "\r\n"):
                time.sleep(0.05)
                c.send(piece)
            status, headers, body = c.reply()
            self.assertEqual((status, headers["content-type"]), (400, "application/problem+json"))
            self.assertRegex(json.loads(body)["detail"], "decimal")
            self.assertTrue(c.closed(), c.got)
            for other in others:
                self.assertEqual(other.send("\r\n").reply()[0], 200)
                self.serves_on(other)

    def test_headers_that_come_twice(self):
        """One program goes by the first, another by the last."""
        for name in ("Authorization", "authorization"):
            for values in (("Bearer x", "Bearer " + self.key), ("Bearer " + self.key, "Bearer x"),
                           ("Bearer " + self.key, "Bearer " + self.key)):
                with self.subTest(name=name, first=values[0][:8]):
                    self.refused("GET /api/v1/whoami HTTP/1.1\r\nHost: x\r\n" + "".join(
                        "%s: %s\r\n" % (n, v) for n, v in zip(("Authorization", name), values)) + "\r\n",
                        "more than one Authorization")
        for name in ("If-Match", "Idempotency-Key", "Content-Type", "Content-Digest", "X-Request-ID",
                     "Inference-Header-Content-Length", "Content-Encoding", "Range", "Content-Range"):
            with self.subTest(name):
                self.refused(self.request("GET", "/v2", name + ": 1", name.lower() + ": 1"),
                             "more than one " + name)
        # Lists may come in several lines, by RFC 9110.
        for name, a, b in (("Accept", "application/json", "*/*"), ("Accept-Encoding", "gzip", "br"),
                           ("If-None-Match", '"a"', '"b"')):
            with self.subTest(name), self.raw(self.request("GET", "/v2", "%s: %s" % (name, a),
                                                           "%s: %s" % (name.lower(), b))) as c:
                self.assertEqual(c.reply()[0], 200)

    def test_who_has_no_key_is_told_at_once(self):
        """However much it says that it will send; and it reads the answer also if it sends all of that."""
        for target in ("POST /v2/models/lin/infer", "PUT /api/v1/datasets/x/artifact", "GET /none"):
            for framing in ("Content-Length: 60000000", "Content-Length: 3", "Transfer-Encoding: chunked"):
                for key in ("", "Authorization: Bearer shunt_x\r\n"):
                    with self.subTest(target=target, framing=framing, key=key):
                        with self.raw("%s HTTP/1.1\r\nHost: x\r\n%s%s\r\n\r\n" % (target, key, framing)) as c:
                            status, headers, body = c.reply()
                            self.assertIn(status, (400, 401, 404), body)
                            self.assertEqual(headers["connection"], "close")
                            self.assertTrue(c.closed())
        for length in (100000, 20000000):
            with self.raw("POST /v2/models/lin/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
                          % length) as c:
                c.send(bytes(length))
                self.assertEqual(c.reply()[0], 401)
                self.assertTrue(c.closed())

    def test_a_blank_before_the_colon(self):
        for name in ("Content-Length ", "Content-Length\t", " Content-Length", "Transfer-Encoding "):
            with self.subTest(name):
                self.refused(self.request("POST", "/api/v1/models", name + ": 5", body="12345" + NEXT),
                             "header's name|does not end|chunked")

    def test_codings_that_we_do_not_know(self):
        """They do not hang either: of these the library waits for the end of the connection."""
        for coding in ("gzip, chunked", "gzip", "identity", "chunked, chunked", "chunked;a=b",
                       "xchunked", "chunked\x0b"):
            for method, path in self.TARGETS:
                with self.subTest(coding=coding, method=method):
                    self.refused(self.request(method, path, "Transfer-Encoding: " + coding,
                                              body="0\r\n\r\n" + NEXT), "only Transfer-Encoding|control")
        self.refused(self.request("POST", "/api/v1/models", "Transfer-Encoding: chunked",
                                  "Transfer-Encoding: gzip", body="0\r\n\r\n" + NEXT), "only")

    def test_a_connection_ends_with_a_chunked_request(self):
        """The library takes lines of chunks that end with a lone LF, and does not tell."""
        for body in ("2\r\n{}\r\n0\r\n\r\n", "2\n{}\n0\n\n"):
            with self.raw(self.request("POST", "/api/v1/models", "Transfer-Encoding: chunked",
                                       body=body + NEXT)) as c:
                status, headers, text = c.reply()
                self.assertEqual((status, headers["connection"]), (400, "close"), text)
                self.assertTrue(c.closed(), c.got)

    def test_a_chunk_whose_first_line_never_ends(self):
        """Nobody can go on with it: it takes no processor time, and is cut off as too slow."""
        with self.raw(self.request("POST", "/api/v1/models", "Transfer-Encoding: chunked")) as c:
            with contextlib.suppress(ConnectionError):
                c.send("2;" + "a" * (1 << 20))
            self.serves_beside()
            begin, cpu = time.monotonic(), self.api_cpu()
            self.assertTrue(c.closed(), c.got)
            # 0.1 s beside: what ends a connection may be all that happens in that time.
            self.assertLess(self.api_cpu() - cpu, 0.1 + 0.4 * (time.monotonic() - begin))

    def serves_beside(self):
        for _ in range(20):
            self.assertEqual(self.infer().status, 200)

    def api_cpu(self):
        with open("/proc/%d/stat" % self.s.pid("api")) as f:
            user, system = f.read().rsplit(")", 1)[1].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    # ------------------------------------------------------------ where a line ends
    def test_lines_end_with_crlf(self):
        ends = "does not end with CRLF|control character"
        for bad in ("\n", "\r", "\n\n", "\n\r\n"):
            for method, path in self.TARGETS:
                with self.subTest(bad=bad, method=method):
                    head = self.request(method, path, "X: a" + bad + "Content-Length: 5")
                    self.refused(head + NEXT, ends)
        line, rest = self.request("GET", "/v2", "X: a").split("\r\n", 1)
        self.refused(line + "\n" + rest, ends)
        self.refused((line + "\r\n" + rest).replace("\r\n", "\n"), ends)

    def test_folded_headers(self):
        for lines in (["Transfer-Encoding:\r\n chunked"], ["X: a\r\n b"], ["Content-Length: 1\r\n\t1"]):
            with self.subTest(lines):
                self.refused(self.request("POST", "/v2/models/lin/infer", *lines, body=NEXT), "folded|name")

    def test_a_nul_ends_no_text(self):
        for data in (self.request("GET", "/v2\0/none"), self.request("GET", "/v2?a=\0b"),
                     self.request("GET", "/v2", "X-Request-ID: a\0b"),
                     self.request("GET", "/v2", "X-Request-ID: a\0b", "X: y"),
                     self.request("GET", "/v2", "X\0Y: b"),
                     "GET /api/v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\0x\r\n\r\n" % self.key):
            with self.subTest(data[:40]):
                got = self.s.talk(data.encode())
                self.assertRegex(got, r"^HTTP/1.1 400 ")
                self.assertEqual(got.count("HTTP/1.1 "), 1)

    def test_control_characters_in_headers(self):
        for c in "\x01\x08\x0b\x1f\x7f":
            self.refused(self.request("GET", "/v2", "X: a%sb" % c), "control character")
        with self.raw(self.request("GET", "/v2", "X: a\tb \xfc")) as c:
            self.assertEqual(c.reply()[0], 200)

    def test_the_host(self):
        self.refused("GET /v2 HTTP/1.1\r\n\r\n", "no Host")
        self.refused("GET /v2 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "more than one Host")
        with self.raw("GET /v2 HTTP/1.0\r\n\r\n") as c:
            self.assertEqual(c.reply()[0], 200)

    # ------------------------------------------------------------ targets
    def test_encoded_slashes_and_nuls(self):
        for path in ("/v2/models%2Flin", "/v2/models%2flin/infer", "/v2/models/lin%00", "/v2%00",
                     "/api/v1/models?limit=1%00", "/api/v1/models?limit%00=1", "/v2/models/lin%",
                     "/v2/models/lin%4", "/v2/models/lin%zz", "v2", "//"):
            with self.subTest(path), self.raw(self.request("GET", path)) as c:
                status, _, body = c.reply()
                self.assertIn(status, (400, 404), body)
                self.assertTrue(json.loads(body)["detail"])
                self.serves_on(c)

    def test_targets_and_headers_that_are_too_long(self):
        with self.raw(self.request("GET", "/" + "a" * 3000)) as c:
            status, _, body = c.reply()
            self.assertEqual((status, json.loads(body)["code"]), (414, "TOOBIG"))
            self.serves_on(c)
        # Beyond its memory for a connection the library answers by itself.
        for data in (self.request("GET", "/" + "a" * 300000),
                     self.request("GET", "/v2", "X: " + "a" * 300000),
                     self.request("GET", "/v2", *("X%d: 1" % i for i in range(30000)))):
            with contextlib.suppress(ConnectionError), self.raw(data) as c:
                got = c.reply()
                self.assertTrue(got is None or got[0] in (413, 414, 431), got)
                self.assertTrue(c.closed())
        self.assertEqual(self.raw(self.request("GET", "/v2", "X: " + "a" * 8000)).reply()[0], 200)

    # ------------------------------------------------------------ methods
    def test_methods(self):
        for method in ("BREW", "TRACE", "CONNECT", "PROPFIND", "get", "B" * 60, "G<T", "\xfc"):
            with self.subTest(method), self.raw(self.request(method, "/v2")) as c:
                status, headers, _ = c.reply()
                self.assertEqual((status, headers.get("allow")), (405, "GET, HEAD, OPTIONS"))
        with self.raw(self.request("PUT", "/v2/models/lin/infer", "Content-Length: 2", body="{}")) as c:
            status, headers, _ = c.reply()
            self.assertEqual((status, headers["allow"]), (405, "POST, OPTIONS"))
            self.serves_on(c)

    def test_head_has_no_body(self):
        with self.raw(self.request("HEAD", "/v2")) as c:
            status, headers, _ = c.reply(head_only=True)
            self.assertEqual((status, headers["content-type"]), (200, "application/json"))
            self.assertGreater(int(headers["content-length"]), 2)
            self.serves_on(c)
        with self.raw(self.request("HEAD", "/v2/models/none")) as c:
            self.assertEqual(c.reply(head_only=True)[0], 404)
            self.serves_on(c)
        with self.raw(self.request("HEAD", "/v2/models/lin/infer")) as c:
            status, headers, _ = c.reply(head_only=True)
            self.assertEqual((status, headers["allow"]), (405, "POST, OPTIONS"))
            self.serves_on(c)

    def test_options(self):
        for path, allow in (("/v2/models/lin/infer", "POST, OPTIONS"),
                            ("*", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")):
            with self.raw(self.request("OPTIONS", path)) as c:
                self.assertEqual(c.reply()[::2], (204, b""))
                self.serves_on(c)
            with self.raw(self.request("OPTIONS", path)) as c:
                self.assertEqual(c.reply()[1]["allow"], allow)
        self.assertEqual(self.raw(self.request("GET", "*")).reply()[0], 400)

    def test_no_page_in_a_browser_may_call(self):
        """Unless its origin is named: --cors-origins."""
        for method, path in (("OPTIONS", "/api/v1/models"), ("GET", "/api/v1/models")):
            with self.raw(self.request(method, path, "Origin: https://a.example",
                                       "Access-Control-Request-Method: GET")) as c:
                self.assertFalse([k for k in c.reply()[1] if k.startswith("access-control")])

    # ------------------------------------------------------------ several requests
    def test_requests_behind_an_error(self):
        """Each is answered on its own; a refused body is none."""
        refused = [(404, self.request("GET", "/none")), (405, self.request("BREW", "/v2")),
                   (400, self.request("GET", "/api/v1/models?colour=1")),
                   (404, self.request("POST", "/v2/models/none/infer", "Content-Length: %d" % len(NEXT),
                                      body=NEXT)),
                   (401, self.request("GET", "/api/v1/models", key="shunt_x")),
                   (400, self.request("POST", "/api/v1/models", "Content-Length: %d" % len(NEXT),
                                      body=NEXT)),
                   (400, self.request("GET", "/v2", "Content-Length: %d" % len(NEXT), body=NEXT))]
        with self.raw() as c:
            c.send("".join(text for _, text in refused) + self.infer_text())
            got = [c.reply()[0] for _ in range(len(refused) + 1)]
            self.assertEqual(got, [status for status, _ in refused] + [200])
            self.serves_on(c)
            self.assertEqual(c.got, b"")

    # ------------------------------------------------------------ slow, and gone
    def trickle(self, head):
        with self.raw(head) as c:
            with contextlib.suppress(ConnectionError):
                for _ in range(60):
                    c.send(" ")
                    time.sleep(1)
                self.fail("a body of a byte a second was let in for a minute")

    def test_a_byte_a_second_is_too_slow(self):
        self.s.call("POST", "/api/v1/models", {"name": "slow"}, self.key)
        self.s.call("POST", "/api/v1/models/slow/versions", {}, self.key)
        for method, path in (("POST", "/v2/models/lin/infer"), ("POST", "/api/v1/models"),
                             ("PUT", "/api/v1/models/slow/versions/1/artifact"),
                             ("POST", "/v2/models/none/infer")):
            with self.subTest(path):
                self.trickle(self.request(method, path, "Content-Length: 3000"))
        until("the payload memory is free", lambda: self.s.payload() == 0)

    def test_clients_that_leave_while_their_requests_wait(self):
        """Some run, in an executor that does not go on; others wait in the scheduler, which forgets them."""
        key = self.s.tenant("gone")
        self.s.push(key, "lin", onnx.linear(), max_batch=1)
        self.assertEqual(self.infer(key).status, 200)

        def waiting():
            return self.s.metrics("scheduler").get(
                'shunt_request_queue_length{tenant="gone",model="lin"}', 0)

        def cancelled():
            return self.s.metrics("api").get(
                'shunt_requests_total{tenant="gone",model="lin",outcome="CANCELLED"}', 0)
        executor = self.s.pid("executor-cpu0")
        os.kill(executor, signal.SIGSTOP)
        try:
            with contextlib.ExitStack() as stack:
                for _ in range(12):
                    stack.enter_context(self.raw(self.infer_text(key=key)))
                until("some wait", lambda: waiting() > 0)
            until("those that waited are forgotten", lambda: waiting() == 0)
            until("all are counted", lambda: cancelled() == 12)
        finally:
            os.kill(executor, signal.SIGCONT)
        until("the payload memory is free", lambda: self.s.payload() == 0)
        until("the executor is back, if it was given up", lambda: self.infer().status == 200)


class Limits(Served):
    OPTIONS = {"MAX_CONNECTIONS_PER_KEY": "3", "MAX_CONNECTIONS_PER_IP": "12", "UPLOAD_GRACE_S": "2",
               "UPLOAD_MIN_RATE": "64M", "IDLE_TIMEOUT_S": "3600", "MAX_CONNECTIONS": "64",
               "CORS_ORIGINS": "https://a.example, http://localhost:3000"}

    # ------------------------------------------------------------ pages in a browser
    def cors(self, method, path, *lines, key=None):
        with self.raw(self.request(method, path, *lines, key=key)) as c:
            status, headers, _ = c.reply()
            return status, {k[15:]: v for k, v in headers.items() if k.startswith("access-control-")}

    def test_pages_of_these_origins_alone(self):
        for origin in ("https://a.example", "http://localhost:3000"):
            status, got = self.cors("OPTIONS", "/v2/models/lin/infer", "Origin: " + origin,
                                    "Access-Control-Request-Method: POST", key="none")
            self.assertEqual((status, got["allow-origin"], got["allow-methods"]), (204, origin, "POST, OPTIONS"))
            self.assertIn("Authorization", got["allow-headers"])
            status, got = self.cors("GET", "/api/v1/whoami", "Origin: " + origin)
            self.assertEqual((status, got["allow-origin"]), (200, origin))
            self.assertNotIn("allow-credentials", got)
            status, got = self.cors("GET", "/api/v1/whoami", "Origin: " + origin, key="none")
            self.assertEqual((status, got["allow-origin"]), (401, origin))  # the page may read why
        for origin in ("https://a.example.evil", "http://a.example", "https://a.exampl", "null", "*", ""):
            status, got = self.cors("GET", "/api/v1/whoami", "Origin: " + origin)
            self.assertEqual((status, got), (200, {}), origin)
        self.assertEqual(self.cors("GET", "/api/v1/whoami"), (200, {}))

    def evicted(self, reason):
        return self.s.metrics("api").get('shunt_http_evicted_connections_total{reason="%s"}' % reason, 0)

    def test_connections_of_a_key(self):
        other = self.s.key("vision", "infer")
        with contextlib.ExitStack() as stack:
            opened = [stack.enter_context(self.raw()) for _ in range(3)]
            for c in opened:
                self.serves_on(c)
            with self.raw(self.infer_text()) as c:
                status, headers, body = c.reply()
                self.assertEqual((status, json.loads(body)["code"]), (429, "QUOTA"))
                self.assertRegex(json.loads(body)["detail"], "3 open connections.*max-connections-per-key")
                self.assertGreaterEqual(int(headers["retry-after"]), 1)
                self.assertEqual(headers["connection"], "close")
                self.assertTrue(c.closed())
            for c in opened:  # those that it has go on
                self.serves_on(c)
            # Other keys are other counts, of the same tenant too, and an admin always gets in.
            self.assertEqual(self.raw(self.infer_text(key=other)).reply()[0], 200)
            for _ in range(4):
                c = stack.enter_context(self.raw(self.request("GET", "/api/v1/tenants", key=self.s.admin)))
                self.assertEqual(c.reply()[0], 200)
            # A connection counts for the key of its last request.
            self.assertEqual(opened[0].send(self.infer_text(key=other)).reply()[0], 200)
            with self.raw(self.infer_text()) as c:
                self.assertEqual(c.reply()[0], 200)
                self.assertEqual(opened[0].send(self.infer_text()).reply()[0], 429)
        until("its connections are closed", lambda: self.infer().status == 200)

    def test_connections_of_an_address(self):
        """Those without a key go, the oldest first, however far their requests have come; no newcomer is
        refused, and who has a key stays."""
        infer, before = self.s.key("vision", "infer"), self.evicted("address")
        with contextlib.ExitStack() as stack:
            known = [stack.enter_context(self.raw(source="127.0.0.9")) for _ in range(3)]
            for c in known:
                self.assertEqual(c.send(self.infer_text(key=infer)).reply()[0], 200)
            strangers = [stack.enter_context(self.raw(text, source="127.0.0.9")) for text in 3 * (
                "", "GET /v2 HTTP/1.1\r\nX: ", "POST /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n",
                "GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")]
            for c in strangers[3::4]:
                self.assertEqual(c.reply()[0], 200)
            for c in known:
                self.assertEqual(c.send(self.infer_text(key=infer)).reply()[0], 200)
            self.assertEqual(self.evicted("address"), before)
            for k in range(2 * len(strangers)):
                c = stack.enter_context(self.raw(source="127.0.0.9"))
                self.assertEqual(c.send(self.request("GET", "/v2/health/live")).reply()[0], 200)
            for c in strangers:
                self.assertTrue(c.closed())
            for c in known:
                self.assertEqual(c.send(self.infer_text(key=infer)).reply()[0], 200)
            self.assertEqual(self.infer().status, 200)  # from 127.0.0.1
            self.assertEqual(self.evicted("address"), before + 2 * len(strangers))

    def test_all_places_are_taken(self):
        """By who has no key, from many addresses; then also by who has one, and asks for nothing."""
        before = self.evicted("full")
        with contextlib.ExitStack() as stack:
            known = stack.enter_context(self.raw(self.infer_text()))
            self.assertEqual(known.reply()[0], 200)
            for i in range(200):
                stack.enter_context(self.raw(source="127.0.1.%d" % (i % 50 + 1)))
            begin = time.monotonic()
            for _ in range(20):  # a key has three, and one that was closed may still count
                until("it is served", lambda: self.infer().status == 200)
            self.assertLess(time.monotonic() - begin, WAIT_S)
            self.serves_on(known)
            self.assertGreater(self.evicted("full"), before)
        keys = [self.s.key("vision", "infer") for _ in range(24)]
        with contextlib.ExitStack() as stack:
            for key in keys:
                for _ in range(3):
                    c = stack.enter_context(self.raw(self.infer_text(key=key)))
                    self.assertEqual(c.reply()[0], 200)
            until("it is served", lambda: self.infer().status == 200)

    def test_a_rate_limit_is_told(self):
        key = self.s.tenant("paced")
        self.s.push(key, "lin", onnx.linear(), max_batch=4)
        r = self.infer(key)
        self.assertEqual((r.status, r.headers.get("ratelimit"), r.headers.get("ratelimit-policy")),
                         (200, None, None))
        # A token in 1000 s, so that how fast this machine is does not matter.
        r = self.s.call("PUT", "/api/v1/tenants/paced/quota", {"requests_per_second": 0.001, "burst": 3},
                        self.s.admin)
        self.assertEqual(r.status, 200, r)
        got = []
        until("the quota has reached the API",
              lambda: got.append(self.infer(key)) or "ratelimit" in got[-1].headers)
        got = [got[-1]] + [self.infer(key) for _ in range(3)]
        self.assertEqual([r.status for r in got], [200, 200, 200, 429])
        left = [re.fullmatch(r'"requests";r=(\d+);t=(\d+)', r.headers["ratelimit"]).groups() for r in got]
        self.assertEqual([int(r) for r, _ in left], [2, 1, 0, 0])
        self.assertEqual({r.headers["ratelimit-policy"] for r in got}, {'"requests";q=3;w=3000'})
        self.assertGreaterEqual(int(got[3].headers["retry-after"]), int(left[3][1]))
        self.assertGreater(int(left[3][1]), 500)

    def test_a_client_that_never_reads(self):
        """Its reply holds payload memory: it is cut off, and the memory is free."""
        self.push_wide("wide")
        text = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [16, 4],
                                       "data": [1] * 64}], "parameters": {"binary_data_output": True}})
        c = self.deaf(self.request("POST", "/v2/models/wide/infer", "Content-Length: %d" % len(text),
                                   body=text))
        until("the reply is on its way", lambda: self.s.metrics("api").get(
            'shunt_requests_total{tenant="vision",model="wide",outcome="ok"}') or self.s.payload() > 15e6)
        until("the payload memory is free", lambda: self.s.payload() == 0)
        self.assertLess(self.rest_of(c), 16 << 20)

    def test_a_client_that_never_reads_a_file(self):
        """It holds a connection and an open file: it is cut off, and the file is closed."""
        self.push_wide("wider")
        self.s.push_data(self.key, "rows", st_bytes({"x": ("F32", [16, 4], bytes(256))}))
        r = self.s.call("POST", "/api/v1/jobs", {"kind": "batch_inference", "model": "wider",
                                                 "dataset": "rows", "spec": {}}, self.key)
        self.assertEqual(r.status, 201, r)
        job = r.json["id"]
        self.assertEqual(self.s.wait_job(self.key, job)["state"], "SUCCEEDED")
        c = self.deaf(self.request("GET", "/api/v1/jobs/%d/result/artifact" % job))
        until("the file is being sent", self.results)
        until("the file is closed", lambda: not self.results())
        self.assertLess(self.rest_of(c), 16 << 20)

    def push_wide(self, name):
        """A model whose answer to 16 rows is 16 MiB."""
        weights = onnx.tensor("w", [4, 1 << 18], [], raw=bytes(4 * 4 << 18))
        self.s.push(self.key, name, onnx.model([onnx.node("MatMul", ["x", "w"], ["y"])],
                                               [onnx.value("x", ["N", 4])],
                                               [onnx.value("y", ["N", 1 << 18])], [weights]), max_batch=16)

    def deaf(self, text):
        """A connection on which text was sent, and nothing is read."""
        c = socket.socket()
        self.addCleanup(c.close)
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        c.connect(("127.0.0.1", self.s.port))
        c.sendall(text.encode())
        return c

    def rest_of(self, c):
        """Bytes that still come before the end."""
        c.settimeout(WAIT_S)
        n = 0
        with contextlib.suppress(ConnectionError):
            while piece := c.recv(1 << 20):
                n += len(piece)
        return n

    def results(self):
        """Results of jobs that the API has open."""
        at, out = "/proc/%d/fd" % self.s.pid("api"), []
        for fd in os.listdir(at):
            with contextlib.suppress(OSError):
                out.append(os.readlink(os.path.join(at, fd)))
        return [x for x in out if "/jobs/" in x]


class End(Story):
    def test_after_term_who_is_inside_is_served_and_nobody_else(self):
        """With threads that sleep and all places taken, so that nothing but the end wakes them."""
        n = 16
        self.s = s = System("--workers=2", KEEP_RENEW_S="0", MAX_CONNECTIONS=str(n), DRAIN_S=str(WAIT_S))
        self.addCleanup(s.stop)
        key = s.tenant("vision")
        s.push(key, "lin", onnx.linear(), max_batch=16)
        until("no connection is open", lambda: self.connections() == 0)
        text, head = json.dumps(GOOD), "HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n" % key
        with contextlib.ExitStack() as stack:
            inside = stack.enter_context(Raw(s.port))
            inside.send("POST /v2/models/lin/infer %sContent-Length: %d\r\n\r\n%s" % (
                head, len(text), text[:9]))
            until("it has a place for its body", s.payload)
            streams = []
            for _ in range(n - 1):  # each has a key and is in use: nobody can be spared
                streams.append(stack.enter_context(Raw(s.port)))
                streams[-1].send("GET /api/v1/events %sAccept: text/event-stream\r\n\r\n" % head)
                self.assertEqual(streams[-1].reply()[0], 200)
            late = stack.enter_context(Raw(s.port))  # the kernel's, until a place is free
            late.send("GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
            api = s.pid("api")
            with s.held():
                begin = time.monotonic()
                os.kill(api, signal.SIGTERM)
                until("nobody is let in", lambda: not self.opens())
                self.assertIsNone(late.reply())
                inside.send(text[9:])
                self.assertEqual(inside.reply()[0], 200)
                self.assertTrue(inside.closed())
                for c in streams:  # the end does not wait for them
                    c.closed()
                self.assertLess(time.monotonic() - begin, WAIT_S / 2)
                s.kill("api", 0)  # waits until it is dead
        s.wait_new("api", api)
        until("the next one serves", self.opens)

    def test_after_term_each_reply_is_the_last_of_its_connection(self):
        """Else whoever sends the next request on it has no answer when the end comes."""
        self.s = s = System("--workers=2", DRAIN_S=str(WAIT_S))
        self.addCleanup(s.stop)
        key = s.tenant("vision")
        s.push(key, "lin", onnx.linear())
        text, head = json.dumps(GOOD), "HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n" % key
        with Raw(s.port) as inside, Raw(s.port) as kept, s.held():
            inside.send("POST /v2/models/lin/infer %sContent-Length: %d\r\n\r\n%s" % (head, len(text), text[:9]))
            until("it has a place for its body", s.payload)
            self.assertNotIn("connection", kept.send("GET /v2/models/lin %s\r\n" % head).reply()[1])
            os.kill(s.pid("api"), signal.SIGTERM)
            until("nobody is let in", lambda: not self.opens())
            status, headers, _ = kept.send("GET /v2/models/lin %s\r\n" % head).reply()
            self.assertEqual((status, headers.get("connection", "").lower()), (200, "close"))
            self.assertTrue(kept.closed())
            status, headers, _ = inside.send(text[9:]).reply()
            self.assertEqual((status, headers.get("connection", "").lower()), (200, "close"))
            self.assertTrue(inside.closed())

    def connections(self):
        """None before the first count."""
        return self.s.metrics("api").get("shunt_http_connections")

    def opens(self):
        with contextlib.suppress(ConnectionError), Raw(self.s.port):
            return True


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False, warnings="ignore").result.wasSuccessful() else 1)
