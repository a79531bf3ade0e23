#!/usr/bin/env bash
# prometheus.sh - Debian's Prometheus against a system under load: every panel of the dashboard must
# show data. Without it a renamed metric or label would leave a panel empty, which nobody notices
# before the night it is needed.
set -uo pipefail
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"

command -v prometheus promtool >/dev/null || { echo "prometheus is missing: make deps"; exit 1; }
digits=$root/examples/digits

start_load() {
    shunt up --port 0 --pool-bytes 512M --quiet || exit 1
    shunt create tenant demo --quiet && shunt create key k --tenant demo --save "$tmp/key" --quiet
    "$bin/shunt-zoo" digits-cnn --form training --out "$tmp/digits.onnx" || exit 1
    demo push dataset train "$digits/train.safetensors" --quiet
    demo push model digits "$tmp/digits.onnx" --wait --quiet
    demo set slo digits --latency-ms 500 >/dev/null
    job=$(demo submit --model digits --dataset train --epochs 100000 --lr 0.001 \
        --checkpoint-interval-ms 500 -o name) || exit 1
    while :; do
        demo infer digits:1 --random 1 --batch 4 --repeat 20 --quiet >/dev/null 2>&1
        sleep 0.2
    done &
}

demo() { shunt "$@" --key-file "$tmp/key"; }

start_prometheus() {
    local try
    cp -r "$state/prometheus" "$tmp/prometheus"
    # Every 5 s is right for a server, and too slow for a test.
    sed -i 's/_interval: 5s/_interval: 1s/' "$tmp/prometheus/prometheus.yml"
    for try in 1 2 3 4 5; do
        port=$((20000 + RANDOM % 20000))
        prometheus --config.file="$tmp/prometheus/prometheus.yml" \
            --storage.tsdb.path="$tmp/tsdb" --web.listen-address="127.0.0.1:$port" \
            >"$tmp/prometheus.log" 2>&1 &
        prometheus_pid=$!
        until_ok curl -fsS "http://127.0.0.1:$port/-/ready" && return 0
        kill "$prometheus_pid" 2>/dev/null
        wait "$prometheus_pid" 2>/dev/null
        echo "Prometheus did not start at port $port (try $try)"
    done
    cat "$tmp/prometheus.log"
    exit 1
}

# has_data EXPRESSION: at least one sample that is a number
has_data() {
    curl -fsS --max-time 10 -G "http://127.0.0.1:$port/api/v1/query" \
        --data-urlencode "query=$1" |
        jq -e '.status == "success" and ([.data.result[].value[1]] | any(. != "NaN"))' >/dev/null
}

# all_three METRIC: it is 1 in each process
all_three() {
    [ "$(curl -fsS "http://127.0.0.1:$port/api/v1/query?query=$1" |
        jq '[.data.result[] | select(.value[1] == "1")] | length')" = 3 ]
}

start_load
ok "the configuration is valid" promtool check config "$state/prometheus/prometheus.yml"
ok "the alerts are valid" promtool check rules "$state/prometheus/alerts.yml"
start_prometheus
ok "Prometheus reads all three processes" until_ok all_three up
ok "each says its version: the dashboard finds instances by it" \
    until_ok all_three shunt_build_info

n=0
while IFS= read -r expr; do
    expr=${expr//\$__rate_interval/20s}
    expr=${expr//\$job/shunt}
    expr=${expr//\$instance/.+}
    n=$((n + 1))
    ok "a panel shows data: $expr" until_ok has_data "$expr"
done < <(jq -r '.. | objects | .expr? // empty' "$root/dashboards/grafana/overview.json")
ok "the dashboard has panels" [ "$n" -ge 20 ]
ok "the job trains to the end of this test" \
    grep -qx 'RUNNING\|PREEMPTED' <(demo get job "$job" -o json | jq -r .state)
ok "a job can be cancelled" demo cancel "$job"
