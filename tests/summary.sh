#!/usr/bin/env bash
# summary.sh LINES LOG... - of the logs of failed steps, in at most LINES lines: which test failed,
# its assertion and where; not a sanitizer's lists, which are often longer than all the rest.
set -uo pipefail

most=$1
shift
each=$((most / ($# > 0 ? $# : 1)))
for log in "$@"; do
    echo "== $log"
    # What a runner says, then cmocka, unittest, the stories of shell, sanitizers, compilers.
    found=$(grep -aE \
        -e '^FAIL ' \
        -e '\[ +(ERROR|LINE|FAILED) +\]|^ *\|? *ERROR: ' \
        -e '^ *\|? *(FAIL|ERROR): |^ *\|? *[A-Za-z_.]*(Error|Exception)\b' \
        -e 'File "[^"]*/tests/[^"]*", line' \
        -e '^ *\|? *FAIL  |exit status [1-9]' \
        -e 'ERROR: [A-Za-z]*Sanitizer|SUMMARY: [A-Za-z]*Sanitizer|: runtime error: ' \
        -e '(error|Error): |undefined reference' \
        -- "$log" | grep -avE 'listed below|ts=20[0-9-]+T' | cut -c 1-240 | awk '!seen[$0]++')
    # What has a form of its own (lint, a step that could not begin) is shown as it is.
    if [ -z "$found" ] || ! grep -qv '^FAIL ' <<<"$found"; then
        found=$({ grep -aA 8 '^FAIL ' "$log" || tail -n 20 "$log"; } | cut -c 1-240)
    fi
    n=$(wc -l <<<"$found")
    head -n "$each" <<<"$found" | sed 's/^/    /'
    [ "$n" -le "$each" ] || echo "    ... and $((n - each)) more"
done
