"""What schemathesis is told about this API beyond its description: loaded by it, not a story.

WORLD (a JSON file) has the keys, things that exist, and real cursors; COUNTS is where the number of calls
of each operation is written.
"""
import atexit
import collections
import json
import os
import random

import schemathesis

with open(os.environ["WORLD"]) as f:
    WORLD = json.load(f)
CALLS = collections.Counter()
DRAW = random.Random(1)


@atexit.register
def write_counts():
    with open(os.environ["COUNTS"], "w") as out:
        json.dump(CALLS, out)


def roles(operation):
    return {r for need in operation.definition.raw.get("security", []) for r in need.get("key", [])}


@schemathesis.auth()
class Key:
    """The tenant's key wherever it is enough, so that the platform's is used for little."""

    def get(self, case, ctx):
        need = roles(ctx.operation)
        return WORLD[need.pop()] if need in ({"admin"}, {"executor"}) else WORLD["key"]

    def set(self, case, data, ctx):
        case.headers = {**(case.headers or {}), "Authorization": "Bearer " + data}


def is_good(case, place):
    """Nothing there was made wrong on purpose."""
    if case.meta is None:
        return False
    part = case.meta.components.get(schemathesis.core.parameters.ParameterLocation[place])
    return part is None or part.mode.is_positive


@schemathesis.hook
def before_call(context, case, kwargs):
    operation = case.operation
    CALLS[operation.label] += 1
    query, path = case.query or {}, case.path_parameters or {}
    # A cursor can only be taken from a page: the description cannot say which ones there are.
    if "cursor" in query and is_good(case, "QUERY"):
        real = WORLD["cursors"].get(case.path)
        if real:
            query["cursor"] = real
        else:
            del query["cursor"]
    # Names drawn at random are of nothing. What exists is not deleted: what the run made is. A cursor
    # is good for its own list alone.
    if path and is_good(case, "PATH") and case.method != "DELETE" and \
            ("cursor" in query or DRAW.random() < 0.6):
        platform = roles(operation) == {"admin"}
        things = WORLD["platform"] if platform else WORLD["things"]
        for name in path:
            path[name] = things.get(name, path[name])
    if isinstance(case.body, dict) and is_good(case, "BODY") and DRAW.random() < 0.6:
        for name in set(case.body) & {"model", "dataset", "eval_dataset", "version", "queue"}:
            case.body[name] = WORLD["things"][name]
    # The options are those of the server that is asked: what it must not answer has to be logged.
    if isinstance(case.body, dict) and "log-level" in case.body and is_good(case, "BODY"):
        case.body["log-level"] = "info"
    # That sizes rise, and are no more than --max-axis-size, a description cannot say.
    if isinstance(case.body, dict) and "buckets" in case.body and is_good(case, "BODY"):
        case.body["buckets"] = {"length": [64, 128]}
    # The run's own key is among those that it lists.
    if case.method in ("DELETE", "POST") and path.get("key") == WORLD["key"].split("_")[1]:
        path["key"] = "aaaaaaaaaaaa"
