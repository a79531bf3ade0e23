"""Limits that need figures of more than one part: "cold" is held against "ready", and so on.

check(doc): doc is a results file (report.py). Of each figure the newest with a part's usual settings
counts, whichever run it is of, so each check names the builds.
"""
DRAIN_MS = 0.5
TRAIN_COST = 0.02
HTTP_MS = {False: 0.8, True: 1.5}  # by: a body of megabytes
LARGE = 1 << 20


USUAL = {"rest_ms": 30.0}  # settings that change what a figure means


def newest(doc):
    """{(what, model, precision, batch, cold): row} of our own figures, each with its build."""
    out = {}
    for part in sorted(doc.values(), key=lambda p: p["machine"]["date"]):
        if any(part["settings"].get(k, v) != v for k, v in USUAL.items()):
            continue
        for r in part.get("rows", []):
            c = r["case"]
            usual = c.get("client", "socket") == "socket" and "input" not in c
            if r["by"] == "shunt" and "value" in r and usual:
                out[r["what"], c.get("model"), c.get("precision"), c.get("batch"), c.get("cold")] = {
                    **r, "build": part["machine"]["commit"].removeprefix("shunt ")}
    return out


def at_most(name, value, limit, *rows, **more):
    return {"check": "%s: %.3f, at most %.3f" % (name, value, limit), "ok": value <= limit, **more,
            "builds": " / ".join(dict.fromkeys(r["build"] for r in rows))}


def check(doc):
    rows, out = newest(doc), []
    for (what, model, precision, batch, cold), r in rows.items():
        name = "%s %s" % (model, precision)
        ready = rows.get(("ready", model, precision, batch, None))
        if what == "cold" and ready:
            longer = max(r["copy_ms"], ready["median"])
            out.append(at_most("cold switch, median, " + name, r["median"], 1.1 * longer + 0.4, r,
                               ready, copy_ms=r["copy_ms"], ready_ms=ready["median"], p99_ms=r["p99"]))
        elif what == "warm" and ready:
            out.append(at_most("warm switch, p99, " + name, r["p99"], ready["median"] + 0.7, r,
                               ready, ready_ms=ready["median"], median_ms=r["median"]))
        elif what == "stop-to-drained-warm":
            out.append(at_most("stop to drained, p99, " + name, r["p99"], DRAIN_MS, r,
                               median_ms=r["median"]))
        elif what == "train-in-executor" and ("train", model, precision, batch, None) in rows:
            free = rows["train", model, precision, batch, None]
            out.append(at_most("cost of bounded launching, " + name, 1 - r["value"] / free["median"],
                               TRAIN_COST, r, free))
        elif what == "http":
            by = rows.get(("cold" if cold else "warm", model, precision, batch, None))
            if by:
                out.append(at_most(
                    "HTTP over the %s switch, median, %s" % ("cold" if cold else "warm", name),
                    r["median"] - by["median"], HTTP_MS[r["body_bytes"] >= LARGE], r, by,
                    http_ms=r["median"], switch_ms=by["median"]))
    return sorted(out, key=lambda c: c["check"])
