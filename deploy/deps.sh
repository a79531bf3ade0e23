#!/usr/bin/env bash
# deps.sh [--build] [PACKAGE...] - install the Debian packages that building, running and testing
# need, and those named, if any is missing. --build: only what the compiler needs.
set -euo pipefail

packages=(
    gcc make pkg-config ca-certificates git
    libmicrohttpd-dev libnghttp2-dev libjansson-dev libpq-dev libgnutls28-dev libcurl4-openssl-dev
    libdnnl-dev libonnx-dev libprotobuf-c-dev protobuf-c-compiler protobuf-compiler libseccomp-dev
    libturbojpeg0-dev libpng-dev zlib1g-dev
)
if [ "${1:-}" = --build ]; then
    shift
else
    packages+=(
        clang libclang-rt-dev libcmocka-dev postgresql prometheus jq curl procps python3
        python3-venv python3-numpy clang-format shellcheck spin bash-completion patch patchelf
        xz-utils chromium debhelper systemd mkdocs iproute2 openssl tmux
    )
fi
packages+=("$@")

missing=()
for p in "${packages[@]}"; do
    dpkg-query -W -f='${db:Status-Status}\n' "$p" 2>/dev/null | grep -qx installed ||
        missing+=("$p")
done
[ ${#missing[@]} -gt 0 ] || exit 0

sudo=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || {
        echo "deps: packages are missing, and neither root nor sudo is at hand. Have root run:" >&2
        echo "    apt-get install --no-install-recommends ${missing[*]}" >&2
        exit 1
    }
    sudo=(sudo)
fi
echo "deps: installing ${#missing[@]} Debian packages and what they need: ${missing[*]}"
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
# progress PID: a line now and then, as long as it runs
progress() {
    local said='' now
    while kill -0 "$1" 2>/dev/null; do
        sleep 1
        [ $((SECONDS % 5)) -eq 0 ] || continue
        # Those that are upgraded count too. Some are set up before others are unpacked.
        now=$(awk '/^[0-9]+ upgraded, [0-9]+ newly installed/ { total = $1 + $3 }
            total && /^Get:/ { fetched++ }
            /^Unpacking / { unpacked++ }
            /^Setting up / { ready++ }
            END {
                if (!total)
                    print "fetching lists of packages"
                else
                    printf "of %d packages %d are fetched, %d unpacked, %d set up\n", total,
                        fetched, unpacked, ready
            }' "$log")
        [ "$now" = "$said" ] || echo "deps: $SECONDS s: $now"
        said=$now
    done
}
rc=0
{ "${sudo[@]}" apt-get update -q &&
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
        "${missing[@]}"; } >"$log" 2>&1 &
install=$!
progress "$install"
wait "$install" || rc=$?
[ -z "$made_policy" ] || "${sudo[@]}" rm -f "$policy"
if [ "$rc" -ne 0 ]; then
    tail -n 30 "$log" >&2
    echo "deps: could not install: ${missing[*]}" >&2
    exit "$rc"
fi
echo "deps: installed in $SECONDS s"
