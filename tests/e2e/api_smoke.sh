#!/usr/bin/env bash
# api_smoke.sh - shunt-api alone, with a database and no scheduler: keys, tenants, models, datasets,
# jobs, and what it refuses. Without it the control plane could only be seen broken by a person.
#
#   tests/e2e/api_smoke.sh [FOLDER OF THE PROGRAMS]      default build/bin
# shellcheck disable=SC2034,SC2154 # PG_* and CODE come from elsewhere
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
bin=${1:-build/bin}
. tests/pg.sh

dir=$(mktemp -d "${TMPDIR:-/tmp}/shunt-smoke.XXXXXX")
api_pid=''
failed=0
n=0

finish() {
    if [ -n "$api_pid" ]; then
        kill "$api_pid" 2>/dev/null
        wait "$api_pid" 2>/dev/null
    fi
    [ "$failed" -eq 0 ] || tail -n 30 "$dir/log" >&2
    pg_stop
    rm -rf "$dir"
}
trap finish EXIT

pg_start || exit 1
"$bin/shunt-scheduler" --migrate-only --db-url "$DATABASE_URL" --migrations-dir migrations \
    >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }

start_api() {
    "$bin/shunt-api" --listen 127.0.0.1:0 --metrics-addr 127.0.0.1:0 --db-url "$DATABASE_URL" \
        --state-dir "$dir/state" --admin-key-file "$dir/admin" --max-model-bytes 1M \
        --scheduler "unix:$dir/none.sock" >>"$dir/log" 2>&1 &
    api_pid=$!
    for _ in $(seq 100); do
        port=$(sed -nE 's/.*ev=api.ready .*port=([0-9]+).*/\1/p' "$dir/log" | tail -n 1)
        [ -z "$port" ] || break
        sleep 0.1
    done
    base="http://127.0.0.1:$port"
}

sql() {
    psql -XAtq -v ON_ERROR_STOP=1 "$DATABASE_URL" -c "$1"
}

# req METHOD PATH [JSON or @FILE] [curl options...]: sets code, body, headers
req() {
    local method=$1 path=$2 data=${3:-}
    shift $(($# < 3 ? $# : 3))
    local args=(-s -X "$method" -o "$dir/body" -D "$dir/headers" -w '%{http_code}' --max-time 60)
    [ -z "${key:-}" ] || args+=(-H "Authorization: Bearer $key")
    case $data in
    '') ;;
    @*) args+=(-T "${data#@}") ;;
    *) args+=(-H 'Content-Type: application/json' --data-binary "$data") ;;
    esac
    [ "$method" != HEAD ] || args+=(--head)
    code=$(curl "${args[@]}" "$@" "$base$path")
    body=$(cat "$dir/body" 2>/dev/null)
    headers=$(tr -d '\r' <"$dir/headers" 2>/dev/null)
    printf '%s %s %s %s\n' "$method" "$path" "$code" \
        "$(sed -nE 's/^Content-Type: ([^;]*).*/\1/Ip' <<<"$headers")" >>"$dir/replies"
}
is() { # is NAME CODE [PATTERN in body or headers]
    n=$((n + 1))
    if ! [[ $code =~ ^$2$ ]] || { [ -n "${3:-}" ] && ! grep -qE -- "$3" \
        <<<"$headers"$'\n'"$body"; }; then
        echo "FAILED: $1: got $code, want $2 ${3:+with /$3/}"
        printf '%s\n%s\n' "$headers" "$body" | head -c 1500
        failed=$((failed + 1))
    fi
}

start_api
admin=$(cat "$dir/admin")
n=$((n + 1))
[ "$(stat -c %a "$dir/admin")" = 600 ] || { echo "FAILED: mode of the key file"; failed=1; }

# --- who
key='' req GET /v2; is "server metadata needs no key" 200 binary_tensor_data
key='' req GET /v2/health/live; is "alive" 200
key='' req GET /v2/health/ready; is "not ready without a scheduler" 503
key='' req GET /api/v1/models; is "no key" 401 'WWW-Authenticate: Bearer'
is "no key is a problem document" 401 'application/problem\+json'
key='' req GET /v2/models/x; is "no key on /v2" 401 'Content-Type: application/json'
key=shunt_aaaaaaaaaaaa_bbbb req GET /api/v1/models; is "unknown key" 401 UNAUTHENTICATED
key="${admin%??}xx" req GET /api/v1/tenants; is "wrong secret" 401
key=$admin
req GET /api/v1/tenants; is "admin lists tenants" 200 '"items":\[\]'
req GET /api/v1/models; is "admin must name a tenant" 400 tenant=

