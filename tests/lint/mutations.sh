#!/usr/bin/env bash
# mutations.sh - the faults that tests/sim/mutate.py plants: each line that it looks for is there.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2

exec tests/sim/mutate.py --check
