#!/usr/bin/env bash
# cli.sh - `shunt` as a person uses it. Without it: `up` could hang or leave processes behind,
# a dead process would stay dead, a script could not tell refused from not reachable, and a state
# folder that PostgreSQL's user cannot reach would end in a riddle.
set -uo pipefail
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"

pid_of() { awk '{print $1}' "$state/run/$1.pid" 2>/dev/null; }
ready() { shunt status >/dev/null 2>&1; }
server() { shunt up -o name; }

# Nothing of a state folder is left running, nor a socket or a pid file.
is_clean() {
    ! pgrep -f -- "$1" >/dev/null && ! ls "$1"/run/*.pid "$1"/run/*.sock 2>/dev/null
}

# killed NAME: SIGKILL to the process, another one comes, and the system is ready again
comes_back() {
    local old
    old=$(pid_of "$1")
    kill -KILL "$old" || return 1
    until_ok other_pid "$1" "$old" && until_ok ready
}
no_supervisor() { shunt status | grep "no supervisor"; }
other_pid() { [ -n "$(pid_of "$1")" ] && [ "$(pid_of "$1")" != "$2" ]; }

# doctor: what it says of this machine, and what it exits with
doctor() {
    exits "the doctor sees a system that runs" 0 "a system of this state folder runs" \
        shunt doctor --device cpu
    exits "and a port that is taken" 1 "is in use" \
        "$bin/shunt" doctor --device cpu --state-dir "$tmp/none" \
        --port "$(server | sed 's/.*://')"
    exits "a folder where nothing can be written" 1 "cannot write in /proc" \
        "$bin/shunt" doctor --device cpu --state-dir /proc/none
    exits "a database that does not answer" 1 "database, FAILED" shunt doctor --device cpu \
        --db-url "postgresql://nobody@127.0.0.1:1/none" --port 0
    exits "and knows two kinds of devices" 2 "is cpu or cuda" shunt doctor --device tpu
}

# full_disk COMMAND...: files take nothing; what it says goes through a pipe
full_disk() (
    trap '' XFSZ
    (ulimit -f 0 && "$@" 2>&1) | cat
    exit "${PIPESTATUS[0]}"
)

usage() {
    exits "a command that does not exist is a usage error" 2 "there is no command" shunt fly
    exits "a noun that does not exist names those that do" 2 "tenants, keys" shunt get things
    exits "an option of another command is refused" 2 "no option" shunt get jobs --epochs 3
    exits "a missing argument is named" 2 "NAME FILE" shunt push model x
    exits "a number out of range is refused" 2 "from 1 to 86400" shunt push model x y --wait-s 0
    exits "help of a command lists its options" 0 "--max-batch" shunt push --help
    exits "no server is exit status 3 and says what to do" 3 "shunt up" \
        shunt get jobs --server http://127.0.0.1:1
    exits "a device that there is not" 2 "cpu or cuda" shunt up --device gpu
    ok "nothing is begun then" [ ! -e "$state" ]
    exits "nothing runs here" 3 "nothing runs in \"$state\"" shunt status
    exits "which names what to do next" 3 "--server URL" shunt status
    another_system
    exits "down without a system is fine" 0 "Nothing" shunt down
    ok "docs/cli.md is what shunt --docs prints" diff <("$bin/shunt" --docs) "$root/docs/cli.md"
    # shellcheck disable=SC2016 # the inner shell expands it
    ok "the completion is valid bash" bash -c \
        'source <("$0" --completion bash) && complete -p shunt' "$bin/shunt"
}

# another_system: who names a folder where nothing runs does not work on the system of port 8000
another_system() {
    exits "a folder that is not there is no other system" 3 "no system runs here" \
        shunt get tenants --key shunt_aaaaaaaaaaaa_x
    exits "which says what to do" 3 "--server URL" shunt create tenant oops --key x
    exits "nor is one of the environment" 3 "nothing runs in \"$tmp/none\"" \
        env SHUNT_STATE_DIR="$tmp/none" SHUNT_KEY=x "$bin/shunt" create tenant oops
    printf '[p]\nstate-dir = %s\n' "$tmp/none" >"$tmp/named.conf"
    exits "nor one of a profile" 3 "no system runs here" \
        "$bin/shunt" --config "$tmp/named.conf" --profile p get tenants
    mkdir -p "$tmp/down" && echo shunt_aaaaaaaaaaaa_x >"$tmp/down/admin.key"
    exits "its key goes nowhere" 3 "no system runs here" \
        "$bin/shunt" get tenants --state-dir "$tmp/down"
    exits "but to a server that is named" 3 "127.0.0.1:1" \
        "$bin/shunt" get tenants --state-dir "$tmp/down" --server http://127.0.0.1:1
    (cd "$tmp" && "$bin/shunt" get tenants --key shunt_aaaaaaaaaaaa_x) >"$tmp/default" 2>&1
    ok "where no folder is named there is a default" has 0 "no system runs" "$tmp/default"
}

up_and_down() {
    ok "up starts a system" shunt up --port 0 --pool-bytes 256M || exit 1
    exits "a second up says that it runs" 0 "already runs" shunt up
    exits "status shows its processes" 0 "postgres" shunt status
    exits "a demo says of it that it runs" 1 "a system runs in $state" \
        env SHUNT_DEMO_STATE="$state" SHUNT_BIN="$bin" "$root/deploy/demo.sh"
    ok "a proxy is not asked for this host" env http_proxy=http://127.0.0.1:1 "$bin/shunt" \
        get tenants --state-dir "$state"
    exits "status is JSON too" 0 '"ready": true' shunt status -o json
    ok "metrics are where it says" curl -fsS "$(shunt status | awk '$1 == "api" {print $NF}')"
    exits "so is that of a server that runs elsewhere, without its processes" 0 "cpu0" \
        "$bin/shunt" status --state-dir "$tmp/none" --server "$(server)" \
        --key-file "$state/admin.key"
    ok "as JSON" [ "$("$bin/shunt" status --state-dir "$tmp/none" --server "$(server)" -o json |
        jq -c '[.ready, .processes]')" = "[true,null]" ]
    exits "one that does not answer" 3 "names the folder of another" \
        "$bin/shunt" status --state-dir "$tmp/none" --server http://127.0.0.1:1
    exits "a port in use is refused" 1 "in use" "$bin/shunt" up --state-dir "$tmp/second" \
        --port "$(server | sed 's/.*://')"
    doctor
    exits "a certificate that it would not serve is refused" 1 "SHUNT_TLS_CERT" \
        env SHUNT_TLS_CERT=x "$bin/shunt" up --state-dir "$tmp/second"
    ok "what was refused left nothing running" is_clean "$tmp/second"
    ok "down --purge of it" "$bin/shunt" down --purge --state-dir "$tmp/second"
    ok "and the folder is gone" [ ! -e "$tmp/second" ]
    mkdir "$tmp/foreign" && touch "$tmp/foreign/log"
    exits "a folder of somebody else is never purged" 1 "not made by" \
        "$bin/shunt" down --purge --state-dir "$tmp/foreign"
    exits "nor used" 1 "name another" "$bin/shunt" up --state-dir "$tmp/foreign"
    exits "nor cleared" 1 "not made by" "$bin/shunt" down --state-dir "$tmp/foreign"
    ok "what was in it is all there is" [ "$(ls -A "$tmp/foreign")" = log ]
}

# secrets: no file is lost for a key, and no key for a file
secrets() {
    local id of=(--tenant keys)
    shunt create tenant keys --quiet
    ok "create a key" shunt create key one "${of[@]}" --save "$tmp/one"
    cp "$tmp/one" "$tmp/before"
    exits "a file that is there is not written over" 1 "name another file with --save" \
        shunt create key two "${of[@]}" --save "$tmp/one"
    ok "what is in it stays" cmp "$tmp/one" "$tmp/before"
    exits "a folder that is not there is said before there is a key" 1 "could not make the file" \
        shunt create key two "${of[@]}" --save "$tmp/none/key"
    exits "a refusal of the server" 1 "role" shunt create key two "${of[@]}" --role king \
        --save "$tmp/two"
    ok "leaves no file" [ ! -e "$tmp/two" ]
    ok "none has made a key" [ "$(shunt get keys "${of[@]}" -o name | wc -l)" = 1 ]
    ok "another one" shunt create key two "${of[@]}" --save "$tmp/two"
    id=$(sed 's/^shunt_\([^_]*\)_.*/\1/' "$tmp/two")
    exits "a new secret does not replace that of another key" 1 "remove that one first" \
        shunt rotate key "$id" "${of[@]}" --save "$tmp/one"
    exits "one that could not be written is said to be lost" 1 "shunt delete key $id" \
        full_disk shunt rotate key "$id" "${of[@]}" --save "$tmp/two" --overlap-s 60
    exits "and the file has the old one" 0 "$id" shunt whoami --key-file "$tmp/two"
    exits "of a new key too" 1 "--tenant keys" \
        full_disk shunt create key three "${of[@]}" --save "$tmp/three"
    ok "nothing is left of them" [ "$(echo "$tmp"/t[wh]*)" = "$tmp/two" ]
}