# --- tenants and keys
req POST /api/v1/tenants '{"name":"vision"}'
is "create a tenant" 201 'Location: /api/v1/tenants/vision'
req POST /api/v1/tenants '{"name":"vision"}'; is "a tenant's name is unique" 409 CONFLICT
req POST /api/v1/tenants '{"name":"research"}'; is "another tenant" 201
req POST /api/v1/tenants '{"name":"Bad Name"}'; is "a bad name" 400 lower-case
req POST /api/v1/tenants '{"name":"x","colour":"red"}'; is "unknown field" 400 colour
req POST /api/v1/tenants '{"name":'; is "broken JSON" 400 'line 1'
req POST /api/v1/tenants '' -H 'Content-Type: application/json'; is "no body" 400
req POST /api/v1/tenants '' --data-binary '{"name":"y"}' -H 'Content-Type: text/plain'
is "media type" 415
req GET '/api/v1/tenants?limit=1'; is "first page" 200 next_cursor
cursor=$(jq -r .next_cursor <<<"$body")
req GET "/api/v1/tenants?limit=1&cursor=$cursor"; is "second page" 200 research
req GET '/api/v1/tenants?cursor=abc'; is "a bad cursor" 400
req GET '/api/v1/tenants?colour=1'; is "unknown query" 400 colour
req POST /api/v1/tenants/vision/keys '{"name":"k","role":"tenant-admin"}'
is "make a key" 201 '"key":"shunt_'
vision=$(jq -r .key <<<"$body")
req POST /api/v1/tenants/research/keys '{"name":"k","role":"submit"}'; is "make a key" 201
research=$(jq -r .key <<<"$body")
req POST /api/v1/tenants/vision/keys '{"name":"r","role":"read"}'; is "make a read key" 201
reader=$(jq -r .key <<<"$body") reader_id=$(jq -r .id <<<"$body")
req POST /api/v1/tenants/vision/keys '{"name":"r","role":"admin"}'; is "no admin key here" 400
req POST /api/v1/tenants/nobody/keys '{"name":"r","role":"read"}'; is "no such tenant" 404
req PUT /api/v1/tenants/research/quota '{"max_queued_jobs":2}'
is "set a quota" 200 '"max_queued_jobs":2'
etag=$(sed -nE 's/^ETag: //p' <<<"$headers")
req PUT /api/v1/tenants/research/quota '{"max_queued_jobs":3}' -H 'If-Match: "1"'
is "an old ETag" 412 PRECONDITION
req PUT /api/v1/tenants/research/quota '{"max_queued_jobs":2}' -H "If-Match: $etag"
is "the current ETag" 200
key=$vision
req GET /api/v1/tenants/vision; is "own tenant" 200
req GET /api/v1/tenants/research; is "another tenant does not exist" 404
req GET /api/v1/tenants; is "listing tenants is the admin's" 403
req GET '/api/v1/models?tenant=research'; is "another tenant's things" 403
req DELETE "/api/v1/tenants/vision/keys/$reader_id"; is "revoke" 204
key=$reader
for _ in $(seq 50); do # NOTIFY reaches the cache in milliseconds
    req GET /api/v1/models
    [ "$code" = 200 ] || break
done
is "a revoked key" 401

# --- HTTP
key=$vision
req GET /nowhere; is "unknown URL" 404
req DELETE /api/v1/models; is "wrong method" 405 'Allow: .*POST'
req OPTIONS /api/v1/models; is "OPTIONS" 204 'Allow: GET, HEAD, POST'
req HEAD /api/v1/models; is "HEAD" 200
req GET /api/v1/models/a%2Fb; is "an encoded slash" 400
req GET /api/v1/models/a%00b; is "an encoded NUL" 400
req GET /api/v1/models '' -H 'X-Request-ID: my-id.1'; is "request id" 200 'X-Request-ID: my-id.1'
raw() { printf '%b' "$1" | timeout 5 bash -c \
    "exec 3<>/dev/tcp/127.0.0.1/$port; cat >&3; head -n 1 <&3" 2>/dev/null; }
