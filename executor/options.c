/* options.c - the options of shunt-executor. */
#include "common/mem.h"
#include "executor/exec.h"

static const struct sh_conf_opt OPTIONS[] = {
    SH_OPT_STR(struct exec_conf, name, "name", "gpu0", 0, "name of this executor, unique"),
    SH_OPT_STR(struct exec_conf, scheduler, "scheduler", "unix:.shunt/run/scheduler.sock", 0,
               "addresses of the schedulers, comma-separated, tried in turn: unix:/path or "
               "tcp:host:port"),
    SH_OPT_INT(struct exec_conf, scheduler_silence_ms, "scheduler-silence-ms", 2500, 0, 600000, 0,
               "a scheduler that says nothing for this long is given up, ms; 0 = never"),
    SH_OPT_STR(struct exec_conf, data_addr, "data-addr", "unix:.shunt/run/executor-gpu0.sock", 0,
               "address where APIs bring payloads: unix:/path or tcp:host:port"),
    SH_OPTS_WIRE_KEY(struct exec_conf, link_key),
    SH_OPT_STR(struct exec_conf, state_dir, "state-dir", ".shunt", 0,
               "folder of blobs and jobs, shared with the API; with --api one of its own"),
    SH_OPT_STR(struct exec_conf, api, "api", "", 0,
               "URL of an API, http://host:port: models, datasets and checkpoints are fetched from "
               "there and results brought there; empty = the folder is shared"),
    SH_OPT_STR(struct exec_conf, api_key_file, "api-key-file", "", 0,
               "with --api: file with the key of executors (the API's --executor-key-file)"),
    SH_OPT_STR(struct exec_conf, api_ca_file, "api-ca-file", "", 0,
               "with --api https://...: PEM file of who signed its certificate; empty = whom the "
               "host trusts"),
    SH_OPT_INT(struct exec_conf, api_retry_s, "api-retry-s", 60, 0, 86400, 0,
               "with --api: a transfer that moves no byte is tried again for this long, s"),
    SH_OPT_BYTES(struct exec_conf, blob_cache_bytes, "blob-cache-bytes", "64G", 0, 1e15, 0,
                 "with --api: models and datasets that are kept in the folder, bytes; what is in "
                 "use never goes; 0 = no limit"),
    SH_OPT_BYTES(struct exec_conf, kept_bytes, "kept-bytes", "32G", 0, 1e15, 0,
                 "disk for what loading models has made, so that they are ready again soon after a "
                 "restart, bytes (folder kept/ of the state folder); 0 = none"),
    SH_OPT_INT(struct exec_conf, keep_renew_s, "keep-renew-s", 60, 0, 86400, 0,
               "what a worker makes is kept only if it has met no other tenant: an idle one is "
               "begun anew for that at most this often, s; 0 = never"),
    SH_OPT_STR(struct exec_conf, metrics_addr, "metrics-addr", "127.0.0.1:9103", 0,
               "address of /metrics; port 0 = any; empty = none"),
    SH_OPT_STR(struct exec_conf, log_level, "log-level", "info", 0, "error, warn, info or debug"),
    SH_OPT_STR(struct exec_conf, device, "device", "cpu", 0, "back end: cpu, cuda or fake"),
    SH_OPT_INT(struct exec_conf, ordinal, "ordinal", 0, 0, 255, 0, "which device of this kind"),
    SH_OPT_BYTES(struct exec_conf, pool_bytes, "pool-bytes", "1G", 4194304.0, 1.1e12, 0,
                 "device memory to use, in bytes"),
    SH_OPT_BYTES(struct exec_conf, model_host_bytes, "model-host-bytes", "0", 0, 1e15, 0,
                 "host memory that images of models, and what workers have compiled, may take, "
                 "bytes; those of one tenant half of it; 0 = half of the host's memory"),
    SH_OPT_INT(struct exec_conf, model_shapes, "model-shapes", 64, 1, 256, 0,
               "lists of sizes for which a version whose file leaves sizes open (a length, height "
               "and width) is compiled at once; those that were not used for the longest time go"),
    SH_OPT_INT(struct exec_conf, workers, "workers", 3, 2, 64, 0,
               "worker processes: one trains, one runs, one is ready"),
    SH_OPT_INT(
        struct exec_conf, worker_uid, "worker-uid", 65520, 0, 4294967294.0, 0,
        "of an executor that root runs: user and group that its workers become, a number that "
        "nobody else on the host has; 0 = they stay root, without capabilities"),
    SH_OPT_INT(struct exec_conf, threads, "threads", 0, 0, 1024, 0,
               "cpu: threads of one worker; 0 = all cores"),
    SH_OPT_F64(struct exec_conf, copy_gb_per_s, "copy-gb-per-s", 0, 0, 100000, 0,
               "cpu: slows copies down to this rate in GB/s; 0 = as fast as memory"),
    SH_OPT_F64(struct exec_conf, copy_latency_us, "copy-latency-us", 0, 0, 1000000, 0,
               "cpu: fixed cost of a copy in microseconds"),
    SH_OPT_BOOL(struct exec_conf, deterministic, "deterministic", true, 0,
                "the same numbers in every run; costs a little speed on some devices"),
    SH_OPT_INT(struct exec_conf, checkpoint_interval_ms, "checkpoint-interval-ms", 10000, 50,
               86400000, 0, "time between checkpoints of a job that does not say, ms"),
    SH_OPT_INT(struct exec_conf, max_queued_runs, "max-queued-runs", 256, 1, 65536, 0,
               "runs that may wait for the device; more are refused"),
    SH_OPT_INT(struct exec_conf, stop_bound_us, "stop-bound-us", 60, 10, 10000000, 0,
               "work that training may have queued on the device, us: it bounds the time that a "
               "request waits for it to stop"),
    SH_OPT_INT(struct exec_conf, busy_poll_us, "busy-poll-us", 0, 0, 10000000, 0,
               "behind a request executor and workers ask for the next message for so long before "
               "they sleep, us; each takes a core meanwhile. `shunt up` decides it by itself"),
    SH_OPT_INT(struct exec_conf, hang_ms, "hang-ms", 15000, 100, 3600000, 0,
               "a busy worker without progress for this long is killed, ms"),
    SH_OPT_INT(struct exec_conf, compile_ms, "compile-ms", 300000, 1000, 3600000, 0,
               "longest time to compile and profile one model, ms"),
    SH_OPT_INT(struct exec_conf, run_ms, "run-ms", 60000, 100, 3600000, 0,
               "a run on the device for longer than this is killed, ms"),
    SH_OPT_STR(struct exec_conf, residency_policy, "residency-policy", "clock", 0,
               "which image gives way on the device: clock, lru, fifo, second-chance, or none (one "
               "model at a time, as PipeSwitch was published)"),
    SH_OPT_INT(struct exec_conf, residency_chances, "residency-chances", 1, 1, 16, 0,
               "clock: the hand passes an unused image this often before it gives way"),
    SH_OPT_INT(struct exec_conf, second_percent, "residency-second-percent", 25, 0, 100, 0,
               "second-chance: of the device memory, for images that have left the queue and give "
               "way first, but are taken back by a use, percent"),
    SH_OPT_INT(struct exec_conf, low_percent, "free-low-percent", 3, 0, 90, 0,
               "below so much free device memory, tails of idle models are evicted, percent"),
    SH_OPT_INT(struct exec_conf, high_percent, "free-high-percent", 6, 0, 95, 0,
               "eviction goes on until so much is free, percent"),
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
