#!/usr/bin/env bash
# install.sh BUILD [--remove] - puts what is built under $DESTDIR$PREFIX, or takes it away again;
# `make install` and `make uninstall` call it, and so do the Debian packages (deb/rules).
#
#   PREFIX/bin, sbin           links to the programs that people, and services, start
#   PREFIX/lib/shunt/bin, lib  all programs in one folder, back ends beside it: they find each other
#                              by their own place, as in build/ and in a bundle
#   PREFIX/share/shunt         migrations, dashboards, examples; the documentation as a site, if
#                              `make docs-site` has written it
#   PREFIX/share/...           documentation, man pages, completion
#   UNITDIR, SYSUSERSDIR       units of systemd with their user
#
# Nothing outside of these is touched: neither /etc/shunt nor /var/lib/shunt.
set -euo pipefail

build=${1:?usage: deploy/install.sh BUILD [--remove]}
what=${2:-}
root=$(cd "$(dirname "$0")/.." && pwd)
prefix=${PREFIX:-/usr/local}
unitdir=${UNITDIR:-$prefix/lib/systemd/system}
sysusersdir=${SYSUSERSDIR:-$prefix/lib/sysusers.d}
zshdir=${ZSHDIR:-$prefix/share/zsh/site-functions}
lib=$prefix/lib/shunt
share=$prefix/share/shunt
user_programs=(shunt shunt-run shunt-zoo shunt-import shunt-simulate)
daemons=(shunt-api shunt-scheduler shunt-executor)

fail() {
    echo "install: $*" >&2
    exit 1
}

copy_programs() {
    local p
    install -d "$to$lib/bin" "$to$lib/lib" "$to$prefix/bin" "$to$prefix/sbin"
    for p in "${user_programs[@]}" "${daemons[@]}" shunt-worker; do
        install -m 755 "$build/bin/$p" "$to$lib/bin/"
    done
    for p in cpu cuda; do # not those of the tests
        [ ! -e "$build/lib/shunt-dev-$p.so" ] ||
            install -m 644 "$build/lib/shunt-dev-$p.so" "$to$lib/lib/"
    done
    install -m 755 "$root/deploy/demo.sh" "$to$lib/bin/shunt-demo"
    [ ! -e "$build/lib/shunt-dev-cuda.so" ] ||
        install -m 755 "$root/deploy/cuda-libs.sh" "$to$lib/bin/shunt-cuda-libs"
    for p in "$to$lib"/bin/shunt*; do
        p=${p##*/}
        case " ${daemons[*]} shunt-worker " in
        *" $p "*) ;;
        *) ln -sfn "../lib/shunt/bin/$p" "$to$prefix/bin/$p" ;;
        esac
    done
    for p in "${daemons[@]}"; do ln -sfn "../lib/shunt/bin/$p" "$to$prefix/sbin/$p"; done
}

copy_data() {
    local d f
    install -d "$to$share" "$to$lib/share"
    ln -sfn ../../../share/shunt "$to$lib/share/shunt" # where programs look, from their own place
    for d in migrations dashboards examples; do
        while IFS= read -r f; do
            install -D -m 644 "$root/$f" "$to$share/$f"
        done < <(cd "$root" && find "$d" -type f ! -name '*.py' ! -name '*.pyc')
    done
    while IFS= read -r f; do
        install -D -m 644 "$build/docs-site/$f" "$to$share/docs-site/$f"
    done < <(cd "$build/docs-site" 2>/dev/null && find . -type f)
    while IFS= read -r f; do
        install -D -m 644 "$root/$f" "$to$prefix/share/doc/shunt/${f#docs/}"
    done < <(cd "$root" && find docs README.md -name '*.md' -o -name '*.svg' -o -name '*.png')
}

copy_man() {
    install -d "$to$prefix/share/man/man1" "$to$prefix/share/man/man8"
    SHUNT_BIN=$build/bin "$root/docs/print.sh" --man "$to$prefix/share/man"
    install -d "$to$prefix/share/bash-completion/completions" "$to$zshdir"
    "$build/bin/shunt" --completion bash >"$to$prefix/share/bash-completion/completions/shunt"
    "$build/bin/shunt" --completion zsh >"$to$zshdir/_shunt"
}

# The units name the places of a package of Debian.
copy_units() {
    local f
    install -d "$to$unitdir" "$to$sysusersdir"
    for f in "$root"/deploy/systemd/shunt*; do
        sed "s|/usr/lib/shunt/|$lib/|g; s|/usr/share/shunt/|$share/|g" "$f" \
            >"$to$unitdir/${f##*/}"
    done
    install -m 644 "$root/deploy/sysusers.d/shunt.conf" "$to$sysusersdir/"
}

# Our files, and the folders that have our name if they are empty then. The others stay: who made
# them is not known any more.
remove() {
    local f
    while IFS= read -r f; do rm -f "${DESTDIR:-}/$f"; done < <(cd "$to" && find . ! -type d)
    while IFS= read -r f; do
        rmdir "${DESTDIR:-}/$f" 2>/dev/null || true
    done < <(cd "$to" && find . -depth -type d -path '*/shunt*')
}

[ -x "$build/bin/shunt" ] || fail "there is nothing in $build: run make build"
case $prefix in
/*) ;;
*) fail "PREFIX has to begin with /, not $prefix" ;;
esac
umask 022
to=${DESTDIR:-}
if [ "$what" = --remove ]; then
    to=$(mktemp -d)
    trap 'rm -rf "$to"' EXIT
elif [ -n "$what" ]; then
    fail "there is no option $what"
fi
copy_programs
copy_data
copy_man
copy_units
[ "$what" != --remove ] || remove