auth="Host: x\r\nAuthorization: Bearer $vision\r\n"
start="POST /api/v1/models HTTP/1.1\r\n$auth"
smuggle() { code=$(raw "$start$1" | cut -d' ' -f2); }
smuggle 'Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'
is "TE and CL" 400
smuggle 'Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}'
is "two CL" 400
smuggle 'Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n'
is "odd TE" 400
head -c 70000 /dev/zero | tr '\0' ' ' >"$dir/big"
req POST /api/v1/models "@$dir/big" -X POST; is "body limit" 413 TOOBIG
key='' req GET /openapi.json; is "openapi" 200 '"openapi":"3.1.0"'

# --- models
req POST /api/v1/models '{"name":"digits"}'; is "create a model" 201
req POST /api/v1/models '{"name":"digits"}'; is "a model's name is unique" 409
req POST /api/v1/models '{"name":"a/b"}'; is "a bad model name" 400
req POST /api/v1/models/digits/versions '{"max_batch":16}'
is "create a version" 201 '"state":"UPLOADING"'
req POST /api/v1/models/digits/versions '{"max_batch":0}'; is "a bad batch" 400 max_batch
req POST /api/v1/models/nothing/versions; is "version of no model" 404
v=/api/v1/models/digits/versions/1
printf 'this is not a model' >"$dir/bad.onnx"
req PUT "$v/artifact" "@$dir/bad.onnx" -H 'Content-Digest: sha-256=:AAAA:'
is "a malformed digest" 400 Content-Digest
req PUT "$v/artifact" "@$dir/bad.onnx" -H \
    "Content-Digest: sha-256=:$(head -c 32 /dev/zero | base64):"
is "a wrong digest" 400 SHA-256
req PUT "$v/artifact" "@$dir/bad.onnx"; is "not ONNX" 4.. ''
case $code in 400 | 422) ;; *) is "not ONNX" 422 ;; esac
req GET "$v"; is "it says why" 200 '"state":"FAILED"'
head -c 1100000 /dev/zero >"$dir/large"
req PUT "$v/artifact" "@$dir/large"; is "too large a model" 413
req PUT /api/v1/models/digits/versions/9/artifact "@$dir/bad.onnx"; is "no such version" 404
"$bin/shunt-zoo" digits-cnn --form training --out "$dir/digits.onnx" >/dev/null 2>&1 ||
    "$bin/shunt-zoo" digits-cnn --out "$dir/digits.onnx" >/dev/null
digest=$(openssl dgst -sha256 -binary "$dir/digits.onnx" | base64)
req PUT "$v/artifact" "@$dir/digits.onnx" -H "Content-Digest: sha-256=:$digest:"
is "upload" 200 REGISTERED
req PUT "$v/artifact" "@$dir/digits.onnx"; is "immutable" 409
[ -f "$dir/state/blobs/packages/$(sha256sum "$dir/digits.onnx" | cut -d' ' -f1)/graph.json" ] ||
    { echo "FAILED: no package"; failed=1; }
req GET "$v"; is "tensors are known" 200 '"datatype":"FP32"'
req PUT /api/v1/models/digits/slo '{"latency_ms":50,"on_miss":"reject"}'
is "set an SLO" 200 '"latency_ms":50'
req PUT /api/v1/models/digits/slo '{"latency_ms":-1}'; is "a bad SLO" 400
req GET /api/v1/models/digits/slo; is "read the SLO" 200 'ETag: "1"'
req DELETE /api/v1/models/digits/slo; is "remove the SLO" 204
req GET /api/v1/models/digits/slo; is "the SLO is gone" 404
req GET /v2/models/digits; is "metadata" 200 '"shape":\[-1,'
req GET /v2/models/digits/config; is "config" 200 '"max_batch_size":16'
req GET /v2/models/digits/ready; is "not loaded" 503 '"ready":false'
req GET /v2/models/digits/stats; is "statistics" 200 '"inference_count":0'
req POST /v2/repository/index; is "index" 200 LOADING
req POST /v2/models/digits/infer '{"inputs":[]}'; is "not ready" 503 'being loaded'
req POST /v2/models/none/infer '{"inputs":[]}'; is "no such model" 404 '"error"'
key=$research req GET /v2/models/digits; is "another tenant's model" 404
key=$research req GET /api/v1/models/digits; is "another tenant's model" 404

