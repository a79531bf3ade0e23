/* options.h - every option of shunt-api. The table itself is in options.c. */
#ifndef SH_API_OPTIONS_H
#define SH_API_OPTIONS_H

#include "common/conf.h"
#include "common/otlp.h"
#include "common/wire_keys.h"

#include <stddef.h>
#include <stdint.h>

struct api_conf {
    char *listen, *admin_listen, *grpc_listen, *metrics_addr, *db_url, *scheduler, *name,
        *state_dir, *log_level;
    char *docs_dir; /* "": where a build or a package has it */
    char *admin_key_file, *executor_key_file, *tls_cert, *tls_key, *tls_min_version, *cors_origins,
        *client_shm;
    struct sh_wire_key_conf link_key;
    struct sh_otlp_conf otlp;
    int64_t otlp_slow_ms, otlp_max_per_s;
    int64_t scheduler_silence_ms, busy_poll_us, slab_bytes, slab_tenant_percent, max_infer_bytes,
        max_json_tensor_bytes, max_axis_size;
    int64_t max_model_bytes, max_dataset_bytes;
    int64_t threads, db_threads, bulk_threads, db_queue;
    int64_t max_connections, max_connections_per_ip, max_connections_per_key;
    int64_t grpc_max_connections, grpc_streams;
    int64_t idle_timeout_s, header_timeout_s;
    int64_t upload_min_rate, upload_grace_s, max_inflight, infer_timeout_ms, import_timeout_s;
    int64_t max_streams, max_tenant_streams, max_uploads, max_tenant_uploads, max_waits;
    int64_t max_regions, max_tenant_regions, copy_threads;
    int64_t key_poll_ms, model_poll_ms, blob_keep_s, drain_s;
};

extern const struct sh_conf_table API_CONF_TABLE;

/* Payload memory that one tenant may hold, bytes. */
size_t api_conf_tenant_slab(const struct api_conf *c);
/* Checks pairs of options, and limits that depend on each other. */
int api_conf_check(const struct api_conf *c, struct sh_err *err);

#endif
