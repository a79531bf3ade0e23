#!/usr/bin/env python3
"""Rule unit tests: each alert fires when its cause has lasted, and not before, and clears when it is gone.

CASES has for each alert: the interval of samples, the series in promtool's notation, and times with what
is expected: 1, it fires; 0, it does not. promtool runs the shipped rules over them.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
RULES = os.path.join(ROOT, "dashboards", "prometheus", "alerts.yml")
SLO = 'shunt_slo_requests_total{tenant="t",model="m",outcome="%s"}'
GOAL = 'shunt_slo_objective_ratio{tenant="t",model="m",instance="a"}'
TIME = 'shunt_device_seconds_total{executor="g",tenant="t",use="%s"}'

CASES = {
    # 14.4 % and more of the budget's rate in both windows; the short one ends it
    "ShuntSloBurnsFast": ("1m", {SLO % "met": "0+80x90 7200+100x120", SLO % "missed": "0+20x90 1800+0x120",
                                GOAL: "0.99x300"},
                          {"1m": 0, "30m": 1, "85m": 1, "100m": 1, "150m": 0}),
    # 3 % for a day: slow, and never fast
    "ShuntSloBurnsSlowly": ("10m", {SLO % "met": "0+960x200 192000+1000x600",
                                    SLO % "rejected": "0+40x200 8000+0x600", GOAL: "0.99x900"},
                            {"10m": 0, "30h": 1, "60h": 0}),
    "ShuntAliasRolledBack": ("1m", {'shunt_alias_rollbacks_total{instance="a",tenant="t",model="m"}': "_x10 1x200"},
                             {"9m": 0, "20m": 1, "90m": 0}),
    "ShuntNoLeader": ("5s", {'shunt_leader{instance="a"}': "1x12 0x24 1x24", 'shunt_leader{instance="b"}': "0x60"},
                      {"55s": 0, "70s": 0, "2m": 1, "4m": 0}),
    "ShuntTwoLeaders": ("15s", {'shunt_leader{instance="a"}': "1x60",
                                'shunt_leader{instance="b"}': "0x8 1x20 0x20"},
                        {"1m": 0, "4m": 1, "9m": 0}),
    "ShuntLeaseMoves": ("15s", {'shunt_leader{instance="a"}': "1 0 1 0 1 0 1x100",
                                'shunt_leader{instance="b"}': "0 1 0 1 0 1 0x100"},
                        {"15s": 0, "2m": 1, "20m": 0}),
    "ShuntNoStandby": ("1m", {'shunt_leader{instance="a"}': "1x600",
                              'shunt_leader{instance="b"}': "0x30 _x60 0x400"},
                       {"20m": 0, "60m": 1, "120m": 0}),
    "ShuntProcessDown": ("15s", {'up{job="shunt",instance="a"}': "1x8 0x20 1x20"}, {"1m": 0, "5m": 1, "9m": 0}),
    "ShuntNoExecutor": ("5s", {'shunt_executors{state="up"}': "1x12 0x24 1x24"}, {"55s": 0, "2m": 1, "4m": 0}),
    "ShuntExecutorGone": ("1m", {'shunt_executors{state="down"}': "0x5 1x20 0x20"}, {"5m": 0, "20m": 1, "30m": 0}),
    "ShuntLimitReached": ("15s", {'shunt_limit_reached{instance="a",option="max-tenants"}': "0x8 1x20 0x20"},
                          {"2m": 0, "5m": 1, "9m": 0}),
    "ShuntDatabaseDown": ("5s", {'shunt_db_up{instance="a"}': "1x12 0x24 1x24"}, {"65s": 0, "2m": 1, "4m": 0}),
    "ShuntRequestsWait": ("15s", {'shunt_oldest_waiting_seconds{tenant="t",kind="request"}': "0x4 0+15x20 0x20"},
                          {"90s": 0, "5m": 1, "8m": 0}),
    "ShuntJobWaits": ("5m", {'shunt_oldest_waiting_seconds{tenant="t",kind="job"}': "0+300x60 0x40"},
                      {"3h": 0, "5h": 1, "7h": 0}),
    "ShuntPayloadFull": ("15s", {'shunt_payload_bytes{job="shunt",instance="a",kind="used"}': "10x8 95x20 10x20",
                                 'shunt_payload_bytes{job="shunt",instance="a",kind="total"}': "100x60"},
                         {"1m": 0, "5m": 1, "9m": 0}),
    "ShuntViewDiffers": ("1m", {"shunt_view_differences_total": "0x10 1x120"}, {"10m": 0, "20m": 1, "90m": 0}),
    "ShuntPartitionsMissing": ("10m", {'shunt_partition_ahead_seconds{table="audit"}': "600000x6 50000x20 600000x12"},
                               {"1h": 0, "3h": 1, "5h": 0}),
    "ShuntUsageNotWritten": ("1m", {'shunt_usage_unwritten_age_seconds{executor="g"}': "0+60x40 0x20"},
                             {"14m": 0, "30m": 1, "50m": 0}),
    "ShuntSeriesFolded": ("1m", {'shunt_metric_series_folded_total{metric="x"}': "0x10 0+5x30 150x60"},
                          {"10m": 0, "35m": 1, "80m": 0}),
    "ShuntStrangersAtLinks": ("1m", {'shunt_link_handshakes_total{instance="a",side="server",result="wrong_key"}':
                                     "_x6 3x30"}, {"5m": 0, "8m": 1, "30m": 0}),
    # the tests' clock begins at 0
    "ShuntCertificateEnds": ("10m", {'shunt_tls_certificate_expiry_timestamp_seconds{instance="a"}':
                                     "2000000x6 600000x12 2000000x12"}, {"1h": 0, "2h": 1, "4h": 0}),
    "ShuntThrash": ("1m", {TIME % "switch": "0+2x30 60+45x30 1410+2x60", TIME % "inference": "0+40x30 1200+10x30 1500+40x60"},
                    {"25m": 0, "55m": 1, "100m": 0}),
    "ShuntTrainingRedone": ("1m", {'shunt_train_steps_total{instance="a",tenant="t",model="m"}': "0+10x120",
                                   'shunt_train_steps_redone_total{instance="a",tenant="t",model="m"}':
                                   "0x20 0+9x45 405x80"}, {"15m": 0, "60m": 1, "110m": 0}),
    "ShuntLinkSlow": ("1m", {'shunt_link_bytes_per_second{executor="g"}': "50x60 20x60 50x60"},
                      {"50m": 0, "90m": 1, "150m": 0}),
    "ShuntWorkersDie": ("1m", {'shunt_worker_exits_total{executor="g",cause="killed"}': "0x10 0+1x10 10x30"},
                        {"9m": 0, "20m": 1, "45m": 0}),
    "ShuntCheckpointsFail": ("1m", {'shunt_checkpoints_total{executor="g",kind="disk",outcome="DISKFULL"}':
                                    "_x6 1x10 2x30"}, {"5m": 0, "8m": 1, "20m": 1, "40m": 0}),
    "ShuntCheckpointOld": ("1m", {'shunt_checkpoint_age_seconds{executor="g",kind="disk"}': "0+60x60 0x20"},
                           {"29m": 0, "50m": 1, "70m": 0}),
    "ShuntGpuHot": ("1m", {'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="u",instance="a"}': "70x10 92x20 70x20"},
                    {"10m": 0, "25m": 1, "40m": 0}),
}


def group(name):
    interval, series, times = CASES[name]
    firing = 'count(ALERTS{alertname="%s",alertstate="firing"}) or vector(0)' % name
    return {"interval": interval, "input_series": [{"series": s, "values": v} for s, v in series.items()],
            "promql_expr_test": [{"expr": firing, "eval_time": t, "exp_samples": [{"labels": "{}", "value": v}]}
                                 for t, v in times.items()]}


def main():
    with open(RULES) as f:
        names = re.findall(r"^      - alert: (\w+)", f.read(), re.M)
    bad = ["%s: has no case in tests/lint/alerts.py" % n for n in names if n not in CASES]
    bad += ["%s: is no alert" % n for n in CASES if n not in names]
    if not shutil.which("promtool"):
        sys.exit("promtool is missing: make deps")
    bad += ["%s: must fire, and be silent before and after" % n for n in CASES
            if sorted({v for v in CASES[n][2].values()}) != [0, 1] or list(CASES[n][2].values())[-1] != 0]
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "test.yml")
        for n in CASES if not bad else ():
            with open(path, "w") as f:
                json.dump({"rule_files": [os.path.abspath(RULES)], "evaluation_interval": CASES[n][0],
                           "tests": [group(n)]}, f)
            r = subprocess.run(["promtool", "test", "rules", path], text=True, capture_output=True, check=False)
            if r.returncode:
                bad.append("%s: %s%s" % (n, r.stdout, r.stderr))
    print("\n".join(bad), end="\n" if bad else "")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