# --- datasets and jobs
key=$research
req POST /api/v1/models '{"name":"digits"}'; is "the same name in another tenant" 201
req POST /api/v1/models/digits/versions '{}'; is "version" 201
req PUT "$v/artifact" "@$dir/digits.onnx"; is "the same file again" 200 REGISTERED
for d in train test; do
    req POST /api/v1/datasets "{\"name\":\"digits-$d\"}"; is "create a dataset" 201
    req PUT "/api/v1/datasets/digits-$d/artifact" "@$dir/bad.onnx"; is "not safetensors" 400
    req PUT "/api/v1/datasets/digits-$d/artifact" "@examples/digits/$d.safetensors"
    is "upload" 200 READY
done
spec='{"loss":"cross-entropy","optimizer":{"name":"sgd","lr":0.05,"momentum":0.9},'
spec+='"batch":32,"epochs":2,"seed":1,"labels":"label"}'
job() { # job SPEC [MORE FIELDS]
    printf '{"kind":"training","model":"digits","dataset":"digits-train",'
    printf '"eval_dataset":"digits-test","spec":%s%s}' "$1" "${2:-}"
}
req POST /api/v1/jobs "$(job "$spec")" -H 'Idempotency-Key: "first"'
is "submit" 201 '"state":"QUEUED"'
id=$(jq .id <<<"$body")
first=$body
req POST /api/v1/jobs "$(job "$spec")" -H 'Idempotency-Key: first'
is "the same again gives the first answer" 201 "\"id\":${id}[,}]"
is "and says that it is one" 201 'Idempotency-Replayed: true'
is "with its place" 201 "Location: /api/v1/jobs/$id"
n=$((n + 1))
[ "$body" = "$first" ] || { echo "FAILED: not the first answer: $body"; failed=$((failed + 1)); }
req POST /api/v1/jobs "$(job "${spec/0.05/0.1}")" -H 'Idempotency-Key: first'
is "the token with other contents" 422
for token in 'two words' '"no end' '"in"side"' 'ümlaut' "$(printf 'x%.0s' {1..256})"; do
    req POST /api/v1/jobs "$(job "$spec")" -H "Idempotency-Key: $token"
    is "no token: $token" 400 'Idempotency-Key must'
done
# The first request waits for the count of waiting jobs; meanwhile it is being carried out.
coproc LOCKER { psql -XAtq "$DATABASE_URL"; }
echo "BEGIN; SELECT 'locked' FROM job_waiting WHERE tenant_id = (SELECT id FROM tenant WHERE name =
    'research') FOR UPDATE;" >&"${LOCKER[1]}"
read -r -t 20 _ <&"${LOCKER[0]}"
curl -s -o "$dir/slow" -w '%{http_code}' --max-time 60 -H "Authorization: Bearer $key" \
    -H 'Content-Type: application/json' -H 'Idempotency-Key: slow' \
    --data-binary "$(job "$spec")" "$base/api/v1/jobs" >"$dir/slow.code" &
slow=$!
for _ in $(seq 100); do
    [ "$(sql "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")" = 0 ] || break
    sleep 0.02
done
req POST /api/v1/jobs "$(job "$spec")" -H 'Idempotency-Key: slow'
is "while the first one is carried out" 409 'being carried out'
echo 'COMMIT; \q' >&"${LOCKER[1]}"
wait "$slow"
n=$((n + 1))
[ "$(cat "$dir/slow.code")" = 201 ] ||
    { echo "FAILED: $(cat "$dir/slow")"; failed=$((failed + 1)); }
