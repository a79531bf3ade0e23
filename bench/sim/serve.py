"""Requests: rows of build/bench/replay, tables and charts of them, for replay.py."""
import math
import os
from concurrent import futures
from functools import partial

import svg

SIZES = ((1, 10000), (10, 20000), (100, 40000), (1000, 400000))  # GPUs, requests
# GPUs for 99 % are looked for at the rate of each size. With too few a replay of ours takes minutes: the search
# goes in steps from what the size before gave, and a replay ends as soon as too many are late, or after so many
# seconds.
STEP, SEARCH_WARM, MOST_CPU_S = 1.25, 25, 120
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
# and workspace and its samples/s alone (bench/results/h200.json: train, 32 samples in TF32; warm).
ONE_POOL, ONE_STATE_MIB, ONE_WORKSPACE_MIB, ONE_ALONE = 8192, 459, 5460, 1394
ONE_MODELS, ONE_REQUESTS = 40, 8000
ONE_LOADS = (60, 100, 300)
TRAINS = ("pipeswitch", "stop-and-start")
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


def needed(run, args, row, guess):
    """The row with the fewest GPUs that answer enough of that rate in time, to one in ten, or one, looked for
    from a guess on; None: MOST times as many are too few. And whether a replay counted as too few GPUs only
    because it took too much processor time."""
    ended = []

    def at(gpus):
        r = by_policy(run, row["policy"], *args, "--requests", row["requests"], "--gpus", gpus,
                      "--rate", round(row["rate"]), "--train-percent", 0, "--enough-percent",
                      round(100 * ENOUGH), "--warm-percent", SEARCH_WARM, "--most-cpu-s", MOST_CPU_S)
        ended.append(r["by_clock"] and r["attained"] < ENOUGH)
        return r

    low, found = 0, at(guess)
    while found["attained"] < ENOUGH:
        low = found["gpus"]
        if low >= MOST * row["gpus"]:
            return None, any(ended)
        found = at(math.ceil(low * STEP))
    while not low and found["gpus"] > 1:
        r = at(int(found["gpus"] / STEP))
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
    return found, any(ended)


def of_trace(run, args, name):
    """(part of the rows, what gives them), of a trace."""
    mine = POLICIES + ((ONE_TENANT,) if name == COMPOSED else ())
    for gpus, n in SIZES:
        for policy in mine:
            yield "sizes", partial(by_policy, run, policy, *args, "--requests", n, "--gpus", gpus,
                                   "--load-percent", LOAD)
    for load in OVER:
        for policy in POLICIES:
            yield "over", partial(by_policy, run, policy, *args, "--requests", OVER_REQUESTS, "--gpus", OVER_GPUS,
                                  "--load-percent", load)


def of_one(run, args):
    """As of_trace(), of one GPU with many models."""
    trains = ["--train-state-mib", ONE_STATE_MIB, "--train-workspace-mib", ONE_WORKSPACE_MIB]
    for load in ONE_LOADS:
        args_one = args + ["--requests", ONE_REQUESTS, "--gpus", 1, "--models", ONE_MODELS, "--load-percent", load]
        for policy in TRAINS_NOT:
            yield "one", partial(by_policy, run, policy, *args_one, "--pool-mib", ONE_POOL)
        for policy in TRAINS:
            yield "one", partial(by_policy, run, policy, *args_one, "--pool-mib",
                                 ONE_POOL - ONE_STATE_MIB - ONE_WORKSPACE_MIB)
        for policy in ("ours", ONE_TENANT):
            yield "one", partial(by_policy, run, policy, *args_one, "--pool-mib", ONE_POOL, *trains)


def in_parallel(calls):
    """What each gives, in their order; a replay is a process, and as many run as there are processors."""
    with futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(lambda call: call(), calls))


