#!/usr/bin/env bash
# bundle.sh BUILD VERSION [--folder|--tests] - one folder for hosts where nothing can be installed:
# programs, back ends, the shared libraries that they need, a PostgreSQL server, migrations,
# examples. It may be moved anywhere: each file finds its libraries relative to itself, PostgreSQL
# its own files by keeping Debian's layout, and `shunt` the rest (cli/local/plan.h, cli/local/pg.c).
#
#   BUILD/bundle/shunt-VERSION/          bin/ lib/ share/ README.md
#   BUILD/bundle/shunt-VERSION.tar.xz    not with --folder
#
# --tests: what checks and measures such a host, to be unpacked over that folder:
#
#   BUILD/bundle-tests/shunt-VERSION-tests.tar.xz
#                                        bin/shunt-selftest lab/ device-tests/ tests/ bench/
#
# Left to the host: glibc 2.36 or newer, the NVIDIA driver, and CUDA's libraries, which are too
# large and which bin/shunt-cuda-libs finds there.
set -euo pipefail

usage='usage: deploy/bundle.sh BUILD VERSION [--folder | --tests]'
build=${1:?$usage}
version=${2:?$usage}
what=${3:-}
root=$(cd "$(dirname "$0")/.." && pwd)
name=shunt-$version
to=$build/bundle
archive=$to/$name.tar.xz
if [ "$what" = --tests ]; then
    to=$build/bundle-tests
    archive=$to/$name-tests.tar.xz
fi
out=$to/$name
tools=(curl jq)                     # what shunt-demo needs beyond coreutils and awk
pg_programs=(initdb postgres pg_ctl psql pg_dump pg_restore)
host_libs='^(ld-linux|libc|libm|libdl|librt|libpthread|libresolv|libutil|libanl|libmvec)[.-]'
cuda_libs='^lib(cuda|cudart|cublas|cublasLt|cudnn[a-z_]*|nvrtc[a-z.-]*|nvJitLink|nvidia-[a-z]+)\.so'

fail() {
    echo "bundle: $*" >&2
    exit 1
}

