#!/usr/bin/env bash
# rooms.sh - no file of executor/ calls into a room that lies higher than its own (rooms.txt).
#
# Includes alone do not show it: a header may be needed for a type. So every name of a function that
# another file defines counts, wherever it stands in the code.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2

exec python3 - <<'PY'
import glob
import os
import re
import sys

FOLDER = "executor"
height, order = {}, []
for line in open(os.path.join(FOLDER, "rooms.txt")):
    if line.startswith("#"):
        continue
    room, files = line.split(":")
    for name in files.split():
        height[name] = len(order)
    order.append(room)

NOISE = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\])*"', re.S)
DEFINED = re.compile(r"^(?!static|typedef)[a-z][\w \*]*?\b(\w+)\([^;{]*?\)\n\{", re.M)
code = {os.path.basename(f)[:-2]: NOISE.sub(" ", open(f).read())
        for f in glob.glob(FOLDER + "/*.c")}
found = ["%s/%s.c stands in no room of rooms.txt" % (FOLDER, n)
         for n in sorted(code) if n not in height]
found += ["rooms.txt names %s, and there is no such file" % n for n in height if n not in code]
owner = {name: file for file, text in code.items() for name in DEFINED.findall(text)}
for file, text in sorted(code.items()):
    for name in sorted(set(re.findall(r"\b[a-z]\w+\b", text))):
        other = owner.get(name)
        if other and file in height and other in height and height[other] > height[file]:
            found.append("%s/%s.c (%s) uses %s() of %s.c (%s)" % (
                FOLDER, file, order[height[file]], name, other, order[height[other]]))
print("\n".join(found))
sys.exit(1 if found else 0)
PY
