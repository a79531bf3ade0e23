"""Requests: rows of build/bench/replay, tables and charts of them, for replay.py."""
import os
from concurrent import futures

import svg

SIZES = ((1, 10000), (10, 20000), (100, 40000), (1000, 80000))  # GPUs, requests
SEARCHED = 100  # GPUs, for whose rate GPUs for 99 % are looked for
# With too few GPUs a replay of ours takes minutes: the search goes down in steps, and a replay ends as soon as too many
# are late, or after so many seconds.
DOWN, SEARCH_WARM, MOST_CPU_S = 0.8, 25, 20
LOAD = 60
ENOUGH = 0.99
MOST = 16  # times the GPUs of the rate
POLICIES = ("ours", "triton", "clockwork", "static", "pipeswitch", "stop-and-start")
ONE_TENANT = "ours one"  # users of GenTD26 are tenants: what if they were one
NAMES = {"ours": "Shunt", ONE_TENANT: "Shunt, all one tenant", "triton": "all resident, LRU",
         "clockwork": "Clockwork", "static": "static partition", "pipeswitch": "PipeSwitch",
         "stop-and-start": "stop-and-start"}
COMPOSED = "azure-llm"
TRACES = ("servegen", COMPOSED)
TITLES = {"servegen": "ServeGen", COMPOSED: "Azure, GenTD26"}
# Overload: GPUs, requests, loads in per cent.
OVER_GPUS, OVER_REQUESTS = 10, 10000
OVER = (60, 100, 150, 200, 300)
# One GPU with 8 GiB and 40 models. ResNet-152 trains beside them where somebody trains: its state
# and workspace (tests/sim/profiles/h200.txt), its samples/s alone (bench/results/h200.json: warm).
ONE_POOL, ONE_TRAINING_MIB, ONE_ALONE = 8192, 2177, 1394
ONE_MODELS, ONE_REQUESTS = 40, 8000
ONE_LOADS = (60, 100, 300)
TRAINS = ("ours", "pipeswitch", "stop-and-start")
TRAINS_NOT = ("triton", "clockwork", "static")


def trace(o, name):
    if name == "servegen":
        return ["--trace", os.path.join(o.more, "servegen"), "--from-s", 72000, "--to-s", 72120]
    return ["--trace", os.path.join(o.traces, "azure_llm_2023_conv.csv"), "--order",
            os.path.join(o.traces, "gentd26_requests.csv")]


def by_policy(run, policy, *args):
    """The row of this policy."""
    own = ["--policies", "ours", "--one-tenant"] if policy == ONE_TENANT else ["--policies", policy]
    return dict(run(*args, *own)[0], policy=policy)


def all_policies(run, name, *args, policies=POLICIES):
    """A row for each that is compared with this trace."""
    rows = run(*args, "--policies", ",".join(policies))
    return rows + ([by_policy(run, ONE_TENANT, *args)] if name == COMPOSED else [])


