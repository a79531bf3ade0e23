#!/usr/bin/env bash
# docs.sh - the files of docs/ that programs print are as the programs print them. Says nothing while
# the programs are not built; `make docs` repairs.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2

bin=${SHUNT_BIN:-build/bin}
for p in shunt shunt-api shunt-scheduler shunt-executor shunt-import shunt-run shunt-zoo; do
    [ -x "$bin/$p" ] || exit 0
done
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
docs/print.sh "$dir" || { echo "docs/print.sh failed"; exit 1; }
rc=0
for f in "$dir"/*.md; do
    name=docs/$(basename "$f")
    diff -u --label "$name" --label "as printed" "$name" "$f" && continue
    echo "$name is stale; run: make docs"
    rc=1
done
exit $rc
