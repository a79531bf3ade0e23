#!/usr/bin/env bash
# print.sh [--man] DIR - writes the files of docs/ that programs print from their own tables;
# `make docs` runs it with docs/, tests/lint/docs.sh compares. SHUNT_BIN: where the programs are.
#
# --man: pages for man instead, DIR/man1 and DIR/man8, from the same tables (man.awk), for
# `make install`.
set -euo pipefail

is_man=
[ "${1:-}" != --man ] || { is_man=1 && shift; }
out=${1:?usage: docs/print.sh [--man] DIR}
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

# Where the value of an option comes from; of every program but `shunt`.
order() {
    cat <<'TEXT'
Order: default, file (`--config FILE` or `SHUNT_CONFIG`; lines `name = value`), environment, command
line; the last one wins. Sizes take K, M, G and T (1024). `PATCH /api/v1/config` changes options
marked (live) while processes run, and takes precedence over all of these.
TEXT
}

tools=(shunt-import shunt-simulate shunt-zoo)
daemons=(shunt-api shunt-scheduler shunt-executor)
run_commands=(infer train bench profile device)

config() {
    cat <<'TEXT'
# Options

Printed by each program's `--docs` from its table. `shunt-worker` has no options: its executor
configures it. The command `shunt` is in [cli.md](cli.md).

TEXT
    order
    echo
    local p
    for p in "${daemons[@]}" "${tools[@]}"; do "$bin/$p" --docs; done
    for p in "${run_commands[@]}"; do "$bin/shunt-run" "$p" --docs; done
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

# man SECTION NAME USAGE: the page of a program, from what it prints on stdin
man() {
    local version purpose
    version=$("$bin/shunt" --version)
    # "shunt-api - Serves HTTP. More." of its help, as pages of man have it
    purpose=$("$bin/$2" --help | sed -nE '1 { s/^[a-z-]+(:| -) //; s/[.:]( .*)?$//; s/^./\l&/; p }')
    awk -v section="$1" -v name="$2" -v usage="$3" -v version="${version##* }" \
        -v purpose="$purpose" -f "$root/docs/man.awk" >"$out/man$1/$2.$1.new"
    mv "$out/man$1/$2.$1.new" "$out/man$1/$2.$1"
}

# Options of a program with one table.
options() {
    "$bin/$1" --docs
    echo '## Where the value of an option comes from'
    echo
    order
}

# Its commands have tables of their own.
run_docs() {
    local p
    "$bin/shunt-run" --help | sed '1,2d; /^$/,$d; s/^ */    /'; echo
    for p in "${run_commands[@]}"; do "$bin/shunt-run" "$p" --docs; done
    echo '## Where the value of an option comes from'
    echo
    order
}

man_pages() {
    local p
    mkdir -p "$out/man1" "$out/man8"
    "$bin/shunt" --docs | man 1 shunt 'shunt COMMAND [arguments] [options]'
    for p in "${daemons[@]}"; do options "$p" | man 8 "$p" "$p [options]"; done
    options shunt-simulate | man 1 shunt-simulate 'shunt-simulate [options]'
    options shunt-zoo | man 1 shunt-zoo 'shunt-zoo MODEL --out=FILE [options]'
    options shunt-import | man 1 shunt-import 'shunt-import COMMAND [options]'
    run_docs | man 1 shunt-run 'shunt-run COMMAND [options]'
}

if [ -n "$is_man" ]; then
    man_pages
    exit
fi
"$bin/shunt-api" --print-docs | page api.md
"$bin/shunt" --docs | page cli.md
metrics | page metrics.md
training | page training.md
config | page config.md
"$bin/shunt-run" operators | page operators.md
