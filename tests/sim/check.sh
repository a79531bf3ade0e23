#!/usr/bin/env bash
# check.sh - the simulation as CI runs it: every seed that ever found something (seeds.txt), one
# seed twice for the same trace, a few planted faults that it must find (mutate.py), then new seeds
# for SIM_SECONDS (120) in all.
set -euo pipefail
cd "$(dirname "$0")/../.."

sim=${SIM:-build/sim/sim}
seconds=${SIM_SECONDS:-120}
scenarios=(sched executor system)

while read -r scenario seed _; do
    case $scenario in '' | '#'*) continue ;; esac
    "$sim" --scenario "$scenario" --seeds "$seed" || {
        echo "check.sh: seed $seed of $scenario finds it again" >&2
        exit 1
    }
done <tests/sim/seeds.txt
for scenario in world "${scenarios[@]}"; do
    once=$("$sim" --scenario "$scenario" --seed 1 2>/dev/null)
    [ "$once" = "$("$sim" --scenario "$scenario" --seed 1 2>/dev/null)" ] || {
        echo "check.sh: seed 1 of $scenario has two traces" >&2
        exit 1
    }
done

tests/sim/mutate.py --short --seeds 40 || {
    echo "check.sh: a planted fault is not found any more" >&2
    exit 1
}

# fresh SCENARIO SECONDS: new seeds. One that finds something stops who works on the code; CI, which
# tests a change, names it (flaky) and goes on: it was there before, most likely.
fresh() {
    local found
    found=$("$sim" --scenario "$1" --seconds "$2") && echo "$found" && return
    echo "$found"
    [ "${SHUNT_TEST_AGAIN:-0}" = 1 ] || exit 1
    # A failure that is no seed's has no name, and is one.
    local name="flaky: sim --scenario $1 --seed"
    sed -nE "s/^seed ([0-9]+): (BROKEN |ended by signal )/$name \1: \2/p" <<<"$found" | grep .
}
fresh world 3
for scenario in "${scenarios[@]}"; do
    fresh "$scenario" $(((seconds - 3) / ${#scenarios[@]}))
done
