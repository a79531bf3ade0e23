#!/usr/bin/env bash
# all.sh - every check of this folder; one line each, the findings of those that fail.
set -uo pipefail
cd "$(dirname "$0")" || exit 2

failed=()
for check in ./*.sh; do
    name=$(basename "$check" .sh)
    [ "$name" != all ] || continue
    if found=$("$check" 2>&1); then
        printf 'ok    %s\n' "$name"
    else
        printf 'FAIL  %s\n' "$name"
        while IFS= read -r line; do printf '      | %s\n' "$line"; done <<<"$found"
        failed+=("$name")
    fi
done
if [ ${#failed[@]} -gt 0 ]; then
    printf 'lint: %d failed: %s\n' "${#failed[@]}" "${failed[*]}"
    exit 1
fi
echo "lint: clean"
