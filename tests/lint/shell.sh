#!/usr/bin/env bash
# shell.sh - shellcheck on every shell script, by name or by its first line.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2

scripts=()
while IFS= read -r file; do
    [ -f "$file" ] || continue
    case $file in
    *.sh) scripts+=("$file") ;;
    *.*) ;;
    *) head -n 1 "$file" | tr -d '\0' | grep -qE '^#!.*\b(ba)?sh\b' && scripts+=("$file") ;;
    esac
done < <(git ls-files -co --exclude-standard)
[ ${#scripts[@]} -gt 0 ] || exit 0
printf '%s\0' "${scripts[@]}" | xargs -0 -n 10 -P "$(nproc)" shellcheck -x
