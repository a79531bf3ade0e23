#!/usr/bin/env python3
"""The manifests of deploy/kubernetes: valid, and about the programs that there are.

Without it: an option that was renamed, a port that a program does not open, a probe that it does not
answer, a Secret that nobody makes, or a field that Kubernetes does not know would first be seen in a
cluster. Each overlay is put together as kustomize does it, as far as these files use it.

Usage: test_kubernetes.py [-v] [name ...]
"""
import copy
import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import packages  # noqa: E402

packages.enter(__file__)

import kubernetes_validate  # noqa: E402
import yaml  # noqa: E402
from system import BIN, Story, System, until  # noqa: E402

TOP = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
ROOT = os.path.join(TOP, "deploy", "kubernetes")
OVERLAYS = ["overlays/cpu", "overlays/gpu", "overlays/gpu-dra", "postgres"]
VERSIONS = ["1.30", "1.33"]
WITH_CLAIMS = ["1.34", "1.37"]  # resource.k8s.io/v1 is there since the first of them
# Of resources that operators bring: the fields that they have, as far as we use any.
FOREIGN = {
    "PodMonitor": {"selector": {"matchExpressions"}, "podMetricsEndpoints": {"port", "path", "interval"}},
    "Cluster": {"instances": None, "bootstrap": {"initdb"}, "storage": {"size"},
                "resources": {"requests", "limits"}},
}
# Where spans may go, and nothing else.
COLLECTOR = ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}},
             [{"protocol": "TCP", "port": 4318}])
UNITS = {"shunt-api": "shunt-api.service", "shunt-scheduler": "shunt-scheduler.service",
         "shunt-executor": "shunt-executor@.service"}


def load(*path):
    with open(os.path.join(ROOT, *path)) as f:
        return [d for d in yaml.safe_load_all(f) if d]


def merged(base, patch):
    """A strategic merge: lists of things with names by name, other lists are replaced."""
    if isinstance(base, dict) and isinstance(patch, dict):
        return {k: merged(base[k], patch[k]) if k in base and k in patch else base.get(k, patch.get(k))
                for k in [*base, *(k for k in patch if k not in base)]}
    if isinstance(base, list) and all(isinstance(x, dict) and "name" in x for x in base + patch):
        ours = {x["name"]: x for x in base}
        for x in patch:
            ours[x["name"]] = merged(ours[x["name"]], x) if x["name"] in ours else x
        return list(ours.values())
    return patch


def build(folder):
    (k,) = load(folder, "kustomization.yaml")
    unknown = set(k) - {"apiVersion", "kind", "namespace", "labels", "resources", "patches", "images"}
    assert not unknown, unknown
    found = []
    for name in k["resources"]:
        at = os.path.normpath(os.path.join(folder, name))
        found += build(at) if os.path.isdir(os.path.join(ROOT, at)) else load(at)
    for d in found:
        if "namespace" in k and d["kind"] != "Namespace":
            d["metadata"].setdefault("namespace", k["namespace"])
        for label in k.get("labels", []):
            assert set(label) <= {"pairs", "includeTemplates"}
            for meta in [d["metadata"], *([d["spec"]["template"]["metadata"]] if has_pods(d) else [])]:
                meta["labels"] = {**meta.get("labels", {}), **label["pairs"]}
    for p in k.get("patches", []):
        (patch,) = load(folder, p["path"])
        (i,) = [i for i, d in enumerate(found) if d["kind"] == patch["kind"] and
                d["metadata"]["name"] == patch["metadata"]["name"]]
        found[i] = merged(found[i], patch)
    for image in k.get("images", []):
        for c in containers(found):
            if c["image"] == image["name"]:
                c["image"] = image["newName"]
    return found


def has_pods(d):
    return "template" in d.get("spec", {})


def containers(docs):
    return [c for d in docs if has_pods(d) for c in d["spec"]["template"]["spec"]["containers"]]


def options(program):
    """{variable: (option, type, range)} as the program prints them."""
    text = subprocess.run([os.path.join(BIN, program), "--docs"], stdout=subprocess.PIPE, text=True, check=True).stdout
    rows = re.findall(r"^\| `(--[a-z0-9-]+)` \| `(SHUNT_[A-Z0-9_]+)` \| (\w+) \| [^|]* \| ([^|]*) \|", text, re.M)
    return {env: (name, kind, limits.strip()) for name, env, kind, limits in rows}


