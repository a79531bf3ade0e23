#!/usr/bin/env bash
# run.sh [-j N] [-w 'PROGRAM ARGS'] FILE... - runs each test under a time limit, N at a time (one),
# and shows the output of those that fail. *.py for python3, *.sh for bash, else a program; -w: in
# the hands of this one, as `tests/pg.sh run`.
#
# SHUNT_TEST_AGAIN=1 (CI): up to six that failed run once more, alone. One that passes then is told
# apart from a change that breaks it; it is a fault all the same, and stays in the output by name.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 2
# shellcheck source=tests/tmp.sh
. "$here/tmp.sh"
# shellcheck source=tests/pg.sh
. "$here/pg.sh"

at_once=1
with=()
while getopts j:w: option; do
    case $option in
    j) at_once=$OPTARG ;;
    w) read -ra with <<<"$OPTARG" ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))

# What somebody has set for a system of theirs is not meant for tests; stories see to it themselves.
bare=(env)
for name in $(compgen -e SHUNT_ | grep -vE '^SHUNT_(TEST|PG)_'); do
    bare+=(-u "$name")
done
limit_s=${SHUNT_TEST_TIMEOUT_S:-600}
passed=0
failed=()
logs=$(mktemp -d)
declare -A file_of=() began=()
trap 'kill $(jobs -p) 2>/dev/null; wait; rm -rf "$logs"; pg_copies_end' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
pg_copies_begin

begin() {
    local run=("${with[@]}")
    case $1 in
    *.py) run+=(python3) ;;
    *.sh) run+=(bash) ;;
    *) run=("${bare[@]}" "${run[@]}") ;;
    esac
    timeout -k 30 "$limit_s" "${run[@]}" "$1" >"$logs/${1##*/}" 2>&1 </dev/null &
    file_of[$!]=$1
    began[$!]=$(date +%s%N)
}

# Waits for one of them.
end() {
    local pid=0 rc=0 file name ms why
    wait -n -p pid || rc=$?
    file=${file_of[$pid]}
    name=${file##*/}
    ms=$((($(date +%s%N) - began[$pid]) / 1000000))
    unset "file_of[$pid]"
    if [ "$rc" -eq 0 ]; then
        passed=$((passed + 1))
        printf 'ok    %-28s %6d ms  %s\n' "$name" "$ms" "$(said "$logs/$name")"
        sed -n "s/^skip:/skip: $name:/p" "$logs/$name"
        return
    fi
    failed+=("$file")
    why="exit status $rc"
    [ "$rc" -ne 124 ] || why="no end within $limit_s s"
    [ "$rc" -le 128 ] || why="signal $((rc - 128))"
    printf 'FAIL  %-28s %6d ms  %s\n' "$name" "$ms" "$why"
    sed 's/^/      | /' "$logs/$name"
}

# How many tests it was, or its last words.
said() {
    grep -aoE '[0-9]+ test\(s\) run' "$1" | grep -m 1 . || tail -n 1 "$1" | cut -c 1-60
}

for file in "$@"; do
    [ ${#file_of[@]} -lt "$at_once" ] || end
    begin "$file"
done
while [ ${#file_of[@]} -gt 0 ]; do
    end
done
if [ "${SHUNT_TEST_AGAIN:-0}" = 1 ] && [ ${#failed[@]} -le 6 ]; then
    again=("${failed[@]}")
    failed=()
    for file in "${again[@]}"; do
        was=$passed
        begin "$file"
        end
        [ "$passed" -eq "$was" ] || echo "flaky: ${file##*/} failed, and passed alone"
    done
fi
names=("${failed[@]##*/}")
printf '%d passed, %d failed%s\n' "$passed" "${#failed[@]}" "${names[*]:+: ${names[*]}}"
[ "$passed" -eq $# ]
