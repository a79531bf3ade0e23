/* cmds.c - the table of commands and their options. */
#include "cli/cli.h"
#include "cli/commands.h"
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
        "URL of the API; without it that of `shunt up` in --state-dir, "
        "or, where no folder is named and nothing runs in .shunt, http://127.0.0.1:8000"),
    SH_OPT_STR(ST, key, "key", NULL, SH_CONF_SECRET, "API key"),
    STR(key_file, "key-file", NULL, "file with the API key; without it <state-dir>/admin.key"),
    STR(ca_file, "ca-file", NULL,
        "PEM file of who signed the certificate of an https server, instead of those that this "
        "host "
        "trusts"),
    STR(tenant, "tenant", NULL, "whose things are meant; needed with an admin key; short: -n"),
    STR(output, "output", "table", "table, wide (more columns), json, yaml or name; short: -o"),
    STR(profile, "profile", NULL, "section of the config file: a server with its key, say"),
    STR(state_dir, "state-dir", CLI_STATE_DIR,
        "folder of a system started with `shunt up`; one that does not begin with / is below the "
        "current folder"),
    BOOL(quiet, "quiet", "no progress and no remarks"),
};

static const struct sh_conf_opt READ[] = {
    BOOL(watch, "watch", "go on, and print what is new or has changed; short: -w"),
    INT(every_ms, "every-ms", 1000, 100, 3600000, "with --watch: time between two looks, ms"),
    BOOL(all_tenants, "all-tenants", "lists: of every tenant that the key may see; short: -A"),
};
static const struct sh_conf_opt CHANGE[] = {
    BOOL(dry_run, "dry-run", "the server checks everything and changes nothing"),
};

