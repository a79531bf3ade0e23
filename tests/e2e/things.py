"""A tenant with a thing of every kind, for stories that call every operation that is described."""
import re

import onnx_bytes as onnx
from system import st_bytes, until

ROLES = ("admin", "tenant-admin", "submit", "infer", "read")
VOLATILE = {  # moves by itself, or as the scheduler hears of what was done before
    "seen_at", "at", "last_use_at", "last_used_at", "request_id", "waiting_gpus", "fair_gpus",
    "weight_fraction", "waiting", "position", "heard_at", "pool", "busy", "runs", "device_bytes", "host_bytes", "batches",
    "traffic", "cells", "switches"}


def roles_of(op):
    return {role for need in op["security"] for role in need["key"]}


def has_parameter(op, name, place):
    return any(p["name"] == name and p["in"] == place for p in op["parameters"])


def without_volatile(j):
    if isinstance(j, dict):
        return {k: without_volatile(v) for k, v in j.items() if k not in VOLATILE}
    return [without_volatile(v) for v in j] if isinstance(j, list) else j


class Tenant:
    """Its name is part of the names of all that it has. No job of it runs."""

    def __init__(self, s, name):
        self.s, self.name, self.nobodys = s, name, set()
        self.admin = s.tenant(name)
        self.keys = {role: self.admin if role == "tenant-admin" else s.key(name, role)
                     for role in ROLES[1:]}
        self.id = {"tenant": name, "model": name + "-model", "version": 1, "choice": 1, "alias": name + "-live",
                   "dataset": name + "-data",
                   "key": self.keys["read"].split("_")[1], "file": "losses.json", "page": "app.js",
                   "folder": "bench", "inner": "sim", "innermost": "traces"}
        r = s.call("PUT", "/api/v1/tenants/%s/quota" % name, {"max_running_jobs": 0}, s.admin)
        assert r.status == 200, r
        s.push(self.admin, self.id["model"], onnx.linear(64, 10), max_batch=4)
        r = s.call("PUT", "/api/v1/models/%s/slo" % self.id["model"], {"latency_ms": 77}, self.admin)
        assert r.status == 200, r
        for weight in (1, 2):  # there is a way back
            r = s.call("PUT", "/api/v1/models/%s/aliases/%s" % (self.id["model"], self.id["alias"]),
                       {"targets": [{"version": 1, "weight": weight}]}, self.admin)
            assert r.status == 200, r
        s.push_data(self.admin, self.id["dataset"], st_bytes({
            "x": ("F32", [64, 64], bytes(64 * 256)), "label": ("I64", [64], bytes(512))}))
        r = s.submit(self.admin, model=self.id["model"], dataset=self.id["dataset"], name=name + "-job")
        assert r.status == 201, r
        self.id["job"] = r.json["id"]
        r = s.call("POST", "/api/v1/job-arrays", {"count": 2, "max_parallel": 1, "job": {
            "kind": "training", "model": self.id["model"], "dataset": self.id["dataset"],
            "name": name + "-array", "spec": {"optimizer": {"name": "sgd", "lr": 0.1}, "steps": 3}}},
            self.admin)
        assert r.status == 201, r
        self.id["array"] = r.json["id"]
        self.id["queue"] = name + "-queue"
        r = s.call("POST", "/api/v1/queues", {"name": self.id["queue"]}, self.admin)
        assert r.status == 201, r
        until("the scheduler says why it waits", lambda: s.job(self.admin, self.id["job"]).json["reason"])
        until("its share is written", lambda: s.call("GET", "/api/v1/tenants/%s/share" % name,
                                                     key=self.admin).json["half_life_s"])

    def find(self, param, path):
        """Identifier of a thing of this tenant for a path parameter; it may have to be made."""
        if param not in self.id:
            collection = path[:path.index("/{%s}" % param)].format(**self.id)
            op = self.s.spec().find("POST", collection)
            if op is None:  # there is no list of such things: none is anybody's
                self.nobodys.add(param)
                return self.name + "-" + param
            if not isinstance(op, dict):  # nobody makes one: they are the platform's
                self.nobodys.add(param)
            body = self.s.spec().example(op) if isinstance(op, dict) else None
            made = self.s.call("POST", collection, body, self.admin) if body is not None else None
            listed = self.s.call("GET", collection, key=self.admin).json or {}
            things = [made.json] if made and made.status == 201 else listed.get("items", [])
            known = [t[k] for t in things for k in (param, "name", "id") if k in t]
            assert known, "no identifier for {%s} of %s: let Tenant make one" % (param, path)
            self.id[param] = known[0]
        return self.id[param]

    def owns(self, path):
        """Whether there are things of this tenant for all of the path."""
        self.params(path)
        return not any("{%s}" % p in path for p in self.nobodys)

    def params(self, path):
        return {p: self.find(p, path) for p in re.findall(r"\{(\w+)\}", path)}

    def body(self, op):
        """What the operation takes: the example of its description, about things of this tenant."""
        return self.ours(self.s.spec().example(op))

    def ours(self, body):
        if isinstance(body, dict):
            return {k: self.id[k] if k in ("model", "dataset", "queue") else self.ours(v)
                    for k, v in body.items()}
        return [self.ours(v) for v in body] if isinstance(body, list) else body

    def seen(self):
        """All that its own key can read, by path."""
        out = {}
        for method, path, op in self.s.spec().operations():
            if method == "GET" and "tenant-admin" in roles_of(op):
                at = path.format(**self.params(path))
                out[at] = without_volatile(self.s.call("GET", at, key=self.admin).json)
        return out