def needed(run, args, row):
    """The row with the fewest GPUs that answer enough of that rate in time, by bisection, to one in ten; None:
    MOST times as many are too few."""
    def at(gpus):
        return by_policy(run, row["policy"], *args, "--requests", row["requests"], "--gpus", gpus,
                         "--rate", round(row["rate"]), "--train-percent", 0, "--enough-percent",
                         round(100 * ENOUGH), "--warm-percent", SEARCH_WARM, "--most-cpu-s", MOST_CPU_S)

    low, found = 0, at(row["gpus"])
    while found["attained"] < ENOUGH:
        low = found["gpus"]
        if low >= MOST * row["gpus"]:
            return None
        found = at(2 * low)
    while not low and found["gpus"] > 1:
        r = at(int(found["gpus"] * DOWN))
        if r["attained"] >= ENOUGH:
            found = r
        else:
            low = r["gpus"]
    while found["gpus"] - low > max(1, found["gpus"] // 10):
        r = at((low + found["gpus"]) // 2)
        if r["attained"] >= ENOUGH:
            found = r
        else:
            low = r["gpus"]
    return found


def measure_trace(run, args, name):
    rows = {"sizes": [], "over": []}
    for gpus, n in SIZES:
        rows["sizes"] += all_policies(run, name, *args, "--requests", n, "--gpus", gpus,
                                      "--load-percent", LOAD)
    for load in OVER:
        rows["over"] += run(*args, "--requests", OVER_REQUESTS, "--gpus", OVER_GPUS,
                            "--load-percent", load)
    return rows


def measure_one(run, args, name):
    rows = []
    for load in ONE_LOADS:
        args_one = args + ["--requests", ONE_REQUESTS, "--gpus", 1, "--models", ONE_MODELS,
                           "--load-percent", load]
        full = run(*args_one, "--pool-mib", ONE_POOL, "--policies", ",".join(TRAINS_NOT))
        less = all_policies(run, name, *args_one, "--pool-mib", ONE_POOL - ONE_TRAINING_MIB,
                            policies=TRAINS)
        rows += full + less
    return rows


def of_both(measure_one_trace):
    """What it gives for each trace, in turn; two processes at a time."""
    with futures.ThreadPoolExecutor(len(TRACES)) as both:
        return list(both.map(measure_one_trace, TRACES))


def measure(o, run_program):
    def run(*args):
        return run_program(o, "requests", *args)

    by_trace = of_both(lambda name: measure_trace(run, trace(o, name), name))
    rows = {part: sum((r[part] for r in by_trace), []) for part in by_trace[0]}
    rows["one"] = measure_one(run, trace(o, COMPOSED), COMPOSED)
    return rows


def measure_needed(o, run_program, sizes):
    """Of the rows of measure()."""
    def search(name):
        out = []
        for r in (r for r in sizes if (r["format"], r["gpus"]) == (name, SEARCHED)):
            if r["policy"] == "stop-and-start":  # a process takes 200 times the target
                continue
            found = needed(lambda *args: run_program(o, "requests", *args), trace(o, name), r)
            out.append({"format": name, "policy": r["policy"], "gpus": found and found["gpus"],
                        "trained": found and found["trained"]})
        return out

    return sum(of_both(search), [])


# ---------------------------------------------------------------------- the document

def table(head, rows, first="---:"):
    return "\n".join(["| " + " | ".join(head) + " |",
                      "| " + first + " | --- " + "| ---: " * (len(head) - 2) + "|"] +
                     ["| " + " | ".join(r) + " |" for r in rows])


def in_order(rows):
    return sorted(rows, key=lambda r: (r["gpus"], r["load"], list(NAMES).index(r["policy"])))


def needed_part(rows):
    """Table and charts."""
    rows = sorted(rows, key=lambda r: (TRACES.index(r["format"]), list(NAMES).index(r["policy"])))
    out = []
    for r in rows:
        apart = "-"
        if r["gpus"] and r["gpus"] <= SEARCHED:
            apart = "%.1f %%" % (100 - 100 * r["gpus"] * (1 - r["trained"]) / SEARCHED)
        out.append((TITLES[r["format"]], NAMES[r["policy"]],
                    str(r["gpus"] or "more than %d" % (MOST * SEARCHED)), apart))
    text = ("How many GPUs it takes to answer 99 %% in time at the rate that %d GPUs have with a "
            "load of %d %%, by bisection, to one in ten; what counts begins after %d %% of the time; a replay that takes more than %d s of "
            "processor time counts as one with too few GPUs, as it has more that waits than it can look at (ours "
            "alone meets that). "
            "None was looked for of stop-and-start, since a new process takes 200 times the target. "
            "\"Training, set apart\" is the training if "
            "the GPUs that are not needed did nothing else: that takes an operator who knows the "
            "number beforehand, and a load that stays as it is." % (SEARCHED, LOAD, SEARCH_WARM, MOST_CPU_S))
    head = ("trace", "policy", "GPUs for 99 %", "training, set apart")
    return "\n\n".join((text, table(head, out, ":---"),
                        "![ServeGen](figures/replay-needed-servegen.svg)\n"
                        "![Azure, GenTD26](figures/replay-needed-azure-llm.svg)"))


def size_table(rows, name):
    out = []
    for r in in_order(r for r in rows["sizes"] if r["format"] == name):
        out.append((str(r["gpus"]), NAMES[r["policy"]], "%.2f %%" % (100 * r["attained"]),
                    "%.2f %%" % (100 * r["refused"]), "%.2f" % r["p50_ms"], "%.2f" % r["p99_ms"],
                    "%.1f %%" % (100 * r["trained"]), "%.2f" % r["batch"],
                    "%.0f" % (r["switches_s"] / r["gpus"]), "%.2f" % (r["gb_s"] / r["gpus"])))
    return table(("GPUs", "policy", "in time", "refused", "p50, ms", "p99, ms", "training",
                  "samples a run", "switches/s a GPU", "GB/s a GPU"), out)


def one_table(rows):
    out = []
    for r in in_order(rows["one"]):
        out.append(("%.0f %%" % (100 * r["load"]), NAMES[r["policy"]],
                    "%.2f %%" % (100 * r["attained"]), "%.2f %%" % (100 * r["refused"]),
                    "%.2f" % r["p50_ms"], "%.2f" % r["p99_ms"], "%.2f" % r["batch"],
                    "%.0f" % r["switches_s"], "%.2f" % r["gb_s"],
                    "%.0f" % (ONE_ALONE * r["trained"])))
    return table(("load", "policy", "in time", "refused", "p50, ms", "p99, ms", "samples a run",
                  "switches/s", "GB/s", "training, samples/s"), out)


def draw(rows, searched, figures):
    for name in TRACES:
        mine = sorted((r for r in searched if r["format"] == name and r["gpus"]),
                      key=lambda r: r["policy"] != "ours")
        if mine:
            svg.bars(os.path.join(figures, "replay-needed-%s.svg" % name),
                     "GPUs that it takes to answer 99 %% in time, %s" % TITLES[name],
                     "at the rate of %d GPUs with a load of %d %%" % (SEARCHED, LOAD), "GPUs",
                     [(NAMES[r["policy"]], r["gpus"]) for r in mine])
        svg.lines(os.path.join(figures, "replay-load-%s.svg" % name),
                  "Not answered in time, %s, %d GPUs" % (TITLES[name], OVER_GPUS),
                  "refused or late; the least that is drawn is 0.01 %", "load, %", "% of requests",
                  [(NAMES[p], [(round(100 * r["load"]), max(100 * (1 - r["attained"]), 0.01))
                               for r in rows["over"] if (r["format"], r["policy"]) == (name, p)],
                    p != "ours") for p in POLICIES])


def sizes_text(rows):
    """How many requests each size has and how long they take, as the text has it."""
    out = []
    for gpus, n in SIZES:
        s = sorted(r["requests"] / r["rate"] for r in rows["sizes"]
                   if r["gpus"] == gpus and r["policy"] == "ours")
        out.append("{:,} on {:,} ({:.2g} and {:.2g} s)".format(n, gpus, s[0], s[-1]))
    return ", ".join(out)


def parts(rows, searched):
    out = {"requests-" + name: size_table(rows, name) for name in TRACES}
    out["requests-one"] = one_table(rows)
    out["sizes"] = sizes_text(rows)
    out["needed"] = needed_part(searched)
    out["over"] = "{:,}".format(OVER_REQUESTS)
    out["one"] = "{:,}".format(ONE_REQUESTS)
    return out
