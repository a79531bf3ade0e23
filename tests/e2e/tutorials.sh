#!/usr/bin/env bash
# tutorials.sh [NAME...] - docs/tutorials/, typed as printed, each in a folder that looks like the
# source tree. Without it: what a reader types could be what nobody has typed since.
#
# A block of the shell goes on where those before it ended; one of Python is the file that its first
# line names. PyTorch is that of SHUNT_TORCH_PYTHON, which also has onnxscript; without it, the
# tutorial that needs it is left out, and that is said.
set -uo pipefail
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"

port=$(free_port)
pages=$root/docs/tutorials

# commands PAGE: its blocks as one script
commands() {
    awk '/^```/ { if (name) print "END_OF_FILE"
                  sh = $0 == "```sh"; py = $0 == "```python"; name = ""; next }
        py && !name { name = $2; print "cat >" name " <<\"END_OF_FILE\"" }
        sh || name' "$pages/$1.md"
}

# A python3 that has PyTorch and, behind its own packages, the client with what that needs.
python_with_torch() {
    local site
    client_in "$tmp/client" &&
        site=$("$("$root/tests/venv.sh")" -c 'import httpx, os
print(os.path.dirname(os.path.dirname(httpx.__file__)))') && mkdir "$1" || return 1
    cat >"$1/python3" <<END
#!/bin/sh
exec "$SHUNT_TORCH_PYTHON" -c 'import runpy, sys
sys.path[1:1] = ["$tmp/client/src"]
sys.path.append("$site")
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")' "\$@"
END
    chmod 755 "$1/python3"
}

# says N TEXT: what the tutorial printed has it in that many lines at least
says() {
    ok "it says $2" test "$(grep -cF -- "$2" "$tmp/out.keep")" -ge "$1"
}

latency_target() {
    says 1 "(4, 10): at most "
    says 1 "cannot be met"
    says 1 "refused, as it should be"
    says 2 "attained_percent"
    says 1 "SUCCEEDED"
    says 1 "accuracy"
}

training_survives() {
    says 1 "the same to the last bit"
    says 1 "and so was every step"
    says 1 "started again after"
    says 2 "SUCCEEDED"
}

two_teams() {
    says 1 "QuotaGuaranteed"
    says 1 "of another team: not there"
    says 1 "not there either"
    says 2 "SUCCEEDED"
}

# tutorial NAME: all of it, then what it has to have said
tutorial() {
    local at=$tmp/$1 path=$PATH
    place "$at" || return 1
    if commands "$1" | grep -q '^python3 '; then
        if [ -z "${SHUNT_TORCH_PYTHON:-}" ]; then
            echo "skip: $1: SHUNT_TORCH_PYTHON names no python that has torch"
            return 0
        fi
        ok "there is a python for it" python_with_torch "$at/home/bin" || return 1
        path=$at/home/bin:$PATH
    fi
    commands "$1" >"$at/commands"
    if ok "$1 runs as printed" in_place "$at" env PATH="$path" bash -euo pipefail "$at/commands"
    then
        "${1//-/_}"
    fi
    ok "nothing is left running" in_place "$at" "$bin/shunt" down --purge
}

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
    for page in "$pages"/*.md; do
        [ "${page##*/}" = README.md ] || names+=("$(basename "$page" .md)")
    done
fi
others=$(grep -hoE '^```.+' "$pages"/*.md | grep -vxE '```(sh|python|text)')
ok "there are no blocks in other languages, which nobody would run" [ -z "$others" ]
for name in "${names[@]}"; do
    tutorial "$name"
done
