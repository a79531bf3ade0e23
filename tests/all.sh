#!/usr/bin/env bash
# all.sh - every check there is, one step after the other; what `make test` and CI run.
#
#   tests/all.sh [STEP...]     without names: all of them. A failed step does not keep the next ones
#                              from running. Logs: build/test-logs/STEP.log
#
# Below a step stand the tests that took longest. The last lines say which tests failed and how
# (summary.sh); a run that is ended says it too.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2

steps=(lint unit device db recipes golden spin fuzz sim e2e sanitize clang)
declare -A what=(
    [lint]='make --no-print-directory lint'
    [unit]='make --no-print-directory unit'
    [device]='make --no-print-directory device-tests'
    [db]='make --no-print-directory db-tests'
    [recipes]='make --no-print-directory recipes'
    [golden]='make --no-print-directory golden'
    [spin]='make --no-print-directory spin'
    [fuzz]='make --no-print-directory fuzz-short'
    [sim]='make --no-print-directory sim-check'
    [e2e]='make --no-print-directory e2e'
    [sanitize]='make --no-print-directory unit db-tests OPT=-O1 SAN=address,undefined'
    [clang]='make --no-print-directory all benches CC=clang OPT=-O0 NVCC='
)
[ $# -eq 0 ] || steps=("$@")

# Limits against hanging, not against slowness: a loaded machine is no failure.
export SHUNT_TEST_TIMEOUT_S=${SHUNT_TEST_TIMEOUT_S:-900}
logs=build/test-logs
mkdir -p "$logs"
passed=0
failed=()
running=''
report() {
    if [ ${#failed[@]} -gt 0 ]; then
        tests/summary.sh 50 "${failed[@]/#/$logs/}"
    fi
    printf '%d passed, %d failed%s%s\n' "$passed" ${#failed[@]} \
        "${failed[*]:+: ${failed[*]%.log}; logs: $logs}" "${running:+; ended in $running}"
}
# longest LOG: the three tests that took longest, where they took at least five seconds.
longest() {
    sed -nE 's/^(ok|FAIL) +([^ ]+) +([0-9]+) ms.*/\3 \2/p' "$1" | sort -rn | head -n 3 | awk '
        $1 >= 5000 { printf "%s %s %.0f s", n++ ? "," : "  longest:", $2, $1 / 1000 }
        END { if (n) print "" }'
}
trap report EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
for s in "${steps[@]}"; do
    begin=$SECONDS
    if [ -z "${what[$s]:-}" ]; then
        echo "tests/all.sh: there is no step \"$s\"; steps: ${!what[*]}" >&2
        exit 2
    fi
    printf '%-9s ... ' "$s"
    running=$s
    if ${what[$s]} >"$logs/$s.log" 2>&1 </dev/null; then
        passed=$((passed + 1))
        notes=$(sed -n 's/^skip: */  skipped: /p; s/^flaky: /  FLAKY: /p' "$logs/$s.log")
        printf 'ok     %4d s%s\n' $((SECONDS - begin)) "$notes"
        # What a test that passed at last had said.
        ! grep -q '^flaky: ' "$logs/$s.log" || tests/summary.sh 20 "$logs/$s.log"
    else
        failed+=("$s.log")
        printf 'FAILED %4d s\n' $((SECONDS - begin))
    fi
    longest "$logs/$s.log"
    running=''
done
[ "$passed" -eq ${#steps[@]} ]
