#!/usr/bin/env bash
# get.sh FOLDER - brings the traces that are not part of this tree into FOLDER, and checks digests.
# Philly's jobs in the form of Pollux's artifact (petuum/adaptdl), ServeGen's clients (Apache-2.0).
set -euo pipefail

to=${1:?usage: get.sh FOLDER}
mkdir -p "$to/servegen"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

check() { # check DIGEST FILE
    echo "$1  $2" | sha256sum --check --quiet
}

git clone --quiet --depth 1 --branch osdi21-artifact \
    https://github.com/petuum/adaptdl "$tmp/adaptdl"
cp "$tmp/adaptdl/simulator/traces/philly.csv" "$to/philly.csv"
check ebffb3dd1589bdf4e7bcd74496201c5ded1d557d498ee14f560463f37ec353da "$to/philly.csv"

git clone --quiet --depth 1 https://github.com/alibaba/ServeGen "$tmp/servegen"
for size in large mid small; do
    for f in "$tmp/servegen/data/language/m-$size"/*-trace.csv; do
        cp "$f" "$to/servegen/m-$size-$(basename "$f")"
    done
done
LC_ALL=C cat "$to"/servegen/*-trace.csv >"$tmp/all"
check 78d340671c8a7587c5b4aa99be137a0e64eb6d260862fc856d57a0b01873f223 "$tmp/all"