nouns() {
    local id
    ok "create a tenant" shunt create tenant alpha
    exits "a second one of the name is refused" 1 "exists already" shunt create tenant alpha
    ok "create a key" shunt create key k --tenant alpha --role tenant-admin --save "$tmp/key"
    ok "the key's file is private" [ "$(stat -c %a "$tmp/key")" = 600 ]
    exits "a wrong key is refused, with advice" 1 "--key-file" \
        shunt get models --key shunt_aaaaaaaaaaaa_x
    exits "an admin is told to name the tenant" 1 "--tenant NAME" shunt get models
    exits "a tenant sees its own things" 0 "NAME" shunt get models --key-file "$tmp/key"
    SHUNT_KEY=shunt_aaaaaaaaaaaa_x exits "a file that is named wins over a key of the environment" \
        0 "NAME" shunt get models --key-file "$tmp/key"
    SHUNT_KEY=shunt_aaaaaaaaaaaa_x exits "a refusal says that the key is the environment's" 1 \
        "The key came from SHUNT_KEY of" shunt get models
    # shellcheck disable=SC2016 # the inner shell expands it
    SHUNT_KEY=shunt_bbbbbbbbbbbb_x ok "only if it is" bash -c '! "$@" 2>&1 | grep "came from"' - \
        "$bin/shunt" get models --key shunt_aaaaaaaaaaaa_x --state-dir "$state"
    SHUNT_KEY_FILE=$tmp/key exits "and a key over a file of the environment" 1 "unknown" \
        shunt get models --key shunt_aaaaaaaaaaaa_x
    id=$(shunt get keys --tenant alpha -o name)
    ok "rotate it" shunt rotate key "$id" --tenant alpha --save "$tmp/key" --overlap-s 60
    exits "the new secret opens" 0 "NAME" shunt get models --key-file "$tmp/key"
    exits "one key, with its rotation" 0 "rotated_at" shunt get keys "$id" --tenant alpha
    exits "create a queue" 0 "OPEN" shunt create queue night --tenant alpha --priority 3
    exits "hold it" 0 "HELD" shunt set queue night --state HELD --key-file "$tmp/key"
    exits "nothing to change is a usage error" 2 "--state" shunt set queue night --tenant alpha
    exits "a shared queue is the admin's" 1 "admin key" \
        shunt set queue default --state HELD --key-file "$tmp/key"
    exits "queues show their state" 0 "night" shunt get queues --tenant alpha
    ok "delete it" shunt delete queue night --tenant alpha
    exits "the audit knows who held it" 0 "queue.patch" shunt get audit --action queue \
        --actor "$id" --tenant alpha
    exits "usage of nothing" 0 "GPU SECONDS" shunt get usage alpha --by hour
    exits "usage by something else is refused" 1 "minute" shunt get usage alpha --by colour
    exits "a share" 0 "fair_gpus" shunt get share alpha
    exits "all shares" 0 "alpha" shunt get share
    exits "a quota can be changed" 0 "7" shunt set quota alpha max_running_jobs=7
    ok "and keeps the other fields" \
        [ "$(shunt get quota alpha -o json | jq .max_queued_jobs)" = 1000 ]
    exits "a field that there is not is a usage error" 2 "no field" shunt set quota alpha x=1
    exits "sizes are read as they are printed" 0 "1.5 GiB" \
        shunt set quota alpha gpu_memory_max_bytes=1.5Gi max_storage_bytes="200 GiB"
    ok "to the byte" [ "$(shunt get quota alpha -o json | jq .gpu_memory_max_bytes)" = 1610612736 ]
    exits "what is no size is a usage error" 2 "512M" \
        shunt set quota alpha gpu_memory_max_bytes=12X
    exits "a limit that is too small names its range in digits" 1 "from 1 to 9000000000000000" \
        shunt set quota alpha gpu_memory_max_bytes=0
    ok "null takes a limit away" shunt set quota alpha gpu_memory_max_bytes=null
    echo "this is no model" >"$tmp/text.onnx"
    exits "text is no model" 1 "text.onnx\" is no ONNX file but text" \
        shunt push model bad "$tmp/text.onnx" --key-file "$tmp/key"
    exits "which says what makes one" 1 "torch.onnx.export" \
        shunt push model bad "$tmp/text.onnx" --key-file "$tmp/key"
    exits "and makes none of that name" 4 "no model" shunt get models bad --key-file "$tmp/key"
    exits "nor is a folder one" 1 "is a folder" shunt push model bad "$tmp" --key-file "$tmp/key"
    exits "nor nothing" 1 "is empty" shunt push model bad "$tmp/empty.conf" --key-file "$tmp/key"
    exits "text is no dataset" 1 "is no safetensors file but text" \
        shunt push dataset bad "$tmp/text.onnx" --key-file "$tmp/key"
    printf '\001this is no model' >"$tmp/bad.onnx"
    exits "a file that is no model is refused" 1 "shunt: the file is not valid ONNX" \
        shunt push model bad "$tmp/bad.onnx" --key-file "$tmp/key"
    exits "and leaves no model that was made for it" 4 "no model" \
        shunt get models bad --key-file "$tmp/key"
    ok "one that was there before" shunt create model mine --key-file "$tmp/key"
    exits "gets no version of it" 1 "not valid ONNX" \
        shunt push model mine "$tmp/bad.onnx" --key-file "$tmp/key"
    ok "and stays" [ "$(shunt get versions mine -o name --key-file "$tmp/key")" = "" ]
    ok "with little room" shunt set quota alpha max_storage_bytes=1000
    head -c 4000 /dev/zero >>"$tmp/bad.onnx"
    exits "a file that is too large is refused" 1 "no room" \
        shunt push model full "$tmp/bad.onnx" --key-file "$tmp/key"
    exits "and leaves no model" 4 "no model" shunt get models full --key-file "$tmp/key"
    ok "with room again" shunt set quota alpha max_storage_bytes="200 GiB"
    exits "nor is a dataset left of what is none" 1 "no safetensors file" \
        shunt push dataset bad "$tmp/bad.onnx" --key-file "$tmp/key"
    exits "that was made for it" 4 "no dataset" shunt get datasets bad --key-file "$tmp/key"
    ok "one that was there before" shunt create dataset mine --key-file "$tmp/key"
    exits "waits for another file" 1 "no safetensors file" \
        shunt push dataset mine "$tmp/bad.onnx" --key-file "$tmp/key"
    exits "as it was" 0 "UPLOADING" shunt get datasets mine --key-file "$tmp/key"
    PYTHONPATH=$root/tests/e2e python3 -c '
import onnx_bytes as o, sys
nodes = [o.node("Wobble", ["x"], ["a"], name="first"), o.node("Hum", ["a"], ["y"], name="second")]
sys.stdout.buffer.write(o.model(nodes, [o.value("x", ["N", 4])], [o.value("y", ["N", 4])]))
' >"$tmp/odd.onnx"
    exits "each operator that is not supported is listed" 1 "Hum                   second:" \
        shunt push model odd "$tmp/odd.onnx" --key-file "$tmp/key"
    exits "a missing file is named" 1 "could not open" \
        shunt push model bad "$tmp/none.onnx" --key-file "$tmp/key"
    "$bin/shunt-zoo" digits-cnn --form training --out "$tmp/m.onnx"
    ok "push a model" shunt push model digits "$tmp/m.onnx" --wait --key-file "$tmp/key"
    ok "push a dataset" shunt push dataset d "$root/examples/digits/test.safetensors" \
        --key-file "$tmp/key"
    exits "infer prints classes and latency" 0 "ms" \
        shunt infer digits --inputs "$root/examples/digits/test.safetensors" --batch 4 \
        --outputs "$tmp/out.st" --key-file "$tmp/key"
    ok "its outputs are in the file" [ -s "$tmp/out.st" ]
    exits "a file that cannot be made is named, with the reason" 1 "No such file or directory" \
        shunt infer digits --random 1 --outputs "$tmp/none/out.st" --key-file "$tmp/key"
    exits "more rows than the model takes are refused" 1 "shunt:" \
        shunt infer digits --random 1 --batch 9 --key-file "$tmp/key"
    exits "0 is a seed like any other" 0 "1 row in" shunt infer digits --random 0 \
        --key-file "$tmp/key"
    python3 - "$tmp" <<'EOF'
import json, struct, sys, zlib
x = [i / 255 for i in range(64)]
for name, order in (("x", "False"), ("order", "True")):
    head = "{'descr': '<f4', 'fortran_order': %s, 'shape': (1, 1, 8, 8), }\n" % order
    open("%s/%s.npy" % (sys.argv[1], name), "wb").write(
        b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() + struct.pack("<64f", *x))
json.dump({"x": [[[x[i:i + 8] for i in range(0, 64, 8)]]]}, open(sys.argv[1] + "/x.json", "w"))
part = lambda name, data: (struct.pack(">I", len(data)) + name + data
                           + struct.pack(">I", zlib.crc32(name + data)))
rows = b"".join(b"\0" + bytes(range(8 * i, 8 * i + 8)) for i in range(8))
open(sys.argv[1] + "/x.png", "wb").write(b"\x89PNG\r\n\x1a\n" + part(
    b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0)) + part(b"IDAT", zlib.compress(rows))
    + part(b"IEND", b""))