slow_id=$(jq .id "$dir/slow")
req POST /api/v1/jobs "$(job "$spec")" -H 'Idempotency-Key: slow'
is "and then its answer" 201 "\"id\":${slow_id}[,}]"
req POST "/api/v1/jobs/$slow_id/cancel"; is "out of the way" 200 CANCELLED
req POST /api/v1/jobs "$(job "$spec")"; is "a second job" 201
req POST /api/v1/jobs "$(job "$spec")"; is "the quota" 429 QUOTA
req POST /api/v1/jobs "$(job "$spec")" -H 'Idempotency-Key: first'
is "repeating is no matter of quota" 201
req POST "/api/v1/jobs/$id/hold"; is "hold" 200 HELD
req POST /api/v1/jobs "$(job "$spec")" -H 'Idempotency-Key: first'
is "what became of the job does not change its first answer" 201 '"state":"QUEUED"'
req POST "/api/v1/jobs/$id/release"; is "release" 200 QUEUED
req POST "/api/v1/jobs/$id/resume"; is "resuming what waits is done already" 200 QUEUED
req POST "/api/v1/jobs/$id/checkpoint"; is "no checkpoint of what has not begun" 409 '"allowed"'
req GET "/api/v1/jobs/$id/explain"; is "explain without a scheduler" 200 'did not answer'
req POST /api/v1/jobs "$(job "${spec/sgd/lbfgs}")"; is "unknown optimizer" 400 adamw
req POST /api/v1/jobs "$(job "${spec/\"epochs\":2/\"epochs\":2,\"steps\":3}")"
is "steps and epochs" 400 spec.steps
req POST /api/v1/jobs "$(job "${spec/\"label\"\}/\"nothing\"\}}")"
is "no such labels" 400 nothing
req POST /api/v1/jobs "$(job "${spec/momentum/beta1}")"; is "not sgd's" 400 beta1
req POST /api/v1/jobs "$(job "${spec/seed/sed}")"; is "unknown field" 400 spec.sed
req POST /api/v1/jobs "$(job "$spec" ',"queue":"none"')"; is "no such queue" 4..
req POST /api/v1/jobs '{"kind":"training","model":"digits","dataset":"missing","spec":'"$spec"'}'
is "missing dataset" 404 missing
req GET "/api/v1/jobs/$id"; is "one job" 200 '"model":"digits"'
req GET "/api/v1/jobs/$id/events"; is "its events" 200 Submitted
req GET "/api/v1/jobs/$id/checkpoints"; is "its checkpoints" 200 '"items":\[\]'
req GET "/api/v1/jobs/$id/losses"; is "its losses" 200 '"losses":\[\]'
mkdir -p "$dir/state/jobs/$id"
echo '[0.5,null,0.25]' >"$dir/state/jobs/$id/losses.json"
req GET "/api/v1/jobs/$id/losses?offset=1&limit=1"; is "some of them" 200 '"losses":\[null\]'
is "of how many" 200 '"total":3'
req GET "/api/v1/jobs/$id/log"; is "its log, of which there is none yet" 200
echo 'started somewhere' >"$dir/state/jobs/$id/log.txt"
req GET "/api/v1/jobs/$id/log"; is "its log" 200 'started somewhere'
req GET "/api/v1/jobs/$id/log" '' -H 'Range: bytes=8-'; is "a part of it" 206 '^somewhere'
req GET "/api/v1/jobs/$id/log" '' -H 'Range: bytes=99-'; is "behind its end" 416 INVALID
key=$vision req GET "/api/v1/jobs/$id/log"; is "another tenant's log" 404
req GET "/api/v1/jobs/$id/losses?cursor=x"; is "a range has no cursor" 400 cursor
req GET '/api/v1/jobs?limit=1'; is "list jobs" 200 next_cursor
req GET /api/v1/queues; is "queues" 200 '"default"'
req GET /api/v1/executors; is "executors" 200
key=$vision req GET "/api/v1/jobs/$id"; is "another tenant's job" 404
req DELETE /api/v1/datasets/digits-train; is "a dataset in use" 409
req DELETE /api/v1/models/digits; is "a model in use" 409
req POST "/api/v1/jobs/$id/cancel"; is "cancel" 200 CANCELLED
req POST "/api/v1/jobs/$id/cancel"; is "cancel again" 200 CANCELLED
req POST /api/v1/jobs/999999/cancel; is "no such job" 404
key=$admin
req PATCH /api/v1/tenants/research '{"state":"SUSPENDED"}'; is "suspend" 200 SUSPENDED
key=$research
for _ in $(seq 50); do
    req POST /api/v1/jobs "$(job "$spec")"
    [ "$code" != 429 ] && [ "$code" != 201 ] && break
done
is "a suspended tenant" 403 suspended
req GET /api/v1/jobs; is "may still read" 200

# --- the database goes away
(cd / && pg_as_user "$PG_BIN/pg_ctl" -D "$PG_DIR/data" -m fast -w -s stop) || failed=1
key=$vision
req GET /api/v1/models; is "control plane without database" 503 DBDOWN
key='' req GET /v2/health/live; is "still alive" 200
(cd / && pg_as_user "$PG_BIN/pg_ctl" -D "$PG_DIR/data" -l "$PG_DIR/log" -w -s -o \
    "-c listen_addresses='' \
    -c unix_socket_directories='$PG_DIR'" start) || failed=1
