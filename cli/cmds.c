/* cmds.c - the table of commands and their options. */
#include "cli/cli.h"
#include "cli/commands.h"
#include "common/job.h"
#include "common/mem.h"
#include "common/train_option.h"

#define ST struct cli_conf
#define STR(field, name, def, help) SH_OPT_STR(ST, field, name, def, 0, help)
#define BOOL(field, name, help) SH_OPT_BOOL(ST, field, name, false, 0, help)
/* The server's defaults and limits, for the help: test_cli_limits.c compares them with its own. */
#define NUMBER(field, name, def, min, max, help)                                    \
    {                                                                               \
        SH_CONF_STR, offsetof(ST, field), name, def, min, max, SH_CONF_THEIRS, help \
    }
#define WORD(field, name, def, help) SH_OPT_STR(ST, field, name, def, SH_CONF_THEIRS, help)
#define FIELD(name, def, min, max, help)                          \
    {                                                             \
        SH_CONF_STR, 0, name, def, min, max, SH_CONF_THEIRS, help \
    }
/* An option for a field of a training job's spec, by the field's type. */
#define SPEC_INT(field, name, def, min, max, help) NUMBER(field, name, def, min, max, help)
#define SPEC_F64(field, name, def, min, max, help) NUMBER(field, name, def, min, max, help)
#define SPEC_STR(field, name, def, min, max, help) WORD(field, name, def, help)
#define SPEC_ANY(field, name, def, min, max, help) WORD(field, name, def, help)
#define SPEC_BOOL(field, name, def, min, max, help) BOOL(field, name, help)
#define INT(field, name, def, min, max, help) SH_OPT_INT(ST, field, name, def, min, max, 0, help)

static const struct sh_conf_opt COMMON[] = {
    STR(server, "server", NULL,
        "URL of the API; default: that of `shunt up` in --state-dir, or, if no folder is named "
        "and nothing runs in .shunt, http://127.0.0.1:8000"),
    SH_OPT_STR(ST, key, "key", NULL, SH_CONF_SECRET, "API key"),
    STR(key_file, "key-file", NULL, "file with the API key; default: <state-dir>/admin.key"),
    STR(ca_file, "ca-file", NULL,
        "PEM file of the authorities to trust for an https server, instead of this host's"),
    STR(tenant, "tenant", NULL, "the tenant concerned; needed with an admin key; short: -n"),
    STR(output, "output", "table", "table, wide (more columns), json, yaml or name; short: -o"),
    STR(profile, "profile", NULL, "section of the config file, such as a server with its key"),
    STR(state_dir, "state-dir", CLI_STATE_DIR,
        "folder of a system started with `shunt up`, relative to the current folder unless it "
        "begins with /"),
    BOOL(quiet, "quiet", "print no progress and no remarks"),
};

static const struct sh_conf_opt READ[] = {
    BOOL(watch, "watch", "repeat, and print what is new or has changed; short: -w"),
    INT(every_ms, "every-ms", 1000, 100, 3600000, "with --watch: time between looks, ms"),
    BOOL(all_tenants, "all-tenants", "list for every tenant that the key may see; short: -A"),
};
static const struct sh_conf_opt CHANGE[] = {
    BOOL(dry_run, "dry-run", "check everything on the server, change nothing"),
};

/* Of `shunt up`, and of what looks whether it would work. */
#define WHERE_IT_LISTENS                                                                        \
    INT(port, "port", 8000, 0, 65000,                                                           \
        "HTTP port of the API; gRPC is at port+1, metrics from port+100 on; 0: any free port"), \
        STR(bind, "bind", "127.0.0.1", "address that the API listens on"),                      \
        STR(metrics_bind, "metrics-bind", "127.0.0.1",                                          \
            "address for /metrics of every process, which needs no key and shows tenants and "  \
            "models")
#define HOW_MANY                                                                                \
    INT(executors, "executors", 1, 1, 64,                                                       \
        "executors, one for each device of the host; of the cpu device, which they share, any " \
        "number"),                                                                              \
        INT(schedulers, "schedulers", 1, 1, 4, "schedulers; one leads, the others stand by")
#define WHICH_DATABASE                                                                    \
    SH_OPT_STR(ST, db_url, "db-url", NULL, SH_CONF_SECRET,                                \
               "libpq connection string; default: DATABASE_URL, else a private cluster"), \
        STR(pg_bin, "pg-bin", NULL, "folder of PostgreSQL's initdb and postgres")