EOF
    for file in "--inputs $tmp/x.npy" "--inputs $tmp/x.json" "--image $tmp/x.png" \
        "--inputs x=$tmp/x.npy"; do
        # shellcheck disable=SC2086 # an option and its value
        exits "the same picture as array, as JSON and as PNG" 0 "    5.  class" \
            shunt infer digits $file --top 5 --key-file "$tmp/key"
        grep class "$tmp/out" >>"$tmp/tops"
    done
    ok "has the same classes" [ "$(sort -u "$tmp/tops" | wc -l)" = 5 ]
    exits "an array in the order of Fortran is refused" 1 "ascontiguousarray" \
        shunt infer digits --inputs "$tmp/order.npy" --key-file "$tmp/key"
    exits "what is done to a picture is declared" 1 "takes 8 x 8: give --resize 9 --crop 8" \
        shunt infer digits --image "$tmp/x.png" --crop 7 --key-file "$tmp/key"
    exits "--crop is of a picture" 2 "belong to --image" \
        shunt infer digits --random 1 --crop 7 --key-file "$tmp/key"
    exits "a seed or a file is needed" 2 "give either" shunt infer digits --key-file "$tmp/key"
    exits "and one of the two" 2 "give either" shunt infer digits --random 0 --inputs x \
        --key-file "$tmp/key"
    exits "a seed that is none is a usage error" 2 "from -1 to 1000000000" \
        shunt infer digits --random x --key-file "$tmp/key"
    model_life
    exits "submit --wait shows the end" 0 "SUCCEEDED" shunt submit --model digits --dataset d \
        --eval-dataset d --epochs 2 --lr 0.05 --wait --key-file "$tmp/key"
    cp "$tmp/out" "$tmp/said"
    shunt get versions digits:3 -o json --key-file "$tmp/key" >"$tmp/trained"
    ok "what was trained serves then" [ "$(jq -r .state "$tmp/trained")" = READY ]
    ok "it says from what training starts" has 1 \
        'It trains digits from version 1, the newest that was uploaded[.]' "$tmp/said"
    exits "a value that is wrong is named by its option" 1 "shunt: --epochs must be" \
        shunt submit --model digits --dataset d --epochs 0 --lr -1 --key-file "$tmp/key"
    exits "with all others" 1 "  also: --lr must be" \
        shunt submit --model digits --dataset d --epochs 0 --lr -1 --key-file "$tmp/key"
    exits "an admin is told by what option a tenant is named" 1 "add --tenant NAME" shunt get jobs
    exits "its events can be read" 0 "SUCCEEDED" shunt events 1 --key-file "$tmp/key"
    exits "its losses too" 0 "22" shunt losses 1 --key-file "$tmp/key"
    exits "and its log" 0 "step 22 of 22, loss" shunt logs 1 --key-file "$tmp/key"
    exits "which ends with it" 0 "ended: it has succeeded" \
        shunt logs 1 --follow --tail 1 --key-file "$tmp/key"
    exits "the log of no job" 4 "99999" shunt logs 99999 --key-file "$tmp/key"
    exits "a dry run removes no result" 0 "nothing is changed" \
        shunt delete result 1 --dry-run --key-file "$tmp/key"
    exits "it is there" 0 "Job 1:" shunt result 1 --out "$tmp/r.onnx" --key-file "$tmp/key"
    exits "until it is removed" 0 "is removed" shunt delete result 1 --key-file "$tmp/key"
    shunt submit --model digits --dataset d --epochs 9 --lr 1000000 --no-publish --wait \
        --key-file "$tmp/key" >"$tmp/nan" 2>&1
    exits "why a job has failed is in its explanation" 0 "The error: the loss of step" \
        shunt explain 2 --key-file "$tmp/key"
    exits "training starts from a version that is named" 0 '"version": 3' shunt submit \
        --model digits:3 --dataset d --epochs 1 --dry-run -o json --key-file "$tmp/key"
    exits "or from the newest" 0 '"version": 3' shunt submit --model digits --continue --dataset d \
        --epochs 1 --dry-run -o json --key-file "$tmp/key"
    exits "but not both" 2 "either --model digits:1 or --continue" \
        shunt submit --model digits:1 --continue --dataset d --epochs 1 --key-file "$tmp/key"
    exits "batch inference does not go on" 2 "--continue does not belong to" shunt submit \
        --kind batch-inference --model digits --continue --dataset d --key-file "$tmp/key"
    exits "a job that starts only within a guarantee of nothing is said to wait" 0 \
        "within the tenant's guarantee, which is 0 GPUs" shunt submit --model digits --dataset d \
        --epochs 1 --no-preempt --dry-run --key-file "$tmp/key"
    exits "a job that has ended cannot be cancelled" 1 "SUCCEEDED" \
        shunt cancel 1 --key-file "$tmp/key"
    many_jobs
    exits "top shows it all" 0 "digits" shunt top --once
    shunt status >"$tmp/status"
    ok "members of an array that ended alike are one line of status" \
        has 1 "alpha  *array 2: 2 jobs  *CANCELLED" "$tmp/status"
    ok "so that it has room for those that ended otherwise" has 1 " FAILED " "$tmp/status"
    ok "of those that wait it shows the first few" has 20 " HELD " "$tmp/status"
    ok "and how many there are" grep "[0-9] more wait: shunt get jobs --live" "$tmp/status"
    ok "all that have ended are there" has 0 "more have ended" "$tmp/status"
    ok "another one ends" shunt cancel --key-file "$tmp/key" \
        "$(shunt get jobs --state HELD -o name --key-file "$tmp/key" | head -n 1)"
    exits "of eleven the last ten are shown" 0 "1 more have ended: shunt get jobs" shunt top --once
    # shellcheck disable=SC2046 # one word a job
    ok "a hundred more end" shunt cancel --quiet --key-file "$tmp/key" \
        $(shunt get jobs --state HELD -o name --key-file "$tmp/key" | head -n 100)
    shunt status >"$tmp/status"
    ok "no number is said that is not known" has 1 "^Others have ended before: shunt get jobs" \
        "$tmp/status"
    ok "nor beside it another one" has 0 "more have ended" "$tmp/status"
    shunt status -o json >"$tmp/status.json"
    ok "and its JSON" [ "$(jq '[.jobs[] | select(.finished_at)] | length' \
        "$tmp/status.json")" = 10 ]
    ok "with all that live" [ "$(jq '[.jobs[] | select(.finished_at | not)] | length' \
        "$tmp/status.json")" = "$(shunt get jobs --live -o name --key-file "$tmp/key" | wc -l)" ]
    exits "a tenant's key sees whose they are too" 0 "alpha   1 " shunt get jobs -A \
        --key-file "$tmp/key"
    ok "in status as well" grep -q '^alpha .* HELD' <(shunt status --key-file "$tmp/key")
    ok "a key that may only infer" shunt create key i --tenant alpha --role infer \
        --save "$tmp/infer"
    exits "is told that it may not see models" 0 "no models are shown: this needs a key of role" \
        shunt status --key-file "$tmp/infer"
    exits "nor jobs" 0 "no jobs are shown: this needs a key of role" \
        shunt top --once --key-file "$tmp/infer"
    ok "which JSON tells from none" [ "$(shunt status -o json --key-file "$tmp/infer" |
        jq -c '[.models, .jobs]')" = "[null,null]" ]
    operators
}

