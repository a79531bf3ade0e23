#!/usr/bin/env bash
# tmp.sh - sourced: TMPDIR for systems that tests start. In memory where that is large and lets
# programs run: a disk that others keep busy holds a commit back for longer than a call to the
# database may take, which says nothing about the product.
if [ -z "${TMPDIR:-}" ] && [ -w /dev/shm ] &&
    [ "$(df --output=avail -k /dev/shm | tail -n 1)" -ge 4194304 ]; then
    probe=$(mktemp /dev/shm/shunt-probe.XXXXXX) &&
        printf '#!/bin/sh\n' >"$probe" && chmod +x "$probe" && "$probe" 2>/dev/null &&
        export TMPDIR=/dev/shm
    rm -f "$probe"
    unset probe
fi