static const struct sh_conf_opt UP[] = {
    WHERE_IT_LISTENS,
    STR(device, "device", "cpu", "device of the executors: cpu or cuda"),
    HOW_MANY,
    INT(workers, "workers", 3, 2, 64, "worker processes of each executor"),
    SH_OPT_BYTES(ST, pool_bytes, "pool-bytes", "1G", 1 << 24, 1e13, 0,
                 "device memory of each executor, bytes"),
    INT(threads, "threads", 0, 0, 1024,
        "compute threads of a worker on the cpu device; 0: the device's default"),
    SH_OPT_F64(ST, copy_gb_per_s, "copy-gb-per-s", 0, 0, 10000, 0,
               "slow copies of the cpu device to this rate, GB/s; 0: full speed"),
    INT(busy_poll_us, "busy-poll-us", -1, -1, 10000000,
        "time for which every daemon polls for the next event after a request before it sleeps, "
        "us; meanwhile it takes a core for each daemon, each worker and, for each 8 cores, an HTTP "
        "thread. -1: 200000 with the cuda device and 16 cores for each executor, else 0"),
    WHICH_DATABASE,
    STR(migrations_dir, "migrations-dir", NULL, "folder of NNNN_name.sql"),
    STR(dashboards_dir, "dashboards-dir", NULL,
        "folder with prometheus/ for <state-dir>/prometheus"),
    INT(wait_s, "wait-s", 60, 1, 3600, "longest wait for the system to be ready, s"),
    STR(log_level, "log-level", "info", "log level of every process: error, warn, info or debug"),
    BOOL(foreground, "foreground", "stay in the foreground; INT or TERM stops everything"),
};
static const struct sh_conf_opt DOCTOR[] = {
    STR(device, "device", NULL, "cpu or cuda; default: cuda if there is an NVIDIA GPU or driver"),
    WHERE_IT_LISTENS,
    HOW_MANY,
    WHICH_DATABASE,
    BOOL(strict, "strict", "fail for warnings too"),
};
static const struct sh_conf_opt TRACE[] = {
    SH_OPT_F64(ST, seconds, "seconds", 10, 0.001, 3600, 0,
               "what ended in the last so many; a process keeps its last 16,384 spans"),
    SH_OPT_F64(
        ST, next_s, "next", 0, 0, 3600, 0,
        "wait for the next so many seconds and write those, with the arrival of each group of "
        "weights; 0: the past"),
    STR(out, "out", "shunt-trace.json", "file to write; - is standard output"),
    STR(metrics, "metrics", NULL,
        "addresses where processes serve their metrics, host:port[,host:port ...]; default: those "
        "of the local system"),
};
static const struct sh_conf_opt DOWN[] = {
    BOOL(purge, "purge", "also remove the contents of the state folder: database, models, logs"),
};
static const struct sh_conf_opt BACKUP[] = {
    SH_OPT_STR(ST, db_url, "db-url", NULL, SH_CONF_SECRET,
               "libpq connection string of a system whose database is not in its folder; default: "
               "DATABASE_URL"),
    STR(pg_bin, "pg-bin", NULL, "folder of PostgreSQL's programs"),
};
static const struct sh_conf_opt KEY_CREATE[] = {
    STR(role, "role", "submit", "tenant-admin, submit, infer or read"),
    STR(expires_at, "expires-at", NULL, "time such as 2027-01-31T00:00:00Z"),
    STR(save, "save", NULL, "write the key to this file (mode 0600), which must not exist"),
};
static const struct sh_conf_opt KEY_ROTATE[] = {
    INT(overlap_s, "overlap-s", 0, 0, 2592000, "time for which the old secret stays valid, s"),
    STR(save, "save", NULL,
        "write the key to this file (mode 0600), which must not exist or must hold this key"),
};
static const struct sh_conf_opt QUEUE_SET[] = {
    STR(state, "state", NULL, "OPEN, HELD (starts no jobs) or DRAINING (accepts no new ones)"),
    NUMBER(target_priority, "priority", NULL, -1000, 1000, "added to the priority of each job"),
};
static const struct sh_conf_opt USAGE_GET[] = {
    STR(by, "by", "class", "class, model, minute, hour or day"),
    STR(from, "from", NULL, "time such as 2027-01-31T00:00:00Z; default: a day before --to"),
    STR(to, "to", NULL, "time, not included; default: now"),
    STR(class, "class", NULL, "only inference, or only training"),
    STR(model, "model", NULL, "only this model"),
};
static const struct sh_conf_opt AUDIT_GET[] = {
    STR(actor, "actor", NULL, "id of the key that made the changes"),
    STR(action, "action", NULL, "an action such as key.rotate, or key for all on keys"),
    STR(resource, "resource", NULL, "a resource such as model/digits"),
    STR(from, "from", NULL, "time such as 2027-01-31T00:00:00Z"),
    STR(to, "to", NULL, "time, not included"),
};
static const struct sh_conf_opt MODEL_CREATE[] = {
    STR(visibility, "visibility", "private", "private, or shared with every tenant for inference"),
};
static const struct sh_conf_opt PUSH_MODEL[] = {
    NUMBER(max_batch, "max-batch", NULL, 1, 1024,
           "most samples in one run; default: the batch that the file fixes, else 8"),
    STR(precision, "precision", "fp32", "fp32, tf32, fp16 or bf16"),
    STR(buckets, "buckets", NULL,
        "sizes to which requests are padded, for axes that the file leaves open, such as "
        "length=64,128,512 or \"height=256,512 width=256,512\": few shapes are compiled, and "
        "requests of different sizes run together; refused if answers might change"),
    STR(buffers, "buffers", NULL,
        "names of constants that training holds fixed, such as \"adjacency,*.window\": buffers of "
        "the module that the file does not show as such"),
    STR(parameters, "parameters", NULL, "names of constants that training changes, the other way"),
    STR(preprocess, "preprocess", NULL,
        "inputs that requests bring as bytes (UINT8), such as image=imagenet: the device makes "
        "(x / 255 - mean) / std of them; presets are unit, signed, imagenet and clip; behind a "
        "comma NHWC (default) or NCHW; or JSON with layout, scale, mean and std by input"),
    STR(weights, "weights", NULL,
        "safetensors file whose tensors replace the initializers of the same names, as "
        "save_file(model.state_dict()) writes it"),
    BOOL(wait, "wait", "wait until the version is READY"),
    INT(wait_s, "wait-s", 600, 1, 86400, "longest wait, s"),
};
static const struct sh_conf_opt PUSH_DATASET[] = {
    STR(tensor, "tensor", "input",
        "pictures and tables: name of their tensor, normally the model's input; the labels' is "
        "\"label\""),
    STR(label_column, "label", NULL, "table: the column with the labels (required)"),
    INT(resize, "resize", 0, 0, 20000, "pictures: first resize the shorter side to so many pixels"),
    STR(size, "size", NULL,
        "pictures: then crop the middle, HEIGHTxWIDTH or one number for both; without --resize the "
        "picture is first shrunk until it just holds that. Without --size all must have the same "
        "size"),
    BOOL(stretch, "stretch",
         "pictures: scale the whole picture to --size, even if that distorts it"),
    BOOL(grey, "grey", "pictures: one channel instead of red, green and blue"),
    STR(layout, "layout", "nchw", "pictures: nchw, or nhwc if the model's channels are last"),
    STR(tmp_dir, "tmp-dir", "/var/tmp",
        "folder with room for the dataset: unless it is a safetensors file, it is written there "
        "until it is pushed"),
    BOOL(skip_broken, "skip-broken",
         "pictures: skip unreadable ones, and tell how many; without it the first one ends the "
         "push"),
};
static const struct sh_conf_opt SLO_SET[] = {
    NUMBER(latency_ms, "latency-ms", NULL, 0.001, 3.6e6, "target, ms (required)"),
    NUMBER(percentile, "percentile", "99", 0.001, 99.999,
           "percentage of the requests that have to meet it"),
    NUMBER(target_priority, "priority", "0", 0, 100, "higher goes first"),
    WORD(on_miss, "on-miss", "best-effort", "reject, delay or best-effort"),
};
static const struct sh_conf_opt ALIAS_SET[] = {
    BOOL(sticky, "sticky",
         "requests with the same API key get the same version; those with a header Shunt-Session "
         "do so in any case"),
    BOOL(auto_rollback, "auto-rollback",
         "roll it back by itself when a version whose share has grown does worse than the versions "
         "before; implied by the options below"),
    NUMBER(window_s, "window-s", "300", 10, 86400, "time that counts, s"),
    NUMBER(min_requests, "min-requests", "50", 1, 1e6, "of a version, before it is judged"),
    NUMBER(error_percent, "error-percent", "5", 0, 100,
           "how many more requests may fail, in percent; 0: do not look at failures"),
    NUMBER(burn_rate, "burn-rate", "10", 0, 1e5,
           "how many times faster than allowed the latency target may be missed; 0: do not look"),
};
static const struct sh_conf_opt SLO_REPORT[] = {
    STR(window, "window", "1h", "5m, 1h or 1d"),
};
static const struct sh_conf_opt LOAD[] = {
    BOOL(wait, "wait", "wait until the version, or the newest, is READY"),
    INT(wait_s, "wait-s", 600, 1, 86400, "longest wait, s"),
};
static const struct sh_conf_opt UNLOAD[] = {
    BOOL(wait, "wait", "wait until no executor holds them"),
    INT(wait_s, "wait-s", 600, 1, 86400, "longest wait, s"),
};
static const struct sh_conf_opt SUBMIT[] = {
    STR(kind, "kind", "training", "training, or batch-inference: the model over the whole dataset"),
    STR(model, "model", NULL,
        "MODEL or MODEL:VERSION to train or to run (required); for MODEL, batch inference runs the "
        "newest version, and training starts from the newest uploaded one"),
    STR(dataset, "dataset", NULL, "dataset to train on, or with the inputs (required)"),
    STR(eval_dataset, "eval-dataset", NULL,
        "dataset for evaluations: at the end, and between steps"),
#define TRAIN_OPTION(...)
#define TRAIN_FLAG(flag, part, name, type, least, most, value, into, text, ...) \
    SPEC_##type(train.part##_##name, flag, value, least, most, text),
#include "common/train_option.def"
#undef TRAIN_FLAG
#undef TRAIN_OPTION
    BOOL(go_on, "continue",
         "continue from the newest version, even a trained one; without this and a VERSION, "
         "training starts from the newest uploaded one"),
    STR(map, "map", NULL,
        "batch inference: INPUT=TENSOR,... if model and dataset use different names"),
    STR(keep, "outputs", NULL, "batch inference: NAME,... of the outputs to keep; default: all"),
    STR(spec, "spec", NULL, "JSON file with the spec; the options above override it"),
    STR(job_name, "name", NULL, "a name for people"),
    WORD(queue, "queue", "default", "queue"),
    INT(priority, "priority", 0, -1000, 1000, "higher goes first"),
    INT(max_attempts, "max-attempts", 5, 1, 100, "starts before the job counts as failed"),
    STR(job_labels, "label", NULL, "labels of the job: KEY=VALUE,KEY=VALUE"),
    STR(deadline, "deadline", NULL,
        "time such as 2027-01-31T00:00:00Z; a job that cannot end by then is not started"),
    NUMBER(min_runtime_ms, "min-runtime-ms", NULL, 0, 864e5,
           "time before which no other job takes its place, ms; default: the scheduler's "
           "--min-run-ms"),
    NUMBER(n_gpus, "gpus", NULL, 1, SH_JOB_MOST_GPUS,
           "GPUs that it has at once; default: 1, the most that this release runs a job on"),
    BOOL(no_preempt, "no-preempt",
         "no other job ever takes its place; such jobs run only within the tenant's guarantee"),
    BOOL(hold, "hold", "do not start it before `shunt release`"),
    STR(array, "array", NULL,
        "many jobs that differ in an index: 0-99, 0-98:2 or 1,5,7-9; 0-99%4 runs 4 at once; "
        "{index} in --name and --label becomes the index, which is also added to --seed"),
    SH_OPT_STR(
        ST, grid, "set", NULL, SH_CONF_MANY,
        "a field of the spec: --set lr=0.1, --set schedule.name=cosine; several values, --set "
        "lr=0.1,0.01, make an array with a job for each, or for every combination of several "
        "fields, and for every index of --array; {lr} in --name and --label becomes the value, "
        "which is also a label of the job"),
    STR(file, "file", NULL,
        "many jobs from a file, -: standard input: a JSON array of jobs, or one a line, each as in "
        "POST /api/v1/jobs; other options are then ignored; short: -f"),
    STR(token, "token", NULL, "submitting again with the same token returns the first job"),
    BOOL(wait, "wait", "wait for the end and show progress; what it trains is READY then"),
    INT(wait_s, "wait-s", 86400, 1, 31536000, "longest wait, s"),
};
static const struct sh_conf_opt QUOTA_SET[] = {
#define QUOTA(name, type, least, most, value, text) FIELD(#name, #value, least, most, text),
#include "common/quota.def"
#undef QUOTA
};
static const struct sh_conf_opt TENANT_SET[] = {
    STR(state, "state", NULL,
        "SUSPENDED (its keys can only read, its jobs do not start) or ACTIVE"),
};
static const struct sh_conf_opt GET_JOBS[] = {
    BOOL(live, "live", "only jobs that have not ended: running ones first, then waiting ones"),
    STR(state, "state", NULL, "only jobs in one of these states: QUEUED,HELD"),
    STR(queue, "queue", NULL, "only jobs of this queue"),
    STR(job_labels, "label", NULL, "only jobs with these labels: KEY=VALUE,KEY=VALUE"),
    STR(array, "array", NULL, "only jobs of this array"),
};
static const struct sh_conf_opt CONTROL[] = {
    STR(array, "array", NULL, "instead of JOB: all jobs of this array that allow it"),
};
static const struct sh_conf_opt SUSPEND[] = {
    STR(array, "array", NULL, "instead of JOB: all jobs of this array that allow it"),
    BOOL(wait, "wait", "wait until no executor has them and their checkpoints are written"),
    INT(wait_s, "wait-s", 600, 1, 86400, "longest wait, s"),
};
static const struct sh_conf_opt SET_ARRAY[] = {
    NUMBER(max_parallel, "max-parallel", NULL, 1, 2147483647,
           "most of its jobs to run at once; \"none\": no limit"),
};
static const struct sh_conf_opt SET_JOB[] = {
    NUMBER(new_priority, "priority", NULL, -1000, 1000, "higher goes first"),
    STR(job_labels, "label", NULL, "KEY=VALUE,KEY=VALUE; KEY= removes a label"),
    STR(deadline, "deadline", NULL, "time such as 2027-01-31T00:00:00Z; \"none\" removes it"),
};
static const struct sh_conf_opt WAIT[] = {
    INT(wait_s, "wait-s", 3600, 1, 31536000, "longest wait, s"),
};
static const struct sh_conf_opt EVENTS[] = {
    BOOL(follow, "follow", "go on until the job ends; for all jobs: for ever; short: -f"),
    BOOL(watch, "watch", "the same as --follow"),
    STR(state, "state", NULL, "all jobs: only changes to one of these states: RUNNING,FAILED"),
    STR(queue, "queue", NULL, "all jobs: only those of this queue"),
    STR(job_labels, "label", NULL, "all jobs: only those with these labels: KEY=VALUE,KEY=VALUE"),
    STR(from, "from", NULL, "all jobs: since this time, such as 2027-01-31T00:00:00Z"),
    INT(last, "last", 20, 1, 1000, "all jobs, without --from: so many of the last day"),
};
static const struct sh_conf_opt LOSSES[] = {
    INT(last, "last", 20, 1, 1000000000, "print only this many"),
};
static const struct sh_conf_opt LOGS[] = {
    BOOL(follow, "follow", "go on until the job has ended; short: -f"),
    INT(tail, "tail", -1, -1, 1000000000, "only so many of the present lines; -1: all"),
};
static const struct sh_conf_opt RESULT[] = {
    STR(out, "out", NULL,
        "write the job's file to this file: the outputs (safetensors) or the trained model (ONNX)"),
};
static const struct sh_conf_opt SIMULATE[] = {
    STR(gpus, "gpus", NULL,
        "+2: two GPUs more, like the largest; -1: without the last one; 4: so many"),
    SH_OPT_STR(ST, grid, "set", NULL, SH_CONF_MANY,
               "something else that is otherwise: tenant.NAME.guarantee=4, tenant.NAME.weight=2, "
               "model.NAME.slo_ms=20, job.ID.priority=10, queue.NAME.open=true, "
               "scheduler.min_run_ms=60000; null: no limit"),
    STR(file, "file", NULL,
        "JSON list of {\"set\": PATH, \"to\": VALUE}, before the others; short: -f"),
    SH_OPT_F64(ST, hours, "hours", 0, 0, 24, 0,
               "jobs and requests of the last so many hours come again, from now on; 0: only what "
               "waits and runs now"),
    STR(trace, "trace", NULL,
        "requests that come instead of recorded ones: a file of lines at_s,tenant,model,batch, of "
        "which the first has these names"),
    STR(save, "save", NULL, "write the snapshot to this file, and answer from it on this machine"),
    STR(snapshot, "snapshot", NULL,
        "a file written by --save: asks no server, and answers about that moment"),
};
static const struct sh_conf_opt INFER[] = {
    STR(inputs, "inputs", NULL,
        "a safetensors file with tensors named as the model's inputs; a NumPy array (.npy), or "
        "NAME=FILE,... for several; or JSON: the body of a request, or {\"NAME\": lists of "
        "numbers}"),
    STR(image, "image", NULL,
        "a picture instead, JPEG or PNG, as one row: colours from 0 to 1 in RGB, or grey if the "
        "model has one channel; use --resize, --crop, --mean and --std as in its training. A model "
        "that takes UINT8 gets its bytes"),
    INT(resize, "resize", 0, 0, 20000, "picture: first resize its shorter side to so many pixels"),
    INT(crop, "crop", 0, 0, 20000, "picture: then crop the middle, so many pixels a side"),
    STR(mean, "mean", NULL, "picture: then subtract this, R,G,B or one number: 0.485,0.456,0.406"),
    STR(std, "std", NULL, "picture: then divide by this, R,G,B or one number: 0.229,0.224,0.225"),
    STR(layout, "layout", NULL,
        "picture: nchw, or nhwc if the model's channels are last; default: what its shape says"),
    STR(sizes, "sizes", NULL,
        "with --random: sizes of the axes that the model's file leaves open (shape -1), except the "
        "first: 128, or 224,160, used in turn"),
    INT(random, "random", -1, -1, 1000000000,
        "send random inputs with this seed instead of a file: --batch rows, default 1; -1: off"),
    STR(outputs, "outputs", NULL, "write the outputs to this safetensors file"),
    INT(top, "top", 1, 1, 1000, "print so many classes of each row; above 1 with their scores"),
    STR(truth, "labels", NULL,
        "safetensors FILE:TENSOR with the right classes: prints the accuracy"),
    INT(rows, "batch", 0, 0, 65536,
        "send one request with this many rows; 0: all rows, in requests of the model's max batch"),
    INT(offset, "offset", 0, 0, 1000000000, "first row"),
    INT(repeat, "repeat", 1, 1, 100000000, "repeat it so many times"),
};
static const struct sh_conf_opt TOP[] = {
    INT(interval_ms, "interval-ms", 1000, 100, 60000, "time between looks, ms"),
    BOOL(once, "once", "print once and end"),
};

