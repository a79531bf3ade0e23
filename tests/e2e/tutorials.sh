#!/usr/bin/env bash
# tutorials.sh [NAME...] - docs/tutorials/, typed as printed, each in a folder that looks like the
# source tree. Without it: what a reader types could be what nobody has typed since.
#
# A block of the shell goes on where those before it ended; one of Python is the file that its first
# line names. Where the first line says on which host, the hosts are network namespaces with a cable
# between them, which takes root, and scp is cp, as they have their folders in common. PyTorch is
# that of SHUNT_TORCH_PYTHON, which also has onnxscript; without it, the tutorial that needs it is
# left out, and that is said.
set -uo pipefail
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"

# shellcheck source=tests/pg.sh
. "$root/tests/pg.sh"
port=$(free_port)
ns=shunt-$$
pages=$root/docs/tutorials

# commands PAGE: its blocks as one script
commands() {
    awk '/^```/ { if (name) print "END_OF_FILE"
                  sh = $0 == "```sh"; py = $0 == "```python"; name = ""; next }
        py && !name { name = $2; print "cat >" name " <<\"END_OF_FILE\"" }
        sh || name' "$pages/$1.md"
}

# Two namespaces with a cable between them, and a database that has nobody's tables yet.
make_hosts() {
    ip netns add "$ns-one" && ip netns add "$ns-two" &&
        ip link add veth0 netns "$ns-one" type veth peer name veth0 netns "$ns-two" &&
        ip -n "$ns-one" addr add 10.77.0.1/24 dev veth0 &&
        ip -n "$ns-two" addr add 10.77.0.2/24 dev veth0 || return 1
    for n in "$ns-one" "$ns-two"; do
        ip -n "$n" link set lo up && ip -n "$n" link set veth0 up || return 1
    done
    pg_start && unset DATABASE_URL && export PGHOST=$PG_DIR PGUSER=shunt
}

drop_hosts() {
    for n in "$ns-one" "$ns-two"; do
        ip netns pids "$n" 2>/dev/null | xargs -r kill -9
        ip netns del "$n" 2>/dev/null
    done
    [ -z "${PG_DIR:-}" ] || pg_stop
    unset PGHOST PGUSER
}

trap 'rc=$?; drop_hosts; (exit "$rc"); finish' EXIT

# script_of_hosts PAGE: its blocks as a script of the first host, which has a shell on the second
script_of_hosts() {
    cat <<END
coproc TWO { exec ip netns exec $ns-two bash -euo pipefail; }
on_two() {
    local line
    { cat && echo 'echo END_OF_BLOCK'; } >&"\${TWO[1]}"
    while read -r line <&"\${TWO[0]}"; do
        [ "\$line" != END_OF_BLOCK ] || return 0
        printf '%s\n' "\$line"
    done
    return 1
}
END
    awk '/^```/ { if (sh && two) print "END_OF_BLOCK"; sh = $0 == "```sh"; two = 0; next }
        sh && $0 == "# on two" { two = 1; print "on_two <<\"END_OF_BLOCK\""; next }
        sh' "$pages/$1.md"
}

# The hosts of the page have one home, and the tree in it.
scp_in() {
    mkdir -p "$1/home/bin"
    cat >"$1/home/bin/scp" <<END
#!/bin/sh
[ "\$1" = -q ] && shift
for f; do
    case \$f in
    *:shunt/*) set -- "\$@" "$1/\${f#*:shunt/}" ;;
    *) set -- "\$@" "\$f" ;;
    esac
    shift
done
exec cp "\$@"
END
    chmod 755 "$1/home/bin/scp"
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

cluster() {
    says 4 "SUCCEEDED"
    says 1 "ExecutorLost"
}

# of_hosts NAME AT: a tutorial of two hosts
of_hosts() {
    if ! ip netns add "$ns-one" 2>/dev/null; then
        echo "skip: $1: network namespaces need root and the kernel's support"
        return 0
    fi
    ip netns del "$ns-one"
    script_of_hosts "$1" >"$2/commands"
    scp_in "$2"
    ok "there are two hosts" make_hosts || return 1
    if ok "$1 runs as printed" in_place "$2" ip netns exec "$ns-one" \
        env PATH="$2/home/bin:$PATH" bash -euo pipefail "$2/commands"; then
        "${1//-/_}"
    fi
    ok "nothing is left running" [ -z "$(ip netns pids "$ns-one")$(ip netns pids "$ns-two")" ]
    drop_hosts
}

# tutorial NAME: all of it, then what it has to have said
tutorial() {
    local at=$tmp/$1 path=$PATH
    place "$at" || return 1
    if grep -qx '# on two' "$pages/$1.md"; then
        of_hosts "$1" "$at"
        return
    fi
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
others=$(awk '/^```/ { if (!on && $0 !~ /^```(sh|python|text)$/) print FILENAME ": " $0
                on = !on }' \
    "$pages"/*.md)
ok "there are no blocks in other languages, which nobody would run" [ -z "$others" ]
for name in "${names[@]}"; do
    tutorial "$name"
done
