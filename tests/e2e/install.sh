#!/usr/bin/env bash
# install.sh - `make install` makes a tree that works from its place, with a page for each program
# that says all of its options; `make uninstall` leaves nothing of it. Without it, a program that
# does not find another, or a page without an option, would go unnoticed.
set -uo pipefail
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$tmp" || exit 1

mkdir built
ln -s "$bin" built/bin
ln -s "$bin/../lib" built/lib
ok "the documentation is written" "$root/docs/site.sh" built/docs-site
install_tree() { PREFIX=$1 DESTDIR=$2 "$root/deploy/install.sh" built "${@:3}"; }
files() { (cd "$1" && find . ! -type d | sort); }

# said PROGRAM PAGE: the names of all options of its help are in the page
said() {
    local name missing=0
    while IFS= read -r name; do
        grep -qF -- "\\fB${name//-/\\-}\\fR" "$2" || { echo "$2 lacks $name" && missing=1; }
    done < <("$1" --help | grep -oE '^  --[a-z0-9-]+' | grep -vE -- '--(help|config)' | tr -d ' ')
    return $missing
}

# Two prefixes: one is the default, one as a package has it.
ok "it is installed" install_tree /usr/local "$tmp/a"
a=$tmp/a/usr/local
for p in "$a"/bin/* "$a"/sbin/*; do
    ok "${p##*/} is there" test -x "$p"
    [ "${p##*/}" = shunt-cuda-libs ] || ok "${p##*/} runs" "$p" --help
done
for p in shunt-api shunt-scheduler shunt-executor; do
    ok "$p is for services" test -x "$a/sbin/$p"
    ok "its page has each option" said "$a/sbin/$p" "$a/share/man/man8/$p.8"
    ok "a unit starts it" grep -qh "^ExecStart=/usr/local/lib/shunt/bin/$p\$" \
        "$a"/lib/systemd/system/*.service
done
for p in shunt shunt-zoo shunt-import shunt-simulate; do
    ok "the page of $p has each option" said "$a/bin/$p" "$a/share/man/man1/$p.1"
done
ok "a page says each command" test "$(grep -c '^\\fBshunt ' "$a/share/man/man1/shunt.1")" -ge 60
for c in infer train bench profile device; do
    ok "a page says shunt-run $c" grep -q "shunt\\\\-run $c" "$a/share/man/man1/shunt-run.1"
done
if command -v groff >/dev/null; then
    for p in "$a"/share/man/man*/*; do
        ok "${p##*/} is right" test -z "$(groff -man -Tutf8 -ww -z "$p" 2>&1)"
    done
else
    echo "skip: groff is not there to look at pages"
fi
# shellcheck disable=SC2016
ok "bash completes" bash -c '. "$0"; complete -p shunt' \
    "$a/share/bash-completion/completions/shunt"

# A whole system, from there.
home() { env -i PATH="$a/bin:/usr/sbin:/usr/bin:/sbin:/bin" HOME="$tmp" "$@"; }
ok "it starts" home shunt up --port 0 --workers 2 --quiet --state-dir "$state"
ok "what watches it is found" test -s "$state/prometheus/prometheus.yml"
ok "a tenant is made" home shunt create tenant a --state-dir "$state"
ok "a model is made" home shunt-zoo digits-cnn --out "$tmp/d.onnx"
ok "it is served" home shunt push model d "$tmp/d.onnx" --tenant a --wait --state-dir "$state"
ok "it answers" home shunt infer d --random 1 --tenant a --state-dir "$state"
ok "it has its documentation" curl -fsSL -o "$tmp/page" \
    "$(home shunt status -o json --state-dir "$state" | jq -r .server)/docs"
ok "its first page" grep -q '<h1' "$tmp/page"
ok "it stops" home shunt down --purge --state-dir "$state"

ok "another prefix" install_tree /usr "$tmp/b"
ok "its units name it" test -z "$(grep -rhE '^Exec.*=/(opt|usr/local)' "$tmp/b/usr/lib/systemd")"
mkdir -p "$tmp/b/usr/share/man/man1" "$tmp/b/etc/shunt"
: >"$tmp/b/usr/share/man/man1/other.1"
: >"$tmp/b/etc/shunt/db.env"
ok "it is removed" install_tree /usr "$tmp/b" --remove
ok "what others have stays, and nothing else" diff <(files "$tmp/b") - <<'END'
./etc/shunt/db.env
./usr/share/man/man1/other.1
END
ok "empty folders of others stay" test -d "$tmp/b/usr/lib/systemd/system"
ok "ours go" test ! -e "$tmp/b/usr/lib/shunt"
ok "the first one is removed" install_tree /usr/local "$tmp/a" --remove
ok "nothing of it stays" test -z "$(files "$tmp/a")"
exits "a prefix that is no path is refused" 1 "PREFIX has to begin with /" install_tree usr "$tmp/c"
