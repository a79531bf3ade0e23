"""Frames of our processes in Python, from common/msg.def itself: struct, encoder, decoder.

Standard library only. Conn is one connection; Msg is a message with its fields as attributes.
"""
import array
import os
import re
import select
import socket
import struct
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VERSION = int(re.search(r"#define SH_WIRE_VERSION (\d+)u",
                        open(os.path.join(ROOT, "common", "wire.h")).read())[1])


def _load():
    by_name, by_number = {}, {}
    text = open(os.path.join(ROOT, "common", "msg.def")).read()
    for name, number, rest in re.findall(r"^SH_MSG\((\w+),\s*\w+,\s*(\d+),(.*)$", text, re.M):
        fields = re.findall(r"F\((\w+),\s*(\w+)\)", rest)
        by_name[name] = (int(number), fields)
        by_number[int(number)] = (name, fields)
    return by_name, by_number


BY_NAME, BY_NUMBER = _load()
FORMAT = {"u32": "<I", "u64": "<Q", "i64": "<q", "f64": "<d"}


class Msg:
    def __init__(self, type_name, /, **fields):
        self.type = type_name
        self.__dict__.update(fields)

    def __repr__(self):
        return "%s(%s)" % (self.type, ", ".join("%s=%r" % kv for kv in self.__dict__.items()
                                                if kv[0] not in ("type", "fds")))


def encode(name, /, **values):
    number, fields = BY_NAME[name]
    out = bytearray()
    for kind, field in fields:
        v = values.pop(field)
        if kind in FORMAT:
            out += struct.pack(FORMAT[kind], v)
        elif kind == "str":
            b = v.encode() + b"\0"
            out += struct.pack("<I", len(b)) + b
        else:
            out += struct.pack("<I", len(v))
            out += bytes(-len(out) % 8)
            out += v
    if values:
        raise TypeError("%s has no field %s" % (name, list(values)))
    out += bytes(-len(out) % 8)
    return number, bytes(out)


def decode(number, payload):
    name, fields = BY_NUMBER[number]
    m, at = Msg(name), 0
    for kind, field in fields:
        if kind in FORMAT:
            (v,) = struct.unpack_from(FORMAT[kind], payload, at)
            at += struct.calcsize(FORMAT[kind])
        else:
            (n,) = struct.unpack_from("<I", payload, at)
            at += 4
            if kind == "blob":
                at += -at % 8
            v = payload[at:at + n]
            at += n
            if kind == "str":
                v = v[:-1].decode()
        setattr(m, field, v)
    return m


class Conn:
    def __init__(self, sock):
        self.sock, self.buf, self.fds = sock, bytearray(), []

    def fileno(self):
        return self.sock.fileno()

    def send(self, name, /, fds=(), **values):
        number, payload = encode(name, **values)
        frame = struct.pack("<IBBH", len(payload), VERSION, len(fds), number) + payload
        if fds:
            n = self.sock.sendmsg([frame], [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                                             array.array("i", fds))])
            frame = frame[n:]
        self.sock.sendall(frame)

    def _frame(self):
        if len(self.buf) < 8:
            return None
        length, version, n_fds, number = struct.unpack_from("<IBBH", self.buf)
        assert version == VERSION, "a frame of version %d, not %d" % (version, VERSION)
        if len(self.buf) < 8 + length:
            return None
        m = decode(number, bytes(self.buf[8:8 + length]))
        m.fds, self.fds = self.fds[:n_fds], self.fds[n_fds:]
        del self.buf[:8 + length]
        return m

    def recv(self, timeout):
        """The next message; None when the time is over; EOFError at the end."""
        end = time.monotonic() + timeout
        while True:
            m = self._frame()
            if m:
                return m
            left = max(0, end - time.monotonic())
            if not select.select([self.sock], [], [], left)[0]:
                return None
            data, anc, _, _ = self.sock.recvmsg(1 << 20, socket.CMSG_SPACE(8 * 4))
            for _, _, d in anc:
                a = array.array("i")
                a.frombytes(d[:len(d) - len(d) % a.itemsize])
                self.fds += list(a)
            if not data:
                raise EOFError("the peer closed the connection")
            self.buf += data


def connect(addr, timeout=10):
    kind, _, rest = addr.partition(":")
    end = time.monotonic() + timeout
    while True:
        try:
            if kind == "unix":
                s = socket.socket(socket.AF_UNIX)
                s.connect(rest)
            else:
                host, _, port = rest.rpartition(":")
                s = socket.create_connection((host, int(port)))
            return Conn(s)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)
