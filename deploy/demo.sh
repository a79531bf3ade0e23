#!/usr/bin/env bash
# demo.sh - the whole system on this machine, told as a story with nothing but the CLI and HTTP.
#
#   make demo                    from the source tree: state in .shunt/ of the tree
#   bin/shunt-demo [OPTION...]   from a bundle: state in .shunt/ of the folder where it is started
#
#   --device cpu|cuda   of the executor                                   SHUNT_DEMO_DEVICE
#   --model NAME        of shunt-zoo, the one that is served              SHUNT_DEMO_MODEL
#   --precision P       in which it is served: fp32, tf32, fp16 or bf16   SHUNT_DEMO_PRECISION
#   --epochs N          of the training job                               SHUNT_DEMO_EPOCHS
#   --bursts N          of requests                                       SHUNT_DEMO_BURSTS
#   --state-dir DIR     instead of .shunt/                                SHUNT_DEMO_STATE
#
# On a system that runs, with one executor on this host, as root:
#
#   --server URL        of its API                                        SHUNT_DEMO_SERVER
#   --admin-key FILE    an admin key of it                                SHUNT_DEMO_ADMIN_KEY
#   --executor ADDRESS  where its executor serves /metrics                SHUNT_DEMO_EXECUTOR
#
# The summary is demo.json in the state folder. Everything is stopped at the end, state and logs
# stay (shunt down --purge removes them). Only a folder that a demo made (made-by-demo is in it) is
# replaced by the next one. With --server nothing is started or stopped; two tenants stay.
set -euo pipefail

fail() {
    echo "demo: $*" >&2
    exit 1
}

