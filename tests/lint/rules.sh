#!/usr/bin/env bash
# rules.sh - the rules behind decisions, as docs/rules.md lists them and as the code names them.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2

code=$({
    sed -nE '/DECIDE_REASON_MAP/,/^$/s/^ *X\([A-Z_]+, ("[A-Za-z]+")\).*/\1/p' \
        scheduler/decide/decide.h
    cat scheduler/jobs/*.c | tr '\n' ' ' | grep -oE \
        -e 'jobs__(requeue|stop)\(s, j, [^;]*;' -e '\.why = "[A-Za-z]+"' \
        -e 'jobs__change\([^;]*JOB_(QUEUED|EXPIRED|PREEMPTED)[^;]*;' \
        -e '(wish|leave)_rule\([^)]*\) *\{[^}]*\}'
    cat scheduler/*/*.c | tr '\n' ' ' |
        grep -oE 'sched_count\("[a-z]+", *"[A-Za-z]+"\)' | sed 's/"[a-z]*",//'
    tr '\n' ' ' <executor/memory/space.c | grep -oE 'count_evicted\(s, [^;]*;'
    sed -nE 's/.*PLACE_WHY\[PLACE_N_WHYS\] = \{(.*)\};/\1/p' scheduler/decide/placement.c
    grep -ohE 'rule=[A-Za-z]+' scheduler/*/*.c executor/*/*.c | sed 's/rule=\(.*\)/"\1"/'
    tr '\n' ' ' <executor/models/tier.c | grep -oE 'evicted_bytes_total,[^;]*;'
} | grep -oE '"[A-Za-z]+"' | tr -d '"' | sort -u)
# shellcheck disable=SC2016 # the backquotes are Markdown's
docs=$(sed -nE 's/^\| `([A-Za-z]+)` \|.*/\1/p' docs/rules.md | sort -u)
found=$(diff <(echo "$docs") <(echo "$code") |
    sed -nE 's/^< (.*)/docs\/rules.md names \1, the code does not/p
        s/^> (.*)/the code has the rule \1, docs\/rules.md does not/p')
[ -z "$found" ] || { echo "$found"; exit 1; }
