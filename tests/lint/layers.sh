#!/usr/bin/env bash
# layers.sh - who may include whom. Daemons never see each other; a foreign header has one home.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2

rc=0
fail() { # fail SENTENCE LINES: complains if there are any lines
    [ -z "$2" ] || { printf '%s\n%s\n' "$1" "$2"; rc=1; }
}
includes() { # includes REGEX FOLDER...: the include lines that match
    local what=$1
    shift
    grep -rnE "^[[:space:]]*#[[:space:]]*include[[:space:]]+$what" "$@" \
        --include='*.c' --include='*.h' --include='*.cu' --include='*.cuh' 2>/dev/null
}
may() { # may FOLDER REGEX: our own headers that FOLDER is allowed to see
    fail "$1/ may include only $2 of our headers" \
        "$(includes '"' "$1" | grep -vE 'include[[:space:]]+"(onnx|inference)\.pb-c\.h"' |
            grep -vE "include[[:space:]]+\"($2)")"
}
only() { # only HEADER PLACE: a foreign header has its home in PLACE
    fail "a header $1 belongs to $2" \
        "$(includes "[<\"]($1)" common api scheduler executor runtime cli simulate zoo |
            grep -vE "^($2)")"
}

may common 'common/'
may api '(common|api)/'
may scheduler '(common|scheduler)/'
may executor '(common|executor|runtime)/'
may runtime '(common|runtime)/'
may runtime/pack '(common|runtime/pack)/'
may runtime/device '(common|runtime/device|runtime/pack)/'
may runtime/model '(common|runtime/model|runtime/device|runtime/pack)/'
may runtime/import '(common|runtime/import|runtime/model|runtime/device|runtime/pack)/'
may cli '(common|cli)/'
may simulate '(common|scheduler|executor/memory|simulate)/'
may zoo '(common|zoo|runtime/model|runtime/device)/'

only 'microhttpd\.h' 'api/http/|common/metrics_http\.c:'
only '(postgresql/)?libpq-fe\.h' 'common/db(_env|_res|_int)?\.[ch]:'
only 'gnutls/' \
    'common/(hash|wire_keys|wire_tls)\.c:|api/(http/http[a-z_]*\.[ch]|grpc/grpc_conn\.c):'
only '(oneapi/)?dnnl' 'runtime/device/cpu/'
only 'cuda|cudnn|cublas|nvml|nvrtc|nvtx|cub/|thrust/|mma\.h|cooperative_groups' \
    'runtime/device/cuda/'
only 'runtime/device/backend\.h' 'runtime/device/'
only 'runtime/device/cuda/' 'runtime/device/cuda/'
only 'curl/' 'common/http\.[ch]:'
only 'protobuf-c/|(google/)?protobuf' 'runtime/model/onnx|runtime/import/|zoo/|api/grpc/'
only 'onnx\.pb-c\.h' 'runtime/model/onnx|runtime/import/|zoo/'
only 'inference\.pb-c\.h|nghttp2/' 'api/grpc/'
exit $rc