here=$(dirname "$(readlink -f "$0")")
root=${here%/*}
if [ -x "$here/shunt" ]; then # in a bundle
    bin=$here
    data=$root/share/shunt
    state=$PWD/.shunt
    cuda_libs=$here/shunt-cuda-libs
    PATH=$PATH:$root/lib/tools
else
    bin=${SHUNT_BIN:-$root/build/bin}
    data=$root
    state=$root/.shunt
    cuda_libs=$here/cuda-libs.sh
fi
device=${SHUNT_DEMO_DEVICE:-cpu}
model=${SHUNT_DEMO_MODEL:-}
precision=${SHUNT_DEMO_PRECISION:-}
epochs=${SHUNT_DEMO_EPOCHS:-}
bursts=${SHUNT_DEMO_BURSTS:-24}
state=${SHUNT_DEMO_STATE:-$state}
server=${SHUNT_DEMO_SERVER:-}
admin_key=${SHUNT_DEMO_ADMIN_KEY:-}
executor=${SHUNT_DEMO_EXECUTOR:-127.0.0.1:9110}
while [ $# -gt 0 ]; do
    if [ "$1" = --help ]; then
        sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"
        exit 0
    fi
    [ $# -ge 2 ] || fail "there is no option $1, or its value is missing; see --help"
    case $1 in
    --device) device=$2 ;;
    --model) model=$2 ;;
    --precision) precision=$2 ;;
    --epochs) epochs=$2 ;;
    --bursts) bursts=$2 ;;
    --state-dir) state=$2 ;;
    --server) server=$2 ;;
    --admin-key) admin_key=$2 ;;
    --executor) executor=$2 ;;
    *) fail "there is no option $1; see --help" ;;
    esac
    shift 2
done
# What takes about half a minute of training, and a target that the device can meet.
case $device in
cpu) defaults=(resnet50 fp32 200 1G 2000) ;;
cuda) defaults=(resnet152 tf32 5000 8G 100) ;;
*) fail "the device is cpu or cuda, not $device" ;;
esac
model=${model:-${defaults[0]}}
precision=${precision:-${defaults[1]}}
epochs=${epochs:-${defaults[2]}}
pool_bytes=${defaults[3]}
slo_ms=${defaults[4]}
digits=$data/examples/digits
work=$state/demo
per_burst=2
batch=32
limit_s=240 # of each wait
started=$SECONDS
seconds_before=${SHUNT_DEMO_SECONDS:-0}
# A profile or environment of the user must not point the demo at another system.
unset SHUNT_SERVER SHUNT_KEY SHUNT_KEY_FILE SHUNT_TENANT SHUNT_OUTPUT SHUNT_STATE_DIR DATABASE_URL
unset SHUNT_QUIET
SHUNT_CONFIG=$(mktemp) # empty
export SHUNT_CONFIG

if [ -n "$server" ]; then
    [ -r "$admin_key" ] || fail "--server wants a file that can be read with --admin-key"
    export SHUNT_KEY_FILE=$admin_key
    shunt() { "$bin/shunt" "$@" --server "$server"; }
else
    shunt() { "$bin/shunt" "$@" --state-dir "$state"; }
fi
research() { shunt "$@" --key-file "$work/research.key"; }
vision() { shunt "$@" --key-file "$work/vision.key"; }
chapter() { printf '\n%s\n' "== $*"; }
now() { date +%s.%N; }
calc() { awk "BEGIN { printf \"%.${2:-6}f\", $1 }"; } # calc EXPRESSION [DIGITS]

# A system that somebody started with `shunt up` is neither stopped nor removed.
claim_state() {
    if [ -e "$state/made-by-demo" ]; then
        shunt down --purge --quiet
    elif [[ $(shunt status --output name 2>/dev/null) == up\ * ]]; then
        fail "a system runs in $state, which no demo started, and is left alone: name another" \
            "folder with SHUNT_DEMO_STATE; this stops it and removes all that it has:" \
            "$bin/shunt down --purge --state-dir $state"
    elif [ -e "$state" ] && [ -n "$(ls -A "$state")" ]; then
        fail "$state was not made by a demo and is left alone: name another folder with" \
            "SHUNT_DEMO_STATE, or remove it with: $bin/shunt down --purge --state-dir $state"
    fi
}
mark_state() { [ ! -e "$state/created-by-shunt" ] || : >"$state/made-by-demo"; }

stop() {
    local rc=$?
    if [ -n "$server" ]; then
        rm -f "$SHUNT_CONFIG"
        exit "$rc"
    fi
    mark_state
    if [ "$rc" -ne 0 ]; then
        echo "demo: it failed; the logs are in $state/log; their last warnings and errors:" >&2
        grep -hE '^ts=[^ ]+ lvl=(warn|error) ' "$state"/log/*.log 2>/dev/null | sort |
            tail -n 20 | cut -c 1-240 >&2 || true
    fi
    shunt down --quiet || true
    rm -f "$SHUNT_CONFIG"
    exit "$rc"
}

# metric NAME [LABEL]: of the executor, the sum over the series that have this label
metric() {
    curl -fsS --max-time 5 "http://$executor/metrics" |
        awk -v name="$1" -v label="${2:-}" '
            (index($1, name "{") == 1 || $1 == name) && (label == "" || index($0, label)) {
                sum += $NF
            }
            END { printf "%.9g\n", sum }'
}

# quantile HISTOGRAM Q: of the executor, in ms, linear inside a bucket, over all series together
quantile() {
    curl -fsS --max-time 5 "http://$executor/metrics" |
        awk -v name="$1_bucket{" -v q="$2" '
            index($1, name) == 1 && match($1, /le="[^"]*"/) {
                le = substr($1, RSTART + 4, RLENGTH - 5)
                if (!(le in count)) { order[++n] = le }
                count[le] += $NF
            }
            END {
                want = q * count["+Inf"]
                for (i = 1; i <= n; i++) { # the buckets come in rising order
                    le = order[i]
                    if (count[le] >= want && count[le] > below) {
                        if (le == "+Inf") { print edge * 1000; exit }
                        print (edge + (le - edge) * (want - below) / (count[le] - below)) * 1000
                        exit
                    }
                    below = count[le]
                    edge = le
                }
                print 0
            }'
}

step() { metric shunt_train_steps_total 'tenant="research"'; }

# wait_step N: until the job has committed so many steps
wait_step() {
    local end=$((SECONDS + limit_s)) job_state
    while [ "$(step)" -lt "$1" ]; do
        [ "$SECONDS" -lt "$end" ] || fail "the job did not reach step $1 within $limit_s s"
        job_state=$(research get job "$job" -o json | jq -r .state)
        case $job_state in
        FAILED | CANCELLED | EXPIRED | SUCCEEDED)
            fail "the job is $job_state before step $1; the logs tell why" ;;
        esac
        sleep 0.1
    done
}

cpu_ticks() { awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/$1/stat" 2>/dev/null || echo 0; }

# workers_of EXECUTOR: the pids of its children; without one, of all workers of this host
workers_of() {
    local file pid comm parent
    for file in /proc/[0-9]*/stat; do
        { read -r pid comm _ parent _ <"$file"; } 2>/dev/null || continue # it has ended meanwhile
        if [ "$comm" = "(shunt-worker)" ] && [ "$parent" = "${1:-$parent}" ]; then echo "$pid"; fi
    done
}

