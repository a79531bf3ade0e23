#!/usr/bin/env bash
# migrations.sh - files of migrations/ have the numbers 0001, 0002 ... once each: two made
# side by side cannot both be the next one, and programs want as many as there are. One that
# databases have applied (migrations.sha256) stays as it is, to the last comment: they know its
# digest.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2

rc=0
n=0
for file in migrations/*.sql; do
    n=$((n + 1))
    case "${file#migrations/}" in
        "$(printf '%04d' "$n")"_?*.sql) ;;
        *)
            printf '%s: should have number %04d, without a gap and once\n' "$file" "$n"
            rc=1
            n=$((10#$(basename "$file" | cut -c 1-4))) || exit 1
            ;;
    esac
done
(cd migrations && sha256sum --quiet -c ../tests/lint/migrations.sha256) || rc=1
exit $rc
