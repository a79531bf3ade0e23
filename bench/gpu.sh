#!/usr/bin/env bash
# gpu.sh [OPTION...] [PART...] - measures Shunt on a GPU and the same work with PyTorch in the same
# run; prints tables and writes bench/results/<gpu>.json with all samples.
#
#   PART              an executable of bench/gpu/, default: all; PART:A,B does only some of it
#                     (peers:ready,train); "PART OPTION..." gives it options of its own
#                     ("share --rates 20"); bench/gpu/PART.py --help lists them
#   --models A,B      of resnet152, inception-v3, bert-base (default: all)
#   --precisions A,B  instead of each part's own
#   --runs N          timed runs of each case
#   --seconds N       of each load
#   --device D        cuda (default), or cpu to try a part out: it says so in every table, and the
#                     results are try-cpu.json
#   --out FILE        another file for the results
#   --limit S         seconds that one part may take (default 1500); it prints what it has then, as
#                     does all of it when it is told to stop
#
# Programs: SHUNT_BIN, else those of the bundle that this lies in, else those of a bundle in
# build/bundle/*.tar.xz if nothing is built here, or else what `make lab` builds. Some parts
# measure the laboratory's programs (tests/lab/README.md), in the folder lab beside that.
# GOLDENS: the golden models. SHUNT_BENCH_DIR: keeps models, inputs and which kernels measured
# fastest for the next run. The python3 that is first in PATH needs numpy, and PyTorch for peers
# alone.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
limit_s=1500
device=cuda
options=()
report=()
parts=()

fail() {
    echo "gpu.sh: $*" >&2
    exit 2
}

known=()
for file in "$root"/bench/gpu/*.py; do
    [ ! -x "$file" ] || known+=("$(basename "$file" .py)")
done
while [ $# -gt 0 ]; do
    case $1 in
    --help)
        sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"
        exit 0 ;;
    --*) [ $# -ge 2 ] || fail "there is no option $1, or its value is missing; see --help" ;;&
    --models | --precisions | --runs | --seconds) options+=("$1" "$2"); shift ;;
    --device) device=$2; shift ;;
    --out) report+=("$1" "$2"); shift ;;
    --limit) limit_s=$2; shift ;;
    --*) fail "there is no option $1; see --help" ;;
    *)
        [[ " ${known[*]} " == *" ${1%%[: ]*} "* ]] ||
            fail "there is no part ${1%%[: ]*}; there are: ${known[*]}"
        parts+=("$1") ;;
    esac
    shift
done
[ ${#parts[@]} -gt 0 ] || parts=("${known[@]}")
python3 -c 'import numpy' 2>/dev/null || fail "$(command -v python3 || echo python3) has no numpy;\
 on Debian: apt-get install python3-numpy, then PATH=/usr/bin:\$PATH bench/gpu.sh ..."

work=$(mktemp -d /var/tmp/shunt-bench.XXXXXX)
chmod 755 "$work" # PostgreSQL's user goes through, in parts that start a whole system
trap 'rm -rf "$work"' EXIT
running=
told= # to stop: what was measured is reported first
stop() {
    told=$1
    [ -z "$running" ] || kill -TERM "$running" 2>/dev/null || true
}
trap 'stop 130' INT
trap 'stop 143' TERM

find_programs() {
    local bundle
    [ ! -x "$root/bin/shunt-run" ] || SHUNT_BIN=${SHUNT_BIN:-$root/bin}
    bundle=$(find "$root/build/bundle" -maxdepth 1 -name '*.tar.xz' 2>/dev/null |
        tail -n 1) || true # there may be no such folder
    if [ -n "${SHUNT_BIN:-}" ]; then
        [ -x "$SHUNT_BIN/shunt-run" ] || fail "there is no shunt-run in SHUNT_BIN=$SHUNT_BIN"
    elif [ ! -d "$root/build/bin" ] && [ -n "$bundle" ]; then
        python3 -m tarfile -e "$bundle" "$work" # there may be no xz
        for bundle in "$root"/build/bundle-tests/*.tar.xz; do # which has the laboratory
            [ ! -e "$bundle" ] || python3 -m tarfile -e "$bundle" "$work"
        done
        SHUNT_BIN=$(echo "$work"/shunt-*/bin)
    else
        make -C "$root" --no-print-directory lab gpu-benches >&2
        SHUNT_BIN=$root/build/bin
    fi
    if [ "$device" = cuda ] && [ -x "$SHUNT_BIN/shunt-cuda-libs" ] &&
        [ ! -e "$SHUNT_BIN/../lib/cuda" ]; then
        "$SHUNT_BIN/shunt-cuda-libs" >&2
    fi
    export SHUNT_BIN SHUNT_BENCH_DEVICE=$device SHUNT_BENCH_DIR=${SHUNT_BENCH_DIR:-$work/files}
}

find_programs
mkdir "$work/out"
failed=()
for part in "${parts[@]}"; do
    [ -z "$told" ] || break
    read -ra own <<<"$part"
    name=${own[0]%%:*}
    only=()
    [ "$name" = "${own[0]}" ] || only=(--only "${own[0]#*:}")
    out=$work/out/${own[0]}.json
    for ((i = 2; i < 100; i++)); do # the same part once more, with other options
        [ -e "$out" ] || break
        out=$work/out/${own[0]}-$i.json
    done
    echo "== $part" >&2
    started=$SECONDS
    timeout --foreground -k 120 "$limit_s" python3 "$root/bench/gpu/$name.py" "${options[@]}" \
        "${only[@]}" "${own[@]:1}" >"$out" &
    running=$!
    while :; do # a signal ends a wait as well
        rc=0
        wait "$running" || rc=$?
        kill -0 "$running" 2>/dev/null || break
    done
    running=
    [ "$rc" -eq 0 ] || failed+=("$part")
    echo "   $((SECONDS - started)) s" >&2
done
python3 "$root/bench/lib/report.py" "$work/out" "${report[@]}" || failed+=(report)
[ -z "$told" ] || exit "$told"
[ ${#failed[@]} -eq 0 ] || { echo "gpu.sh: not all was measured: ${failed[*]}" >&2; exit 1; }
