/* options.c - the option table of shunt-api. */
#include "api/options.h"

#include "api/http/cors.h"
#include "api/http/http_tls.h"
#include "api/infer/regions.h"
#include "common/mem.h"

#include <inttypes.h>

#define ST struct api_conf

static const struct sh_conf_opt OPTS[] = {
    SH_OPT_STR(ST, listen, "listen", "127.0.0.1:8000", 0, "HTTP address and port; port 0 = any"),
    SH_OPT_STR(ST, admin_listen, "admin-listen", "", 0,
               "second address and port, for operators; if set, --listen refuses admin keys and "
               "admin routes; empty = one address for all"),
    SH_OPT_STR(ST, grpc_listen, "grpc-listen", "", 0,
               "address and port of the inference protocol over gRPC, usually port 8001; empty = "
               "off"),
    SH_OPT_STR(ST, metrics_addr, "metrics-addr", "127.0.0.1:9101", 0,
               "address and port of /metrics; empty = off"),
    SH_OPT_STR(ST, db_url, "db-url", "postgresql:///shunt", SH_CONF_SECRET,
               "libpq connection string"),
    SH_OPT_STR(ST, scheduler, "scheduler", "unix:.shunt/run/scheduler.sock", 0,
               "addresses of the schedulers, comma-separated, tried in turn: unix:/path or "
               "tcp:host:port"),
    SH_OPT_INT(ST, scheduler_silence_ms, "scheduler-silence-ms", 2500, 0, 600000, 0,
               "disconnect from a scheduler that sends nothing for this long, ms; 0 = never"),
    SH_OPTS_WIRE_KEY(ST, link_key),
    SH_OPT_STR(ST, name, "name", "api", 0, "name of this process in the scheduler's log"),
    SH_OPT_STR(ST, state_dir, "state-dir", ".shunt", 0, "folder with blobs/ and jobs/"),
    SH_OPT_STR(ST, docs_dir, "docs-dir", "", 0,
               "folder of the documentation, which is served at /docs: what `make docs-site` "
               "wrote; empty = that of the build or package, if it has one"),
    SH_OPT_STR(ST, log_level, "log-level", "info", SH_CONF_LIVE, "error, warn, info or debug"),
    SH_OPTS_OTLP(ST, otlp),
    SH_OPT_INT(ST, otlp_slow_ms, "otlp-slow-ms", 1000, 0, 3600000, SH_CONF_LIVE,
               "with --otlp-endpoint: requests that took longer are sent too, as are those that "
               "came after their deadline or latency target, ms; 0: only those that asked for it"),
    SH_OPT_INT(ST, otlp_max_per_s, "otlp-max-per-s", 100, 0, 100000, SH_CONF_LIVE,
               "with --otlp-endpoint: requests whose spans are sent, per second; tenants that want "
               "more than that get equal parts, and what others leave of theirs; 0: no limit"),
    SH_OPT_STR(ST, admin_key_file, "admin-key-file", "", 0,
               "if the database has no live admin key, a new one is written here (mode 0600)"),
    SH_OPT_STR(ST, executor_key_file, "executor-key-file", "", 0,
               "if the database has no live executor key, a new one is written here, for the "
               "--api-key-file of executors that do not share the state folder"),
    SH_OPT_STR(ST, tls_cert, "tls-cert", "", 0,
               "PEM file with the certificate chain; turns TLS on; read again when it changes"),
    SH_OPT_STR(ST, tls_key, "tls-key", "", 0,
               "PEM file with the private key; read again when it changes"),
    SH_OPT_STR(ST, tls_min_version, "tls-min-version", "1.2", 0,
               "oldest version of TLS that clients may speak: 1.2 or 1.3"),
    SH_OPT_STR(ST, cors_origins, "cors-origins", "", 0,
               "origins whose web pages may call the API from a browser (they still need a key): "
               "https://a.example,https://b.example or * for all; empty = none"),
    SH_OPT_STR(ST, client_shm, "client-shm", "off", 0,
               "POSIX shared memory of clients on this host for inputs and outputs: off, own (a "
               "tenant's keys begin with /TENANT.) or any (tenants trust each other)"),
    SH_OPT_BYTES(ST, slab_bytes, "slab-bytes", "256M", 1 << 20, 1e12, 0,
                 "memory for payloads of requests in flight, bytes"),
    SH_OPT_INT(ST, slab_tenant_percent, "slab-tenant-percent", 50, 1, 100, 0,
               "part of slab-bytes that one tenant may use, percent; beyond that 429"),
    SH_OPT_BYTES(ST, max_infer_bytes, "max-infer-bytes", "64M", 4096, 1e12, 0,
                 "largest body of an inference request, bytes"),
    SH_OPT_BYTES(ST, max_json_tensor_bytes, "max-json-bytes", "16M", 4096, 1e9, 0,
                 "largest JSON part of an inference request, bytes"),
    SH_OPT_INT(ST, max_axis_size, "max-axis-size", 4096, 1, 16777216, 0,
               "largest size of an axis that a model's file leaves open (length, height, width), "
               "except the batch"),
    SH_OPT_BYTES(ST, max_model_bytes, "max-model-bytes", "4G", 4096, 1e13, 0,
                 "largest model file, bytes"),
    SH_OPT_BYTES(ST, max_dataset_bytes, "max-dataset-bytes", "64G", 4096, 1e14, 0,
                 "largest dataset file, bytes"),
    SH_OPT_INT(ST, threads, "threads", 2, 1, 64, 0, "HTTP threads, and as many of gRPC"),
    SH_OPT_INT(ST, db_threads, "db-threads", 4, 1, 64, 0,
               "threads for the control plane, each with a database connection"),
    SH_OPT_INT(ST, bulk_threads, "bulk-threads", 2, 1, 64, 0,
               "threads that write and import uploads"),
    SH_OPT_INT(ST, db_queue, "db-queue", 512, 1, 65536, 0,
               "requests that may wait for a database thread, at most half of them from one "
               "tenant; beyond that 503"),
    SH_OPT_INT(ST, max_connections, "max-connections", 4096, 16, 1000000, 0,
               "open HTTP connections; when they run out, connections without a key and idle ones "
               "are closed for new ones"),
    SH_OPT_INT(ST, max_connections_per_ip, "max-connections-per-ip", 1024, 0, 1000000, 0,
               "open connections, of HTTP and gRPC together, from one address that have not sent a "
               "key; beyond that the oldest is closed; 0 = no limit"),
    SH_OPT_INT(ST, max_connections_per_key, "max-connections-per-key", 1024, 0, 1000000,
               SH_CONF_LIVE,
               "open connections, of HTTP and gRPC together, whose last request had the same key, "
               "except admin keys; beyond that 429; 0 = no limit"),
    SH_OPT_INT(ST, grpc_max_connections, "grpc-max-connections", 1024, 1, 1000000, 0,
               "open gRPC connections; when they run out, connections without a key and idle ones "
               "are closed for new ones"),
    SH_OPT_INT(ST, grpc_streams, "grpc-streams", 256, 1, 65536, 0,
               "calls at a time on one gRPC connection (16 until it has sent a key); a client's "
               "further ones wait with it"),
    SH_OPT_INT(ST, idle_timeout_s, "idle-timeout-s", 60, 1, 3600, 0,
               "close a connection that transfers nothing for this long, s"),
    SH_OPT_INT(ST, header_timeout_s, "header-timeout-s", 90, 2, 3600, SH_CONF_LIVE,
               "longest wait from the last reply to the end of the next request's headers, s"),
    SH_OPT_BYTES(
        ST, upload_min_rate, "upload-min-rate", "16K", 1, 1e9, SH_CONF_LIVE,
        "slowest rate of a request body or a reply; slower connections are closed, bytes/s"),
    SH_OPT_INT(ST, upload_grace_s, "upload-grace-s", 20, 1, 3600, SH_CONF_LIVE,
               "time before upload-min-rate applies, s"),
    SH_OPT_INT(ST, max_inflight, "max-inflight", 4096, 1, 1000000, SH_CONF_LIVE,
               "inference requests in flight; beyond that 503"),
    SH_OPT_INT(ST, max_streams, "max-streams", 1024, 1, 100000, SH_CONF_LIVE,
               "open event streams (text/event-stream); beyond that 503"),
    SH_OPT_INT(ST, max_tenant_streams, "max-tenant-streams", 128, 1, 100000, SH_CONF_LIVE,
               "open event streams of one tenant; beyond that 429"),
    SH_OPT_INT(ST, max_uploads, "max-uploads", 64, 1, 10000, 0,
               "uploads at a time; beyond that 503; each takes about 1.1 MB (64: 70 MB)"),
    SH_OPT_INT(ST, max_tenant_uploads, "max-tenant-uploads", 8, 1, 10000, 0,
               "uploads of one tenant at a time; beyond that 429"),
    SH_OPT_INT(
        ST, max_waits, "max-waits", 64, 1, 100000, 0,
        "requests to load a model (/v2/repository) that wait until that is done; beyond that "
        "503; each takes 8 bytes beside its connection"),
    SH_OPT_INT(ST, max_regions, "max-regions", 1024, 1, 1000000, 0,
               "with --client-shm: registered regions; beyond that 503; each takes about 700 bytes "
               "and a descriptor (1,024: 0.7 MB)"),
    SH_OPT_INT(ST, max_tenant_regions, "max-tenant-regions", 64, 1, 1000000, 0,
               "with --client-shm: registered regions of one tenant; beyond that 429"),
    SH_OPT_INT(ST, copy_threads, "copy-threads", -1, -1, 64, 0,
               "with --client-shm: threads that help to copy 512 KiB or more from or to a client's "
               "memory, and sleep otherwise; 0 = none; -1 = one for each 4 cores, at most 8"),
    SH_OPT_INT(ST, infer_timeout_ms, "infer-timeout-ms", 60000, 10, 3600000, SH_CONF_LIVE,
               "timeout of inference requests that set none; then 504, ms"),
    SH_OPT_INT(ST, import_timeout_s, "import-timeout-s", 300, 1, 3600, SH_CONF_LIVE,
               "longest time for checking one uploaded model, s"),
    SH_OPT_INT(ST, busy_poll_us, "busy-poll-us", 0, 0, 10000000, 0,
               "after an inference request, its HTTP thread and the link to scheduler and "
               "executors poll this long before they sleep, us; each occupies a core meanwhile; at "
               "most one HTTP thread per 8 cores polls; `shunt up` chooses it"),
    SH_OPT_INT(ST, key_poll_ms, "key-poll-ms", 5000, 100, 60000, 0,
               "longest time between two checks of a cached key, ms"),
    SH_OPT_INT(ST, model_poll_ms, "model-poll-ms", 1000, 100, 60000, 0,
               "longest time between two comparisons of the model catalog with the database, ms"),
    SH_OPT_INT(ST, blob_keep_s, "blob-keep-s", 3600, 1, 31536000, SH_CONF_LIVE,
               "how long a model or dataset file is kept when nothing refers to it any more, s"),
    SH_OPT_INT(ST, drain_s, "drain-s", 30, 0, 600, SH_CONF_LIVE,
               "time that requests in flight get to finish after TERM, s"),
};

