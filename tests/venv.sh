#!/usr/bin/env bash
# venv.sh - makes build/venv with the packages of requirements.txt, once for each change of that
# file, and prints the path of its python. Two at a time wait for each other; a half-made one is
# made anew.
set -euo pipefail
cd "$(dirname "$0")"

venv=$(cd .. && pwd)/build/venv
python=${PYTHON:-/usr/bin/python3}
want="$("$python" --version) $(sha256sum <requirements.txt)"

mkdir -p "$(dirname "$venv")"
exec 9>"$venv.lock"
flock -w 600 9 || {
    echo "venv.sh: another one is making $venv and does not come to an end" >&2
    exit 1
}
if [ "$(cat "$venv/made" 2>/dev/null)" != "$want" ]; then
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    rm -rf "$venv"
    echo "venv.sh: installing $(grep -c '^[a-zA-Z]' requirements.txt) Python packages into" \
        "build/venv, which takes some minutes" >&2
    if ! { "$python" -m venv "$venv" && "$venv/bin/pip" install --quiet --no-input \
        --disable-pip-version-check --only-binary :all: -r requirements.txt; } >"$log" 2>&1; then
        tail -n 15 "$log" >&2
        echo "venv.sh: could not install tests/requirements.txt with pip" >&2
        exit 1
    fi
    printf '%s\n' "$want" >"$venv/made"
fi
printf '%s\n' "$venv/bin/python"
