#!/usr/bin/env bash
# protocols.sh - what tests/protocols/README.md names as the C of a model's step is still defined
# there, and each mutation of a model is one that check.sh plants. Without it a model would go on to
# prove things of code that is gone.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2

rc=0 n=0
# shellcheck disable=SC2016 # the backticks are Markdown's
while IFS=': ' read -r file names; do
    for name in ${names//,/ }; do
        n=$((n + 1))
        grep -qsE "^[a-z].*[ *]$name\(" "$file" || {
            echo "tests/protocols/README.md: $file does not define $name"
            rc=1
        }
    done
done < <(grep -oE '`[a-z_/]+\.c: [a-z0-9_, ]+`' tests/protocols/README.md | tr -d '`')
[ "$n" -gt 0 ] || { echo "tests/protocols/README.md names no C"; rc=1; }
for model in tests/protocols/*.pml; do
    while read -r flag; do
        grep -qE "${model##*/}.* $flag\b" tests/protocols/check.sh || {
            echo "$model: tests/protocols/check.sh never sets $flag"
            rc=1
        }
    done < <(sed -nE 's/^#(ifdef|ifndef) ([A-Z_]+)$/\2/p
        s/^#(if|elif) defined\(([A-Z_]+)\)$/\2/p' "$model")
done
exit $rc
