#!/usr/bin/env bash
# format.sh - clang-format decides; `make fmt` repairs.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2

found=$(git ls-files -co --exclude-standard '*.c' '*.h' '*.cu' '*.cuh' | while IFS= read -r file; do
    [ ! -e "$file" ] || printf '%s\n' "$file" # removed, and not yet committed
done | xargs -r -n 50 -P "$(nproc)" clang-format --dry-run -Werror 2>&1 |
    sed -nE 's/^([^: ]+):[0-9]+:.*/\1/p' | sort -u)
[ -z "$found" ] || {
    printf 'not formatted; run: make fmt\n%s\n' "$found"
    exit 1
}