for _ in $(seq 100); do
    req GET /api/v1/models
    [ "$code" = 200 ] && break
    sleep 0.1
done
is "and back" 200

# --- versions without a number, made at the same moment; what goes with a tenant
key=$admin
req POST /api/v1/tenants '{"name":"gone"}'; is "a tenant to delete" 201
req POST '/api/v1/models?tenant=gone' '{"name":"m"}'; is "its model" 201
req POST '/api/v1/datasets?tenant=gone' '{"name":"d"}'; is "its dataset" 201
pids=()
for i in 1 2 3 4; do
    curl -s -o /dev/null -w '%{http_code}\n' --max-time 60 -H "Authorization: Bearer $key" \
        -H 'Content-Type: application/json' --data-binary '{}' \
        "$base/api/v1/models/m/versions?tenant=gone" >"$dir/made.$i" &
    pids+=($!)
done
wait "${pids[@]}"
n=$((n + 1))
[ "$(sort -u "$dir"/made.*)" = 201 ] ||
    { echo "FAILED: versions made at once: $(cat "$dir"/made.*)"; failed=$((failed + 1)); }
req PUT /api/v1/tenants/gone/quota '{"requests_per_second":2,"burst":3}'; is "a rate" 200
req DELETE /api/v1/tenants/gone; is "delete a tenant" 204
n=$((n + 1))
[ "$(sql "SELECT string_agg(d.state, ' ') FROM dataset d JOIN tenant t ON t.id = d.tenant_id WHERE
    t.name = 'gone'")" = DELETED ] ||
    { echo "FAILED: the dataset of a deleted tenant is left"; failed=$((failed + 1)); }

# --- a restart: an admin key is made only if none is live; old left-overs go, young ones stay
restart() {
    kill -TERM "$api_pid"
    wait "$api_pid" || failed=$((failed + 1))
    : >"$dir/log"
    start_api
    key=$(cat "$dir/admin")
}
restart
n=$((n + 1))
[ "$key" = "$admin" ] || { echo "FAILED: the admin key was replaced"; failed=$((failed + 1)); }
echo shunt_aaaaaaaaaaaa_stale >"$dir/admin"
touch "$dir/state/blobs/tmp/young"
touch -d '2 days ago' "$dir/state/blobs/tmp/old"
digits=$dir/state/blobs/packages/$(sha256sum "$dir/digits.onnx" | cut -d' ' -f1)
orphan=$dir/state/blobs/packages/$(printf 'f%.0s' $(seq 64))
mkdir "$orphan"
touch "$orphan/model.onnx"
touch -d '2 days ago' "$orphan" "$digits"
restart
n=$((n + 1))
if [ "$key" != shunt_aaaaaaaaaaaa_stale ] || [ ! -e "$dir/state/blobs/tmp/young" ] ||
    [ -e "$dir/state/blobs/tmp/old" ]; then
    echo "FAILED: a second admin key, or blobs/tmp"
    failed=$((failed + 1))
fi
n=$((n + 1))
for _ in $(seq 100); do
    [ -e "$orphan" ] || break
    sleep 0.1
done
if [ -e "$orphan" ] || [ ! -e "$digits/graph.json" ]; then
    echo "FAILED: a package without a version stays, or one with a version goes"
    failed=$((failed + 1))
fi
key=$admin
req GET /api/v1/tenants; is "the live admin key goes on" 200
sql "UPDATE api_key SET revoked_at = now() WHERE role = 'admin'"
restart
req GET /api/v1/tenants; is "without a live admin key one is made" 200

# --- the end
key='' req GET /openapi.json; is "openapi" 200
cp "$dir/body" "$dir/openapi.json"
n=$((n + 1))
python3 tests/e2e/spec.py "$dir/openapi.json" <"$dir/replies" ||
    { echo "FAILED: replies that the description does not list"; failed=$((failed + 1)); }
kill -TERM "$api_pid"
wait "$api_pid"
rc=$?
api_pid=''
[ "$rc" -eq 0 ] || { echo "FAILED: shunt-api ended with $rc"; failed=$((failed + 1)); }
echo "api_smoke: $n checks, $failed failed"
[ "$failed" -eq 0 ]
