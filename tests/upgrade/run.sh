#!/usr/bin/env bash
# run.sh COMMIT [ARGUMENT...] - a system of the release at COMMIT is upgraded to that of this tree;
# `make upgrade-test` calls it. The arguments are for test_upgrade.py.
#
# The old release is built in build/upgrade/COMMIT, once; that takes as long as any first build.
set -euo pipefail

commit=${1:?usage: tests/upgrade/run.sh COMMIT [ARGUMENT...]}
shift
cd "$(dirname "$0")/../.."
commit=$(git rev-parse --verify --quiet "$commit^{commit}") || {
    echo "upgrade: this repository has no commit $commit" >&2
    exit 1
}
old=build/upgrade/${commit:0:12}
if [ ! -e "$old/complete" ]; then
    rm -rf "$old"
    mkdir -p "$old"
    git archive "$commit" | tar -x -C "$old"
    make --no-print-directory -C "$old" -j "$(nproc)" NVCC= all >"$old/log" 2>&1 || {
        tail -n 20 "$old/log" >&2
        echo "upgrade: the old release cannot be built; all of it is in $old/log" >&2
        exit 1
    }
    touch "$old/complete"
fi
SHUNT_OLD_BIN=$PWD/$old/build/bin exec tests/upgrade/test_upgrade.py -v "$@"
