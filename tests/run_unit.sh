#!/usr/bin/env bash
# run_unit.sh BIN... - run each unit test under a time limit; show the output of those that fail.
#
# SHUNT_TEST_AGAIN=1 (CI): what failed runs once more; see e2e/run.sh.
set -uo pipefail

# What somebody has set for a system of theirs is not meant for tests; what pg.sh says is.
for name in $(compgen -v SHUNT_ | grep -vE '^SHUNT_(TEST|PG)_'); do
    unset "$name"
done
limit_s=${SHUNT_TEST_TIMEOUT_S:-60}
passed=0
failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

run() {
    local bin=$1 start rc ms name why
    start=$(date +%s%N)
    timeout -k 5 "$limit_s" "$bin" >"$log" 2>&1 </dev/null
    rc=$?
    ms=$((($(date +%s%N) - start) / 1000000))
    name=$(basename "$bin")
    if [ "$rc" -eq 0 ]; then
        passed=$((passed + 1))
        printf 'ok    %-28s %6d ms  %s\n' "$name" "$ms" \
            "$(grep -aoE '[0-9]+ test\(s\) run' "$log" | head -n 1)"
        return 0
    fi
    why="exit status $rc"
    [ "$rc" -ne 124 ] || why="no end within $limit_s s"
    [ "$rc" -le 128 ] || why="signal $((rc - 128))"
    printf 'FAIL  %-28s %6d ms  %s\n' "$name" "$ms" "$why"
    sed 's/^/      | /' "$log"
    return 1
}

for bin in "$@"; do
    if run "$bin"; then
        continue
    elif [ "${SHUNT_TEST_AGAIN:-0}" = 1 ] && run "$bin"; then
        echo "flaky: $(basename "$bin") failed, and passed alone"
    else
        failed=$((failed + 1))
    fi
done

printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