# Somebody hears of events as they come.
listens() {
    curl -fsS "http://127.0.0.1:$(jq .metrics_ports.api "$state/run/system.json")/metrics" |
        grep -x 'shunt_http_streams 1'
}

# operators: what an admin looks at, and changes, while the system runs
operators() {
    local watch
    exits "events of all jobs can be read" 0 "-> SUCCEEDED" shunt events --state SUCCEEDED --last 5
    exits "those of a state alone" 0 "RUNNING" shunt events --state RUNNING --tenant alpha
    "$bin/shunt" events --watch --state-dir "$state" >"$tmp/all" &
    watch=$!
    until_ok listens
    exits "a held job, which has to be released first" 0 "Next: shunt release" \
        shunt submit --model digits --dataset d --steps 1 --hold --key-file "$tmp/key"
    until_ok grep -q "Submitted" "$tmp/all"
    ok "events of all jobs come as they happen" grep -q "HELD .*Submitted" "$tmp/all"
    kill "$watch" && wait "$watch" 2>/dev/null
    ok "only new ones" [ "$(wc -l <"$tmp/all")" = 1 ]
    shunt wait job "$(shunt get jobs --state HELD -o name --key-file "$tmp/key" | head -n 1)" \
        --wait-s 3 --key-file "$tmp/key" 2>"$tmp/why"
    ok "who waits for it is told why it waits, once" \
        has 1 "is HELD, Held. It is held: release it" "$tmp/why"
    exits "GPUs with their memory" 0 " / 256 MiB" shunt gpus
    exits "one with its models" 0 "digits" shunt get gpus cpu0 --key-file "$tmp/key"
    exits "options of the API" 0 "max-inflight" shunt get options
    exits "a live one changes" 0 "\"value\": \"debug\"" \
        shunt set options -o json log-level=debug max-streams=99
    exits "and is as it was again" 0 "\"value\": \"info\"" shunt set options -o json log-level=null
    exits "one that is fixed is refused" 1 "restart" shunt set options threads=3
}

