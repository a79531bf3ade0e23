#!/usr/bin/env python3
"""Uploads whose connection breaks go on where they were, within bounds.

Without it: a file of gigabytes would begin anew after each broken connection; parts could fill the
disk, be another tenant's, or become a file that nobody sent.

Usage: test_uploads.py [-v] [name ...]
"""
import base64
import contextlib
import fcntl
import hashlib
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as onnx  # noqa: E402
from system import BIN, WAIT_S, Story, System, st_bytes, until  # noqa: E402

MIB = 1 << 20


def data_of(seed, n):
    """A dataset of about n bytes that do not repeat."""
    rows = n // 4096
    return st_bytes({"x": ("F32", [rows, 1024], random.Random(seed).randbytes(rows * 4096))})


def digest(data):
    return "sha-256=:%s:" % base64.b64encode(hashlib.sha256(data).digest()).decode()


class Cutter:
    """Between client and API: each connection carries so many bytes there; then it is cut."""

    def __init__(self, port, budget, cuts):
        self.port, self.budget, self.cuts, self.sent = port, budget, cuts, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, server = self.listener.accept()[0], socket.create_connection(("127.0.0.1", self.port))
                threading.Thread(target=self.there, args=(client, server), daemon=True).start()
                threading.Thread(target=self.back, args=(client, server), daemon=True).start()

    def there(self, client, server):
        n = 0
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                n += len(data)
                self.sent += len(data)
                if self.cuts and n > self.budget:
                    self.cuts -= 1
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    client.close()  # a reset: what is on its way is lost
                    break
                server.sendall(data)
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)

    def back(self, client, server):
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                client.sendall(data)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)


class Holder(Cutter):
    """The first PUT goes no further than so many bytes, and stands still; `held` is set then."""

    def __init__(self, port, budget):
        self.held = threading.Event()
        super().__init__(port, budget, 0)

    def there(self, client, server):
        n = 0
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                n += len(data) if n or data.startswith(b"PUT") else 0
                if n and n > self.budget:
                    self.held.set()
                    continue
                server.sendall(data)
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)