#define OPTS(list) list, SH_ARRAY_LEN(list)
#define NONE NULL, 0

/* clang-format off */
static const struct cli_cmd CMDS[] = {
    {"up", NULL, "",
     "start the whole system on this machine: database, scheduler, executors, API; its state is in "
     ".shunt in the current folder, or in --state-dir",
     up_main, OPTS(UP)},
    {"doctor", NULL, "",
     "is this machine fit for a system: driver, CUDA and cuDNN, the bus and its measured rate, "
     "limits, memory, clocks, disk, ports, PostgreSQL; says what to change",
     doctor_main, OPTS(DOCTOR)},
    {"trace", NULL, "",
     "write what the system did in the last seconds to one file for Perfetto: requests, runs, "
     "switches, copies, training, of every process on one axis",
     trace_main, OPTS(TRACE)},
    {"down", NULL, "", "stop what `shunt up` started", down_main, OPTS(DOWN)},
    {"backup", NULL, "FILE",
     "write database, models, datasets, checkpoints, results and keys of a local system to one "
     "file, while it runs; - is standard output",
     backup_main, OPTS(BACKUP)},
    {"restore", NULL, "FILE",
     "make a new --state-dir from a backup, here or on another machine; then run `shunt up`",
     restore_main, OPTS(BACKUP)},
    {"status", NULL, "",
     "processes, health, executors, models and jobs of a local system; without one, of --server",
     status_main, NONE},
    {"top", NULL, "",
     "what runs, on a full screen: GPUs, tenants, models, jobs, queues, switches; ? shows the "
     "keys; into a pipe as text",
     top_main, OPTS(TOP)},

    {"create", "tenant", "NAME", "create a tenant with the default quota", tenant_create, NONE},
    {"create", "key", "NAME",
     "create an API key for --tenant; the key is shown only this once", key_create,
     OPTS(KEY_CREATE)},
    {"create", "model", "NAME",
     "create a model: a name for versions", model_create, OPTS(MODEL_CREATE)},
    {"create", "dataset", "NAME", "create a dataset; push its file next", dataset_create, NONE},
    {"create", "queue", "NAME",
     "create a queue for --tenant; an admin without --tenant creates a shared one",
     queue_create, OPTS(QUEUE_SET)},

    {"rotate", "key", "ID",
     "give an API key of --tenant a new secret, shown only this once", key_rotate,
     OPTS(KEY_ROTATE)},

    {"push", "model", "NAME FILE",
     "upload an ONNX file, and the files beside it that hold its weights, as the next version; "
     "creates the model if needed",
     model_push, OPTS(PUSH_MODEL)},
    {"push", "dataset", "NAME FILE...",
     "upload a safetensors file, or several that are parts of one dataset; or a folder with a "
     "folder of pictures (JPEG, PNG) for each class, numbered in the order of their names; or "
     "NumPy arrays: .npz, or .npy, each named as its file or by TENSOR=FILE; or a table with "
     "column names in its first row (.csv); creates the dataset if needed",
     dataset_push, OPTS(PUSH_DATASET)},

    {"get", "tenants", "[NAME]", "tenants, or one with its state", tenant_get, NONE},
    {"get", "keys", "[ID]", "API keys of --tenant, without secrets", key_get, NONE},
    {"get", "quota", "[TENANT]", "quota of a tenant", quota_get, NONE},
    {"get", "models", "[NAME]",
     "models, with requests a second and latencies of the last minute, or one", model_get, NONE},
    {"get", "versions", "MODEL[:VERSION]",
     "versions of a model, or one with its tensors", version_get, NONE},
    {"get", "placements", "MODEL[:VERSION]",
     "where a version is: state and bytes on each executor", placement_get, NONE},
    {"get", "profile", "MODEL[:VERSION]",
     "how long runs of a version take by batch, and what is predicted", profile_get, NONE},
    {"get", "slo", "MODEL", "latency target of a model", slo_get, NONE},
    {"get", "aliases", "MODEL[:ALIAS]",
     "aliases of a model: the versions that they stand for, and before; or one", alias_get, NONE},
    {"get", "datasets", "[NAME]", "datasets, or one with its tensors", dataset_get, NONE},
    {"get", "queues", "[NAME]", "queues that --tenant may use", queue_get, NONE},
    {"get", "usage", "[TENANT]", "device time, requests and samples", usage_get, OPTS(USAGE_GET)},
    {"get", "share", "[TENANT]",
     "the basis of the scheduler's decisions: guarantees, fair shares, usage", share_get, NONE},
    {"get", "audit", "", "every change, newest first; for admin keys", audit_get, OPTS(AUDIT_GET)},
    {"get", "jobs", "[JOB]", "jobs, newest first, or one job", job_get, OPTS(GET_JOBS)},
    {"get", "arrays", "[ARRAY]",
     "arrays of jobs, newest first: how many jobs of each wait, run or have ended; or one",
     array_get, NONE},
    {"get", "checkpoints", "JOB",
     "the checkpoints of a job; the files of the last two are kept", job_checkpoints, NONE},
    {"get", "gpus", "[NAME]", "GPUs, or one with its models, runs and job", gpu_get, NONE},
    {"get", "options", "", "options of the API: which are live, which have been changed",
     option_get, NONE},
    {"get", "executors", "[NAME]", "another name for get gpus", gpu_get, NONE},

    {"set", "tenant", "NAME", "suspend a tenant, or make it active again", tenant_set,
     OPTS(TENANT_SET)},
    {"set", "visibility", "MODEL private|shared",
     "share a model with every tenant for inference, or stop sharing it", model_share, NONE},
    {"set", "slo", "MODEL", "set the latency target of a model", slo_set, OPTS(SLO_SET)},
    {"set", "alias", "MODEL:ALIAS VERSION[=WEIGHT]...",
     "let an alias stand for versions, each with a share of the requests; creates it if needed",
     alias_set, OPTS(ALIAS_SET)},
    {"set", "options", "OPTION=VALUE...",
     "change live options of every API, running or future; OPTION=null: the value at start",
     option_set, NONE},
    {"set", "job", "JOB", "change priority, labels or deadline of a job", job_set, OPTS(SET_JOB)},
    {"set", "array", "ARRAY", "change how many jobs of an array run at once", array_set,
     OPTS(SET_ARRAY)},
    {"set", "queue", "NAME", "hold, drain or open a queue of --tenant, or change its priority",
     queue_set, OPTS(QUEUE_SET)},
    {"set", "quota", "TENANT FIELD=VALUE...",
     "change a tenant's quota: max_gpus=2 gpu_memory_max_bytes=1.5Gi; null: no own limit",
     quota_set, NONE, OPTS(QUOTA_SET)},

    {"delete", "tenant", "NAME", "delete a tenant that has no live jobs", tenant_delete, NONE},
    {"delete", "key", "ID", "revoke an API key at once", key_delete, NONE},
    {"delete", "model", "MODEL[:VERSION]",
     "delete a model with all versions, or one version", model_delete, NONE},
    {"delete", "slo", "MODEL", "remove the latency target of a model", slo_delete, NONE},
    {"delete", "alias", "MODEL:ALIAS", "delete an alias; its versions stay", alias_delete, NONE},
    {"delete", "queue", "NAME", "delete a queue of --tenant that has no live jobs", queue_delete,
     NONE},
    {"delete", "dataset", "NAME", "delete a dataset", dataset_delete, NONE},
    {"delete", "result", "JOB", "remove a job's file, which counts as storage until then",
     job_result_delete, NONE},

    {"load", NULL, "MODEL[:VERSION]",
     "load a version that was unloaded or failed; without a version, all such", model_load,
     OPTS(LOAD)},
    {"unload", NULL, "MODEL[:VERSION]",
     "unload versions that are not pinned from all executors; requests for them are refused until "
     "they are loaded",
     model_unload, OPTS(UNLOAD)},
    {"pin", NULL, "MODEL[:VERSION]",
     "keep images in device memory, within the tenant's quota", model_pin, NONE},
    {"unpin", NULL, "MODEL[:VERSION]", "let images be evicted like any other", model_unpin, NONE},
    {"promote", NULL, "MODEL[:ALIAS] VERSION|ALIAS",
     "let an alias (default: stable) stand for this version, or for what another alias stands for",
     alias_promote, NONE},
    {"rollback", NULL, "MODEL[:ALIAS]",
     "take an alias (default: stable) back to what it stood for before", alias_rollback, NONE},
    {"slo", "report", "MODEL", "how well the latency target was met", slo_report, OPTS(SLO_REPORT)},

    {"submit", NULL, "", "submit a job, an array of jobs (--array, --set) or many (--file)",
     job_submit,
     OPTS(SUBMIT)},
    {"cancel", NULL, "[JOB]...", "cancel jobs", job_control, OPTS(CONTROL)},
    {"hold", NULL, "[JOB]...", "keep queued jobs from starting", job_control, OPTS(CONTROL)},
    {"release", NULL, "[JOB]...", "let held jobs start", job_control, OPTS(CONTROL)},
    {"suspend", NULL, "[JOB]...",
     "take jobs from their executors, with a checkpoint, until they are resumed",
     job_control, OPTS(SUSPEND)},
    {"resume", NULL, "[JOB]...", "resume suspended jobs", job_control, OPTS(CONTROL)},
    {"requeue", NULL, "[JOB]...",
     "take jobs from their executors, with a checkpoint, and put them at the end of their queues",
     job_control, OPTS(CONTROL)},
    {"checkpoint", NULL, "[JOB]...", "write a checkpoint after the next step",
     job_control, OPTS(CONTROL)},
    {"wait", "job", "JOB",
     "wait for a job's end; exit status 0 if it succeeded", job_wait, OPTS(WAIT)},
    {"wait", "array", "ARRAY",
     "wait for the end of all jobs of an array; exit status 0 if all succeeded", array_wait,
     OPTS(WAIT)},
    {"wait", "model", "MODEL[:VERSION]",
     "wait until a version is READY, that is, loaded; `shunt get placements` shows where it is",
     model_wait, OPTS(WAIT)},
    {"explain", NULL, "JOB|MODEL[:VERSION]",
     "why a job waits or keeps its place, or where a model is, in words", job_explain, NONE},
    {"events", NULL, "[JOB]", "every change of a job's state; without a job, of all jobs",
     job_events, OPTS(EVENTS)},
    {"gpus", NULL, "[NAME]", "GPUs: memory, link, models, what runs on them now", gpu_get, NONE},
    {"losses", NULL, "JOB", "loss of each committed step", job_losses, OPTS(LOSSES)},
    {"logs", NULL, "JOB", "the log of a job: progress, checkpoints, its end",
     job_logs, OPTS(LOGS)},
    {"result", NULL, "JOB", "the result of a job; --out saves its file", job_result, OPTS(RESULT)},
    {"infer", NULL, "MODEL[:VERSION]",
     "send inference requests and show results and latency; VERSION may be an alias",
     infer_main, OPTS(INFER)},

    {"simulate", NULL, "",
     "predict waiting times, ends and shares of jobs, as things are and with changes; "
     "for admin keys",
     simulate_main, OPTS(SIMULATE)},

    {"whoami", NULL, "", "id, role and tenant of the key in use", whoami_main, NONE},
    {"config", "profiles", "[NAME]", "sections of the config file: servers with their keys",
     config_get, NONE},
    {"config", "set", "NAME FIELD=VALUE...",
     "create or change a profile: server=URL key-file=FILE tenant=NAME; FIELD= removes a field",
     config_set, NONE},
    {"config", "use", "NAME", "use a profile if --profile is not given", config_use, NONE},
    {"config", "delete", "NAME", "delete a profile", config_delete, NONE},
};
/* clang-format on */

