#!/usr/bin/env python3
"""The rules of Grafana's dashboard-linter, by their names, and ours for alerts.

dashboards/grafana/*.json must be as dashboards/make.py makes them, name metrics of common/metrics.def
only, and keep each rule of RULES. Each alert must have its texts and its page in docs/alerts.md.
"""
import glob
import json
import os
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
os.chdir(ROOT)
sys.dont_write_bytecode = True
sys.path.insert(0, "dashboards")
from panels import LABELS, ROW, DEF  # noqa: E402

UNITS = {"none", "short", "percent", "percentunit", "bytes", "mbytes", "Bps", "s", "hertz", "ops", "reqps", "wps",
         "watt", "joule", "celsius", "bool_yes_no"}
SOURCES = ("$datasource", "${datasource}")
METRIC = re.compile(r"\b(shunt_[a-z0-9_]+|DCGM_FI_[A-Z_]+)(\{[^}]*\})?(\[[^\]]*\])?")
KINDS = {name: kind for kind, name, _ in ROW.findall(open(DEF).read())}
found = []


def say(where, rule, what):
    found.append("%s: %s: %s" % (where, rule, what))


# ------------------------------------------------------------------ dashboards
def variables(d, kind):
    return [v for v in d["templating"]["list"] if v["type"] == kind]


def template_datasource_rule(d):
    got = [(v["name"], v["label"], v["query"]) for v in variables(d, "datasource")]
    return got != [("datasource", "Data source", "prometheus")] and got


def template_of(name):
    def rule(d):
        got = [v for v in variables(d, "query") if v["name"] == name]
        if len(got) != 1:
            return "there is no variable %s" % name
        v = got[0]
        good = v["label"] == name.capitalize() and v["multi"] and v["includeAll"] and v["allValue"] == ".+" and \
            v["datasource"]["uid"] in SOURCES and v["query"]["query"].startswith("label_values(")
        return not good and v
    return rule


def template_label_promql_rule(d):
    return [v["query"] for v in variables(d, "query")
            if not re.fullmatch(r"label_values\(\w+(\{[^}]*\})?, \w+\)", v["query"]["query"])]


def template_on_time_change_reload_rule(d):
    return [v["name"] for v in variables(d, "query") if v["refresh"] != 2]


def uneditable_dashboard_rule(d):
    return d["editable"] is not False


def panel_datasource_rule(_, p):
    return p["datasource"]["uid"] not in SOURCES or any(t["datasource"] != p["datasource"] for t in p["targets"])


def panel_title_description_rule(_, p):
    return not (p.get("title") and p.get("description"))


def panel_units_rule(_, p):
    return p["fieldConfig"]["defaults"].get("unit") not in UNITS


def panel_no_targets_rule(_, p):
    return not p["targets"]


def target_rate_interval_rule(_, e):
    return [r for _, _, r in METRIC.findall(e) if r and r != "[$__rate_interval]"]


def target_has(matcher):
    return lambda _, e: [m + s for m, s, _ in METRIC.findall(e) if matcher not in s]


def target_counter_agg_rule(_, e):
    return [m for m in re.findall(r"(\w*\(?)\b(\w+_total)\b", e) if m[0] not in ("rate(", "increase(")]


def target_metric_rule(_, e):
    """Ours: a metric that exists, a histogram by one of its series."""
    bad = []
    for m, _, _ in METRIC.findall(e):
        base = re.sub(r"_(bucket|sum|count)$", "", m)
        if KINDS.get(base if m not in KINDS else m) is None or (KINDS.get(m) == "HISTOGRAM") or \
                (m not in KINDS and KINDS[base] != "HISTOGRAM"):
            bad.append(m)
    return bad


def target_variables_rule(d, e):
    """Ours: a variable of the dashboard narrows every selector that has its label."""
    mine = [v["name"] for v in variables(d, "query") if v["name"] not in ("job", "instance")]
    return [(m, v) for m, s, _ in METRIC.findall(e) for v in mine
            if v in LABELS.get(m, LABELS.get(re.sub(r"_(bucket|sum|count)$", "", m), ())) and "$" + v not in s]


