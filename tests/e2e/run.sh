#!/usr/bin/env bash
# run.sh [NAME...] - the stories of this folder, one after the other, each under a time limit: all
# scripts *.sh but this one and lib.sh, all programs test_*.py. Shows the output of those that fail.
set -uo pipefail
cd "$(dirname "$0")" || exit 2

limit_s=${SHUNT_TEST_TIMEOUT_S:-600}
passed=0
failed=()
log=$(mktemp)
trap 'rm -f "$log"' EXIT

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
    for file in *.sh test_*.py; do
        case $file in run.sh | lib.sh) continue ;; esac
        [ ! -e "$file" ] || names+=("$file")
    done
fi
for file in "${names[@]}"; do
    start=$(date +%s%N)
    rc=0
    run=(bash)
    [ "${file##*.}" != py ] || run=(python3)
    timeout -k 30 "$limit_s" "${run[@]}" "./$file" >"$log" 2>&1 </dev/null || rc=$?
    ms=$((($(date +%s%N) - start) / 1000000))
    if [ "$rc" -eq 0 ]; then
        passed=$((passed + 1))
        printf 'ok    %-24s %7d ms  %s\n' "$file" "$ms" "$(tail -n 1 "$log" | cut -c 1-60)"
        sed -n "s/^skip:/skip: $file:/p" "$log"
        continue
    fi
    failed+=("$file")
    why="exit status $rc"
    [ "$rc" -ne 124 ] || why="no end within $limit_s s"
    printf 'FAIL  %-24s %7d ms  %s\n' "$file" "$ms" "$why"
    sed 's/^/      | /' "$log"
done
printf '%d passed, %d failed\n' "$passed" "${#failed[@]}"
[ ${#failed[@]} -eq 0 ]
