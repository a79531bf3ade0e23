# lib.sh - what the stories of this folder share: a system of their own in a temporary folder, and a
# count of what was checked. Sourced; not a story.
# shellcheck shell=bash disable=SC2034

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bin=${SHUNT_BIN:-$root/build/bin}
tmp=$(mktemp -d "${TMPDIR:-/tmp}/shunt-e2e.XXXXXX")
chmod 755 "$tmp" # PostgreSQL's user must be able to go through
state=$tmp/state
n_checks=0
n_failed=0
port=  # of the system that in_place talks to
doing= # the check that runs, for one that the time limit ends
unset SHUNT_SERVER SHUNT_KEY SHUNT_KEY_FILE SHUNT_TENANT SHUNT_OUTPUT SHUNT_STATE_DIR SHUNT_QUIET
unset DATABASE_URL
: >"$tmp/empty.conf"
export SHUNT_CONFIG=$tmp/empty.conf

shunt() { "$bin/shunt" "$@" --state-dir "$state"; }

# ok SENTENCE COMMAND...: the command must succeed; its output is shown if not
ok() {
    local what=$1
    shift
    doing=$what
    n_checks=$((n_checks + 1))
    if "$@" >"$tmp/out" 2>&1; then
        return 0
    fi
    n_failed=$((n_failed + 1))
    printf 'FAIL  %s\n' "$what"
    printf '      $ %s\n' "$*"
    sed 's/^/      | /' "$tmp/out" | tail -n 20
    return 1
}

# exits SENTENCE STATUS TEXT COMMAND...: ends with this status and says this
exits() {
    local what=$1 want=$2 text=$3 rc=0
    shift 3
    doing=$what
    n_checks=$((n_checks + 1))
    "$@" >"$tmp/out" 2>&1 || rc=$?
    if [ "$rc" -eq "$want" ] && grep -qF -- "$text" "$tmp/out"; then
        return 0
    fi
    n_failed=$((n_failed + 1))
    printf 'FAIL  %s\n      $ %s\n      exit status %d, want %d and the text "%s"\n' "$what" "$*" \
        "$rc" "$want" "$text"
    sed 's/^/      | /' "$tmp/out" | tail -n 20
}

# until_ok COMMAND...: tries again and again, for two minutes: a limit for what never comes
until_ok() {
    local end=$((SECONDS + 120))
    until "$@" >"$tmp/out" 2>&1; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.1
    done
}

# free_port: below those of outgoing connections; the ports of the metrics are free, too
free_port() {
    python3 -c '
import random, socket
def free(p):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", p)) != 0
print(next(p for p in iter(lambda: random.randrange(15000, 32000), 0)
           if all(map(free, (p, *range(p + 100, p + 104))))))'
}

# client_in FOLDER: the Python client there; its modules are in FOLDER/src
client_in() {
    cp -r "$root/python" "$1" && python3 "$1/sync.py"
}

# place FOLDER: one with links to all of the tree, and with a home of its own
place() {
    mkdir -m 755 "$1" "$1/home" && ln -s "$root"/* "$1/"
}

# in_place FOLDER COMMAND...: there, with its home and the port $port; out.keep has what it says
in_place() {
    local at=$1 rc=0
    shift
    # NVCC: `make build` takes what is there, and does not begin with the CUDA back end.
    (cd "$at" && NVCC='' HOME=$at/home SHUNT_PORT=$port SHUNT_CONFIG='' SHUNT_POOL_BYTES=1G "$@") \
        >"$tmp/out.keep" 2>&1 || rc=$?
    cat "$tmp/out.keep"
    return "$rc"
}

finish() {
    local rc=$?
    [ "$rc" -eq 0 ] || n_failed=$((n_failed + 1))
    [ "$rc" -le 128 ] || printf 'FAIL  %s\n      ended in or after this check, after %d s\n' \
        "${doing:-the beginning}" "$SECONDS"
    if [ "$n_failed" -gt 0 ]; then
        tail -n 8 "$state"/log/*.log 2>/dev/null | cut -c 1-240
    fi
    if grep -h ' ev=http.undescribed ' "$state"/log/api.log 2>/dev/null; then
        n_failed=$((n_failed + 1)) # /openapi.json does not list such a status
    fi
    # shellcheck disable=SC2046 # one word a job
    kill $(jobs -p) 2>/dev/null
    "$bin/shunt" down --purge --quiet --state-dir "$state"
    rm -rf "$tmp"
    printf '%d checks, %d failed\n' "$n_checks" "$n_failed"
    [ "$n_failed" -eq 0 ] || exit 1
    exit 0
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
