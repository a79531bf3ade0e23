"""A collector of traces for stories: it takes OTLP over HTTP as JSON, strictly, or behaves badly.

Its `mode` is read for each request: a name of MODES, or a function that gets the handler and the body.
"""
import http.server
import json
import os
import re
import socket
import ssl
import struct
import threading
import time

HEX_TRACE, HEX_SPAN, DECIMAL = re.compile("[0-9a-f]{32}"), re.compile("[0-9a-f]{16}"), re.compile("[0-9]{1,20}")
VALUES = {"stringValue": str, "intValue": str, "boolValue": bool, "doubleValue": float}
INTERNAL, SERVER, CLIENT = 1, 2, 3


def only(what, obj, needed, allowed=()):
    assert isinstance(obj, dict), (what, obj)
    assert set(needed) <= set(obj) <= set(needed) | set(allowed), (what, sorted(obj))


def attributes(found):
    got = {}
    for a in found:
        only("attribute", a, ("key", "value"))
        assert len(a["value"]) == 1, a
        kind, value = next(iter(a["value"].items()))
        assert kind in VALUES and isinstance(value, VALUES[kind]), a
        assert kind != "intValue" or re.fullmatch("-?[0-9]+", value), a
        assert a["key"] not in got, a
        got[a["key"]] = value
    return got


def read_span(s):
    only("span", s, ("traceId", "spanId", "name", "kind", "startTimeUnixNano", "endTimeUnixNano", "attributes"),
         ("parentSpanId", "status", "flags"))
    assert HEX_TRACE.fullmatch(s["traceId"]) and int(s["traceId"], 16), s
    for name in ("spanId", "parentSpanId"):
        assert name not in s or HEX_SPAN.fullmatch(s[name]) and int(s[name], 16), s
    assert type(s["kind"]) is int and s["kind"] in (INTERNAL, SERVER, CLIENT), s
    for name in ("startTimeUnixNano", "endTimeUnixNano"):
        assert isinstance(s[name], str) and DECIMAL.fullmatch(s[name]), s
    assert int(s["startTimeUnixNano"]) <= int(s["endTimeUnixNano"]), s
    assert abs(int(s["endTimeUnixNano"]) / 1e9 - time.time()) < 600, s
    assert isinstance(s["name"], str) and s["name"], s
    if "status" in s:
        only("status", s["status"], ("code",), ("message",))
        assert type(s["status"]["code"]) is int and s["status"]["code"] in (0, 1, 2), s
    return {**s, "attributes": attributes(s["attributes"]), "begin": int(s["startTimeUnixNano"]),
            "end": int(s["endTimeUnixNano"])}


def read(body):
    """The spans of a request, each with its service. Asserts what the protocol demands."""
    j = json.loads(body.decode("utf-8"))
    only("body", j, ("resourceSpans",))
    got = []
    for r in j["resourceSpans"]:
        only("resource spans", r, ("resource", "scopeSpans"), ("schemaUrl",))
        only("resource", r["resource"], ("attributes",))
        of = attributes(r["resource"]["attributes"])
        assert of["service.name"] in ("shunt-api", "shunt-scheduler", "shunt-executor"), of
        assert of["service.version"] and of["service.instance.id"], of
        for scope in r["scopeSpans"]:
            only("scope spans", scope, ("scope", "spans"), ("schemaUrl",))
            got += [{**read_span(s), "service": of["service.name"]} for s in scope["spans"]]
    return got


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    close_connection = True

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"{}", **headers):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        c = self.server.collector
        c.asked.append(time.monotonic())
        if c.mode == "never reads":
            c.ended.wait()
            return
        if c.mode == "resets":  # with all that it has not read
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True  # TLS would read on, from the number, which may be another's by then
            os.close(self.connection.detach())
            return
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            MODES[c.mode](self, c, body) if isinstance(c.mode, str) else c.mode(self, body)
        except OSError:
            pass  # it has left

    def do_GET(self):  # nobody should
        self.server.collector.wrong.append("GET " + self.path)
        self.answer(200)


def take(h, c, body):
    try:
        assert h.path == "/v1/traces", h.path
        assert h.headers["Content-Type"] == "application/json", h.headers["Content-Type"]
        spans = read(body)
    except Exception as e:  # pylint: disable=broad-except
        c.wrong.append(repr(e))
        h.answer(400)
        return
    c.heads.append(dict(h.headers.items()))
    c.spans.extend(spans)
    h.answer(200)


def endless(h, c, _):
    h.send_response(200)
    h.end_headers()
    while not c.ended.is_set():
        h.wfile.write(b"x" * 65536)


def endless_head(h, c, _):
    h.wfile.write(b"HTTP/1.1 200 OK\r\n")
    while not c.ended.is_set():
        h.wfile.write(b"X-More: " + b"x" * 1000 + b"\r\n")


def drip(h, c, _):
    h.send_response(200)
    h.send_header("Content-Length", "100000")
    h.end_headers()
    while not c.ended.wait(0.2):
        h.wfile.write(b" ")


MODES = {
    "good": take,
    "slow": lambda h, c, _: c.ended.wait(),
    "503": lambda h, c, _: h.answer(503, b"", Retry_After="1"),
    "429 at a date": lambda h, c, _: h.answer(429, b"", Retry_After="Fri, 31 Dec 1999 23:59:59 GMT"),
    "400": lambda h, c, _: h.answer(400, b"<html>"),
    "redirect": lambda h, c, _: h.answer(307, b"", Location="http://127.0.0.1:%d/elsewhere" % c.port),
    "takes a part": lambda h, c, body: h.answer(200, json.dumps({"partialSuccess": {
        "rejectedSpans": str(len(read(body)) - 1), "errorMessage": 'no "room"\nev=forged'}}).encode()),
    "rejects a negative number": lambda h, c, _: h.answer(200, b'{"partialSuccess":{"rejectedSpans":"-5"}}'),
    "rejects more than it got": lambda h, c, _: h.answer(200, b'{"partialSuccess":{"rejectedSpans":1e30}}'),
    "garbage": lambda h, c, _: h.answer(200, b'{"partialSuccess": [[[[\x00\xff'),
    "endless": endless,
    "endless head": endless_head,
    "drip": drip,
    "no HTTP": lambda h, c, _: h.wfile.write(b"\x00\xffSSH-2.0\r\n\r\n"),
    "closes": lambda h, c, _: h.connection.shutdown(socket.SHUT_RDWR),
}


class Collector:
    """with Collector() as c: ... c.url. certificate, key: PEM files, for https."""

    def __init__(self, certificate=None, key=None):
        self.mode = "good"
        self.spans, self.wrong, self.heads, self.asked = [], [], [], []
        self.ended = threading.Event()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # a client that has left
        self.server.collector = self
        self.port = self.server.server_address[1]
        self.url = "http%s://127.0.0.1:%d" % ("s" if certificate else "", self.port)
        if certificate:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(certificate, key)
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.ended.set()
        self.server.shutdown()
        self.server.server_close()

    def of(self, trace):
        return [s for s in self.spans if s["traceId"] == trace]