#define LOCAL "The system on this machine"
#define THINGS "Tenants, keys, models, datasets, queues, jobs"
#define PLACES "Models on executors"
#define JOBS "Jobs"

/* clang-format off */
static const struct cli_verb VERBS[] = {
    {"up", LOCAL, NONE}, {"down", LOCAL, NONE}, {"doctor", LOCAL, NONE},
    {"trace", LOCAL, NONE},
    {"backup", LOCAL, NONE},
    {"restore", LOCAL, NONE}, {"status", LOCAL, NONE}, {"top", LOCAL, NONE},
    {"get", THINGS, OPTS(READ)},
    {"create", THINGS, OPTS(CHANGE)},
    {"set", THINGS, OPTS(CHANGE)},
    {"delete", THINGS, OPTS(CHANGE)},
    {"rotate", THINGS, OPTS(CHANGE)},
    {"push", THINGS, NONE},
    {"load", PLACES, OPTS(CHANGE)},
    {"unload", PLACES, OPTS(CHANGE)},
    {"pin", PLACES, OPTS(CHANGE)},
    {"unpin", PLACES, OPTS(CHANGE)},
    {"promote", PLACES, OPTS(CHANGE)},
    {"rollback", PLACES, OPTS(CHANGE)},
    {"slo", PLACES, NONE},
    {"infer", PLACES, NONE}, {"gpus", PLACES, OPTS(READ)},
    {"submit", JOBS, OPTS(CHANGE)},
    {"cancel", JOBS, OPTS(CHANGE)},
    {"hold", JOBS, OPTS(CHANGE)},
    {"release", JOBS, OPTS(CHANGE)},
    {"suspend", JOBS, OPTS(CHANGE)},
    {"resume", JOBS, OPTS(CHANGE)},
    {"requeue", JOBS, OPTS(CHANGE)},
    {"checkpoint", JOBS, OPTS(CHANGE)},
    {"simulate", JOBS, NONE}, {"wait", JOBS, NONE}, {"explain", JOBS, NONE},
    {"events", JOBS, NONE}, {"losses", JOBS, NONE},
    {"logs", JOBS, NONE}, {"result", JOBS, NONE},
    {"whoami", "This program", NONE}, {"config", "This program", NONE},
};
/* clang-format on */

const struct cli_table CLI_TABLE = {
    .cmds = CMDS,
    .n_cmds = SH_ARRAY_LEN(CMDS),
    .verbs = VERBS,
    .n_verbs = SH_ARRAY_LEN(VERBS),
    .common = COMMON,
    .n_common = SH_ARRAY_LEN(COMMON),
};
