#!/usr/bin/env bash
# all.sh - every check there is; what `make test` and CI run.
#
#   tests/all.sh [STEP...]     without names: all of them. A failed step does not keep the next ones
#                              from running. Logs: build/test-logs/STEP.log
#
# Stories wait for most of their time. Steps that compute, and change nothing in build/ but the CUDA
# back end, run behind the others meanwhile, one after the other, with what these leave of the
# machine.
#
# Below a step stand the tests that took longest. The last lines say which tests failed and how
# (summary.sh); a run that is ended says it too.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2

steps=(build lint unit device db recipes golden e2e)
behind=(cuda sanitize clang spin fuzz sim)
# No test needs the CUDA back end: it is compiled once, behind, where there is a compiler for it.
mk='make --no-print-directory NVCC='
declare -A what=(
    [build]="$mk tested"
    [lint]="$mk lint"
    [unit]="$mk unit"
    [device]="$mk device-tests"
    [db]="$mk db-tests"
    [recipes]="$mk recipes"
    [golden]="$mk golden"
    [e2e]="$mk e2e"
    [cuda]='make --no-print-directory all'
    [sanitize]="$mk unit db-tests OPT=-O1 SAN=address,undefined"
    [clang]="$mk all benches CC=clang OPT=-O0"
    [spin]="$mk spin"
    [fuzz]="$mk fuzz-short"
    [sim]="$mk sim-check"
)

# Limits against hanging, not against slowness: a loaded machine is no failure.
export SHUNT_TEST_TIMEOUT_S=${SHUNT_TEST_TIMEOUT_S:-900}
logs=build/test-logs
mkdir -p "$logs"

# longest LOG: the three tests that took longest, where they took at least five seconds.
longest() {
    sed -nE 's/^(ok|FAIL) +([^ ]+) +([0-9]+) ms.*/\3 \2/p' "$1" | sort -rn | head -n 3 | awk '
        $1 >= 5000 { printf "%s %s %.0f s", n++ ? "," : "  longest:", $2, $1 / 1000 }
        END { if (n) print "" }'
}

# run STEP: what it says at its end comes at once, for another step may end beside it.
run() {
    local s=$1 begin=$SECONDS end=FAILED notes='' said='' line
    : >"$logs/$s.begun"
    if ${what[$s]} >"$logs/$s.log" 2>&1 </dev/null; then
        end=ok
        notes=$(sed -n 's/^skip: */  skipped: /p; s/^flaky: /  FLAKY: /p' "$logs/$s.log")
        # What a test that passed at last had said.
        ! grep -q '^flaky: ' "$logs/$s.log" || said=$(tests/summary.sh 20 "$logs/$s.log")
    fi
    line=$(printf '%-9s ... %-6s %4d s%s%s' "$s" $end $((SECONDS - begin)) "$where" "$notes")
    printf '%s\n' "$(printf '%s\n' "$line" "$said" "$(longest "$logs/$s.log")" | grep .)"
    mv "$logs/$s.begun" "$logs/$s.$end"
}

where=''
if [ "${1:-}" = --behind ]; then
    where=', behind the others'
    # Daemons of stories have sessions of their own, among which the kernel may share the machine.
    { echo 19 >/proc/self/autogroup; } 2>/dev/null
    for s in "${@:2}"; do run "$s"; done
    exit
fi

if [ $# -gt 0 ]; then
    steps=("$@") behind=()
elif ! command -v "${NVCC-nvcc}" >/dev/null; then
    behind=("${behind[@]:1}") # cuda is the first
fi
all=("${steps[@]}" "${behind[@]}")
for s in "${all[@]}"; do
    if [ -z "${what[$s]:-}" ]; then
        echo "tests/all.sh: there is no step \"$s\"; steps: ${!what[*]}" >&2
        exit 2
    fi
    rm -f "$logs/$s".{begun,ok,FAILED}
done

pid=''
report() {
    local passed=0 failed=() begun=()
    if [ -n "$pid" ]; then # not yet a group of its own, perhaps
        kill -- "-$pid" 2>/dev/null || kill "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
    fi
    for s in "${all[@]}"; do
        [ ! -e "$logs/$s.ok" ] || passed=$((passed + 1))
        [ ! -e "$logs/$s.FAILED" ] || failed+=("$s.log")
        [ ! -e "$logs/$s.begun" ] || begun+=("$s")
    done
    if [ ${#failed[@]} -gt 0 ]; then
        tests/summary.sh 50 "${failed[@]/#/$logs/}"
    fi
    printf '%d passed, %d failed%s%s\n' "$passed" ${#failed[@]} \
        "${failed[*]:+: ${failed[*]%.log}; logs: $logs}" "${begun[*]:+; ended in ${begun[*]}}"
}
trap report EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
for s in "${steps[@]}"; do
    run "$s"
    if [ ${#behind[@]} -gt 0 ] && [ -e "$logs/build.ok" ]; then
        setsid nice -n 19 tests/all.sh --behind "${behind[@]}" &
        pid=$! behind=()
    fi
done
for s in "${behind[@]}"; do run "$s"; done # what was not built would be built twice at a time
[ -z "$pid" ] || wait "$pid"
pid=''
for s in "${all[@]}"; do [ -e "$logs/$s.ok" ] || exit 1; done
