#!/usr/bin/env bash
# format.sh - clang-format decides; `make fmt` repairs.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2

rc=0
while IFS= read -r file; do
    [ -e "$file" ] || continue # removed, and not yet committed
    clang-format --dry-run -Werror "$file" >/dev/null 2>&1 || {
        echo "$file: not formatted; run: make fmt"
        rc=1
    }
done < <(git ls-files -co --exclude-standard '*.c' '*.h' '*.cu' '*.cuh')
exit $rc
