#!/usr/bin/env bash
# same.sh - numbers that stand in more than one language are the same: what `shunt up` decides
# about polling (cli/local/plan.c), what its help and deploy/README.md say of it, and what benches
# do that start no `shunt up`. Without it a figure could be that of a system that nobody runs.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2

rc=0
defined() { sed -nE "s/^#define $1 ([0-9]+)\b.*/\1/p" cli/local/plan.c; }
says() { # says FILE TEXT
    grep -qF -- "$2" "$1" || { echo "$1 does not say \"$2\", as cli/local/plan.c decides"; rc=1; }
}

us=$(defined POLL_US) cores=$(defined POLL_CORES)
if [ -z "$us" ] || [ -z "$cores" ]; then
    echo "cli/local/plan.c does not define POLL_US and POLL_CORES"
    exit 1
fi
says cli/cmds.c "$us with the cuda device and $cores cores for each executor"
says bench/lib/part.py "POLL_US, POLL_CORES = $us, $cores "
says deploy/README.md "GPU host with $cores cores or more for each executor"
says deploy/README.md "put \`SHUNT_BUSY_POLL_US=$us\`"
exit $rc
