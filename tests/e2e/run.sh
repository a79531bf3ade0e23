#!/usr/bin/env bash
# run.sh [NAME...] - the stories of this folder, several at a time, each under a time limit: all
# scripts *.sh but this one and lib.sh, all programs test_*.py. Shows the output of those that fail.
#
# Each has a system of its own, and none says how fast a machine has to be: that another one runs
# beside it is a part of the test. One more than there are cores, for they wait half of their time;
# E2E_AT_ONCE=1 for one after the other.
#
# SHUNT_TEST_AGAIN=1 (CI): one or two that failed run once more, alone. One that passes then is told
# apart from a change that breaks it; it is a fault all the same, and stays in the output by name.
set -uo pipefail
cd "$(dirname "$0")" || exit 2

# shellcheck source=tests/tmp.sh
. ../tmp.sh
limit_s=${SHUNT_TEST_TIMEOUT_S:-600}
at_once=${E2E_AT_ONCE:-$(($(nproc) + 1))}
passed=0
failed=()
logs=$(mktemp -d)
declare -A name_of=() began=()
trap 'kill $(jobs -p) 2>/dev/null; wait; rm -rf "$logs"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
    # The long ones first: none of them runs alone at the end.
    names=(test_preempt_identity.py test_executor.py test_scheduler.py test_failures.py
        test_jobs.py)
    for file in *.sh test_*.py; do
        case " run.sh lib.sh ${names[*]} " in *" $file "*) continue ;; esac
        [ ! -e "$file" ] || names+=("$file")
    done
fi

begin() {
    local run=(bash)
    [ "${1##*.}" != py ] || run=(python3)
    timeout -k 30 "$limit_s" "${run[@]}" "./$1" >"$logs/$1" 2>&1 </dev/null &
    name_of[$!]=$1
    began[$!]=$(date +%s%N)
}

# Waits for one of them.
end() {
    local pid=0 rc=0 file ms why
    wait -n -p pid || rc=$?
    file=${name_of[$pid]}
    ms=$((($(date +%s%N) - began[$pid]) / 1000000))
    unset "name_of[$pid]"
    if [ "$rc" -eq 0 ]; then
        passed=$((passed + 1))
        printf 'ok    %-24s %7d ms  %s\n' "$file" "$ms" "$(tail -n 1 "$logs/$file" | cut -c 1-60)"
        sed -n "s/^skip:/skip: $file:/p" "$logs/$file"
        return
    fi
    failed+=("$file")
    why="exit status $rc"
    [ "$rc" -ne 124 ] || why="no end within $limit_s s"
    printf 'FAIL  %-24s %7d ms  %s\n' "$file" "$ms" "$why"
    sed 's/^/      | /' "$logs/$file"
}

for file in "${names[@]}"; do
    [ ${#name_of[@]} -lt "$at_once" ] || end
    begin "$file"
done
while [ ${#name_of[@]} -gt 0 ]; do
    end
done
if [ "${SHUNT_TEST_AGAIN:-0}" = 1 ] && [ ${#failed[@]} -le 2 ]; then
    again=("${failed[@]}")
    failed=()
    for file in "${again[@]}"; do
        was=$passed
        begin "$file"
        end
        [ "$passed" -eq "$was" ] || echo "flaky: $file failed, and passed alone"
    done
fi
printf '%d passed, %d failed%s\n' "$passed" "${#failed[@]}" "${failed[*]:+: ${failed[*]}}"
[ "$passed" -eq ${#names[@]} ]
