#!/usr/bin/env bash
# rooms.sh - no file calls into a room that lies higher than its own, or includes a header of one. A
# folder's rooms.txt names its rooms, each a folder.
#
# Includes alone do not show it: a function may be declared anywhere. So every name of a function
# that another file defines counts too, wherever it stands in the code.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2

exec python3 - <<'PY'
import glob
import os
import re
import sys

# What stands in a folder itself puts its rooms together, so it is the highest of all. These headers
# are still everybody's in their folders; executor/ has none.
SHARED = ["scheduler/sched.h", "scheduler/route.h", "scheduler/apis.h", "api/api.h",
          "api/handlers.h", "api/options.h", "cli/cli.h", "cli/commands.h"]
NOISE = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\])*"', re.S)
DEFINED = re.compile(r"^(?!static|typedef)[a-z][\w \*]*?\b(\w+)\([^;{]*?\)\n\{", re.M)


def rooms_of(folder):
    """The rooms from the ground up; the last one is the folder itself."""
    lines = [line for line in open(folder + "/rooms.txt") if not line.startswith("#")]
    return [folder + "/" + line.split(":")[0] for line in lines] + [folder]


def look_at(folder):
    order = rooms_of(folder)
    height = {f: i for i, room in enumerate(order) for f in glob.glob(room + "/*.[ch]")}
    found = ["%s/rooms.txt names %s, and there is no such folder" % (folder, room)
             for room in order if not os.path.isdir(room)]
    found += ["%s is no room of %s/rooms.txt, and no program" % (d, folder)
              for d in sorted(os.path.dirname(f) for f in glob.glob(folder + "/*/"))
              if d not in order and not os.path.exists(d + "/main.c")]
    code = {f: NOISE.sub(" ", open(f).read()) for f in height}
    owner = {name: f for f, text in code.items() if f.endswith(".c")
             for name in DEFINED.findall(text)}
    for file in sorted(code):
        for name in sorted(set(re.findall(r"\b[a-z]\w+\b", code[file]))):
            other = owner.get(name)
            if other and file.endswith(".c") and height[other] > height[file]:
                found.append("%s uses %s() of %s, a higher room" % (file, name, other))
        for header in re.findall(r'#include "(\w+/(?:\w+/)*\w+\.h)"', open(file).read()):
            if header not in height:
                continue
            if height[header] > height[file] and header not in SHARED:
                found.append("%s includes %s of a higher room" % (file, header))
            if header.endswith("_int.h") and height[header] != height[file]:
                found.append("%s includes %s, which is for its own room" % (file, header))
    return found


found = [line for path in sorted(glob.glob("*/rooms.txt"))
         for line in look_at(os.path.dirname(path))]
if found:
    print("\n".join(found))
sys.exit(1 if found else 0)
PY