static const struct sh_conf_opt UP[] = {
    INT(port, "port", 8000, 0, 65000,
        "HTTP port of the API, metrics from port+100 on; 0 = any free"),
    STR(bind, "bind", "127.0.0.1", "address that the API listens on"),
    STR(metrics_bind, "metrics-bind", "127.0.0.1",
        "address that /metrics of every process listens on: it asks for no key, and names tenants "
        "and models"),
    STR(device, "device", "cpu", "device of the executors: cpu or cuda"),
    INT(executors, "executors", 1, 1, 64, "executors, one for each device of the host"),
    INT(schedulers, "schedulers", 1, 1, 4, "one leads, the others stand by"),
    INT(workers, "workers", 3, 2, 64, "worker processes of an executor"),
    SH_OPT_BYTES(ST, pool_bytes, "pool-bytes", "1G", 1 << 24, 1e13, 0,
                 "device memory that an executor owns, bytes"),
    INT(threads, "threads", 0, 0, 1024,
        "compute threads of a worker on the cpu device; 0 = its "
        "default"),
    SH_OPT_F64(ST, copy_gb_per_s, "copy-gb-per-s", 0, 0, 10000, 0,
               "slows copies of the cpu device to this rate, GB/s; 0 = full speed"),
    INT(busy_poll_us, "busy-poll-us", -1, -1, 10000000,
        "behind a request every daemon asks for the next event for so long before it sleeps, us; a "
        "core for each daemon, each worker and, for each 8 cores, an HTTP thread meanwhile. -1 = "
        "200000 with the cuda device and 16 cores for each executor, else 0"),
    SH_OPT_STR(ST, db_url, "db-url", NULL, SH_CONF_SECRET,
               "libpq connection string; without it DATABASE_URL, else a private cluster"),
    STR(pg_bin, "pg-bin", NULL, "folder of PostgreSQL's initdb and postgres"),
    STR(migrations_dir, "migrations-dir", NULL, "folder of NNNN_name.sql"),
    STR(dashboards_dir, "dashboards-dir", NULL,
        "folder with prometheus/ for <state-dir>/prometheus"),
    INT(wait_s, "wait-s", 60, 1, 3600, "longest wait for the system to be ready, s"),
    STR(log_level, "log-level", "info", "of every process: error, warn, info or debug"),
    BOOL(foreground, "foreground", "stay in the foreground; INT or TERM stops everything"),
};
static const struct sh_conf_opt DOWN[] = {
    BOOL(purge, "purge", "remove what is in the state folder too: database, models, logs"),
};
static const struct sh_conf_opt BACKUP[] = {
    SH_OPT_STR(
        ST, db_url, "db-url", NULL, SH_CONF_SECRET,
        "libpq connection string of a system whose database is not in its folder; without it "
        "DATABASE_URL"),
    STR(pg_bin, "pg-bin", NULL, "folder of PostgreSQL's programs"),
};
static const struct sh_conf_opt KEY_CREATE[] = {
    STR(role, "role", "submit", "tenant-admin, submit, infer or read"),
    STR(expires_at, "expires-at", NULL, "time such as 2027-01-31T00:00:00Z"),
    STR(save, "save", NULL, "write the key to this file (mode 0600), which must not be there yet"),
};
static const struct sh_conf_opt KEY_ROTATE[] = {
    INT(overlap_s, "overlap-s", 0, 0, 2592000, "the old secret is valid for so much longer, s"),
    STR(save, "save", NULL,
        "write the key to this file (mode 0600), which must not be there yet or hold this key"),
};
static const struct sh_conf_opt QUEUE_SET[] = {
    STR(state, "state", NULL, "OPEN, HELD (starts nothing) or DRAINING (takes nothing new)"),
    NUMBER(target_priority, "priority", NULL, -1000, 1000, "added to that of each job"),
};
static const struct sh_conf_opt USAGE_GET[] = {
    STR(by, "by", "class", "class, model, minute, hour or day"),
    STR(from, "from", NULL, "time such as 2027-01-31T00:00:00Z; without it a day before --to"),
    STR(to, "to", NULL, "time, not included; without it now"),
    STR(class, "class", NULL, "inference or training alone"),
    STR(model, "model", NULL, "this model alone"),
};
static const struct sh_conf_opt AUDIT_GET[] = {
    STR(actor, "actor", NULL, "id of the key that made the changes"),
    STR(action, "action", NULL, "such as key.rotate, or key for all of them"),
    STR(resource, "resource", NULL, "such as model/digits"),
    STR(from, "from", NULL, "time such as 2027-01-31T00:00:00Z"),
    STR(to, "to", NULL, "time, not included"),
};
static const struct sh_conf_opt MODEL_CREATE[] = {
    STR(visibility, "visibility", "private", "private, or shared with every tenant for inference"),
};
static const struct sh_conf_opt PUSH_MODEL[] = {
    NUMBER(max_batch, "max-batch", NULL, 1, 1024,
           "most samples in one run; without it the batch that the file fixes, else 8"),
    STR(precision, "precision", "fp32", "fp32, tf32, fp16 or bf16"),
    STR(buckets, "buckets", NULL,
        "sizes that requests are filled up to, of axes that the file leaves open, as in "
        "length=64,128,512 or \"height=256,512 width=256,512\": few shapes are compiled, and "
        "requests of unlike sizes run together; refused where answers might change"),
    STR(weights, "weights", NULL,
        "safetensors file whose tensors replace the initializers of the same names, as "
        "save_file(model.state_dict()) writes it"),
    BOOL(wait, "wait", "wait until the version is READY"),
    INT(wait_s, "wait-s", 600, 1, 86400, "longest wait, s"),
};
static const struct sh_conf_opt PUSH_DATASET[] = {
    STR(tensor, "tensor", "input",
        "of pictures and tables: name of their tensor, as which the model's input is known; that "
        "of the labels is \"label\""),
    STR(label_column, "label", NULL, "of a table: the column with the labels (required)"),
    INT(resize, "resize", 0, 0, 20000, "of pictures: first the shorter side to so many pixels"),
    STR(size, "size", NULL,
        "of pictures: then the middle of HEIGHTxWIDTH, or of one number for both; without --resize "
        "the picture is first made as small as just holds that. Without it all must be of one "
        "size"),
    BOOL(stretch, "stretch",
         "of pictures: all of it to --size, whatever that does to its proportions"),
    BOOL(grey, "grey", "of pictures: one channel instead of red, green and blue"),
    STR(layout, "layout", "nchw", "of pictures: nchw, or nhwc where the model's channels are last"),
    STR(tmp_dir, "tmp-dir", "/var/tmp",
        "folder with room for the dataset, which is written there until it is pushed, if it is no "
        "safetensors file"),
    BOOL(skip_broken, "skip-broken",
         "of pictures: leave out those that cannot be read, and say how many; without it the first "
         "one ends the push"),
};
static const struct sh_conf_opt SLO_SET[] = {
    NUMBER(latency_ms, "latency-ms", NULL, 0.001, 3.6e6, "target, ms (required)"),
    NUMBER(percentile, "percentile", "99", 0.001, 99.999, "of the requests, such as 99"),
    NUMBER(target_priority, "priority", "0", 0, 100, "higher goes first"),
    WORD(on_miss, "on-miss", "best-effort", "reject, delay or best-effort"),
};
static const struct sh_conf_opt SLO_REPORT[] = {
    STR(window, "window", "1h", "5m, 1h or 1d"),
};
static const struct sh_conf_opt LOAD[] = {
    BOOL(wait, "wait", "wait until the version, or the newest, is READY"),
    INT(wait_s, "wait-s", 600, 1, 86400, "longest wait, s"),
};
static const struct sh_conf_opt UNLOAD[] = {
    BOOL(wait, "wait", "wait until no executor holds them any more"),
    INT(wait_s, "wait-s", 600, 1, 86400, "longest wait, s"),
};
static const struct sh_conf_opt SUBMIT[] = {
    STR(kind, "kind", "training", "training, or batch-inference: the model over the whole dataset"),
    STR(model, "model", NULL,
        "MODEL or MODEL:VERSION to train or to run (required); of MODEL batch inference runs the "
        "newest, and training starts from the newest that was uploaded"),
    STR(dataset, "dataset", NULL, "dataset to train on, or of inputs (required)"),
    STR(eval_dataset, "eval-dataset", NULL,
        "dataset for the accuracy at the end, and for evaluations before"),
#define TRAIN_OPTION(...)
#define TRAIN_FLAG(flag, part, name, type, least, most, value, into, text, ...) \
    SPEC_##type(train.part##_##name, flag, value, least, most, text),
#include "common/train_option.def"
#undef TRAIN_FLAG
#undef TRAIN_OPTION
    BOOL(go_on, "continue",
         "train on from the newest version, a trained one too; without it and a VERSION training "
         "starts from the newest that was uploaded"),
    STR(map, "map", NULL, "batch inference: INPUT=TENSOR,... where model and dataset differ"),
    STR(keep, "outputs", NULL, "batch inference: NAME,... of the outputs to keep; all without it"),
    STR(spec, "spec", NULL, "JSON file with the spec; options above win over it"),
    STR(job_name, "name", NULL, "a name for people"),
    WORD(queue, "queue", "default", "queue"),
    INT(priority, "priority", 0, -1000, 1000, "higher goes first"),
    INT(max_attempts, "max-attempts", 5, 1, 100, "starts before the job counts as failed"),
    STR(job_labels, "label", NULL, "labels of the job: KEY=VALUE,KEY=VALUE"),
    STR(deadline, "deadline", NULL,
        "time such as 2027-01-31T00:00:00Z; a job that cannot end by then is not started"),
    NUMBER(min_runtime_ms, "min-runtime-ms", NULL, 0, 864e5,
           "no other job takes its place before, ms; without it the scheduler's --min-run-ms"),
    BOOL(no_preempt, "no-preempt",
         "no other job takes its place at all; such jobs run only within the tenant's guarantee"),
    BOOL(hold, "hold", "do not start before `shunt release`"),
    STR(array, "array", NULL,
        "many jobs that differ in an index: 0-99, 0-98:2 or 1,5,7-9; 0-99%4 runs 4 at once; "
        "{index} in --name and --label is the index, and it is added to --seed"),
    SH_OPT_STR(
        ST, grid, "set", NULL, SH_CONF_MANY,
        "a field of the spec: --set lr=0.1, --set schedule.name=cosine; with several values, --set "
        "lr=0.1,0.01, an array of a "
        "job for each, of several fields for every combination, and for each of these every index "
        "of --array; {lr} in --name and --label is the value, which is a label of the job too"),
    STR(file, "file", NULL,
        "many jobs from a file, - for standard input: a JSON array of jobs, or one a line, each as "
        "POST /api/v1/jobs takes it; short: -f; no other option counts then"),
    STR(token, "token", NULL, "submitting again with the same token gives the first job"),
    BOOL(wait, "wait", "wait for the end and show how it goes"),
    INT(wait_s, "wait-s", 86400, 1, 31536000, "longest wait, s"),
};
static const struct sh_conf_opt QUOTA_SET[] = {
#define QUOTA(name, type, least, most, value, text) FIELD(#name, #value, least, most, text),
#include "common/quota.def"
#undef QUOTA
};
static const struct sh_conf_opt TENANT_SET[] = {
    STR(state, "state", NULL, "SUSPENDED: its keys only read, its jobs do not start; ACTIVE"),
};
static const struct sh_conf_opt GET_JOBS[] = {
    BOOL(live, "live", "only those that have not ended: what runs first, then what waits"),
    STR(state, "state", NULL, "only those in one of these states: QUEUED,HELD"),
    STR(queue, "queue", NULL, "only those of this queue"),
    STR(job_labels, "label", NULL, "only those with these labels: KEY=VALUE,KEY=VALUE"),
    STR(array, "array", NULL, "only those of this array"),
};
static const struct sh_conf_opt CONTROL[] = {
    STR(array, "array", NULL, "instead of JOB: all jobs of this array that allow it"),
};
static const struct sh_conf_opt SUSPEND[] = {
    STR(array, "array", NULL, "instead of JOB: all jobs of this array that allow it"),
    BOOL(wait, "wait", "wait until no executor has them any more: their checkpoints are written"),
    INT(wait_s, "wait-s", 600, 1, 86400, "longest wait, s"),
};
static const struct sh_conf_opt SET_ARRAY[] = {
    NUMBER(max_parallel, "max-parallel", NULL, 1, 2147483647,
           "so many of its jobs run at once; \"none\": no limit"),
};
static const struct sh_conf_opt SET_JOB[] = {
    NUMBER(new_priority, "priority", NULL, -1000, 1000, "higher goes first"),
    STR(job_labels, "label", NULL, "KEY=VALUE,KEY=VALUE; KEY= removes one"),
    STR(deadline, "deadline", NULL, "time such as 2027-01-31T00:00:00Z; \"none\" removes it"),
};
static const struct sh_conf_opt WAIT[] = {
    INT(wait_s, "wait-s", 3600, 1, 31536000, "longest wait, s"),
};
static const struct sh_conf_opt EVENTS[] = {
    BOOL(follow, "follow", "go on until the job ends; of all jobs: for ever; short: -f"),
    BOOL(watch, "watch", "the same as --follow"),
    STR(state, "state", NULL, "of all jobs: only changes to one of these states: RUNNING,FAILED"),
    STR(queue, "queue", NULL, "of all jobs: only those of this queue"),
    STR(job_labels, "label", NULL, "of all jobs: only with these labels: KEY=VALUE,KEY=VALUE"),
    STR(from, "from", NULL, "of all jobs: since this time, such as 2027-01-31T00:00:00Z"),
    INT(last, "last", 20, 1, 1000, "of all jobs, without --from: so many of the last day"),
};
static const struct sh_conf_opt LOSSES[] = {
    INT(last, "last", 20, 1, 1000000000, "print only this many"),
};
static const struct sh_conf_opt LOGS[] = {
    BOOL(follow, "follow", "go on until the job has ended; short: -f"),
    INT(tail, "tail", -1, -1, 1000000000, "of what is there only so many lines; -1 = all"),
};
static const struct sh_conf_opt RESULT[] = {
    STR(out, "out", NULL,
        "write the job's file to this one: the outputs (safetensors) or the trained model (ONNX)"),
};
static const struct sh_conf_opt INFER[] = {
    STR(inputs, "inputs", NULL,
        "a safetensors file with tensors named as the model's inputs; an array of NumPy (.npy), or "
        "NAME=FILE,... of several; or JSON: the body of a request, or {\"NAME\": lists of "
        "numbers}"),
    STR(image, "image", NULL,
        "a picture instead, JPEG or PNG, as one row: its colours from 0 to 1 in RGB, or grey where "
        "the model has one channel; with --resize, --crop, --mean and --std as it was trained"),
    INT(resize, "resize", 0, 0, 20000, "of a picture: first its shorter side to so many pixels"),
    INT(crop, "crop", 0, 0, 20000, "of a picture: then the middle of so many pixels a side"),
    STR(mean, "mean", NULL,
        "of a picture: then minus this, R,G,B or one number: 0.485,0.456,0.406"),
    STR(std, "std", NULL, "of a picture: then over this, R,G,B or one number: 0.229,0.224,0.225"),
    STR(layout, "layout", "nchw",
        "of a picture: nchw, or nhwc where the model's channels are last"),
    STR(sizes, "sizes", NULL,
        "with --random: sizes of the axes that the model's file leaves open (shape -1), but for "
        "the "
        "first: 128, or 224,160; they take turns"),
    INT(random, "random", -1, -1, 1000000000,
        "send random inputs of this seed instead of a file: --batch rows, 1 without it; -1 = none"),
    STR(outputs, "outputs", NULL, "write the outputs to this safetensors file"),
    INT(top, "top", 1, 1, 1000, "print so many classes of a row, with their scores if above 1"),
    STR(truth, "labels", NULL,
        "safetensors FILE:TENSOR with the right classes: prints the accuracy"),
    INT(rows, "batch", 0, 0, 65536,
        "one request with this many rows; 0 = all rows, cut by the "
        "model's max batch"),
    INT(offset, "offset", 0, 0, 1000000000, "first row"),
    INT(repeat, "repeat", 1, 1, 100000000, "do it so many times"),
};
static const struct sh_conf_opt TOP[] = {
    INT(interval_ms, "interval-ms", 1000, 100, 60000, "time between two looks, ms"),
    BOOL(once, "once", "print once and end"),
};

