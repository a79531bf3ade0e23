#!/usr/bin/env bash
# deb.sh BUILD VERSION [TO] - packages for Debian of what is built, in BUILD/deb or in the folder
# TO: shunt-common, -api, -scheduler, -executor, -cli, and -cuda if that back end was compiled.
#
# deb/ says which file is in which package. debhelper does the rest: what each needs, units, users,
# files of configuration, symbols for debuggers in packages of their own, in a folder beside
# (DEB_BUILD_OPTIONS=noautodbgsym leaves them out).
set -euo pipefail

usage='usage: deploy/deb.sh BUILD VERSION [TO]'
build=$(realpath "${1:?$usage}")
version=${2:?$usage}
to=${3:-$build/deb}
root=$(cd "$(dirname "$0")/.." && pwd)

# A release as it is named; what lies between two has the time of its commit, so that it is newer
# than the one before.
deb_version() {
    local time
    if [[ $version =~ ^v?[0-9]+\. ]]; then
        tr - + <<<"${version#v}"
    else
        time=$(git -C "$root" show -s --format=%cd --date=format:%Y%m%d%H%M%S 2>/dev/null) || time=0
        echo "0~$time.${version//-/+}"
    fi
}

changelog() {
    local time
    time=$(git -C "$root" show -s --format=%cD 2>/dev/null) || time=$(date -R)
    printf 'shunt (%s) unstable; urgency=medium\n\n  * Version %s.\n\n' "$(deb_version)" "$version"
    printf ' -- Shunt <root@localhost>  %s\n' "$time"
}

command -v dh >/dev/null || {
    echo "deb: debhelper is missing: run make deps" >&2
    exit 1
}
[ -e "$build/docs-site/index.html" ] || "$root/docs/site.sh" "$build/docs-site" >/dev/null
rm -rf "$to"
mkdir -p "$to/source"
cp -r "$root/deploy/deb" "$to/source/debian"
changelog >"$to/source/debian/changelog"
cd "$to/source"
profiles=()
[ ! -e "$build/lib/shunt-dev-cuda.so" ] || profiles=(-Ppkg.shunt.cuda)
# -d: what the programs need was there when they were built
SHUNT_ROOT=$root SHUNT_BUILD=$build dpkg-buildpackage -b -d -uc -us "${profiles[@]}" \
    >"$to/log" 2>&1 || {
    tail -n 20 "$to/log" >&2
    echo "deb: it failed; all of it is in $to/log" >&2
    exit 1
}
cd "$to"
rm -rf source ./*.buildinfo ./*.changes
mkdir dbgsym
mv ./*-dbgsym_*.deb dbgsym/ 2>/dev/null || rmdir dbgsym # there may be none
ls -- *.deb
