#!/usr/bin/env bash
# import_all.sh DIR - imports every golden .onnx into a folder below DIR with shunt-import.
# GOLDENS: where the models are (default: ../shared/goldens). BUILD: the build folder.
set -uo pipefail

out=${1:?usage: import_all.sh DIR}
root=$(cd "$(dirname "$0")/../.." && pwd)
goldens=${GOLDENS:-$root/../shared/goldens}
import=$root/${BUILD:-build}/bin/shunt-import

if [ ! -d "$goldens" ]; then
    echo "skip: no golden models in $goldens (set GOLDENS)"
    exit 0
fi
if [ ! -x "$import" ]; then
    echo "no $import: build it first" >&2
    exit 1
fi

n=0
failed=0
for model in "$goldens"/*/*.onnx; do
    name=$(basename "$(dirname "$model")")/$(basename "$model" .onnx)
    flags=()
    case $(basename "$model") in train_*) flags=(--training) ;; esac
    mkdir -p "$out/$name"
    reply=$("$import" package --onnx "$model" --dir "$out/$name" "${flags[@]}")
    rc=$?
    n=$((n + 1))
    if [ "$rc" -ne 0 ] || [[ $reply != '{"ok":true,'* ]] || [ ! -s "$out/$name/graph.json" ]; then
        failed=$((failed + 1))
        echo "FAIL  $name: exit status $rc: $reply"
        continue
    fi
    cp "$model" "$out/$name/model.onnx"
    echo "ok    $name: $(grep -o '"n_nodes":[0-9]*' <<<"$reply")"
done
echo "$n imported, $failed failed"
[ "$failed" -eq 0 ] && [ "$n" -gt 0 ]