RULES = {
    "dashboard": {
        "template-datasource-rule": template_datasource_rule,
        "template-job-rule": template_of("job"),
        "template-instance-rule": template_of("instance"),
        "template-label-promql-rule": template_label_promql_rule,
        "template-on-time-change-reload-rule": template_on_time_change_reload_rule,
        "uneditable-dashboard": uneditable_dashboard_rule,
    },
    "panel": {
        "panel-datasource-rule": panel_datasource_rule,
        "panel-title-description-rule": panel_title_description_rule,
        "panel-units-rule": panel_units_rule,
        "panel-no-targets-rule": panel_no_targets_rule,
    },
    "target": {  # target-promql-rule: by promtool, below
        "target-rate-interval-rule": target_rate_interval_rule,
        "target-job-rule": target_has('job=~"$job"'),
        "target-instance-rule": target_has('instance=~"$instance"'),
        "target-counter-agg-rule": target_counter_agg_rule,
        "target-metric (ours)": target_metric_rule,
        "target-variables (ours)": target_variables_rule,
    },
}


def lint(name, d):
    panels = [p for p in d["panels"] if p["type"] != "row"]
    for rule, check in RULES["dashboard"].items():
        if bad := check(d):
            say(name, rule, bad)
    for p in panels:
        where = "%s, %s" % (name, p.get("title"))
        for rule, check in RULES["panel"].items():
            if check(d, p):
                say(where, rule, "broken")
        for t in p["targets"]:
            for rule, check in RULES["target"].items():
                if bad := check(d, t["expr"]):
                    say(where, rule, bad)
    titles = [p["title"] for p in panels]
    for title in {t for t in titles if titles.count(t) > 1}:
        say(name, "titles (ours)", "two panels have the title " + title)


def one_question_one_panel(dashboards):
    """Ours: panels of one title say the same everywhere, but for the variables of their dashboards."""
    seen = {}
    for name, d in dashboards.items():
        for p in d["panels"]:
            plain = [re.sub(r',(tenant|executor)=~"\$\1"', "", t["expr"]) for t in p.get("targets", ())]
            key = (p["title"], p["type"] == "row")
            if seen.setdefault(key, plain) != plain:
                say(name, "consistency (ours)", "%s is otherwise in another dashboard" % p["title"])


def promql_rule(dashboards):
    """target-promql-rule: every expression as a recording rule that promtool accepts."""
    exprs = [t["expr"] for d in dashboards.values() for p in d["panels"] for t in p.get("targets", ())]
    rules = [{"record": "x:%d" % i, "expr": re.sub(r"\$\w+(?=\])", "1m", e)} for i, e in enumerate(exprs)]
    text = json.dumps({"groups": [{"name": "x", "rules": rules}]})
    try:
        r = subprocess.run(["promtool", "check", "rules", "/dev/stdin"], input=text, text=True,
                           capture_output=True, check=False)
    except FileNotFoundError:
        return
    if r.returncode:
        say("dashboards", "target-promql-rule", r.stderr)


# ------------------------------------------------------------------ alerts
def alerts():
    """{name: its lines} of alerts.yml, which is written one way."""
    text = open("dashboards/prometheus/alerts.yml").read()
    parts = re.split(r"^      - (alert|record): ", text, flags=re.M)
    return {body.split("\n")[0]: body for kind, body in zip(parts[1::2], parts[2::2]) if kind == "alert"}


def lint_alerts():
    sections = set(re.findall(r"^### (Shunt\w+)$", open("docs/alerts.md").read(), re.M))
    for name, body in alerts().items():
        for need in ("severity: ", "summary: ", "action: ", "runbook_url: docs/alerts.md#" + name.lower()):
            if need not in body:
                say(name, "alert (ours)", "has no " + need)
        if name not in sections:
            say(name, "alert (ours)", "docs/alerts.md has no page for it")
    for name in sections - set(alerts()):
        say(name, "alert (ours)", "docs/alerts.md has a page for no alert")
    for m in set(METRIC.findall("\n".join(alerts().values()))):
        if bad := target_metric_rule(None, m[0]):
            say("alerts.yml", "target-metric (ours)", bad)


def main():
    r = subprocess.run(["dashboards/make.py", "--check"], text=True, capture_output=True, check=False)
    if r.returncode:
        found.append(r.stderr.strip())
    dashboards = {os.path.basename(p): json.load(open(p)) for p in sorted(glob.glob("dashboards/grafana/*.json"))}
    for name, d in dashboards.items():
        lint(name, d)
    one_question_one_panel(dashboards)
    promql_rule(dashboards)
    lint_alerts()
    if len(dashboards) != 5:
        found.append("there are %d dashboards, not five" % len(dashboards))
    print("\n".join(found), end="\n" if found else "")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
