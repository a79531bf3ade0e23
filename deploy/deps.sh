#!/usr/bin/env bash
# deps.sh - install the Debian packages that building, running and testing need, if any is
# missing.
set -euo pipefail

packages=(
    gcc clang make pkg-config ca-certificates git
    libmicrohttpd-dev libjansson-dev libpq-dev libgnutls28-dev libcurl4-openssl-dev
    libdnnl-dev libonnx-dev libprotobuf-c-dev protobuf-c-compiler protobuf-compiler libseccomp-dev
    libturbojpeg0-dev libpng-dev
    libcmocka-dev postgresql prometheus jq curl procps python3 python3-venv python3-numpy
    clang-format shellcheck bash-completion patchelf xz-utils
)

missing=()
for p in "${packages[@]}"; do
    dpkg-query -W -f='${db:Status-Status}\n' "$p" 2>/dev/null | grep -qx installed ||
        missing+=("$p")
done
[ ${#missing[@]} -gt 0 ] || exit 0

sudo=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || {
        echo "deps: missing, and neither root nor sudo is at hand: ${missing[*]}" >&2
        exit 1
    }
    sudo=(sudo)
fi
echo "deps: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Debian's own units must not start a server on their own: we start what we need, when we need it.
policy=/usr/sbin/policy-rc.d
made_policy=
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | "${sudo[@]}" tee "$policy" >/dev/null
    "${sudo[@]}" chmod 755 "$policy"
    made_policy=1
fi
rc=0
{ "${sudo[@]}" apt-get update -q &&
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
        "${missing[@]}"; } >"$log" 2>&1 || rc=$?
[ -z "$made_policy" ] || "${sudo[@]}" rm -f "$policy"
if [ "$rc" -ne 0 ]; then
    tail -n 30 "$log" >&2
    echo "deps: could not install: ${missing[*]}" >&2
    exit "$rc"
fi