# many_jobs: arrays, and jobs from files
many_jobs() {
    local job='"kind":"training","model":"digits","dataset":"d","hold":true'
    local spec='"spec":{"optimizer":{"name":"sgd","lr":0.05},"epochs":1}' array
    exits "an array is submitted and waited for" 0 "All 3 jobs of array" \
        shunt submit --model digits --dataset d --epochs 1 --name 'part-{index}' --no-publish \
        --array 4-8:2%1 --wait \
        --key-file "$tmp/key"
    cp "$tmp/out" "$tmp/said"
    ok "it says from what its jobs start" has 1 \
        'They train digits from version 1, the newest that was uploaded[.]' "$tmp/said"
    array=$(shunt get arrays -o name --key-file "$tmp/key")
    # shellcheck disable=SC2016 # the inner shell expands it
    ok "it shows how its jobs stand: how many, at once, waiting, running, done, failed" bash -c \
        'set -- $(grep part); [ "$4 $5 $6 $7 $8 $9 ${10}" = "4-8:2 3 1 0 0 3 0" ]' \
        < <(shunt get arrays -o wide --key-file "$tmp/key")
    exits "its jobs have their index" 0 "part-6" \
        shunt get jobs --array "$array" --key-file "$tmp/key"
    exits "its limit can be changed" 0 '"max_parallel": 2' shunt set array "$array" \
        --max-parallel 2 -o json --key-file "$tmp/key"
    exits "an array that has ended cannot be cancelled" 0 "cancel: 0 of the 3 jobs" \
        shunt cancel --array "$array" --key-file "$tmp/key"
    exits "a held array, which has to be released first" 0 "Next: shunt release --array" \
        shunt submit --model digits --dataset d --epochs 1 --array 0-1 --hold \
        --name 'gone-{index}' --key-file "$tmp/key"
    exits "who waits for it is told why its first job waits" 5 "is HELD, Held. It is held" \
        shunt wait array "$(shunt get arrays -o name --key-file "$tmp/key" | head -n 1)" \
        --wait-s 7 --key-file "$tmp/key"
    exits "all of it is cancelled" 0 "cancel: 2 of the 2 jobs" \
        shunt cancel --array "$(shunt get arrays -o name --key-file "$tmp/key" | head -n 1)" \
        --key-file "$tmp/key"
    # shellcheck disable=SC2016 # the inner shell expands it
    ok "what was cancelled has not failed" bash -c \
        'set -- $(grep gone); [ "$4 $5 $6 $7 $8 $9 ${10} ${11}" = "0-1 2 - 0 0 0 0 2" ]' \
        < <(shunt get arrays -o wide --key-file "$tmp/key")
    exits "cancel wants a job or an array" 2 "or --array" shunt cancel --key-file "$tmp/key"
    exits "indices are checked" 1 "0-98:2" shunt submit --model digits --dataset d --epochs 1 \
        --array 9-1 --key-file "$tmp/key"
    exits "a limit of an array is a number" 2 "0-99%4" shunt submit --model digits --dataset d \
        --epochs 1 --array 0-9%x --key-file "$tmp/key"
    for _ in {1..1001}; do echo "{$job,$spec}"; done >"$tmp/many.jsonl"
    exits "a quota without room for all of a batch is said" 1 \
        "jobs 1001 to 1001 of the file were not submitted: 1000 jobs are queued" \
        shunt --key-file "$tmp/key" submit -f "$tmp/many.jsonl"
    ok "those of the batch before are there" [ "$(shunt get jobs --state HELD -o name \
        --key-file "$tmp/key" | wc -l)" = 1000 ]
    for id in $(shunt get jobs --state HELD -o name --key-file "$tmp/key" | head -n 5); do
        shunt cancel "$id" --quiet --key-file "$tmp/key"
    done
    echo "[{$job,$spec},{$job},{$job,\"client_token\":\"t\",$spec}]" >"$tmp/many.json"
    exits "each job of a file has its result" 1 'job 2 of the file: "spec" is missing' \
        shunt submit --file "$tmp/many.json" --key-file "$tmp/key"
    echo "[{$job,\"priority\":5000}]" >"$tmp/wrong.json"
    exits "with all that is wrong in it" 1 '  also: "spec" is missing' \
        shunt submit --file "$tmp/wrong.json" --dry-run --key-file "$tmp/key"
    echo "{\"jobs\":[{$job,\"client_token\":\"t\",$spec}]}" >"$tmp/again.json"
    exits "a token of a file counts" 0 "0 jobs were submitted, 0 refused" \
        shunt submit -f "$tmp/again.json" --key-file "$tmp/key"
    for array in a b; do echo "{$job,\"client_token\":\"$array\",$spec}"; done >"$tmp/two.jsonl"
    array=$(shunt submit -f "$tmp/two.jsonl" -o name --key-file "$tmp/key" | paste -sd-)
    exits "the jobs of a file are named" 0 "0 refused. Of the file: jobs $array" \
        shunt submit -f "$tmp/two.jsonl" --key-file "$tmp/key"
    shunt submit -f <(echo "{$job,$spec}") --key-file "$tmp/key" >"$tmp/one.said"
    ok "one is one" grep -x "1 job was submitted, 0 refused. Of the file: job [0-9]*" \
        "$tmp/one.said"
    ok "it makes room again" shunt cancel "$(sed 's/.* //' "$tmp/one.said")" --key-file "$tmp/key"
    ok "by their numbers" grep -qx '[0-9]*-[0-9]*' <<<"$array"
    printf '{%s\n{' "$job" >"$tmp/bad.jsonl"
    exits "a line that is no JSON is named" 1 "line 1" shunt submit -f "$tmp/bad.jsonl" \
        --key-file "$tmp/key"
}

