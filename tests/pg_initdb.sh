#!/usr/bin/env bash
# pg_initdb.sh - initdb of a run of tests (pg_copies_begin): makes the first cluster of each kind;
# those that follow are copies of it, which take a tenth of the time.
set -euo pipefail

here=$(dirname "$0")
data=
how=()
while [ $# -gt 0 ]; do
    case $1 in
    -D) data=$2 && shift ;;
    *) how+=("$1") ;;
    esac
    shift
done
[ -w "$here/made" ] || exec "$here/real/initdb" -D "$data" "${how[@]}" # another user's tests
made=$here/made/$(sha256sum <<<"${how[*]}" | cut -c 1-16)
exec 9>"$made.lock"
flock 9
if [ ! -d "$made" ]; then
    rm -rf "$made.new"
    "$here/real/initdb" -D "$made.new" "${how[@]}"
    mv "$made.new" "$made"
fi
exec cp -aT "$made" "$data" # who ends initdb ends the copying