const struct sh_conf_table API_CONF_TABLE = {
    .program = "shunt-api",
    .purpose = "Serves the inference protocol over HTTP and gRPC, and the control plane over HTTP.",
    .opts = OPTS,
    .n_opts = SH_ARRAY_LEN(OPTS),
    .struct_bytes = sizeof(ST),
};

size_t api_conf_tenant_slab(const struct api_conf *c)
{
    return (size_t)(c->slab_bytes / 100 * c->slab_tenant_percent);
}

int api_conf_check(const struct api_conf *c, struct sh_err *err)
{
    bool cert = c->tls_cert && c->tls_cert[0], key = c->tls_key && c->tls_key[0];
    enum regions_mode shm;
    int rc = tls_version_check(c->tls_min_version, err);

    if (!rc)
        rc = cors_check(c->cors_origins, err);
    if (rc)
        return rc;
    if (cert != key)
        return SH_FAIL(err, SH_E_INVALID, "tls-cert and tls-key must be given together");
    if (c->max_infer_bytes > (int64_t)api_conf_tenant_slab(c))
        return SH_FAIL(err, SH_E_INVALID,
                       "max-infer-bytes (%" PRId64 ") must not be above slab-tenant-percent of "
                       "slab-bytes (%" PRId64 " %% of %" PRId64 ")",
                       c->max_infer_bytes, c->slab_tenant_percent, c->slab_bytes);
    return regions_mode_parse(c->client_shm, &shm, err);
}