# has N PATTERN FILE: so many lines of it
has() { [ "$(grep -c -- "$2" "$3")" = "$1" ]; }

# no_place: nothing is said of an executor any more
no_place() {
    [ "$(shunt get placements digits -o name --key-file "$tmp/key")" = "" ]
}

model_life() {
    local key=(--key-file "$tmp/key")
    ok "pin a model" shunt pin digits:1 "${key[@]}"
    until_ok shunt_says held shunt get placements digits "${key[@]}"
    ok "its image is held" shunt_says held shunt get placements digits:1 "${key[@]}"
    exits "names only" 0 "cpu0" shunt get placements digits -o name "${key[@]}"
    exits "as JSON with all there is" 0 '"image_bytes"' \
        shunt get placements digits -o json "${key[@]}"
    exits "what is pinned is not unloaded" 1 "unpin it first" shunt unload digits:1 "${key[@]}"
    ok "a second version" shunt push model digits "$tmp/m.onnx" --wait "${key[@]}"
    exits "of two the pinned one stays, which is said" 0 "but for what is pinned: version 1 " \
        shunt unload digits --wait "${key[@]}"
    exits "of the other one it is not" 0 "digits:2 is on no executor any more." \
        shunt unload digits:2 --wait "${key[@]}"
    ok "the second one goes again" shunt delete model digits:2 "${key[@]}"
    exits "unpin" 0 "not pinned any more" shunt unpin digits "${key[@]}"
    exits "unload" 0 "(--wait waits)" shunt unload digits:1 "${key[@]}"
    ok "it leaves" until_ok no_place
    ok "it can be loaded and unloaded again" shunt load digits --wait "${key[@]}"
    exits "unload and wait" 0 "on no executor any more" shunt unload digits --wait "${key[@]}"
    exits "which is so at once" 0 "UNLOADED" shunt get versions digits:1 "${key[@]}"
    exits "waiting for what is so already ends" 0 "on no executor any more" \
        shunt unload digits:1 --wait "${key[@]}"
    exits "an unloaded model does not infer" 1 "load it" shunt infer digits --random 1 "${key[@]}"
    exits "which says by what command it would" 1 "shunt load MODEL --wait" \
        shunt infer digits --random 1 "${key[@]}"
    exits "load and wait" 0 "READY" shunt load digits --wait "${key[@]}"
    ok "it infers again" shunt infer digits --random 1 "${key[@]}"
    exits "the profile" 0 "PREDICTED MS" shunt get profile digits "${key[@]}"
    ok "share it" shunt_says shared shunt set visibility digits shared "${key[@]}"
    exits "in one of two ways" 1 "private, shared" shunt set visibility digits public "${key[@]}"
    exits "no report without a target" 4 "latency target" shunt slo report digits "${key[@]}"
    ok "set a target" shunt set slo digits --latency-ms 60000 --percentile 95 "${key[@]}"
    exits "the report" 0 "error_budget_left" shunt slo report digits --window 5m "${key[@]}"
    exits "a window is one of three" 1 "5m, 1h, 1d" shunt slo report digits --window 2h "${key[@]}"
    exits "or no window at all" 2 "5m, 1h or 1d" shunt slo report digits --window '5m&x' "${key[@]}"
    ok "remove the target" shunt delete slo digits "${key[@]}"
}

