#!/usr/bin/env bash
# check.sh - every model of this folder exhaustively, and every planted mutation: it must be found.
#
#   check.sh [FILE.pml]      without a name: all of them. README.md says what is checked.
#
# A model that fails leaves its trail: build/protocols/NAME/; `spin -t -p -g` of the model there
# shows it (README.md).
set -uo pipefail
cd "$(dirname "$0")" || exit 2
root=$(cd ../.. && pwd)
only=${1:-}
out=$root/build/protocols
command -v spin >/dev/null || { echo "there is no spin; run: make deps" >&2; exit 1; }
mkdir -p "$out"

memory_mb=1500 # of one check: two run at once
at_once=$(nproc)
[ "$at_once" -le 2 ] || at_once=2

# pan NAME MODEL safe|live FLAGS...: makes and runs a verifier; what it says: $out/NAME/pan.out
pan() {
    local model=$2 live=$3 dir=$out/$1
    local cc=("$optimise" -w -DVECTORSZ=4096 "-DMEMLIM=$memory_mb")
    shift 3
    rm -rf "$dir"
    mkdir -p "$dir"
    cp "$model" "$dir/model.pml"
    cd "$dir" || return 2
    if [ "$live" = live ]; then cc+=(-DNFAIR=3); else cc+=(-DSAFETY -DNOFAIR); fi
    spin -a "$@" model.pml >spin.out 2>&1 || { cat spin.out; return 2; }
    "${CC:-gcc}" "${cc[@]}" -o pan pan.c || return 2
    if [ "$live" = live ]; then ./pan -m200000 -a -f; else ./pan -m200000; fi >pan.out 2>&1
    # Anything else but a whole search: a depth or a memory that was reached.
    if grep -qE 'max search depth too small|reached -DMEMLIM|out of memory|too many' pan.out ||
        ! grep -q '^State-vector' pan.out; then
        tail -n 5 pan.out
        return 2
    fi
}

say() {
    local states
    states=$(sed -nE 's/^ *([0-9]+) states, stored.*/\1/p' "$out/$2/pan.out")
    printf '%-5s %-32s %9s states, %3d s\n' "$1" "$2" "${states:-?}" $((SECONDS - began))
}

holds() { # holds NAME MODEL safe|live FLAGS...: every state was looked at, without an error
    local began=$SECONDS optimise=-O2
    pan "$@" && grep -q 'errors: 0' "$out/$1/pan.out" && say ok "$1" && return
    say FAIL "$1"
    grep '^pan:1:' "$out/$1/pan.out"
    return 1
}

breaks() { # breaks NAME MODEL safe|live FLAGS...: a mutation that is found
    local began=$SECONDS optimise=-O0 # it ends soon: the compiler takes longer
    pan "$@" && grep -qE '^pan:1: (assertion violated|acceptance cycle)' "$out/$1/pan.out" &&
        say ok "$1" && return
    say FAIL "$1"
    echo "      the mutation was not found"
    return 1
}

# WHAT MODEL safe|live FLAGS...
checks() {
    cat <<'END'
holds job.pml safe FAULTS=2 WISHES=0
holds lease.pml safe FAULTS=3
holds switch.pml safe RUNS=2 DEATHS=2 CKPTS=2 STEPS=3
holds job.pml safe FAULTS=1 WISHES=2
holds lease.pml live FAULTS=1 LIVE_LEADS
holds switch.pml live LIVE_STOPS
holds switch.pml live LIVE_TRAINS
holds usage.pml safe
breaks lease.pml safe FAULTS=2 ANSWER_LATE
breaks lease.pml safe FAULTS=2 EPOCH_STAYS
breaks lease.pml safe FAULTS=2 NO_FENCE
breaks lease.pml safe FAULTS=2 FENCE_UNLOCKED
breaks lease.pml safe FAULTS=2 OLD_ACCEPTED
breaks lease.pml live FAULTS=1 LIVE_LEADS RENEW_ANY
breaks job.pml safe FAULTS=1 WISHES=1 ANY_EXECUTOR
breaks job.pml safe FAULTS=1 WISHES=1 WHILE_STARTING
breaks job.pml safe FAULTS=1 WISHES=1 STRAY_STAYS
breaks job.pml safe FAULTS=1 WISHES=1 STOP_ANSWERED
breaks switch.pml safe STATE_TICKET_FORGOTTEN
breaks switch.pml safe CKPT_TICKET_FORGOTTEN
breaks switch.pml safe NO_SETTLE
breaks switch.pml safe COMMIT_EARLY
breaks switch.pml safe DEATH_LEAVES_WORK
breaks switch.pml safe DEATH_NOT_AWAITED
breaks switch.pml safe NEWEST_OVERWRITTEN
breaks switch.pml safe PUBLISHED_EARLY
breaks switch.pml safe DROP_TEARS
breaks switch.pml safe FLIGHT_IGNORED
breaks switch.pml safe FILL_IGNORED
breaks switch.pml safe SWAP_UNSAVED
breaks switch.pml safe MEMORY_NOT_TAKEN
breaks switch.pml live LIVE_STOPS STOP_TEARS
breaks usage.pml safe BATCH_GROWS
breaks usage.pml safe ANY_NUMBER_STORED
breaks usage.pml safe NUMBER_FORGOTTEN
breaks usage.pml safe NUMBER_UNCHECKED
END
}

# The first lines take longest, and the jobs share two cores.
failed=0 n=0
while read -r what model live flags; do
    [ -z "$only" ] || [ "$only" = "$model" ] || continue
    n=$((n + 1))
    name=${model%.pml}${flags:+-${flags// /-}}
    # shellcheck disable=SC2086 # the flags are words
    "$what" "${name//=/}" "$model" "$live" ${flags:+$(printf -- '-D%s ' $flags)} &
    while [ "$(jobs -rp | wc -l)" -ge "$at_once" ]; do wait -n || failed=$((failed + 1)); done
done < <(checks)
while [ -n "$(jobs -p)" ]; do wait -n || failed=$((failed + 1)); done
[ "$n" -gt 0 ] || { echo "check.sh: there is no model \"$only\"" >&2; exit 2; }
echo "protocols: $n checks, $failed failed, $SECONDS s"
[ "$failed" -eq 0 ]