def measure(o, run_program):
    def run(*args):
        return run_program(o, "requests", *args)

    todo = [x for name in TRACES for x in of_trace(run, trace(o, name), name)]
    todo += of_one(run, trace(o, COMPOSED))
    todo.reverse()  # the largest of the last trace first
    rows = {"sizes": [], "over": [], "one": []}
    for (part, _), row in zip(todo, in_parallel([call for _, call in todo])):
        rows[part].insert(0, row)
    return rows


def measure_needed(o, run_program, sizes):
    """Of the rows of measure(); each policy's search of a trace goes by itself."""
    def search(name, policy):
        out, before = [], 1  # GPUs for one GPU of the size
        for r in (r for r in sizes if (r["format"], r["policy"]) == (name, policy)):
            found, by_clock = needed(lambda *args: run_program(o, "requests", *args), trace(o, name), r,
                                     max(1, round(before * r["gpus"])))
            if found:
                before = found["gpus"] / r["gpus"]
            out.append({"format": name, "policy": policy, "size": r["gpus"],
                        "gpus": found and found["gpus"], "trained": found and found["trained"],
                        "by_clock": by_clock})
        return out

    pairs = dict.fromkeys((r["format"], r["policy"]) for r in sizes)
    return sum(in_parallel([partial(search, *pair) for pair in pairs
                            if pair[1] != "stop-and-start"]), [])  # a process takes 200 times the target


# ---------------------------------------------------------------------- the document

def table(head, rows, first="---:"):
    return "\n".join(["| " + " | ".join(head) + " |",
                      "| " + first + " | --- " + "| ---: " * (len(head) - 2) + "|"] +
                     ["| " + " | ".join(r) + " |" for r in rows])


def in_order(rows):
    return sorted(rows, key=lambda r: (r["gpus"], r["load"], list(NAMES).index(r["policy"])))


def set_apart(r):
    """The training, if the GPUs that are not needed did nothing else."""
    if not r["gpus"] or r["gpus"] > r["size"]:
        return "-"
    return "%.1f %%" % (100 - 100 * r["gpus"] * (1 - r["trained"]) / r["size"])


def needed_part(rows):
    """Table and charts."""
    sizes, out = [gpus for gpus, _ in SIZES], []
    for name in TRACES:
        for policy in NAMES:
            mine = {r["size"]: r for r in rows if (r["format"], r["policy"]) == (name, policy)}
            if mine:
                out.append([TITLES[name], NAMES[policy]] +
                           [str(mine[s]["gpus"] or "more than %d" % (MOST * s)) +
                            (" \\*" if mine[s].get("by_clock") else "") for s in sizes] +
                           [set_apart(mine[s]) for s in sizes])
    marked = (": cells in whose search there was one have a star" if all("by_clock" in r for r in rows) else
              " (in whose search there was one was not kept)")
    text = ("How many GPUs it takes to answer 99 %% in time at the rate that 1 to 1,000 GPUs have with a load of "
            "%d %%, to one in ten, or one; what counts begins after %d %% of the time, and a replay that takes more "
            "than %d s of processor time counts as one with too few GPUs, which depends on the machine%s. None was "
            "looked for of stop-and-start, since a new process takes 200 times the target. \"Training\" is what "
            "there would be if the GPUs that are not needed did nothing else: that takes an operator who knows the "
            "number beforehand, and a load that stays as it is." % (LOAD, SEARCH_WARM, MOST_CPU_S, marked))
    head = (["trace", "policy"] + ["GPUs for 99 %, of {:,}".format(s) for s in sizes] +
            ["training, of {:,}".format(s) for s in sizes])
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
        svg.lines(os.path.join(figures, "replay-needed-%s.svg" % name),
                  "GPUs that it takes to answer 99 %% in time, %s" % TITLES[name],
                  "for each GPU of those whose rate it is, with a load of %d %%" % LOAD,
                  "GPUs whose rate it is", "GPUs, as a part of them",
                  [(NAMES[p], [(r["size"], r["gpus"] / r["size"]) for r in searched
                               if (r["format"], r["policy"]) == (name, p) and r["gpus"]],
                    p != "ours") for p in POLICIES if p != "stop-and-start"])
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