class Manifests(Story):
    @classmethod
    def setUpClass(cls):
        cls.built = {o: build(o) for o in OVERLAYS}
        cls.docs = {o: docs for o, docs in cls.built.items() if o.startswith("overlays/")}
        with open(os.path.join(ROOT, "README.md")) as f:
            cls.readme = f.read()

    def each(self, kind=None):
        for docs in self.docs.values():
            for d in docs:
                if (has_pods(d) if kind is None else d["kind"] == kind):
                    yield docs, d

    def test_the_schema_knows_every_field(self):
        n = 0
        for overlay, docs in self.built.items():
            for d in docs:
                with self.subTest(overlay=overlay, kind=d["kind"], name=d["metadata"]["name"]):
                    if d["kind"] in FOREIGN:
                        self.foreign(d)
                        continue
                    for version in WITH_CLAIMS if overlay.endswith("dra") else VERSIONS:
                        kubernetes_validate.validate(d, version, strict=True)
                    n += 1
        self.assertGreater(n, 30)

    def foreign(self, d):
        known = FOREIGN[d["kind"]]
        self.assertLessEqual(set(d["spec"]), set(known))
        for key, value in d["spec"].items():
            for part in value if isinstance(value, list) else [value]:
                if known[key] is not None:
                    self.assertLessEqual(set(part), known[key])

    def test_gpus_are_given_in_one_way(self):
        """By the device plugin, or by a claim that the pod has for itself and its one container uses."""
        for overlay, docs in self.docs.items():
            (d,) = [x for x in docs if x["kind"] == "DaemonSet"]
            spec = d["spec"]["template"]["spec"]
            (c,) = spec["containers"]
            claims = {x["name"]: x["resourceClaimTemplateName"] for x in spec.get("resourceClaims", [])}
            self.assertEqual(c["resources"]["limits"].get("nvidia.com/gpu"),
                             "1" if overlay == "overlays/gpu" else None)
            self.assertEqual(claims, {"gpu": "shunt-gpu"} if overlay.endswith("dra") else {})
            self.assertEqual([x["name"] for x in c["resources"].get("claims", [])], list(claims))
            made = {x["metadata"]["name"]: x for x in docs if x["kind"] == "ResourceClaimTemplate"}
            self.assertEqual(set(made), set(claims.values()))
            for x in made.values():
                self.assertEqual(x["metadata"]["namespace"], d["metadata"]["namespace"])
                (r,) = x["spec"]["spec"]["devices"]["requests"]
                self.assertEqual((r["exactly"]["deviceClassName"], r["exactly"]["count"]), ("gpu.nvidia.com", 1))

    def test_a_wrong_field_of_a_claim_is_seen(self):
        (d,) = [x for x in self.docs["overlays/gpu-dra"] if x["kind"] == "ResourceClaimTemplate"]
        d = copy.deepcopy(d)
        (r,) = d["spec"]["spec"]["devices"]["requests"]
        r["deviceClassName"] = r["exactly"].pop("deviceClassName")  # where v1beta1 has it
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(d, WITH_CLAIMS[0], strict=True)

    def test_a_wrong_field_is_seen(self):
        d = copy.deepcopy(next(x for x in self.docs["overlays/cpu"] if x["kind"] == "DaemonSet"))
        d["spec"]["template"]["spec"]["containers"][0]["redinessProbe"] = {}
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(d, VERSIONS[-1], strict=True)

    def test_programs_and_options_exist(self):
        for _, d in self.each():
            for c in d["spec"]["template"]["spec"]["containers"]:
                (program,) = c["command"]
                self.assertTrue(os.path.exists(os.path.join(BIN, program)))
                known = options(program)
                names = {name: (kind, limits) for name, kind, limits in known.values()}
                for arg in c.get("args", []):
                    self.assertIn(arg.split("=")[0], names)
                for e in c["env"]:
                    if e["name"] in ("POD_NAME", "POD_IP", "NODE_NAME"):
                        self.assertIn(e["valueFrom"]["fieldRef"]["fieldPath"],
                                      ("metadata.name", "status.podIP", "spec.nodeName"))
                        continue
                    self.assertIn(e["name"], known)
                    self.value(known[e["name"]], e.get("value"))

    def value(self, option, text):
        """It is of the option's type and within its range."""
        name, kind, limits = option
        if text is None or kind not in ("int", "bytes", "bool"):
            return
        if kind == "bool":
            self.assertIn(text, ("true", "false"), name)
            return
        n, unit = re.fullmatch(r"(\d+)([KMGT]?)", text).groups()
        low, high = (float(x) for x in limits.split(" to "))
        self.assertTrue(low <= int(n) << 10 * " KMGT".index(unit or " ") <= high, (name, text, limits))

    def test_migrations_are_where_packages_have_them(self):
        with open(os.path.join(TOP, "deploy", "deb", "shunt-scheduler.install")) as f:
            places = f.read().split()
        for _, d in self.each("Job"):
            (c,) = containers([d])
            (at,) = [a.split("=")[1] for a in c["args"] if a.startswith("--migrations-dir=")]
            self.assertIn(at.lstrip("/"), places)

    def test_variables_that_others_name_come_before_them(self):
        for _, d in self.each():
            for c in containers([d]):
                seen = set()
                for e in c["env"]:
                    self.assertLessEqual(set(re.findall(r"\$\(([A-Z_]+)\)", e.get("value", ""))), seen)
                    self.assertNotIn(e["name"], seen)
                    seen.add(e["name"])

    def test_ports_are_those_that_are_opened(self):
        own = {"SHUNT_LISTEN", "SHUNT_GRPC_LISTEN", "SHUNT_METRICS_ADDR", "SHUNT_DATA_ADDR"}
        for docs, d in self.each():
            for c in containers([d]):
                env = {e["name"]: e.get("value", "") for e in c["env"]}
                opened = {int(env[k].rsplit(":", 1)[1]) for k in own & set(env)}
                self.assertEqual(opened, {p["containerPort"] for p in c.get("ports", [])})
                for key in ("SHUNT_SCHEDULER", "SHUNT_API"):
                    if key in env:
                        host, port = re.fullmatch(r"(?:tcp:|http://)([a-z-]+):(\d+)", env[key]).groups()
                        self.reaches(docs, host, int(port))

    def reaches(self, docs, service, port):
        """A Service has this port, and pods that open what it leads to."""
        (s,) = [x for x in docs if x["kind"] == "Service" and x["metadata"]["name"] == service]
        (p,) = [x for x in s["spec"]["ports"] if x["port"] == port]
        pods = self.selected(docs, {"matchLabels": s["spec"]["selector"]})
        self.assertEqual(len(pods), 1)
        names = {q["name"]: q["containerPort"] for c in containers(pods) for q in c["ports"]}
        self.assertIn(p["targetPort"], names)
        if s["spec"].get("clusterIP") == "None":  # peers use the port as they name it
            self.assertEqual(names[p["targetPort"]], port)

    @staticmethod
    def selected(docs, selector):
        def fits(labels):
            return all(labels.get(k) == v for k, v in selector.get("matchLabels", {}).items()) and \
                all(labels.get(e["key"]) in e["values"] for e in selector.get("matchExpressions", []))
        return [d for d in docs if has_pods(d) and fits(d["spec"]["template"]["metadata"]["labels"])]

    def test_selectors_find_pods(self):
        for docs, d in self.each():
            if d["kind"] != "Job":
                self.assertEqual(self.selected(docs, d["spec"]["selector"]), [d])
        for docs, d in self.each("PodDisruptionBudget"):
            (pods,) = self.selected(docs, d["spec"]["selector"])
            self.assertEqual(pods["metadata"]["name"], d["metadata"]["name"])
        for docs, d in self.each("PodMonitor"):
            pods = self.selected(docs, d["spec"]["selector"])
            self.assertEqual(len(pods), 3)
            for e in d["spec"]["podMetricsEndpoints"]:
                for c in containers(pods):
                    self.assertIn(e["port"], [p["name"] for p in c["ports"]])
        for docs, d in self.each("HorizontalPodAutoscaler"):
            to = d["spec"]["scaleTargetRef"]
            (target,) = [x for x in docs if (x["apiVersion"], x["kind"], x["metadata"]["name"]) ==
                         (to["apiVersion"], to["kind"], to["name"])]
            self.assertNotIn("replicas", target["spec"])
            self.assertIn("cpu", containers([target])[0]["resources"]["requests"])

    def test_who_talks_to_whom_is_allowed(self):
        """Each connection that the options ask for, and no more ports than are opened."""
        wants = {("shunt-api", "shunt-scheduler", 7000), ("shunt-executor", "shunt-scheduler", 7000),
                 ("shunt-api", "shunt-executor", 7001), ("shunt-executor", "shunt-executor", 7001),
                 ("shunt-executor", "shunt-api", 8000)}
        for docs in self.docs.values():
            out, into = set(), set()
            for p in (d["spec"] for d in docs if d["kind"] == "NetworkPolicy"):
                for d in self.selected(docs, p["podSelector"]):
                    here = d["metadata"]["name"]
                    names = {q["name"]: q["containerPort"] for c in containers([d]) for q in c.get("ports", [])}
                    for rule in p.get("egress", []):
                        for to in rule.get("to", []):
                            if "podSelector" not in to:  # spans
                                self.assertEqual((to, rule["ports"]), COLLECTOR)
                                continue
                            out |= {(here, x["metadata"]["name"], q["port"]) for q in rule["ports"]
                                    for x in self.selected(docs, to["podSelector"])}
                    for rule in p.get("ingress", []):
                        for q in rule["ports"]:
                            port = names.get(q["port"])
                            if "from" not in rule:  # from everywhere
                                into |= {(w[0], here, port) for w in wants if w[1] == here}
                            for by in rule.get("from", []):
                                if "podSelector" in by:
                                    into |= {(x["metadata"]["name"], here, port)
                                             for x in self.selected(docs, by["podSelector"])}
            self.assertEqual(out, wants)
            self.assertLessEqual(wants, into)

    def test_secrets_are_made(self):
        made = set(re.findall(r"create secret generic ([a-z-]+) --from-(?:literal|file)=([a-z.]+)=", self.readme))
        clusters = [d for d in self.built["postgres"] if d["kind"] == "Cluster"]
        operator = {(d["metadata"]["name"] + "-app", "uri") for d in clusters}
        self.assertLessEqual(operator, made)  # for those who have another database
        for docs, d in self.each():
            spec = d["spec"]["template"]["spec"]
            volumes = {v["name"]: v for v in spec.get("volumes", [])}
            for c in spec["containers"]:
                mounts = {m["mountPath"]: volumes[m["name"]] for m in c.get("volumeMounts", [])}
                for e in c["env"]:
                    ref = e.get("valueFrom", {}).get("secretKeyRef")
                    if ref:
                        self.assertIn((ref["name"], ref["key"]), made)
                    if e["name"] in ("SHUNT_LINK_KEY_FILE", "SHUNT_API_KEY_FILE"):
                        folder, file = os.path.split(e["value"])
                        self.assertIn((mounts[folder]["secret"]["secretName"], file), made)
                        self.assertEqual(mounts[folder]["secret"]["defaultMode"], 0o440)
                self.assertEqual({m["name"] for m in c.get("volumeMounts", [])}, set(volumes))
            for v in volumes.values():
                if "persistentVolumeClaim" in v:
                    self.assertIn(v["persistentVolumeClaim"]["claimName"],
                                  [x["metadata"]["name"] for x in docs if x["kind"] == "PersistentVolumeClaim"])

    def test_images_are_built(self):
        with open(os.path.join(TOP, "docker-compose.yml")) as f:
            services = yaml.safe_load(f)["services"].values()
        images = {s["image"] for s in services if "build" in s}
        with open(os.path.join(TOP, "deploy", "docker", "Dockerfile")) as f:
            user, group = re.search(r"^USER (\d+):(\d+)$", f.read(), re.M).groups()
        for overlay, docs in self.docs.items():
            for d in filter(has_pods, docs):
                spec = d["spec"]["template"]["spec"]
                self.assertEqual((spec["securityContext"]["runAsUser"], spec["securityContext"]["runAsGroup"]),
                                 (int(user), int(group)))
                for c in spec["containers"]:
                    self.assertIn(c["image"], images)
                    self.assertEqual(c["image"] == "shunt-cuda", "gpu" in overlay)
                    self.assertTrue(c["resources"]["requests"] and c["resources"]["limits"]["memory"])

    def test_they_get_the_time_to_end_that_units_give(self):
        for _, d in self.each():
            (c,) = containers([d])
            if c["name"] != "migrate":
                with open(os.path.join(TOP, "deploy", "systemd", UNITS[c["command"][0]])) as f:
                    limit = int(re.search(r"^TimeoutStopSec=(\d+)$", f.read(), re.M).group(1))
                self.assertEqual(d["spec"]["template"]["spec"]["terminationGracePeriodSeconds"], limit)

    def test_probes_are_answered(self):
        """By the programs themselves."""
        with System("--workers=2") as s:
            for _, d in self.each():
                (c,) = containers([d])
                process = {"shunt-executor": "executor-cpu0"}.get(c["command"][0], c["command"][0][len("shunt-"):])
                ports = [p["name"] for p in c.get("ports", [])]
                probes = [c[k]["httpGet"] for k in ("startupProbe", "livenessProbe", "readinessProbe") if k in c]
                self.assertEqual(len(probes) > 0, c["name"] != "migrate")
                for p in probes:
                    self.assertIn(p["port"], ports)
                    until("%s answers %s" % (process, p), lambda: self.answer(s, process, p) == 200)

    @staticmethod
    def answer(s, process, p):
        return s.call("GET", p["path"]).status if p["port"] == "http" else s.at_metrics(process, p["path"])[0]


if __name__ == "__main__":
    unittest.main()
