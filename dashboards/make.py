#!/usr/bin/env python3
"""Makes grafana/*.json from panels.py: `make dashboards`. With --check it only says which are stale.

A dashboard is variables and rows of panels. Every selector names $job and $instance, and the
variables of its dashboard if it has such labels; nobody writes that down. See README.md.
"""
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from panels import DASHBOARDS, LABELS  # noqa: E402

SOURCE = {"type": "prometheus", "uid": "$datasource"}
HEIGHT, WIDTH = 8, 24
SELECTOR = re.compile(r"\b(?:shunt_[a-z0-9_]+|DCGM_FI_[A-Z_]+)(?:\{([^}]*)\})?")
# Of aggregations and of legends; a variable narrows what has its label.
VARIABLES = {"tenant": "shunt_device_seconds_total", "executor": "shunt_arena_bytes"}


def labels_of(metric):
    return LABELS[re.sub(r"_(bucket|sum|count)$", "", metric) if metric not in LABELS else metric]


def selectors(expr, variables):
    """The expression with the matchers that every selector has."""
    def one(m):
        metric = m.group(0).partition("{")[0]
        matchers = ['%s=~"$%s"' % (v, v) for v in ("job", "instance")]
        matchers += ['%s=~"$%s"' % (v, v) for v in variables if v in labels_of(metric)]
        return "%s{%s}" % (metric, ",".join(matchers + ([m.group(1)] if m.group(1) else [])))
    return SELECTOR.sub(one, expr).replace("[]", "[$__rate_interval]")


def variable(name, metric, matchers=""):
    return {"allValue": ".+", "current": {}, "datasource": SOURCE, "hide": 0, "includeAll": True,
            "label": name.capitalize(), "multi": True, "name": name,
            "query": {"query": "label_values(%s%s, %s)" % (metric, matchers, name), "refId": "q"},
            "refresh": 2, "sort": 1, "type": "query"}


def templating(variables):
    both = '{job=~"$job",instance=~"$instance"}'
    return {"list": [
        {"current": {}, "hide": 0, "includeAll": False, "label": "Data source", "multi": False,
         "name": "datasource", "query": "prometheus", "refresh": 1, "type": "datasource"},
        variable("job", "shunt_build_info"),
        variable("instance", "shunt_build_info", '{job=~"$job"}'),
        *(variable(v, VARIABLES[v], both) for v in variables)]}


def target(letter, expr, legend, variables):
    return {"datasource": SOURCE, "expr": selectors(expr, variables), "legendFormat": legend,
            "refId": letter}


def panel(number, p, at, width, variables):
    kind = p.get("kind", "timeseries")
    out = {"datasource": SOURCE, "description": p["text"],
           "fieldConfig": {"defaults": {"min": 0, "unit": p["unit"]}, "overrides": []},
           "gridPos": {"h": HEIGHT, "w": width, "x": at[0], "y": at[1]}, "id": number,
           "targets": [target("ABCDEFGH"[i], expr, legend, variables)
                       for i, (expr, legend) in enumerate(p["of"])],
           "title": p["title"], "type": kind}
    if kind == "stat":
        out["options"] = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    else:
        custom = {"fillOpacity": 10, "showPoints": "never"}
        if p.get("stack"):
            custom.update(fillOpacity=60, stacking={"group": "A", "mode": "normal"})
        out["fieldConfig"]["defaults"]["custom"] = custom
        out["options"] = {"legend": {"calcs": [], "displayMode": "list", "placement": "bottom"},
                          "tooltip": {"mode": "multi", "sort": "desc"}}
    return out


def panels_of(d):
    out, y = [], 0
    for row, items in d["rows"]:
        out.append({"collapsed": False, "gridPos": {"h": 1, "w": WIDTH, "x": 0, "y": y}, "id": len(out) + 1,
                    "panels": [], "title": row, "type": "row"})
        y, x = y + 1, 0
        for p in items:
            width = p.get("width", 4 if p.get("kind") == "stat" else 8)
            if x + width > WIDTH:
                x, y = 0, y + HEIGHT
            out.append(panel(len(out) + 1, p, (x, y), width, d.get("variables", ())))
            x += width
        y += HEIGHT
    return out


def dashboard(name, d):
    links = [{"asDropdown": False, "icon": "external link", "includeVars": True, "keepTime": True,
              "tags": ["shunt"], "targetBlank": False, "title": "Shunt", "type": "dashboards"}]
    return {"annotations": {"list": []}, "description": d["text"], "editable": False, "graphTooltip": 1,
            "id": None, "links": links, "panels": panels_of(d), "refresh": "10s", "schemaVersion": 38,
            "tags": ["shunt"], "templating": templating(d.get("variables", ())),
            "time": {"from": "now-30m", "to": "now"}, "timezone": "browser", "title": d["title"],
            "uid": "shunt-" + name, "version": 1}


def main():
    stale = []
    for name, d in DASHBOARDS.items():
        path = os.path.join(HERE, "grafana", name + ".json")
        text = json.dumps(dashboard(name, d), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        old = open(path).read() if os.path.exists(path) else ""
        if text == old:
            continue
        stale.append(os.path.relpath(path, os.path.dirname(HERE)))
        if sys.argv[1:] != ["--check"]:
            with open(path, "w") as f:
                f.write(text)
    if sys.argv[1:] == ["--check"] and stale:
        sys.exit("not as dashboards/make.py makes them; run: make dashboards\n" + "\n".join(stale))


if __name__ == "__main__":
    main()
