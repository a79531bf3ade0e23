#!/usr/bin/env bash
# run_unit.sh BIN... - run each unit test under a time limit; show the output of those that fail.
set -uo pipefail

limit_s=${SHUNT_TEST_TIMEOUT_S:-60}
passed=0
failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

for bin in "$@"; do
    start=$(date +%s%N)
    timeout -k 5 "$limit_s" "$bin" >"$log" 2>&1 </dev/null
    rc=$?
    ms=$((($(date +%s%N) - start) / 1000000))
    name=$(basename "$bin")
    if [ "$rc" -eq 0 ]; then
        passed=$((passed + 1))
        printf 'ok    %-28s %6d ms  %s\n' "$name" "$ms" \
            "$(grep -aoE '[0-9]+ test\(s\) run' "$log" | head -n 1)"
        continue
    fi
    failed=$((failed + 1))
    why="exit status $rc"
    [ "$rc" -ne 124 ] || why="no end within $limit_s s"
    [ "$rc" -le 128 ] || why="signal $((rc - 128))"
    printf 'FAIL  %-28s %6d ms  %s\n' "$name" "$ms" "$why"
    sed 's/^/      | /' "$log"
done

printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
