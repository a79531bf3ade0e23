#!/usr/bin/env bash
# mutations.sh - every fault of the simulation's lists can still be planted: its line is in its file.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2

exec tests/sim/mutate.py --check
