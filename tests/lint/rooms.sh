#!/usr/bin/env bash
# rooms.sh - no file calls into a room that lies higher than its own. A folder's rooms.txt names its
# rooms.
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

NOISE = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\])*"', re.S)
DEFINED = re.compile(r"^(?!static|typedef)[a-z][\w \*]*?\b(\w+)\([^;{]*?\)\n\{", re.M)


def rooms_of(folder):
    """The height of each file, and the names of rooms from the ground up."""
    height, order = {}, []
    for line in open(os.path.join(folder, "rooms.txt")):
        if line.startswith("#"):
            continue
        room, files = line.split(":")
        height.update((name, len(order)) for name in files.split())
        order.append(room)
    return height, order


def look_at(folder):
    height, order = rooms_of(folder)
    code = {os.path.basename(f)[:-2]: NOISE.sub(" ", open(f).read())
            for f in glob.glob(folder + "/*.c")}
    found = ["%s/%s.c stands in no room of rooms.txt" % (folder, n)
             for n in sorted(code) if n not in height]
    found += ["%s/rooms.txt names %s, and there is no such file" % (folder, n)
              for n in height if n not in code]
    owner = {name: file for file, text in code.items() for name in DEFINED.findall(text)}
    for file, text in sorted(code.items()):
        for name in sorted(set(re.findall(r"\b[a-z]\w+\b", text))):
            other = owner.get(name)
            if other and file in height and other in height and height[other] > height[file]:
                found.append("%s/%s.c (%s) uses %s() of %s.c (%s)" % (
                    folder, file, order[height[file]], name, other, order[height[other]]))
    return found


found = [line for path in sorted(glob.glob("*/rooms.txt"))
         for line in look_at(os.path.dirname(path))]
if found:
    print("\n".join(found))
sys.exit(1 if found else 0)
PY