class Uploads(Story):
    @classmethod
    def setUpClass(cls):
        cls.s = s = System("--workers=2")
        cls.addClassCleanup(s.stop)
        cls.key, cls.other = s.tenant("anna"), s.tenant("berta")
        cls.names = 0

    def dataset(self, key=None):
        Uploads.names += 1
        name = "d%d" % self.names
        r = self.s.call("POST", "/api/v1/datasets", {"name": name}, key or self.key)
        self.assertEqual(r.status, 201, r)
        return "/api/v1/datasets/" + name

    def begin(self, at, data, n, key=None, headers=None):
        """Sends the first n bytes of a PUT of all, once the API has said that it takes them."""
        s = socket.create_connection(("127.0.0.1", self.s.port), timeout=WAIT_S)
        lines = {"Host": "x", "Authorization": "Bearer " + (key or self.key), "Content-Length": len(data),
                 "Content-Digest": digest(data), "Expect": "100-continue", **(headers or {})}
        s.sendall(("PUT %s/artifact HTTP/1.1\r\n%s\r\n" % (at, "".join(
            "%s: %s\r\n" % kv for kv in lines.items() if kv[1] is not None))).encode())
        got = s.recv(65536)
        self.assertEqual(got, b"HTTP/1.1 100 Continue\r\n\r\n", got)
        s.sendall(data[:n])
        return s

    def cut(self, at, data, *args):
        """And goes away; the API has noticed at the end of this."""
        self.begin(at, data, *args).close()
        name = hashlib.sha256(data).hexdigest()
        until("nobody writes it", lambda: not any(self.is_locked(p) for p in self.parts() if p.endswith(name)))

    def is_locked(self, part):
        with open("%s/blobs/tmp/%s" % (self.s.state, part), "rb") as f:
            try:
                fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def part(self, at, data, key=None):
        return self.s.call("GET", "%s/artifact/parts/%s" % (at, hashlib.sha256(data).hexdigest()),
                           key=key or self.key)

    def has_part(self, at, data):
        return until("the part is there", lambda: (lambda r: r.status == 200 and r)(
            self.part(at, data))).json["bytes"]

    def rest(self, at, data, start, total=None, key=None, name=None):
        return self.s.call("PUT", at + "/artifact", data[start:], key or self.key, headers={
            "Content-Digest": digest(name or data),
            "Content-Range": "bytes %d-%d/%d" % (start, len(data) - 1, total or len(data))})

    def shunt(self, *args, server=None):
        env = {k: v for k, v in os.environ.items() if not k.startswith("SHUNT_") and k != "HOME"}
        r = subprocess.run([os.path.join(BIN, "shunt"), *args, "--key=" + self.key,
                            "--server=" + (server or "http://127.0.0.1:%d" % self.s.port)], env=env, capture_output=True, text=True, timeout=120)
        self.assertEqual(r.returncode, 0, r)
        return r

    def parts(self):
        return sorted(n for n in os.listdir(self.s.state + "/blobs/tmp") if n.startswith("part-"))

    def test_a_cut_upload_goes_on_behind_what_arrived(self):
        at, data = self.dataset(), data_of(1, 6 * MIB)
        self.cut(at, data, 4 * MIB)
        n = self.has_part(at, data)
        self.assertGreater(n, 2 * MIB)
        self.assertLessEqual(n, 4 * MIB)
        r = self.rest(at, data, n)
        self.assertEqual((r.status, r.json["state"], r.json["digest"]),
                         (200, "READY", hashlib.sha256(data).hexdigest()), r)
        self.assertEqual(self.part(at, data).status, 404)
        with open("%s/blobs/datasets/%s.safetensors" % (self.s.state, r.json["digest"]), "rb") as f:
            self.assertEqual(f.read(), data)

    def test_a_model_too_and_after_its_api_was_killed(self):
        net = onnx.linear(1024, 1024)  # 4 MiB
        self.s.call("POST", "/api/v1/models", {"name": "m"}, self.key)
        r = self.s.call("POST", "/api/v1/models/m/versions", {"max_batch": 1}, self.key)
        at = "/api/v1/models/m/versions/%d" % r.json["version"]
        self.cut(at, net, 3 * MIB)
        n = self.has_part(at, net)
        self.s.kill("api")

        def answers():
            with contextlib.suppress(OSError):
                return self.s.call("GET", at, key=self.key).status == 200
        until("the API is back", answers)
        self.assertEqual(self.has_part(at, net), n)
        r = self.rest(at, net, n - 1000)  # less than there is will do
        self.assertEqual((r.status, r.json["state"]), (200, "REGISTERED"), r)

    def test_a_whole_file_waits_for_a_database_that_is_away(self):
        data, net = data_of(8, 3 * MIB), onnx.linear(512, 1024)
        self.s.call("POST", "/api/v1/models", {"name": "late"}, self.key)
        r = self.s.call("POST", "/api/v1/models/late/versions", {"max_batch": 1}, self.key)
        both = [(self.dataset(), data, "READY"),
                ("/api/v1/models/late/versions/%d" % r.json["version"], net, "REGISTERED")]
        sockets = [self.begin(at, file, len(file) - 1) for at, file, _ in both]
        for at, file, _ in both:
            self.has_part(at, file)
        with self.s.held():
            self.s.kill("postgres", signal.SIGINT)
            for s, (_, file, _) in zip(sockets, both):
                s.sendall(file[-1:])
                self.assertIn("HTTP/1.1 503 ", s.recv(65536).decode())
                s.close()
        parts = [p for p in self.parts() if p.endswith(tuple(
            hashlib.sha256(file).hexdigest() for _, file, _ in both))]
        self.assertEqual(len(parts), 2)
        for at, file, state in both:
            self.assertEqual(self.has_part(at, file), len(file))
            r = until("the database is back for all threads", lambda: (lambda r: r.status != 503 and r)(
                self.rest(at, file, len(file) - 1)))
            self.assertEqual((r.status, r.json["state"]), (200, state), r)
        until("nothing is left of it", lambda: not [
            n for n in os.listdir(self.s.state + "/blobs/tmp") if n.startswith(tuple(parts))])

    def sql(self, text):
        subprocess.run(["psql", "-Xq", "-h", os.path.realpath(os.path.join(self.s.state, "pg")), "-U", "shunt",
                        "-v", "ON_ERROR_STOP=1", "-c", text, "postgres"], check=True)

    def test_a_file_that_was_in_its_place_when_the_commit_failed_need_not_be_sent_again(self):
        data, at = data_of(9, 3 * MIB), self.dataset()
        self.cut(at, data, len(data) - 1)
        self.sql("CREATE FUNCTION no_luck() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no luck' "
                 "USING ERRCODE = '40001'; END $$; CREATE CONSTRAINT TRIGGER no_luck AFTER UPDATE ON dataset "
                 "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION no_luck()")
        try:
            r = self.rest(at, data, self.has_part(at, data))
            self.assertEqual(r.status, 503, r)
        finally:
            self.sql("DROP FUNCTION no_luck CASCADE")
        self.assertEqual(self.has_part(at, data), len(data))
        r = self.rest(at, data, len(data) - 1)
        self.assertEqual((r.status, r.json["state"]), (200, "READY"), r)

    def test_what_does_not_fit_together_becomes_no_file(self):
        at, data, wrong = self.dataset(), data_of(2, 3 * MIB), data_of(3, 3 * MIB)
        self.cut(at, data, 2 * MIB)
        n = self.has_part(at, data)
        r = self.rest(at, data, n + 1)
        self.assertEqual((r.status, r.code, r.json["bytes"]), (409, "CONFLICT", n), r)
        self.assertEqual(self.has_part(at, data), n)
        r = self.rest(at, wrong, n, name=data)
        self.assertEqual((r.status, r.code), (400, "INVALID"), r)
        self.assertIn("SHA-256", r.error)
        # Nobody can make use of it; a thread removes it behind the reply.
        until("the part is gone", lambda: self.part(at, data).status == 404)
        for bad in ("bytes 5-9/8", "bytes 0-1/*", "lines 0-1/2", "bytes 0-%d/%d" % (len(data) - 2, len(data))):
            r = self.s.call("PUT", at + "/artifact", data, self.key,
                            headers={"Content-Digest": digest(data), "Content-Range": bad})
            self.assertEqual((r.status, r.code), (400, "INVALID"), (bad, r))
        r = self.s.call("PUT", at + "/artifact", data, self.key, headers={
            "Content-Range": "bytes 0-%d/%d" % (len(data) - 1, len(data))})
        self.assertEqual(r.status, 400, r)
        self.assertEqual(self.s.call("GET", at, key=self.key).json["state"], "UPLOADING")

    def test_parts_are_their_tenants_and_bounded(self):
        at, data = self.dataset(self.other), data_of(4, 3 * MIB)
        self.cut(at, data, 2 * MIB, self.other)
        until("it is there", lambda: self.part(at, data, self.other).status == 200)
        self.assertEqual(self.part(at, data).status, 404)
        self.assertEqual(self.part(at, data, self.s.key("berta", "read")).status, 403)
        self.cut(at, data_of(5, 3 * MIB), 2 * MIB, self.other)  # of a row one
        until("the other one", lambda: self.part(at, data_of(5, 3 * MIB), self.other).status == 200)
        self.assertEqual(self.part(at, data, self.other).status, 404)
        before = self.parts()
        self.cut(self.dataset(self.other), data, 2 * MIB, self.other, {"Content-Digest": None})
        for _ in range(10):
            self.cut(self.dataset(self.other), data, 2 * MIB, self.other)
        self.assertEqual(len(self.parts()) - len(before), 7)  # eight of a tenant
        # What they take is not free for others: the quota counts them.
        r = self.s.call("PUT", "/api/v1/tenants/berta/quota", {"max_storage_bytes": 10 * MIB}, self.s.admin)
        self.assertEqual(r.status, 200, r)
        r = self.s.call("PUT", self.dataset(self.other) + "/artifact", data, self.other)
        self.assertEqual(r.status, 200, r)
        r = self.s.call("PUT", self.dataset(self.other) + "/artifact", data, self.other,
                        headers={"Content-Digest": digest(data)})
        self.assertEqual((r.status, r.code), (429, "QUOTA"), r)

    def finish(self, s, data):
        """The reply to an upload that begin() left one byte short."""
        s.sendall(data[-1:])
        got = b""
        while piece := s.recv(65536):
            got += piece
            if b"\r\n\r\n" in got:
                break
        s.close()
        return int(got.split()[1])

    def test_uploads_that_run_at_once_get_no_more_room_than_there_is(self):
        key, data = self.s.tenant("carla"), data_of(9, 3 * MIB)
        r = self.s.call("PUT", "/api/v1/tenants/carla/quota", {"max_storage_bytes": 7 * MIB}, self.s.admin)
        self.assertEqual(r.status, 200, r)
        at = [self.dataset(key) for _ in range(3)]
        sockets = [self.begin(a, data, len(data) - 1, key, {"Content-Digest": None}) for a in at]
        self.assertEqual([self.finish(s, data) for s in sockets], [200, 200, 429])
        self.assertEqual([self.s.call("GET", a, key=key).json["state"] for a in at],
                         ["READY", "READY", "UPLOADING"])

    def test_uploads_that_end_at_once_get_no_more_room_than_there_is(self):
        """Each has seen that there is room for it; there is for two."""
        key, data = self.s.tenant("clara"), data_of(11, MIB)
        for n in range(1, 6):
            r = self.s.call("PUT", "/api/v1/tenants/clara/quota",
                            {"max_storage_bytes": 2 * n * len(data) + len(data) // 2}, self.s.admin)
            self.assertEqual(r.status, 200, r)
            at = [self.dataset(key) for _ in range(6)]
            sockets = [self.begin(a, data, len(data) - 1, key, {"Content-Digest": None}) for a in at]
            for s in sockets:
                s.sendall(data[-1:])
            got = [self.finish(s, b"") for s in sockets]
            self.assertEqual(sorted(got), [200, 200, 429, 429, 429, 429])
            self.assertEqual(sorted(self.s.call("GET", a, key=key).json["state"] for a in at),
                             ["READY"] * 2 + ["UPLOADING"] * 4)

    def test_a_tenant_that_uses_up_its_uploads_is_in_nobodys_way(self):
        key, data = self.s.tenant("dora"), data_of(10, MIB)
        sockets = [self.begin(self.dataset(key), data, 10, key) for _ in range(8)]
        at = self.dataset(key)
        r = self.s.call("PUT", at + "/artifact", data, key)
        self.assertEqual((r.status, r.code), (429, "QUOTA"), r)
        self.assertIn("8 uploads running, as many as max-tenant-uploads allows", r.error)
        for _ in range(9):
            r = self.s.call("PUT", self.dataset(self.key) + "/artifact", data, self.key)
            self.assertEqual(r.status, 200, r)
        for s in sockets:
            s.close()
        until("one is over", lambda: self.s.call("PUT", at + "/artifact", data, key).status != 429)
        self.assertEqual(self.s.call("GET", at, key=key).json["state"], "READY")

    def test_shunt_goes_on_by_itself(self):
        file = os.path.join(self.s.dir, "big.safetensors")
        data = data_of(6, 24 * MIB)
        with open(file, "wb") as f:
            f.write(data)
        cutter = Cutter(self.s.port, 7 * MIB, 3)
        self.shunt("push", "dataset", "big", file, server=cutter.url)
        self.assertEqual(cutter.cuts, 0)
        self.assertLess(cutter.sent, len(data) + 12 * MIB)  # not from the beginning three times
        d = self.s.call("GET", "/api/v1/datasets/big", key=self.key).json
        self.assertEqual((d["state"], d["digest"]), ("READY", hashlib.sha256(data).hexdigest()))

    def test_shunt_says_what_a_push_before_it_has_left(self):
        file = os.path.join(self.s.dir, "left.safetensors")
        at, data = self.dataset(), data_of(7, 10 * MIB)
        with open(file, "wb") as f:
            f.write(data)
        self.cut(at, data, 6 * MIB)
        self.assertGreater(self.has_part(at, data), 5 * MIB)
        r = self.shunt("push", "dataset", os.path.basename(at), file)
        self.assertRegex(r.stdout, r"The server has [0-9.]+ MiB of 10.0 MiB already; the rest is sent\.")

    def test_shunt_goes_on_with_the_version_that_a_push_before_it_has_begun(self):
        file, net = os.path.join(self.s.dir, "left.onnx"), onnx.linear(2048, 1300)
        with open(file, "wb") as f:
            f.write(net)
        self.s.call("POST", "/api/v1/models", {"name": "left"}, self.key)
        versions = "/api/v1/models/left/versions"
        for body in ({"max_batch": 4}, {"precision": "bf16"}, {}, {}):
            r = self.s.call("POST", versions, body, self.key)
            if r.json["version"] != 4:  # the last one has no part
                self.cut("%s/%d" % (versions, r.json["version"]), net, 6 * MIB)
                self.has_part("%s/%d" % (versions, r.json["version"]), net)
        r = self.shunt("push", "model", "left", file, "--wait")
        self.assertIn("left:3 is READY", r.stdout)
        self.assertRegex(r.stdout, r"The server has [0-9.]+ MiB of 10.2 MiB already; the rest is sent\.")
        self.assertIn("left:5 is READY", self.shunt("push", "model", "left", file, "--wait").stdout)
        states = [v["state"] for v in self.s.call("GET", versions, key=self.key).json["items"]]
        self.assertEqual(states, ["UPLOADING", "UPLOADING", "READY", "UPLOADING", "READY"])

    def interrupt(self, sig, budget, *args):
        """`shunt push` that gets the signal when its file has come so far."""
        proxy = Holder(self.s.port, budget)
        p = subprocess.Popen([os.path.join(BIN, "shunt"), "push", *args, "--server", proxy.url],
                             env={**self.s.env, "SHUNT_KEY": self.key}, stderr=subprocess.PIPE, text=True)
        self.assertTrue(proxy.held.wait(WAIT_S))
        p.send_signal(sig)
        self.assertEqual(p.wait(WAIT_S), 1)
        said = p.stderr.read()
        p.stderr.close()
        proxy.listener.close()
        self.assertIn("stopped", said)

    def test_an_interrupted_first_push_leaves_nothing_that_was_not_there(self):
        net, data = os.path.join(self.s.dir, "small.onnx"), os.path.join(self.s.dir, "small.safetensors")
        with open(net, "wb") as f:
            f.write(onnx.linear(512, 512))
        with open(data, "wb") as f:
            f.write(data_of(9, MIB))
        self.s.call("POST", "/api/v1/models", {"name": "before"}, self.key)
        for sig in (signal.SIGINT, signal.SIGTERM):
            self.interrupt(sig, 1000, "model", "fresh", net)
            self.interrupt(sig, 1000, "model", "before", net)
            self.interrupt(sig, 1000, "dataset", "fresh", data)
            self.assertEqual(self.s.call("GET", "/api/v1/models/fresh", key=self.key).status, 404)
            self.assertEqual(self.s.call("GET", "/api/v1/datasets/fresh", key=self.key).status, 404)
            r = self.s.call("GET", "/api/v1/models/before", key=self.key)
            self.assertEqual((r.status, r.json["versions"]), (200, []), r)
        # A part of a large one is worth more than a clean name: the next push goes on there.
        with open(net, "wb") as f:
            f.write(onnx.linear(2048, 1300))
        self.interrupt(signal.SIGINT, 6 * MIB, "model", "large", net)
        until("the part is there", lambda: self.part("/api/v1/models/large/versions/1", onnx.linear(2048, 1300))
              .status == 200)
        self.assertRegex(self.shunt("push", "model", "large", net).stdout, "the rest is sent")

    def test_a_model_that_got_a_version_meanwhile_is_not_the_empty_one_that_was_seen(self):
        self.s.call("POST", "/api/v1/models", {"name": "seen"}, self.key)
        tag = self.s.call("GET", "/api/v1/models/seen", key=self.key).headers["etag"]
        self.s.call("POST", "/api/v1/models/seen/versions", {}, self.key)
        r = self.s.call("DELETE", "/api/v1/models/seen", key=self.key, headers={"If-Match": tag})
        self.assertEqual((r.status, r.code), (412, "PRECONDITION"), r)


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False, warnings="ignore").result.wasSuccessful() else 1)