# The worker that trains: while no request is under way it is the one that uses the processor.
training_worker() {
    local parent='' best='' most=0 used pid
    local -A before=()
    [ -n "$server" ] || read -r parent _ <"$state/run/executor-${device}0.pid"
    for pid in $(workers_of "$parent"); do before[$pid]=$(cpu_ticks "$pid"); done
    sleep 0.4
    for pid in "${!before[@]}"; do
        used=$(($(cpu_ticks "$pid") - ${before[$pid]}))
        [ "$used" -le "$most" ] || { most=$used best=$pid; }
    done
    [ -n "$best" ] || fail "no worker is computing"
    echo "$best"
}

# On a machine that does much else the job may be over before what is to happen beside it.
still_trains() {
    [ "$(research get job "$job" -o json | jq -r .state)" != SUCCEEDED ] ||
        fail "the job ended while the requests still had to wait for the processor; where other" \
            "programs keep this machine busy, try SHUNT_DEMO_EPOCHS=$((epochs * 3))"
}

kill_training_worker() {
    local pid at
    still_trains
    pid=$(training_worker)
    at=$(step)
    echo "   SIGKILL to the worker that trains (pid $pid) at step $at"
    kill -KILL "$pid"
    wait_step $((at + 20))
    echo "   another worker went on from the newest copy of its state: step $(step)"
}

start_system() {
    if [ -n "$server" ]; then
        chapter "The system at $server"
        shunt status
        mkdir -p "$work"
        return
    fi
    chapter "The system: database, scheduler, one executor with three workers, API"
    [ "$device" != cuda ] || "$cuda_libs"
    shunt up --port 0 --device "$device" --workers 3 --pool-bytes "$pool_bytes"
    mark_state
    mkdir -p "$work"
    local json
    json=$(shunt up -o json)
    executor=127.0.0.1:$(jq -r --arg e "executor-${device}0" '.metrics_ports[$e]' <<<"$json")
}

make_tenants() {
    chapter "1. Two tenants, each with a key of its own"
    local t
    for t in research vision; do
        shunt create tenant "$t"
        shunt create key demo --tenant "$t" --role tenant-admin --save "$work/$t.key"
    done
}

push_models() {
    chapter "2. vision serves $model with a latency target; research trains on digits"
    "$bin/shunt-zoo" "$model" --out "$work/served.onnx"
    "$bin/shunt-zoo" digits-cnn --form training --out "$work/digits.onnx"
    vision push model "$model" "$work/served.onnx" --max-batch 8 --precision "$precision" --wait
    vision set slo "$model" --latency-ms "$slo_ms" --percentile 99
    research push dataset digits-train "$digits/train.safetensors"
    research push dataset digits-test "$digits/test.safetensors"
    research push model digits "$work/digits.onnx" --wait
    job=$(research submit --model digits --dataset digits-train --eval-dataset digits-test \
        --labels label --loss cross-entropy --optimizer sgd --lr 0.05 --momentum 0.9 \
        --batch $batch --epochs "$epochs" --seed 1 --checkpoint-interval-ms 1000 --name demo \
        -o name)
    echo "Job $job is submitted: $epochs epochs."
}

