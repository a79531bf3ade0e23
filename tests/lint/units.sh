#!/usr/bin/env bash
# units.sh - systemd accepts the units of deploy/systemd, and finds little that they leave open
# (where systemd-analyze is present); each SHUNT_ variable in them, and in
# deploy/etc, is an option of that program.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2

rc=0
for unit in deploy/systemd/*.service deploy/etc/*.env; do
    program=$(sed -nE 's|^ExecStart=/usr/lib/shunt/bin/([a-z-]+).*|\1|p' "$unit")
    [[ $unit != *.env ]] || program=shunt-$(basename "$unit" .env)
    known=$(sed -n "/^## $program\$/,/^## /p" docs/config.md | grep -oE 'SHUNT_[A-Z_]+')
    while IFS= read -r name; do
        grep -qx "$name" <<<"$known" || { echo "$unit: $program has no option $name"; rc=1; }
    done < <(grep -oE 'SHUNT_[A-Z_]+' "$unit" | sort -u)
done
command -v systemd-analyze >/dev/null || exit $rc

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for unit in deploy/systemd/*; do # the programs are not installed here
    sed 's|/usr/lib/shunt/bin/[a-z-]*|/bin/true|' "$unit" >"$dir/$(basename "$unit")"
done
# It also complains about units of this machine; those are not ours.
found=$(cd "$dir" && for u in *; do
    systemd-analyze verify --man=no --recursive-errors=no "$dir/${u/@./@0.}" 2>&1
done | grep -F "$dir")
[ -z "$found" ] || { echo "${found//"$dir"/deploy/systemd}"; rc=1; }
for unit in deploy/systemd/*.service; do # --threshold: tenths, at most that many
    found=$(systemd-analyze security --no-pager --offline=true --threshold=20 "$unit" 2>&1) ||
        { echo "$unit: $(tail -n 1 <<<"$found"); at most 2.0"; rc=1; }
done
exit $rc