# shunt_says TEXT COMMAND...: succeeds and prints it
shunt_says() {
    local text=$1
    shift
    "$@" | grep -F -- "$text"
}

deaths() {
    local name
    for name in api scheduler executor-cpu0 postgres; do
        ok "a killed $name is started again" comes_back "$name"
    done
    ok "data are still there" until_ok shunt get tenant alpha
    ok "and it is ready" until_ok ready
    kill -KILL "$(pid_of supervisor)"
    ok "without its supervisor, status says so" until_ok no_supervisor # a kill may take a moment
    ok "down works without it" shunt down
    ok "and leaves nothing" is_clean "$state"
    ok "up again, whosever key is given" env SHUNT_KEY=shunt_aaaaaaaaaaaa_x \
        "$bin/shunt" up --port 0 --pool-bytes 256M --state-dir "$state"
    ok "data are still there after a restart" shunt get tenant alpha
    shunt down --quiet
    exits "options that are others than before are named" 0 \
        "started with --pool-bytes 268435456 before, and now with --pool-bytes 536870912" \
        shunt up --port 0 --pool-bytes 512M
    shunt down --quiet
    shunt up --port 0 --pool-bytes 512M >"$tmp/same" 2>&1
    # shellcheck disable=SC2016 # the inner shell expands it
    ok "of the same ones nothing is said" bash -c '! grep "started with" "$0"' "$tmp/same"
    kill -KILL "$(pid_of supervisor)"
    until_ok no_supervisor # while it is there, `up` says that the system runs
    ok "up clears what a dead supervisor left" shunt up --port 0 --pool-bytes 512M --bind 0.0.0.0
    ok "bound to every address, the API answers at each" \
        answers "http://127.0.0.2:$(server | sed 's/.*://')/v2/health/live"
    metrics_are_local
    ok "down" shunt down
    ok "and leaves nothing" is_clean "$state"
}