# measure_alone FROM TO: how long a step takes while nothing else runs, between two points of the
# job in percent
measure_alone() {
    local s0 s1 t0 t1 each
    wait_step $((steps * $1 / 100))
    s0=$(step) t0=$(now)
    still_trains
    wait_step $((steps * $2 / 100))
    s1=$(step) t1=$(now)
    each=$(calc "($t1 - $t0) / ($s1 - $s0)")
    alone+=("$each")
    echo "   alone, a step takes $(calc "$each * 1000" 1) ms (steps $s0 to $s1)"
}

send_bursts() {
    chapter "3. While it trains, vision sends bursts of requests, batch 1 to 8; each preempts it"
    local k rows from=$((steps * 15 / 100)) to=$((steps * 83 / 100))
    local s0 t0 busy0 s1 t1 busy1 explained
    s0=$(step) t0=$(now)
    busy0=$(metric shunt_device_seconds_total 'use="inference"')
    : >"$work/bursts.json"
    for ((k = 0; k < bursts; k++)); do
        wait_step $((from + (to - from) * k / bursts))
        if [ "$k" -eq $((bursts / 2)) ]; then
            chapter "4. The worker that trains is killed"
            kill_training_worker
            chapter "3. (goes on)"
        fi
        rows=$((k % 8 + 1))
        vision infer "$model" --random $((k + 1)) --batch $rows --repeat $per_burst -o json \
            >"$work/burst.json" || true
        [ -s "$work/burst.json" ] || fail "burst $((k + 1)) was not answered"
        cat "$work/burst.json" >>"$work/bursts.json"
        printf '   burst %2d of %d: batch %d, %4.0f ms   training: step %d of %d\n' $((k + 1)) \
            "$bursts" $rows "$(jq .p50_ms "$work/burst.json")" "$(step)" "$steps"
    done
    s1=$(step) t1=$(now)
    busy1=$(metric shunt_device_seconds_total 'use="inference"')
    echo "   steps $s0 to $s1 took $(calc "$t1 - $t0" 1) s," \
        "$(calc "$busy1 - $busy0" 1) s of it inference"
    measure_alone 85 95
    # Measured time of these steps, over what the steps alone and the inference alone would take.
    # Alone: the mean of before and after, as other work on the machine comes and goes.
    explained="($s1 - $s0) * (${alone[0]} + ${alone[1]}) / 2 + $busy1 - $busy0"
    slowdown=$(calc "($t1 - $t0) / ($explained)")
}

finish_training() {
    chapter "5. The trained model becomes a new version, and serves the held-out digits"
    research wait job "$job" --wait-s $limit_s
    research get job "$job" -o json >"$work/job.json"
    version=$(jq .result_version "$work/job.json")
    research wait model "digits:$version"
    research infer "digits:$version" --inputs "$digits/test.safetensors" \
        --labels "$digits/test.safetensors:label" -o json >"$work/served.json"
    jq -r '"   \(.correct) of \(.rows) held-out digits are right, over HTTP"' "$work/served.json"
}

