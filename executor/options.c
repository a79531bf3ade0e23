/* options.c - the options of shunt-executor. */
#include "common/mem.h"
#include "executor/exec.h"
#include "executor/memory/links.h"
#include "executor/models/apart_state.h"
#include "executor/pool/pool.h"

static const struct sh_conf_opt OPTIONS[] = {
    SH_OPT_STR(struct exec_conf, name, "name", "gpu0", 0, "name of this executor, unique"),
    SH_OPT_STR(struct exec_conf, scheduler, "scheduler", "unix:.shunt/run/scheduler.sock", 0,
               "addresses of the schedulers, comma-separated, tried in turn: unix:/path or "
               "tcp:host:port"),
    SH_OPT_INT(struct exec_conf, scheduler_silence_ms, "scheduler-silence-ms", 2500, 0, 600000, 0,
               "disconnect from a scheduler that sends nothing for this long, ms; 0 = never"),
    SH_OPT_STR(struct exec_conf, data_addr, "data-addr", "unix:.shunt/run/executor-gpu0.sock", 0,
               "address where APIs bring payloads: unix:/path or tcp:host:port"),
    SH_OPTS_WIRE_KEY(struct exec_conf, link_key),
    SH_OPT_STR(struct exec_conf, state_dir, "state-dir", ".shunt", 0,
               "folder with blobs and jobs, shared with the API; with --api, a folder of its own"),
    SH_OPT_STR(struct exec_conf, api, "api", "", 0,
               "URL of an API, http://host:port, to fetch models, datasets and checkpoints from "
               "and to send results to; empty = the state folder is shared"),
    SH_OPT_STR(struct exec_conf, api_key_file, "api-key-file", "", 0,
               "with --api: file with the key of executors (the API's --executor-key-file)"),
    SH_OPT_STR(struct exec_conf, api_ca_file, "api-ca-file", "", 0,
               "with --api https://...: PEM file with the CA of its certificate; empty = the CAs "
               "that the host trusts"),
    SH_OPT_INT(struct exec_conf, api_retry_s, "api-retry-s", 60, 0, 86400, 0,
               "with --api: how long a transfer that makes no progress is retried, s"),
    SH_OPT_BYTES(struct exec_conf, blob_cache_bytes, "blob-cache-bytes", "64G", 0, 1e15, 0,
                 "with --api: disk space for cached models and datasets, bytes; files in use are "
                 "never evicted; 0 = no limit"),
    SH_OPT_BYTES(struct exec_conf, kept_bytes, "kept-bytes", "32G", 0, 1e15, 0,
                 "disk space for the results of loading models, which make the next load fast, "
                 "bytes (folder kept/ in the state folder); 0 = none"),
    SH_OPT_INT(struct exec_conf, keep_renew_s, "keep-renew-s", 60, 0, 86400, 0,
               "results of a load are kept only if its worker has served no other tenant; for "
               "that, an idle worker is restarted at most this often, s; 0 = never"),
    SH_OPT_STR(struct exec_conf, metrics_addr, "metrics-addr", "127.0.0.1:9103", 0,
               "address of /metrics; port 0 = any; empty = none"),
    SH_OPT_STR(struct exec_conf, log_level, "log-level", "info", 0, "error, warn, info or debug"),
    SH_OPTS_OTLP(struct exec_conf, otlp),
    SH_OPT_STR(struct exec_conf, device, "device", "cpu", 0, "back end: cpu or cuda"),
    SH_OPT_INT(struct exec_conf, ordinal, "ordinal", 0, 0, 255, 0, "which device of this kind"),
    SH_OPT_STR(struct exec_conf, nvml, "nvml", "auto", 0,
               "PCI bus id of the GPU whose clocks, power and energy are measured by NVML; auto = "
               "that of the device, off = none"),
    SH_OPT_BYTES(struct exec_conf, pool_bytes, "pool-bytes", "1G", 4194304.0, 1.1e12, 0,
                 "device memory to use, in bytes"),
    SH_OPT_BYTES(struct exec_conf, model_host_bytes, "model-host-bytes", "0", 0, 1e15, 0,
                 "host memory for images of models and compiled programs, bytes; one tenant may "
                 "use half of it; 0 = half of the host's memory"),
    SH_OPT_STR(
        struct exec_conf, pack_images, "pack-images", "auto", 0,
        "keep weights packed in host memory, without loss, and unpack them on the device: "
        "on, off, or auto = where a run for which all of them are copied ends sooner, or hardly "
        "later (cuda)"),
    SH_OPT_INT(
        struct exec_conf, keep_packed_percent, "keep-packed-percent", 100, 0, APART_NEVER, 0,
        "where images that were used within ten minutes take more than so much of the "
        "device's memory, packed ones stay there packed as well, so that what is unpacked "
        "gives way first and comes back without the link; " SH_CONF_TEXT(APART_NEVER) " = none do"),
    SH_OPT_STR(
        struct exec_conf, tables_in_place, "tables-in-place", "auto", 0,
        "read the rows of large embedding tables in host memory when a run does not find the table "
        "on the device: on, off, or auto = where that takes less than half of its copy (cuda)"),
    SH_OPT_BOOL(struct exec_conf, share_images, "share-images", true, 0,
                "hold what images of one tenant have in common, such as versions of which only the "
                "head differs, once in host memory"),
    SH_OPT_INT(struct exec_conf, model_shapes, "model-shapes", 64, 1, 256, 0,
               "shapes compiled at a time for a version with open sizes (length, height, width); "
               "the least recently used are evicted"),
    SH_OPT_INT(struct exec_conf, max_versions, "max-loaded-versions", 1024, 1, 16384, 0,
               "model versions loaded at a time; more are refused; each takes about 2 KB, and 100 "
               "bytes for each layer, beside its image and programs (1,024 of 100 layers: 12 MB)"),
    SH_OPT_INT(struct exec_conf, max_shapes, "max-loaded-shapes", 1024, 1, 16384, 0,
               "shapes of all versions compiled at a time; the least recently used are evicted; "
               "each takes about 2 KB beside its programs (1,024: 2 MB)"),
    SH_OPT_INT(struct exec_conf, max_apis, "max-apis", 40, 1, 256, 0,
               "API processes that bring payloads; more are not accepted; each takes about 1 KB, "
               "and from another host as much as its requests' inputs, at most its slab-bytes"),
    SH_OPT_INT(struct exec_conf, workers, "workers", 3, 2, POOL_MAX_WORKERS, 0,
               "worker processes: one trains, one runs, one is ready"),
    SH_OPT_INT(struct exec_conf, worker_uid, "worker-uid", 65520, 0, 4294967294.0, 0,
               "if the executor runs as root: user and group id of its workers, used by nothing "
               "else on the host; 0 = they stay root, without capabilities"),
    SH_OPT_INT(struct exec_conf, threads, "threads", 0, 0, 1024, 0,
               "cpu: threads of one worker; 0 = all cores"),
    SH_OPT_F64(struct exec_conf, copy_gb_per_s, "copy-gb-per-s", 0, 0, 100000, 0,
               "cpu: slows copies down to this rate in GB/s; 0 = as fast as memory"),
    SH_OPT_F64(struct exec_conf, copy_latency_us, "copy-latency-us", 0, 0, 1000000, 0,
               "cpu: fixed cost of a copy in microseconds"),
    SH_OPT_INT(struct exec_conf, copy_links, "copy-links", 1, 1, LINKS_MAX, 0,
               "cpu: links to the device, each of that rate, over which weights are divided; cuda "
               "has one"),
    SH_OPT_BOOL(struct exec_conf, deterministic, "deterministic", true, 0,
                "compute the same numbers in every run; a little slower on some devices"),
    SH_OPT_BOOL(struct exec_conf, verify_launches, "verify-launches", false, 0,
                "cuda: compare the recorded launches of cuDNN and cuBLASLt with runs without them "
                "whenever a program is loaded, and use none of them after a difference"),
    SH_OPT_INT(
        struct exec_conf, checkpoint_interval_ms, "checkpoint-interval-ms", 0, 0, 86400000, 0,
        "time between checkpoints, for jobs that do not set it, ms; 0 = as follows from what "
        "one costs and from the rate of failures (batch inference: 10 s)"),
    SH_OPT_INT(struct exec_conf, max_queued_runs, "max-queued-runs", 256, 1, 65536, 0,
               "runs that may wait for the device; more are refused"),
    SH_OPT_INT(struct exec_conf, stop_bound_us, "stop-bound-us", 60, 10, 10000000, 0,
               "work that training may queue on the device, us; bounds how long a request waits "
               "for training to stop"),
    SH_OPT_INT(
        struct exec_conf, request_weight, "request-weight", 3, 0, 1000, 0,
        "where images and training's workspace do not both fit: how many ms of training a ms "
        "counts that requests wait for copies; 0 = training keeps its workspace"),
    SH_OPT_INT(struct exec_conf, busy_poll_us, "busy-poll-us", 0, 0, 10000000, 0,
               "after a request, executor and workers poll this long before they sleep, us; each "
               "occupies a core meanwhile; `shunt up` chooses it"),
    SH_OPT_INT(struct exec_conf, hang_ms, "hang-ms", 15000, 100, 3600000, 0,
               "kill a busy worker that makes no progress for this long, ms"),
    SH_OPT_INT(struct exec_conf, compile_ms, "compile-ms", 300000, 1000, 3600000, 0,
               "longest time to compile and profile one model, ms"),
    SH_OPT_INT(struct exec_conf, run_ms, "run-ms", 60000, 100, 3600000, 0,
               "kill a run that takes longer than this on the device, ms"),
    SH_OPT_STR(struct exec_conf, residency_policy, "residency-policy", "clock", 0,
               "which image to evict from the device: clock, lru, fifo, second-chance, or none "
               "(one model at a time, as in the PipeSwitch paper)"),
    SH_OPT_INT(struct exec_conf, residency_chances, "residency-chances", 1, 1, 16, 0,
               "clock: how often the hand passes an unused image before it is evicted"),
    SH_OPT_INT(struct exec_conf, costly_chances, "residency-costly-chances", 2, 1, 16, 0,
               "clock: the same of an image that host memory does not have, which would have to be "
               "read from disk"),
    SH_OPT_INT(struct exec_conf, second_percent, "residency-second-percent", 25, 0, 100, 0,
               "second-chance: part of the device memory for images that are evicted next unless "
               "they are used again, percent"),
    SH_OPT_INT(struct exec_conf, low_percent, "free-low-percent", 3, 0, 90, 0,
               "evict tails of idle models when less device memory than this is free, percent"),
    SH_OPT_INT(struct exec_conf, high_percent, "free-high-percent", 6, 0, 95, 0,
               "evict until this much is free, percent"),
};

const struct sh_conf_table EXEC_OPTIONS = {
    .program = "shunt-executor",
    .purpose = "Owns one device: keeps models ready, runs requests, trains when nobody asks.",
    .opts = OPTIONS,
    .n_opts = SH_ARRAY_LEN(OPTIONS),
    .struct_bytes = sizeof(struct exec_conf),
    .absent = "debug-",
    .absent_why = "it is for measurements and tests, and only the laboratory's build of "
                  "shunt-executor has it: make lab",
};
