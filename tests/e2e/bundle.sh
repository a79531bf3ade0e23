#!/usr/bin/env bash
# bundle.sh - `make bundle` runs from where it is unpacked, with nothing of the host but glibc.
# Without it, a library or a file of PostgreSQL that only the building host has would go unnoticed.
set -uo pipefail
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$tmp" || exit 1

mkdir built
ln -s "$bin" built/bin
ln -s "$bin/../lib" built/lib
ln -s "$bin/../device-tests" built/device-tests
ln -s "$bin/../lab" built/lab
ln -s "$bin/../bench" built/bench
ok "the bundle is made" "$root/deploy/bundle.sh" built test --folder
mv built/bundle/shunt-test "$tmp/moved away"
home=$tmp/moved\ away
bare() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME="$tmp" "$@"; }
bundled() { bare "$home/bin/shunt" "$@" --state-dir "$state"; }

# mapped PROCESS: the shared libraries that it has mapped
mapped() {
    local pid _
    read -r pid _ <"$state/run/$1.pid"
    sed -nE 's/^([^ ]+ +){5}(.*\.so.*)$/\2/p' "/proc/$pid/maps" | sort -u
}

# own PROCESS: no library but glibc's comes from outside the bundle
own() {
    mapped "$1" | grep -F "$home/" >/dev/null || return 1
    ! mapped "$1" | grep -vF "$home/" |
        grep -vE '/(ld-linux|lib(c|m|dl|rt|pthread|resolv|nss_[a-z]+))[.-]'
}

ok "it starts" bundled up --port 0 --workers 2 --quiet
for p in postgres scheduler executor-cpu0 api; do ok "$p has its own libraries" own "$p"; done
ok "PostgreSQL's programs are its own" grep -q "^$home/lib/postgresql/" <(
    read -r pid _ <"$state/run/postgres.pid" && readlink "/proc/$pid/exe")
ok "a tenant is made" bundled create tenant a
ok "a model is made" bare "$home/bin/shunt-zoo" digits-cnn --out "$tmp/d.onnx"
ok "a model is served" bundled push model d "$tmp/d.onnx" --tenant a --wait
ok "it answers" bundled infer d --random 1 --tenant a
ok "it has its documentation" curl -fsSL -o "$tmp/page" \
    "$(bundled status -o json | jq -r .server)/docs"
ok "its first page" grep -q '<h1' "$tmp/page"
ok "it stops" bundled down --purge

if [ -x built/device-tests/test_attn ]; then
    ok "what checks a host is packed" "$root/deploy/bundle.sh" built test --tests
    ok "it goes over the bundle" tar -xf built/bundle-tests/shunt-test-tests.tar.xz -C "$home" \
        --strip-components 1
    exits "a host is checked" 0 "device-test 1 of 1" \
        bare "$home/bin/shunt-selftest" --device cpu --precisions fp32 --tests test_attn
    ok "what packed Python imports of ours is packed" python3 -c 'if True:
        import ast, pathlib, sys
        root, home = map(pathlib.Path, sys.argv[1:])
        folders = "tests/e2e", "bench/lib", "bench/gpu", "bench/peers"
        ours = {p.stem for f in folders for p in (root / f).glob("*.py")}
        packed = [p for f in ("tests", "bench") for p in (home / f).rglob("*.py")]
        there = {p.stem for p in packed}
        for p in packed:
            for n in ast.walk(ast.parse(p.read_text())):
                names = [a.name for a in n.names] if isinstance(n, ast.Import) else \
                    [n.module or ""] if isinstance(n, ast.ImportFrom) else []
                for m in {x.split(".")[0] for x in names} & ours - there:
                    sys.exit("%s needs %s" % (p, m))
        assert len(packed) > 20' "$root" "$home"
    ok "a bench finds the program of its loads" \
        bare SHUNT_BIN="$home/bin" PYTHONPATH="$home/bench/lib" python3 -c 'if True:
        import arrivals, sys
        assert arrivals.PROGRAM == sys.argv[1]
        assert arrivals.send(1, 0.01, 1, [("listed", [], b"-")]) == []' \
        "$home/bench/arrivals"
    ok "and that of the servers beside which HTTP is measured" \
        bare SHUNT_BIN="$home/bin" PYTHONPATH="$home/bench/lib" python3 -c 'if True:
        import http_client, sys
        assert http_client.PROGRAM == sys.argv[1]
        for kind in ("socket",), ("library", 2):
            with http_client.Peer(*kind) as peer:
                http_client.Connection(peer.port, http_client.v2_request(
                    "k", "m", "x", [1], bytes(4))).exchange()' \
        "$home/bench/http"
    rm "$home/lib/shunt-dev-cpu.so"
    exits "a host that cannot compute is named" 1 "FAILED device-test 0 of 1" \
        bare "$home/bin/shunt-selftest" --device cpu --precisions fp32 --tests test_attn
else
    echo "skip: the device tests are not built (make device-tests)"
fi

if [ "$(id -u)" -eq 0 ]; then
    chmod 700 "$home"
    exits "a place that PostgreSQL's user cannot reach is named" 1 "cannot reach" \
        bundled up --port 0 --pg-bin "$(echo "$home"/lib/postgresql/*/bin)"
fi
