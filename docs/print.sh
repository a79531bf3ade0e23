#!/usr/bin/env bash
# print.sh DIR - writes the files of docs/ that programs print from their own tables; `make docs`
# runs it with docs/, tests/lint/docs.sh compares. SHUNT_BIN: where the programs are.
set -euo pipefail

out=${1:?usage: docs/print.sh DIR}
root=$(cd "$(dirname "$0")/.." && pwd)
bin=${SHUNT_BIN:-$root/build/bin}
# A user's profile must not change what is printed.
SHUNT_CONFIG=$(mktemp)
export SHUNT_CONFIG
trap 'rm -f "$SHUNT_CONFIG"' EXIT

# without blank lines at the end
page() { sed -e :a -e '/^\n*$/{$d;N;ba' -e '}' >"$out/$1.new" && mv "$out/$1.new" "$out/$1"; }

metrics() {
    cat <<'TEXT'
# Metrics

Printed by `shunt-api --print-metrics` from `common/metrics.def`. Each process serves the metrics
of its column at `/metrics` of its `--metrics-addr`. A histogram has `_bucket`, `_sum` and
`_count`.

TEXT
    "$bin/shunt-api" --print-metrics
}

config() {
    cat <<'TEXT'
# Options

Printed by each program's `--docs` from its table. Order: default, file (`--config FILE` or
`SHUNT_CONFIG`; lines `name = value`), environment, command line; the last one wins. Sizes take K,
M, G and T (1024). `PATCH /api/v1/config` changes options marked (live) while processes run, and
takes precedence over all of these. `shunt-worker` has no options: its executor configures it. The
command `shunt` is in [cli.md](cli.md).

TEXT
    local p
    for p in shunt-api shunt-scheduler shunt-executor shunt-import shunt-simulate shunt-zoo; do
        "$bin/$p" --docs
    done
    for p in infer train bench profile; do
        "$bin/shunt-run" $p --docs
    done
}

# Its tables are between lines <!-- fields PART --> and <!-- end -->; the rest is written by hand.
training() {
    awk 'NR == FNR && $1 == "fields" { part = $2; next }
        NR == FNR { table[part] = table[part] $0 "\n"; next }
        /^<!-- end -->$/ { skip = 0 }
        !skip { print }
        /^<!-- fields [A-Z]+ -->$/ { printf "%s", table[$3]; skip = 1 }
    ' <("$bin/shunt-api" --print-training) "$root/docs/training.md"
}

"$bin/shunt-api" --print-docs | page api.md
"$bin/shunt" --docs | page cli.md
metrics | page metrics.md
training | page training.md
config | page config.md
"$bin/shunt-run" operators | page operators.md
