#!/usr/bin/env bash
# names.sh - a function's name carries its subject: none is defined in more than two files of the
# product, few in two, and none is a bare verb such as `take`. Without it a search, a profile or a
# stack of calls shows one name for twelve things. Callbacks, which a table asks for, are left out.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2

exec python3 - <<'PY'
import collections
import re
import subprocess
import sys

PRODUCT = ["api", "cli", "common", "executor", "runtime", "scheduler", "simulate", "zoo"]
MOST_IN_TWO = 75
BARE = set("""
    act add advance append apply ask attach begin bind bring build capture charge check
    choose collect combine compare complete copy count cut deliver describe detach draw drop
    each emit end enter estimate evaluate fail fetch fill find finish fit fold follow forget
    gather get give go grow hold join keep learn leave less list load look lose make map
    mark measure mix move note number operand pack part pass pick place prepare print
    product put put_all rank read refuse rename replace reply report resolve rest run say
    scale see send serve set settle share show sort split spread start step store submit sum
    take tell touch trim try turn unpack upload use visit wake walk widen write zero
""".split())
NOISE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|__(?:attribute|launch_bounds)__'
                   r'\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)', re.S)
DEFINED = re.compile(r"^ ?(?!typedef)[A-Za-z_][\w \*]*?\b(\w+)\([^;{]*?\)\n\{", re.M)
CALLBACK = re.compile(r"main$|on_")

where = collections.defaultdict(set)
files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"] +
                       ["%s/*.%s" % (d, e) for d in PRODUCT for e in ("c", "cu")],
                       check=True, capture_output=True, text=True).stdout.split()
for file in files:
    try:
        code = NOISE.sub(" ", open(file, encoding="utf-8").read())
    except FileNotFoundError:  # removed, and not yet committed
        continue
    for name in DEFINED.findall(code):
        where[name].add(file)

found, in_two = [], []
for name in sorted(where):
    at = " ".join(sorted(where[name]))
    if CALLBACK.match(name):
        continue
    if name in BARE:
        found.append("%s() is a bare verb: %s" % (name, at))
    if len(where[name]) > 2:
        found.append("%s() is defined in %u files: %s" % (name, len(where[name]), at))
    if len(where[name]) == 2:
        in_two.append(name)
if len(in_two) > MOST_IN_TWO:
    found.append("%u names are defined in two files, at most %u: %s" %
                 (len(in_two), MOST_IN_TWO, " ".join(in_two)))
if found:
    print("\n".join(found))
sys.exit(1 if found else 0)
PY