#define OPTS(list) list, SH_ARRAY_LEN(list)
#define NONE NULL, 0

/* clang-format off */
static const struct cli_cmd CMDS[] = {
    {"up", NULL, "",
     "start the whole system on this machine: database, scheduler, executors, API; its state is in "
     ".shunt of the current folder, or in --state-dir",
     up_main, OPTS(UP)},
    {"down", NULL, "", "stop what `shunt up` started", down_main, OPTS(DOWN)},
    {"backup", NULL, "FILE",
     "write database, models, datasets, checkpoints, results and keys of a local system to one "
     "file, while it runs; - is standard output",
     backup_main, OPTS(BACKUP)},
    {"restore", NULL, "FILE",
     "make a new --state-dir of a backup, here or on another machine; then `shunt up`",
     restore_main, OPTS(BACKUP)},
    {"status", NULL, "",
     "processes, health, executors, models and jobs of a local system; without one, of --server",
     status_main, NONE},
    {"top", NULL, "", "what runs, again and again", top_main, OPTS(TOP)},

    {"create", "tenant", "NAME", "create a tenant with the default quota", tenant_create, NONE},
    {"create", "key", "NAME",
     "create an API key of --tenant; the key is shown this once", key_create, OPTS(KEY_CREATE)},
    {"create", "model", "NAME",
     "create a model: a name for versions", model_create, OPTS(MODEL_CREATE)},
    {"create", "dataset", "NAME", "create a dataset; push its file next", dataset_create, NONE},
    {"create", "queue", "NAME",
     "create a queue of --tenant; an admin without --tenant creates a shared one",
     queue_create, OPTS(QUEUE_SET)},

    {"rotate", "key", "ID",
     "give an API key of --tenant a new secret, shown this once", key_rotate, OPTS(KEY_ROTATE)},

    {"push", "model", "NAME FILE",
     "upload an ONNX file, and the files beside it that hold its weights, as the next version; "
     "creates the model if needed",
     model_push, OPTS(PUSH_MODEL)},
    {"push", "dataset", "NAME FILE...",
     "upload a safetensors file, or several that are parts of one dataset; or a folder with a "
     "folder of pictures (JPEG, PNG) for each class, which are numbered in the order of their "
     "names; or arrays of NumPy: .npz, or .npy, each named as its file or as TENSOR=FILE says; or "
     "a table with the columns' names in its first row (.csv); creates the dataset if needed",
     dataset_push, OPTS(PUSH_DATASET)},

    {"get", "tenants", "[NAME]", "tenants, or one with its state", tenant_get, NONE},
    {"get", "keys", "[ID]", "API keys of --tenant, without secrets", key_get, NONE},
    {"get", "quota", "[TENANT]", "limits of a tenant", quota_get, NONE},
    {"get", "models", "[NAME]",
     "models, with requests a second and latencies of the last minute, or one", model_get, NONE},
    {"get", "versions", "MODEL[:VERSION]",
     "versions of a model, or one with its tensors", version_get, NONE},
    {"get", "placements", "MODEL[:VERSION]",
     "where a version stands: state and bytes by executor", placement_get, NONE},
    {"get", "profile", "MODEL[:VERSION]",
     "how long runs of a version take by batch, and what is predicted", profile_get, NONE},
    {"get", "slo", "MODEL", "latency target of a model", slo_get, NONE},
    {"get", "datasets", "[NAME]", "datasets, or one with its tensors", dataset_get, NONE},
    {"get", "queues", "[NAME]", "queues that --tenant may use", queue_get, NONE},
    {"get", "usage", "[TENANT]", "device time, requests and samples", usage_get, OPTS(USAGE_GET)},
    {"get", "share", "[TENANT]",
     "what the scheduler decides by: guarantees, fair shares, usage", share_get, NONE},
    {"get", "audit", "", "every change, newest first; for admin keys", audit_get, OPTS(AUDIT_GET)},
    {"get", "jobs", "[JOB]", "jobs, newest first, or one job", job_get, OPTS(GET_JOBS)},
    {"get", "arrays", "[ARRAY]",
     "arrays of jobs, newest first: how many of each wait, run, have ended; or one", array_get,
     NONE},
    {"get", "checkpoints", "JOB",
     "checkpoints that were written; the files of the last two are kept", job_checkpoints, NONE},
    {"get", "gpus", "[NAME]", "GPUs, or one with its models, runs and job", gpu_get, NONE},
    {"get", "options", "", "options of the API: which are live, which were changed", option_get,
     NONE},
    {"get", "executors", "[NAME]", "another name of get gpus", gpu_get, NONE},

    {"set", "tenant", "NAME", "suspend a tenant, or make it active again", tenant_set,
     OPTS(TENANT_SET)},
    {"set", "visibility", "MODEL private|shared",
     "share a model with every tenant for inference, or no longer", model_share, NONE},
    {"set", "slo", "MODEL", "set the latency target of a model", slo_set, OPTS(SLO_SET)},
    {"set", "options", "OPTION=VALUE...",
     "change live options of every API that runs or will; OPTION=null: as at the start",
     option_set, NONE},
    {"set", "job", "JOB", "change priority, labels or deadline of a job", job_set, OPTS(SET_JOB)},
    {"set", "array", "ARRAY", "change how many jobs of an array run at once", array_set,
     OPTS(SET_ARRAY)},
    {"set", "queue", "NAME", "hold, drain or open a queue of --tenant, or change its priority",
     queue_set, OPTS(QUEUE_SET)},
    {"set", "quota", "TENANT FIELD=VALUE...",
     "change limits of a tenant: max_gpus=2 gpu_memory_max_bytes=1.5Gi; null = none of its own",
     quota_set, NONE, OPTS(QUOTA_SET)},

    {"delete", "tenant", "NAME", "delete a tenant that has no live jobs", tenant_delete, NONE},
    {"delete", "key", "ID", "revoke an API key at once", key_delete, NONE},
    {"delete", "model", "MODEL[:VERSION]",
     "delete a model with all versions, or one version", model_delete, NONE},
    {"delete", "slo", "MODEL", "remove the latency target of a model", slo_delete, NONE},
    {"delete", "queue", "NAME", "delete a queue of --tenant that has no live jobs", queue_delete,
     NONE},
    {"delete", "dataset", "NAME", "delete a dataset", dataset_delete, NONE},
    {"delete", "result", "JOB", "remove the file that a job left; it counts as stored until then",
     job_result_delete, NONE},

    {"load", NULL, "MODEL[:VERSION]",
     "load what was unloaded or has failed; without a version all", model_load, OPTS(LOAD)},
    {"unload", NULL, "MODEL[:VERSION]",
     "take versions that are not pinned off the executors; requests for them are refused until "
     "they are loaded",
     model_unload, OPTS(UNLOAD)},
    {"pin", NULL, "MODEL[:VERSION]",
     "keep images in device memory, within the tenant's quota", model_pin, NONE},
    {"unpin", NULL, "MODEL[:VERSION]", "let images be evicted like others", model_unpin, NONE},
    {"slo", "report", "MODEL", "how the latency target was met", slo_report, OPTS(SLO_REPORT)},

    {"submit", NULL, "", "submit a job, an array of jobs (--array, --set) or many (--file)",
     job_submit,
     OPTS(SUBMIT)},
    {"cancel", NULL, "[JOB]...", "cancel jobs", job_control, OPTS(CONTROL)},
    {"hold", NULL, "[JOB]...", "keep queued jobs from starting", job_control, OPTS(CONTROL)},
    {"release", NULL, "[JOB]...", "let held jobs start", job_control, OPTS(CONTROL)},
    {"suspend", NULL, "[JOB]...",
     "take jobs from their executors, with a checkpoint, until they are resumed",
     job_control, OPTS(SUSPEND)},
    {"resume", NULL, "[JOB]...", "let suspended jobs go on", job_control, OPTS(CONTROL)},
    {"requeue", NULL, "[JOB]...",
     "take jobs from their executors, with a checkpoint, to the end of their queues",
     job_control, OPTS(CONTROL)},
    {"checkpoint", NULL, "[JOB]...", "write a checkpoint after the next step",
     job_control, OPTS(CONTROL)},
    {"wait", "job", "JOB",
     "wait for a job's end; exit status 0 if it succeeded", job_wait, OPTS(WAIT)},
    {"wait", "array", "ARRAY",
     "wait for the end of all jobs of an array; exit status 0 if all succeeded", array_wait,
     OPTS(WAIT)},
    {"wait", "model", "MODEL[:VERSION]",
     "wait until a version is READY: was loaded; `shunt get placements` tells where it is now",
     model_wait, OPTS(WAIT)},
    {"explain", NULL, "JOB|MODEL[:VERSION]",
     "why a job waits or keeps its place, or where a model stands, in words", job_explain, NONE},
    {"events", NULL, "[JOB]", "every change of a job's state; without a job those of all jobs",
     job_events, OPTS(EVENTS)},
    {"gpus", NULL, "[NAME]", "GPUs: memory, link, models, what runs on them now", gpu_get, NONE},
    {"losses", NULL, "JOB", "loss of each committed step", job_losses, OPTS(LOSSES)},
    {"logs", NULL, "JOB", "what executors wrote about a job: progress, checkpoints, its end",
     job_logs, OPTS(LOGS)},
    {"result", NULL, "JOB", "what a job left; --out saves its file", job_result, OPTS(RESULT)},
    {"infer", NULL, "MODEL[:VERSION]",
     "send inference requests and show results and latency", infer_main, OPTS(INFER)},

    {"whoami", NULL, "", "id, role and tenant of the key that is used", whoami_main, NONE},
    {"config", "profiles", "[NAME]", "sections of the config file: servers with their keys",
     config_get, NONE},
    {"config", "set", "NAME FIELD=VALUE...",
     "make or change a profile: server=URL key-file=FILE tenant=NAME; FIELD= removes one",
     config_set, NONE},
    {"config", "use", "NAME", "use a profile where --profile is not given", config_use, NONE},
    {"config", "delete", "NAME", "delete a profile", config_delete, NONE},
};
/* clang-format on */

#define LOCAL "The system on this machine"
#define THINGS "Tenants, keys, models, datasets, queues, jobs"
#define PLACES "Models on executors"
#define JOBS "Jobs"

/* clang-format off */
static const struct cli_verb VERBS[] = {
    {"up", LOCAL, NONE}, {"down", LOCAL, NONE}, {"backup", LOCAL, NONE},
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
    {"wait", JOBS, NONE}, {"explain", JOBS, NONE}, {"events", JOBS, NONE}, {"losses", JOBS, NONE},
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