answers() { curl -fsS --max-time 10 "$1" -o "$tmp/answer"; }

# metrics_are_local: /metrics names tenants and asks for no key, so it stays here
metrics_are_local() {
    local url
    for url in $(shunt status -o json | jq -r '.processes[].metrics | strings'); do
        ok "$url answers" answers "$url"
        exits "and not at another address" 7 "" curl -sS "${url/127.0.0.1/127.0.0.2}"
    done
    ok "there were some" [ -n "$url" ]
}

# tls: a second API of the same system, whose certificate nobody but us has signed
tls() {
    local url env=() cert=$tmp/cert.pem
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext \
        subjectAltName=DNS:localhost -out "$cert" -keyout "$tmp/cert.key" 2>/dev/null
    mapfile -d '' -t env <"/proc/$(pid_of api)/environ"
    env -i "${env[@]}" "$bin/shunt-api" --name=tls --listen=127.0.0.1:0 --metrics-addr= \
        --state-dir="$state" --scheduler="unix:$state/run/scheduler.sock" --tls-cert="$cert" \
        --tls-key="$tmp/cert.key" 2>"$tmp/tls.log" &
    ok "an API with TLS starts" until_ok grep -q ev=api.ready "$tmp/tls.log"
    url=https://localhost:$(sed -n 's/.*ev=api.ready .*port=\([0-9]*\).*/\1/p' "$tmp/tls.log")
    exits "a stranger's certificate is refused" 3 "is not trusted" shunt get tenants --server "$url"
    exits "with advice" 3 "--ca-file FILE" shunt get tenants --server "$url"
    exits "with its authority it is taken" 0 alpha \
        shunt get tenants --server "$url" --ca-file "$cert"
    exits "which may be in the environment" 0 alpha env SHUNT_CA_FILE="$cert" \
        "$bin/shunt" get tenants --server "$url" --state-dir "$state"
    : >"$tmp/tls.conf"
    ok "or in a profile" shunt config set tls server="$url" ca-file="$cert" --config "$tmp/tls.conf"
    exits "as any option" 0 alpha "$bin/shunt" get tenants --profile tls \
        --config "$tmp/tls.conf" --key-file "$state/admin.key"
    exits "another name of the host is refused" 3 "is not trusted" \
        shunt get tenants --server "${url/localhost/127.0.0.1}" --ca-file "$cert"
    exits "a file that is not there is a usage error" 2 "could not read the certificate" \
        shunt get tenants --server "$url" --ca-file "$tmp/none.pem"
    exits "one without a certificate is named" 3 "holds none" \
        shunt get tenants --server "$url" --ca-file "$tmp/key"
    kill %% && wait %%
}

# started at DIR: comes up there, and --purge leaves nothing, here or in /var/tmp
lives_in() {
    local dir=$1 aux
    "$bin/shunt" up --port 0 --pool-bytes 256M --state-dir "$dir" &&
        "$bin/shunt" status --state-dir "$dir" && "$bin/shunt" down --state-dir "$dir" &&
        "$bin/shunt" up --port 0 --pool-bytes 256M --state-dir "$dir" || return 1
    aux=$(grep -ohm 1 '/var/tmp/shunt-[^/"]*' "$dir/log/scheduler.log")
    echo "sockets in ${aux:-$dir/run}"
    "$bin/shunt" down --purge --state-dir "$dir" && [ ! -e "$dir" ] && [ ! -e "${aux:-$dir}" ]
}

odd_places() {
    local long
    long=$tmp/$(printf 'a%.0s' {1..90})/state
    ok "a path too long for sockets works" lives_in "$long"
    mkdir -m 700 "$tmp/private"
    ok "a folder that PostgreSQL's user cannot reach works" lives_in "$tmp/private/state"
    ok "a name with blanks works" lives_in "$tmp/with blanks %41/state"
}

usage
up_and_down
secrets
nouns
tls
deaths
odd_places
