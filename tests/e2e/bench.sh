#!/usr/bin/env bash
# bench.sh - the parts of bench/gpu measure something, tried out on the cpu device.
# Without it, what only runs on a borrowed GPU would be found broken there.
set -uo pipefail
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"

# What the time limit ends says which check it was.
printf '. "%s"\nok "it sleeps" sleep 60\n' "$root/tests/e2e/lib.sh" >"$tmp/sleeps.sh"
exits "a check that the time limit ends is named" 124 "FAIL  it sleeps" timeout 1 bash \
    "$tmp/sleeps.sh"
# Not a link to "false": that is a word of the shell, so that "command -v" has no path for it.
mkdir "$tmp/bare"
printf '#!/bin/sh\nexit 1\n' >"$tmp/bare/python3"
chmod +x "$tmp/bare/python3"
exits "a Python without numpy is refused before anything is built" 2 "python3-numpy" \
    env PATH="$tmp/bare:$PATH" "$root/bench/gpu.sh" --device cpu --out "$tmp/none.json" ready
if ! PATH=/usr/bin:$PATH python3 -c 'import numpy' 2>/dev/null; then
    echo "skip: python3-numpy is not installed"
    exit 0
fi
awk 'BEGIN { for (i = 1; i <= 60; i++) print i * 5000000, i * i % 7 % 3, 0 }' >"$tmp/load"
parts=(ready train cold warm "share --rates 20 --requests 5" "ablations:ipc,new-process"
    "over_http --uint8 --shm"
    "many --load $tmp/load --rates 20 --pool 100M --slo-ms 2000 --trains digits-cnn --alone"
    restart "pictures:ratio --models mean --batches 16 --pictures 160 --images 128")
# Whether a promise holds is nothing that a busy machine can say: the exit status does not count.
SHUNT_BIN=$bin SHUNT_BENCH_DIR=$tmp/files PATH=/usr/bin:$PATH "$root/bench/gpu.sh" --device cpu \
    --models digits-cnn --runs 2 --seconds 1.5 --out "$tmp/results.json" \
    "${parts[@]/ablations*/& --slow-runs 1 --svg $tmp}" >"$tmp/tables" 2>"$tmp/said"

measured() { jq -e --arg p "$1" '.[$p] | .machine.device == "cpu" and (.rows | length > 0 and
    all(.error == null and .unit != null and (.samples | length) > 0))' "$tmp/results.json"; }
for part in "${parts[@]}"; do
    name=${part%% *}
    ok "$name measures" measured "$name" || sed "/^== $name/,/^== /!d" "$tmp/said" | tail -n 30
done
ok "every table says that no GPU was measured" test "$(grep -c 'a try on the cpu device' \
    "$tmp/tables")" -gt "$(grep -c 'runs shunt/it' "$tmp/tables")"
ok "a chart is drawn" python3 -c '
import sys, xml.dom.minidom
xml.dom.minidom.parse(sys.argv[1])' "$tmp/ablations-digits-cnn.svg"