write_summary() {
    local checkpoints kills
    checkpoints=$(research get checkpoints "$job" -o json | jq length)
    kills=$(metric shunt_worker_exits_total 'cause="killed"')
    jq -n --slurpfile bursts "$work/bursts.json" --slurpfile job "$work/job.json" \
        --slurpfile served "$work/served.json" --argjson checkpoints "$checkpoints" \
        --argjson kills "$kills" --argjson slowdown "$slowdown" \
        --arg device "$device" --arg model "$model" --arg precision "$precision" \
        --argjson p50 "$(quantile shunt_stop_to_drained_seconds 0.5)" \
        --argjson p99 "$(quantile shunt_stop_to_drained_seconds 0.99)" \
        --argjson seconds $((SECONDS - started + seconds_before)) '
        def rank(q): sort | .[[(q * length | floor), length - 1] | min];
        def ms: . * 1000 | round / 1000;
        ([$bursts[].latency_ms] | add) as $l | {
            requests: ([$bursts[].requests] | add),
            request_errors: ([$bursts[].errors] | add),
            latency_ms: {p50: ($l | rank(0.5) | ms), p99: ($l | rank(0.99) | ms)},
            preemptions: $job[0].preemptions,
            stop_ms: {p50: ($p50 | ms), p99: ($p99 | ms)},
            train_steps: $job[0].step,
            train_steps_redone: $job[0].steps_redone,
            worker_kills: $kills,
            checkpoints: $checkpoints,
            accuracy_reported: $job[0].result.accuracy,
            accuracy_served: $served[0].accuracy,
            train_slowdown: ($slowdown | ms),
            device: $device,
            served: {model: $model, precision: $precision},
            seconds: $seconds
        }' >"$state/demo.json"
}

# The figures of the summary as sentences.
tell_summary() {
    chapter "6. What happened"
    jq -r '
        def n(d): . * pow(10; d) | round / pow(10; d);
        (if .device == "cuda" then "the GPU" else "the device" end) as $device |
        "Training had \($device) to itself, but requests took it away \(.preemptions) times:",
        "  it changed hands in \(.stop_ms.p50 | n(2)) ms, 99 % of the times within " +
            "\(.stop_ms.p99 | n(2)) ms.",
        "\(.requests) requests for \(.served.model) were sent, \(.request_errors) failed.",
        "  Half were answered within \(.latency_ms.p50 | n(0)) ms, 99 % within " +
            "\(.latency_ms.p99 | n(0)) ms.",
        "Beyond the time that the requests had it, training lost " +
            (if .train_slowdown > 1.0005 then
                "\((.train_slowdown - 1) * 100 | n(1)) % of its speed."
            else "nothing of its speed." end),
        "A worker was killed, and another one went on from a checkpoint:",
        "  \(.train_steps) steps were done, \(.train_steps_redone) of them twice.",
        "The trained model serves, and has \(.accuracy_served * 100 | n(1)) % of the held-out " +
            "digits right, as its job said.",
        "All of it took \(.seconds) s."' "$state/demo.json"
    echo "The same figures for programs: $state/demo.json"
}

# check SENTENCE FILTER: the filter must be true of the summary
check() {
    jq -e "$2" "$state/demo.json" >/dev/null ||
        fail "the summary is not as promised: $1 ($2): $(jq -c . "$state/demo.json")"
}

check_summary() {
    check "no request fails" '.request_errors == 0 and .requests > 0'
    if [ "$bursts" -ge 20 ]; then check "at least 20 preemptions" '.preemptions >= 20'; fi
    check "one worker was killed" '.worker_kills == 1'
    check "all steps were done" ".train_steps == $steps"
    check "checkpoints were written" '.checkpoints >= 1'
    check "the served model is as accurate as the job says" \
        '(.accuracy_served - .accuracy_reported | fabs) < 1e-9'
    check "at least 97 % of the digits are right" '.accuracy_served >= 0.97'
}

job='' version='' steps=0 slowdown=0 alone=()
for tool in curl jq awk; do
    command -v $tool >/dev/null || fail "$tool is missing"
done
trap 'rm -f "$SHUNT_CONFIG"' EXIT
[ -n "$server" ] || claim_state
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
start_system
make_tenants
push_models
wait_step 1
while [ "$steps" -eq 0 ]; do # the executor has said so, but perhaps not yet to the API
    [ "$((SECONDS - started))" -lt $((2 * limit_s)) ] || fail "the job does not say its steps"
    steps=$(research get job "$job" -o json | jq '.steps // 0')
done
measure_alone 5 15
send_bursts
finish_training
write_summary
check_summary
tell_summary
[ -z "$server" ] || exit 0
chapter "Done. The system is stopped now; shunt up --state-dir $state starts it again. The next" \
    "demo removes it, and so does shunt down --purge --state-dir $state"
