"""A client of the inference protocol that keeps its connection, for stories with many requests.

Standard library only. A reply's tensors come back as bytes, whether they travelled as JSON or binary,
so that two replies can be compared bit for bit.
"""
import http.client
import json
import struct

FORMAT = {"FP32": "f", "INT64": "q", "INT32": "i"}


def pack(datatype, values):
    return struct.pack("<%d%s" % (len(values), FORMAT[datatype]), *values)


def unpack(datatype, raw):
    return struct.unpack("<%d%s" % (len(raw) // struct.calcsize(FORMAT[datatype]), FORMAT[datatype]), raw)


class Refused(Exception):
    def __init__(self, status, raw):
        super().__init__("%d %s" % (status, raw[:300]))
        self.status = status


class Client:
    def __init__(self, port, key, timeout=60):
        self.key = key
        self.conn = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)

    def close(self):
        self.conn.close()

    def _request(self, inputs, binary_in, binary_out):
        head, tail = {"inputs": [], "parameters": {"binary_data_output": binary_out}}, b""
        for name, (datatype, shape, raw) in inputs.items():
            t = {"name": name, "datatype": datatype, "shape": list(shape)}
            if binary_in:
                t["parameters"] = {"binary_data_size": len(raw)}
                tail += raw
            else:
                t["data"] = unpack(datatype, raw)
            head["inputs"].append(t)
        return json.dumps(head).encode(), tail

    def infer(self, model, inputs, binary_in=True, binary_out=True):
        """inputs: {name: (datatype, shape, bytes)}; so is the result. Raises Refused."""
        head, tail = self._request(inputs, binary_in, binary_out)
        headers = {"Authorization": "Bearer " + self.key, "Content-Type": "application/json"}
        if binary_in:
            headers["Content-Type"] = "application/octet-stream"
            headers["Inference-Header-Content-Length"] = str(len(head))
        self.conn.request("POST", "/v2/models/%s/infer" % model, head + tail, headers)
        r = self.conn.getresponse()
        raw = r.read()
        if r.status != 200:
            raise Refused(r.status, raw)
        return self._outputs(raw, int(r.headers.get("Inference-Header-Content-Length", len(raw))))

    @staticmethod
    def _outputs(raw, at):
        out = {}
        for t in json.loads(raw[:at])["outputs"]:
            n = t.get("parameters", {}).get("binary_data_size")
            data = pack(t["datatype"], t["data"]) if n is None else raw[at:at + n]
            at += n or 0
            out[t["name"]] = (t["datatype"], t["shape"], data)
        return out
