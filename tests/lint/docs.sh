#!/usr/bin/env bash
# docs.sh - paths that documents name exist, and the files of docs/ that programs print are as the
# programs print them (only once they are built; `make docs` repairs).
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2

rc=0
files=$(git ls-files -co --exclude-standard)
# shellcheck disable=SC2016 # the backquotes are Markdown's
name_in_doc='`[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*\.(c|h|cu|sh|py|md|def|sql|yml)`'
while IFS=: read -r doc name; do
    name=${name//\`/}
    # from the root, from the document's folder, or a bare name that is somewhere
    [ -e "$name" ] || [ -e "$(dirname "$doc")/$name" ] && continue
    [[ $name != */* ]] && grep -qE "(^|/)${name//./\\.}\$" <<<"$files" && continue
    echo "$doc names $name, which is not there"
    rc=1
done < <(grep '\.md$' <<<"$files" | xargs grep -soHE "$name_in_doc" | sort -u)

bin=${SHUNT_BIN:-build/bin}
for p in shunt shunt-api shunt-scheduler shunt-executor shunt-import shunt-run shunt-simulate \
    shunt-zoo; do
    [ -x "$bin/$p" ] || exit $rc
done
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
docs/print.sh "$dir" || { echo "docs/print.sh failed"; exit 1; }
for f in "$dir"/*.md; do
    name=docs/$(basename "$f")
    diff -u --label "$name" --label "as printed" "$name" "$f" && continue
    echo "$name is stale; run: make docs"
    rc=1
done
exit $rc
