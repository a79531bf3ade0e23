#!/usr/bin/env bash
# check.sh - the recipes of the READMEs hold: each is followed once, by a patch of at most three
# files (and a migration) to a copy of the tree, and what it adds works in the programs that are
# built there. Without it a recipe could forget a file, or a fact could stand twice again.
#
#   tests/recipes/check.sh [NAME...]     quota, training, state, route, operation; all without names
#
# The copy is build/recipes; it takes what build/ has of objects. Needs PostgreSQL (tests/pg.sh).
# shellcheck disable=SC2034,SC2154 # PG_* come from pg.sh
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2

MAX_FILES=3
all=(quota training state route operation)
names=("${@:-${all[@]}}")
root=$PWD
tree=$root/build/recipes
api_pid=''
base=''
failed=0
n=0

finish() {
    [ -z "$api_pid" ] || { kill "$api_pid" && wait "$api_pid"; } 2>/dev/null
    [ -z "${DATABASE_URL:-}" ] || pg_stop
    [ "$failed" -gt 0 ] || rm -rf "$tree"
    printf '%d checks, %d failed\n' "$n" "$failed"
    [ "$failed" -eq 0 ] || exit 1
}
trap finish EXIT

# ok SENTENCE COMMAND...
ok() {
    local what=$1 out
    shift
    n=$((n + 1))
    out=$("$@" 2>&1) && return 0
    failed=$((failed + 1))
    printf 'FAIL  %s\n      $ %s\n' "$what" "$*"
    tail -n 20 <<<"$out" | sed 's/^/      | /'
    return 1
}
wants() { [[ " ${names[*]} " == *" $1 "* ]]; }

# ---------------------------------------------------------------- the copy
copy() {
    rm -rf "$tree"
    mkdir -p "$tree/build" && : >"$tree/empty.conf"
    git ls-files -z -co --exclude-standard | while IFS= read -r -d '' f; do
        [ ! -e "$f" ] || printf '%s\0' "$f"
    done | xargs -0 cp -a --parents -t "$tree"
    for d in api cli common gen runtime scheduler tests device-tests db-tests; do
        [ ! -d "build/$d" ] || cp -a "build/$d" "$tree/build/"
    done
}

few_files() { # NAME: how many files its patch touches, beside a migration
    local files
    files=$(sed -nE 's|^\+\+\+ b/([^\t]*).*|\1|p' "tests/recipes/$1.patch" | grep -v '^migrations/')
    printf '%s\n' "$files"
    [ "$(wc -l <<<"$files")" -le "$MAX_FILES" ] &&
        [ "$(grep -c '^+++ b/migrations/' "tests/recipes/$1.patch")" -le 1 ]
}

follow() { # NAME: apply its patch; a migration gets the next number
    patch -d "$tree" -p1 -F0 -s <"tests/recipes/$1.patch" || return 1
    local next
    for f in "$tree"/migrations/NEXT_*.sql; do
        [ -e "$f" ] || continue
        next=$(find "$tree/migrations" -name '[0-9]*.sql' | wc -l)
        next=$(printf '%04d' $((next + 1)))
        mv "$f" "${f/NEXT/$next}"
    done
}

build() { (cd "$tree" && CCACHE_NOHASHDIR=1 make -s NVCC= "$@"); }
# What the copy's programs print: build first.
bin() { local p=$1; shift; SHUNT_CONFIG=$tree/empty.conf "$tree/build/bin/$p" "$@"; }
has() { "${@:2}" | grep -E -- "$1" >/dev/null; } # has PATTERN COMMAND...
described() { # PYTHON, of the description `d`
    bin shunt-api --print-openapi | python3 -c "import json, sys; d = json.load(sys.stdin)
s = d['components']['schemas']; assert $1, 'not so: ' + '''$1'''"
}

# ---------------------------------------------------------------- an API that runs
start() {
    # shellcheck source=/dev/null
    . tests/pg.sh
    pg_start || return 1
    bin shunt-scheduler --migrate-only --db-url "$DATABASE_URL" \
        --migrations-dir "$tree/migrations" >"$tree/log" 2>&1 || { cat "$tree/log"; return 1; }
    "$tree/build/bin/shunt-api" --listen 127.0.0.1:0 --metrics-addr '' --db-url "$DATABASE_URL" \
        --state-dir "$tree/state" --admin-key-file "$tree/admin" \
        --scheduler "unix:$tree/none.sock" >>"$tree/log" 2>&1 &
    api_pid=$!
    local port=''
    for _ in $(seq 600); do
        port=$(sed -nE 's/.*ev=api.ready .*port=([0-9]+).*/\1/p' "$tree/log" | tail -n 1)
        [ -z "$port" ] || break
        sleep 0.1
    done
    base=http://127.0.0.1:$port
}
answers() { # STATUS METHOD PATH [JSON]: shows the body
    local code
    code=$(curl -sS -X "$2" -o "$tree/body" -w '%{http_code}' --max-time 60 "$base$3" \
        -H "Authorization: Bearer $(cat "$tree/admin")" \
        ${4:+-H 'Content-Type: application/json' --data-binary "$4"})
    cat "$tree/body"
    [ "$code" = "$1" ] || { printf '\nanswer %s, not %s\n' "$code" "$1"; return 1; }
}
says() { grep -qE -- "$1" "$tree/body"; } # the last answer
client() { # the command line, as the admin
    bin shunt --server "$base" --key-file "$tree/admin" "$@"
}

