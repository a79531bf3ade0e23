#!/usr/bin/env bash
# targets.sh - runs libFuzzer's programs (tests/fuzz/targets/) for SECONDS in all.
#
#   targets.sh SECONDS PROGRAM...     each begins with tests/fuzz/corpus/NAME, and with what it has
#                                     found interesting before: build/fuzz-corpus/NAME; words that
#                                     it puts in: tests/fuzz/targets/NAME.dict
#
# What ends a program is kept in build/fuzz-found, and `PROGRAM FILE` shows it again.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2

seconds=$1
shift
cores=$(nproc)
[ "$cores" -lt $# ] || cores=$#
each=$((seconds * cores / $#))
[ "$each" -gt 0 ] || each=1
found=build/fuzz-found
logs=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$logs"' EXIT
mkdir -p "$found"

# Without len_control inputs of the corpus' own length are changed from the start: within a minute
# nothing else finds a file that is too short for what its head says.
fuzz() { # fuzz PROGRAM
    local name=${1##*/} corpus=build/fuzz-corpus/${1##*/} words=()
    if [ ! -d "tests/fuzz/corpus/$name" ]; then
        printf 'FAIL  %s: tests/fuzz/corpus/%s is missing\n' "$name" "$name"
        return 1
    fi
    mkdir -p "$corpus"
    [ ! -e "tests/fuzz/targets/$name.dict" ] || words=(-dict="tests/fuzz/targets/$name.dict")
    if "$1" -max_total_time="$each" -timeout=20 -rss_limit_mb=2048 -malloc_limit_mb=1024 \
        -max_len=65536 -len_control=0 -print_final_stats=1 -artifact_prefix="$found/$name-" \
        "${words[@]}" "$corpus" "tests/fuzz/corpus/$name" >"$logs/$name" 2>&1; then
        printf 'ok    %-12s %9s runs, %s s\n' "$name" \
            "$(sed -n 's/^stat::number_of_executed_units: *//p' "$logs/$name")" "$each"
        return
    fi
    printf 'FAIL  %s\n' "$name"
    grep -E 'ERROR|runtime error|SUMMARY|Test unit written|^ *#[0-9]+ ' "$logs/$name" | head -n 30
    return 1
}

failed=0
for program in "$@"; do
    fuzz "$program" &
    while [ "$(jobs -rp | wc -l)" -ge "$cores" ]; do wait -n || failed=$((failed + 1)); done
done
while [ -n "$(jobs -p)" ]; do wait -n || failed=$((failed + 1)); done
echo "fuzz: $# targets, $failed failed"
[ "$failed" -eq 0 ]