copy_programs() {
    local t
    install -d "$out/bin" "$out/lib/tools"
    install -m 755 "$build"/bin/* "$out/bin/"
    for t in cpu cuda; do # not those of the tests
        [ ! -e "$build/lib/shunt-dev-$t.so" ] ||
            install -m 755 "$build/lib/shunt-dev-$t.so" "$out/lib/"
    done
    install -m 755 "$root/deploy/demo.sh" "$out/bin/shunt-demo"
    install -m 755 "$root/deploy/cuda-libs.sh" "$out/bin/shunt-cuda-libs"
    for t in "${tools[@]}"; do
        install -m 755 "$(command -v "$t")" "$out/lib/tools/"
    done
}

# The server, and of its modules and files what initdb and our schema use.
copy_postgres() {
    local from to share v p
    from=$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
    [ -x "$from/initdb" ] || fail "there is no PostgreSQL server here: run make deps"
    v=$(basename "$(dirname "$from")")
    to=$out/lib/postgresql/$v
    share=/usr/share/postgresql/$v
    install -d "$to/bin" "$to/lib" "$out/share/postgresql/$v/extension"
    for p in "${pg_programs[@]}"; do install -m 755 "$from/$p" "$to/bin/"; done
    for p in plpgsql dict_snowball libpqwalreceiver; do
        install -m 644 "${from%/bin}/lib/$p.so" "$to/lib/"
    done
    install -m 644 "${from%/bin}"/lib/*_and_*.so "$to/lib/" # conversions between encodings
    cp -r "$share"/{*.sql,*.bki,*.txt,*.sample,timezonesets,tsearch_data} \
        "$out/share/postgresql/$v/"
    cp "$share"/extension/plpgsql* "$out/share/postgresql/$v/extension/"
}

copy_data() {
    local to=$out/share/shunt
    install -d "$to"
    cp -r "$root/migrations" "$root/dashboards" "$root/examples" "$root/docs" "$to/"
    find "$to" -name __pycache__ -prune -exec rm -rf {} +
    install -m 644 "$root/deploy/bundle.md" "$out/README.md"
    [ -e "$build/docs-site/index.html" ] || "$root/docs/site.sh" "$build/docs-site" >/dev/null
    cp -r "$build/docs-site" "$to/"
    echo "$version" >"$to/VERSION"
}

# Tests find back ends in ../lib; the benches drive programs with what the tests have for that.
copy_tests() {
    local f
    install -d "$out/bin" "$out/lib" "$out/device-tests"
    for f in "$root"/tests/device/test_*.c; do
        install -m 755 "$build/device-tests/$(basename "$f" .c)" "$out/device-tests/"
    done
    for f in arrivals http; do
        install -D -m 755 "$build/bench/$f" "$out/bench/$f"
    done
    ln -s ../tests/selftest.py "$out/bin/shunt-selftest"
    while IFS= read -r f; do
        install -D -m "$(stat -c %a "$root/$f")" "$root/$f" "$out/$f"
    done < <(cd "$root" && printf '%s\n' common/{msg.def,wire.h} tests/{selftest,golden/check}.py \
        tests/e2e/{exec_driver,onnx_bytes,pictures,safetensors_bytes,spec,system,wire}.py \
        bench/{gpu.sh,README.md} bench/{gpu,lib,peers}/*.py)
}

# The laboratory's programs and the oracle need no other libraries than the bundle, which has them.
copy_lab() {
    install -m 755 "$build/lib/shunt-dev-oracle.so" "$out/lib/"
    install -d "$out/lab"
    install -m 755 "$build"/lab/* "$out/lab/"
}

# All ELF files so far, one a line.
elf_files() {
    find "$out" -type f \( -perm -u+x -o -name '*.so*' \) -exec sh -c '
        for f; do
            [ "$(head -c 4 "$f" | tail -c 3)" != ELF ] || printf "%s\n" "$f"
        done' sh {} +
}

# Every library that one of them needs, directly or not, but what the host has to have.
copy_libraries() {
    local needed missing lib path
    needed=$(elf_files | xargs -d '\n' -n 1 ldd 2>/dev/null | awk '$2 == "=>" { print $1, $3 }' |
        sort -u | grep -vE "$host_libs|$cuda_libs")
    missing=$(awk '$2 == "not" { print $1 }' <<<"$needed")
    [ -z "$missing" ] || fail "libraries that are not here: $missing"
    while read -r lib path; do
        install -m 644 "$path" "$out/lib/$lib"
        copy_licence "$path"
    done <<<"$needed"
}

copy_licence() {
    local package real
    real=$(readlink -f "$1")
    # The package lists a file under its old place when /lib is a link to /usr/lib.
    package=$({ dpkg-query -S "$real" || dpkg-query -S "${real#/usr}"; } 2>/dev/null |
        sed -n '1s/[:,].*//p')
    [ -n "$package" ] || fail "$1 belongs to no package"
    install -D -m 644 "/usr/share/doc/$package/copyright" "$out/share/doc/$package/copyright"
}

# Where each file finds its libraries. DT_RPATH goes before LD_LIBRARY_PATH, so what the host's user
# has there does not get mixed with ours; the CUDA back end alone takes what he names.
set_rpath() {
    local file from
    while IFS= read -r file; do
        strip --strip-debug "$file"
        if [ "$(basename "$file")" = shunt-dev-cuda.so ]; then
            # shellcheck disable=SC2016 # $ORIGIN is the dynamic linker's
            patchelf --set-rpath '$ORIGIN:$ORIGIN/cuda:/usr/local/cuda/lib64' "$file"
            continue
        fi
        from=$(realpath --relative-to="$(dirname "$file")" "$out/lib")
        patchelf --force-rpath --set-rpath "\$ORIGIN/$from" "$file"
    done < <(elf_files)
}

# What a file of ours needs directly is found, and inside the bundle.
check() {
    local file needed bad
    while IFS= read -r file; do
        needed=$(patchelf --print-needed "$file" | grep -vE "$host_libs|$cuda_libs") || continue
        bad=$(ldd "$file" | grep -F "$needed" | grep -vE "$host_libs|$cuda_libs" |
            grep -vF " => $out/" | grep -F " => ") || continue
        fail "$file takes libraries from outside the bundle: $bad"
    done < <(elf_files)
}

command -v patchelf >/dev/null || fail "patchelf is missing: run make deps"
rm -rf "$to"
out=$(mkdir -p "$out" && realpath "$out")
if [ "$what" = --tests ]; then
    copy_tests
else
    copy_programs
    copy_postgres
    copy_data
fi
copy_libraries
set_rpath
check
if [ "$what" = --tests ]; then
    copy_lab
    set_rpath
fi
[ "$what" != --folder ] || exit 0
tar -C "$to" --owner=0 --group=0 --sort=name -cf - "$name" | xz -6 -T0 >"$archive"
du -sh "$out" "$archive"