# ---------------------------------------------------------------- what each adds
check_quota() {
    local of=/api/v1/tenants/vision/quota
    ok "a quota field has its schema" described \
        "s['QuotaPut']['properties']['max_throwaways']['maximum'] == 1000"
    ok "an answer has it" described "'max_throwaways' in s['Quota']['required']"
    ok "the CLI's help has it" has 'max_throwaways.*default 7; 1 to 1000' bin shunt set quota --help
    ok "docs have it" has max_throwaways bin shunt --docs
    ok "the default holds" answers 200 PUT "$of" '{}'
    ok "and is 7" says '"max_throwaways": *7'
    ok "the most is taken" answers 200 PUT "$of" '{"max_throwaways":1000}'
    ok "more is refused" answers 400 PUT "$of" '{"max_throwaways":1001}'
    ok "less is refused" answers 400 PUT "$of" '{"max_throwaways":0}'
    ok "the CLI sets it" client set quota vision max_throwaways=3
    ok "it is kept" answers 200 GET "$of"
    ok "as it was set" says '"max_throwaways": *3'
}

check_training() {
    local spec='{"steps":1,"optimizer":{"name":"sgd","throwaway_cap":%s}}'
    local job='{"kind":"training","model":"m","dataset":"d","spec":'$spec'}'
    local of="/api/v1/jobs?tenant=vision"
    ok "an option has its schema" has '"throwaway_cap"' bin shunt-api --print-openapi
    ok "the CLI has an option" has '--throwaway-cap .*0 to 1e\+06|--throwaway-cap .*0 to 1000000' \
        bin shunt submit --help
    ok "docs have it" has throwaway_cap bin shunt-api --print-training
    # shellcheck disable=SC2059
    ok "within its bounds a job gets as far as its model" \
        answers 404 POST "$of" "$(printf "$job" 0.5)"
    # shellcheck disable=SC2059
    ok "beyond them it is refused" answers 400 POST "$of" "$(printf "$job" -1)"
    ok "by its name" says 'spec.optimizer.throwaway_cap'
    ok "the CLI sends it" has 'throwaway-cap' client_fails submit --tenant vision --model m \
        --dataset d --steps 1 --throwaway-cap 2000000
    run_c training common
}
client_fails() { ! client "$@" 2>&1; }

check_state() {
    ok "a filter takes a state" answers 200 GET '/api/v1/jobs?tenant=vision&state=THROWN,HELD'
    ok "and no other word" answers 400 GET '/api/v1/jobs?tenant=vision&state=TORN'
    ok "the filter's schema has it" has 'HELD\|THROWN' bin shunt-api --print-openapi
    ok "completion offers it" has '^THROWN' bin shunt --complete get jobs --state ''
    ok "the table takes it" in_tree tests/pg.sh run build/db-tests/test_states
    run_c state common scheduler/decide
}
in_tree() { (cd "$tree" && "$@"); }

check_route() {
    ok "a route answers" answers 200 GET /api/v1/throwaway
    ok "what it should" says '"thrown": *true'
    ok "without a key it does not" has 401 curl -sS -o /dev/null -w '%{http_code}' \
        "$base/api/v1/throwaway"
    ok "it is described" described "'/api/v1/throwaway' in d['paths']"
    ok "with its answer" described "'thrown' in s['Throwaway']['required']"
    ok "docs have it" has /api/v1/throwaway bin shunt-api --print-docs
}

check_operation() {
    ok "an operation runs on the cpu device" \
        in_tree env BACKEND=cpu build/device-tests/test_throwaway
}

# run_c NAME FOLDER...: NAME.c with the objects of these folders of the copy
run_c() {
    local name=$1 objects=()
    shift
    for d in "$@"; do objects+=("$tree/build/$d"/*.o); done
    ok "$name.c is built" gcc -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -I"$tree" \
        -o "$tree/build/$name" "tests/recipes/$name.c" "${objects[@]}" \
        -ljansson -lgnutls -lpthread -lm -lpq -lcurl -lmicrohttpd -lz &&
        ok "$name.c" "$tree/build/$name"
}

# ---------------------------------------------------------------- all of it
copy
for r in "${names[@]}"; do
    ok "$r: at most $MAX_FILES files" few_files "$r"
    ok "$r: its patch applies" follow "$r" || exit 1
done
targets=()
! wants operation || targets+=(build/device-tests/test_throwaway build/lib/shunt-dev-cpu.so)
! wants state || targets+=(build/db-tests/test_states)
case " ${names[*]} " in
    *quota* | *training* | *state* | *route*)
        targets+=(build/bin/shunt build/bin/shunt-api build/bin/shunt-scheduler)
        ok "the programs are built" build "${targets[@]}" || exit 1
        start # not in a shell of its own: it sets base, api_pid and DATABASE_URL
        ok "the API answers" answers 201 POST /api/v1/tenants '{"name":"vision"}' || exit 1
        ;;
    *) ok "it is built" build "${targets[@]}" || exit 1 ;;
esac
for r in "${names[@]}"; do
    "check_$r"
done
