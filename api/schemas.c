/* schemas.c - JSON Schema of every body and path parameter, by the names used in routes.def.
 *
 * Bodies that we read are S_BODY (unknown fields are refused; openapi.c adds that null means
 * absent) and name their required members. Bodies that we write are S_OBJECT, with all members
 * present unless .needs or .rare says less. .fields takes members from a table (common/quota.def,
 * common/train_option.def). */
#include "api/openapi.h"
#include "api/spec/alias.h"
#include "api/spec_schema.h"
#include "common/batch_spec.h"
#include "common/job.h"
#include "common/mem.h"
#include "common/quota.h"
#include "common/states.h"
#include "common/whatif.h"

/* clang-format off */
#define QUEUE_STATE S_WORDS(SH_QUEUE_STATES(SH_STATE_TEXT, ","))
#define PRIORITY S_INTS(-1000, 1000)
#define VISIBILITY S_WORDS(SH_VISIBILITIES)
#define RATE(what) S_NUM(.null = true, .text = what " a second of time on the device, as last "    \
    "reported while it runs; else null")
#define LOADING S_OBJECT(MEMBERS({"step", S_TEXT()}, {"done", S_INT()}, {"total", S_INT()},        \
    {"seconds_left", S_NUM(.null = true)}), .null = true, .text = "progress of the executor that " \
    "will be ready first; null unless one is loading it")
#define TRAFFIC S_OBJECT(MEMBERS(                                                                  \
    {"window_s", S_NUM(.text = "the time counted: the last 50 to 60 s, less after a change of "    \
     "schedulers")}, {"requests", S_INT()}, {"per_s", S_NUM()}, {"p50_ms", S_NUM(.null = true)},   \
    {"p99_ms", S_NUM(.null = true)}), .null = true, .text = "requests answered in the last "       \
    "minute by all API processes, from their headers to the end of their run; at most 2 s old. "   \
    "null: no scheduler has reported it, or the model belongs to another tenant")
#define TENSORS S_LIST(S_OBJECT(MEMBERS({"name", S_TEXT()}, {"datatype", S_TEXT()},                \
    {"shape", S_LIST(S_INT())},                                                                    \
    {"dims", {.type = SCHEMA_ARRAY, .text = "if sizes other than the batch are open: for each "    \
     "axis a number, -1 for the batch, the name of a size, or {add, mul, of: [[-1 or name, plus, " \
     "div]...]}: add + mul * (x + plus) / div * ..., each quotient rounded down"}},                \
    {"mask", S_BOOL(.text = "with buckets: zeros in this input mask positions; a request in "      \
     "which it is all zeros along a padded axis runs at its own sizes")}),                         \
    .needs = "name,datatype,shape"))
#define ASSUMES S_LIST(S_TEXT(), .rare = true, .text = "in the answer to a submission, if there "  \
    "are any: what is trained although the model's file does not say whether it is a parameter or "\
    "a buffer")
#define PARAMETERS S_MAP({.type = SCHEMA_STRING | SCHEMA_NUMBER | SCHEMA_BOOLEAN})
#define KEY_FIELDS                                                                                 \
    {"id", S_TEXT()}, {"name", S_TEXT()}, {"role", S_TEXT()}, {"tenant", S_TEXT(.null = true)},    \
    {"created_at", S_TIME()}, {"expires_at", S_TIME(.null = true)},                                \
    {"revoked_at", S_TIME(.null = true)}, {"rotated_at", S_TIME(.null = true)},                    \
    {"old_secret_until", S_TIME(.null = true)}, {"last_used_at", S_TIME(.null = true)}
#define SIMULATED_JOBS                                                                             \
    {"jobs", S_INT()}, {"ended", S_INT()}, {"preemptions", S_INT()},                               \
    {"mean_wait_s", S_NUM(.text = "from the snapshot, or a later arrival, to the first start, of " \
     "jobs that had no GPU at the snapshot")}, {"p95_wait_s", S_NUM()},                            \
    {"longest_wait_s", S_NUM()}, {"mean_s", S_NUM(.text = "the same, to the end, of all")},        \
    {"last_end_s", S_NUM(.text = "after the snapshot")}, {"gpu_s", S_NUM()}
#define SIMULATED S_OBJECT(MEMBERS({"jobs", S_OBJECT(MEMBERS(SIMULATED_JOBS, {"gpus", S_INT()},    \
    {"used", S_NUM(.text = "part of the GPU time until the last end")}, {"starts", S_INT()}))},    \
    {"tenants", S_LIST(S_OBJECT(MEMBERS(SIMULATED_JOBS, {"tenant", S_TEXT()}, {"share", S_NUM(     \
     .text = "its part of the GPU time that was given out in the first half")})))},                \
    {"requests", S_OBJECT(MEMBERS(SIMULATED_REQUESTS, {"training_kept", S_NUM(.text = "part of "   \
     "the GPU time that is left to jobs, until the last request")}))},                             \
    {"models", S_LIST(S_OBJECT(MEMBERS(SIMULATED_REQUESTS, {"tenant", S_TEXT(.text = "that asks")},\
     {"model", S_TEXT()}, {"slo_ms", S_NUM(.null = true)})))}))
#define SIMULATED_REQUESTS                                                                         \
    {"requests", S_INT()}, {"answered", S_INT()}, {"refused", S_INT()},                            \
    {"refused_by", S_MAP(S_INT(), .text = "how many by which rule: docs/rules.md")},               \
    {"attained", S_NUM(.null = true, .text = "part that was answered within the latency target, "  \
     "of those for models that have one")}, {"p50_ms", S_NUM(.text = "from the headers to the end "\
     "of the run, of those that were answered")}, {"p99_ms", S_NUM()},                             \
    {"mean_wait_ms", S_NUM(.text = "the same, until the run begins")}, {"p99_wait_ms", S_NUM()},   \
    {"share", S_NUM(.text = "part of the GPU time")}
#define SLO_FIELDS                                                                                 \
    {"latency_ms", S_NUMS(0.001, 3.6e6)}, {"percentile", S_NUMS(0.001, 99.999)},                   \
    {"priority", S_INTS(0, 100)}, {"on_miss", S_WORDS(SH_ON_MISS)}
#define ALIAS_LIST(...) S_LIST(S_OBJECT(MEMBERS({"version", S_INT()}, {"weight", S_INT()})),       \
    __VA_ARGS__)
#define ALIAS_RULE                                                                                 \
    {"window_s", S_INTS(ALIAS_WINDOW_MIN_S, ALIAS_WINDOW_MAX_S, .value = "300",                    \
     .text = "time that counts, s")},                                                              \
    {"min_requests", S_INTS(1, 1e6, .value = "50", .text = "of a version, before it is judged")},  \
    {"error_percent", S_NUMS(0, 100, .value = "5", .text = "how many more requests may fail by "   \
     "the server's fault than of the versions before, in percent; 0: not looked at")},             \
    {"burn_rate", S_NUMS(0, 1e5, .value = "10", .text = "how many times faster than its "          \
     "percentile allows the latency target may be missed, beyond what the versions before do; 0: " \
     "not looked at")}
#define LABEL_NAME "^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$"
#define LABELS S_MAP(S_STR(0, 128), .max = 32, .names = LABEL_NAME)
#define INDICES                                                                                    \
    "^[0-9]{1,7}(-[0-9]{1,7}(:[1-9][0-9]{0,6})?)?(,[0-9]{1,7}(-[0-9]{1,7}(:[1-9][0-9]{0,6})?)?)*$"
#define JOB_NEEDS "kind,model,dataset,spec"
#define JOB_FIELDS                                                                                 \
    {"labels", LABELS}, {"deadline", S_TIME()}, {"min_runtime_ms", S_INTS(0, 864e5)},              \
    {"gpus", S_INTS(1, SH_JOB_MOST_GPUS, .text = "GPUs that it has at once; more than this "       \
     "release runs a job on are refused (MULTIGPU)")},                                            \
    {"hold", S_BOOL()}, {"preemptible", S_BOOL()}, {"model", S_NAME()},                            \
    {"version", {.type = SCHEMA_INTEGER | SCHEMA_STRING, .min = 1, .max = INT32_MAX,               \
     .pattern = "^latest$", .text = "default: for training the newest uploaded version, for "      \
     "batch inference the newest of all; latest: the "                                             \
     "newest of all"}}, {"dataset", S_NAME()}, {"queue", S_LOWER_NAME()}, {"priority", PRIORITY},  \
    {"name", S_STR(0, 128)}, {"max_attempts", S_INTS(1, 100)}, {"client_token", S_STR(1, 255)}
#define BATCH_INFERENCE S_BODY("", MEMBERS(                                                        \
    {"inputs", S_MAP(S_TEXT(), .names = "^[^\\u0000]+$")}, {"outputs", S_LIST(S_TEXT())}),         \
    .fields = &BATCH_FIELDS)
#define FAULTS(where) S_LIST(S_OBJECT(MEMBERS({"pointer", S_TEXT()}, {"detail", S_TEXT()}),        \
    .needs = ""), .max = 16, .text = "all that is wrong " where "; pointer: RFC 6901")
#define OF_TENSOR {"name", S_TEXT()}, {"datatype", S_TEXT()}, {"shape", S_LIST(S_INT())},          \
    {"data", {.type = SCHEMA_ARRAY}}, {"parameters", {.type = SCHEMA_OBJECT, .needs = ""}}
/* As SH_MSG_USE_NAME has them, and what others than the reader had. */
#define TIMELINE_USES "inference,training,batch,switch,load,idle,others"
#define OBJECT0 {.type = SCHEMA_OBJECT, .null = true}
#define OBJECT {.type = SCHEMA_OBJECT}

const struct api_schema API_SCHEMAS[] = {
    {"Any", OBJECT},
    {"Empty", S_BODY("", NULL)},
    {"Health", S_OBJECT(MEMBERS({"live", S_BOOL()}, {"ready", S_BOOL()}, {"name", S_TEXT()},
        {"executors", S_INT()}, {"loading", S_INT()}, {"error", S_TEXT()}), .needs = "")},
    {"Problem", S_OBJECT(MEMBERS({"type", S_TEXT()}, {"title", S_TEXT()}, {"status", S_INT()},
        {"detail", S_TEXT()}, {"code", S_TEXT()},
        {"error", S_TEXT(.text = "same as detail, for clients of the inference protocol")},
        {"request_id", S_TEXT()},
        {"errors", FAULTS("in the body; detail is the first of them")},
        {"bytes", S_INT(.text = "if an upload cannot continue at the position asked for: how many "
         "bytes the server has")}, {"reason_code", S_TEXT()}, {"predicted_ms", S_INT()},
        {"nodes", S_LIST(OBJECT, .text = "of a refused model: all nodes that are not "
         "supported")}, {"state", S_TEXT()}, {"flags", S_LIST(S_TEXT())},
        {"allowed", S_LIST(S_TEXT(), .text = "of a job: actions that are possible now")}),
        .needs = "type,title,status,detail,code,error"),
     S_JSON({"type": "urn:shunt:error:NOTFOUND", "title": "not found", "status": 404,
             "detail": "there is no model \"digits\"", "code": "NOTFOUND",
             "error": "there is no model \"digits\"",
             "request_id": "446de02435d592c0f8b0f5c99018fd8a"})},
    {"Tenant", S_OBJECT(MEMBERS({"name", S_LOWER_NAME()},
        {"state", S_WORDS(SH_TENANT_STATES(SH_STATE_TEXT, ","))}, {"created_at", S_TIME()},
        {"row_version", S_INT()}))},
    {"TenantCreate", S_BODY("name", MEMBERS({"name", S_LOWER_NAME()})), S_JSON({"name": "vision"})},
    {"TenantPatch", S_BODY("state", MEMBERS({"state", S_WORDS(SH_TENANT_SET(SH_STATE_TEXT, ","))})),
     S_JSON({"state": "SUSPENDED"})},
    {"Quota", S_OBJECT(MEMBERS({"row_version", S_INT()}), .fields = &SH_QUOTA)},
    {"QuotaPut", S_BODY("", NULL, .fields = &SH_QUOTA),
     S_JSON({"guaranteed_gpus": 1, "max_gpus": 4, "max_queued_jobs": 100,
             "requests_per_second": 50})},
    {"Whoami", S_OBJECT(MEMBERS({"key", S_TEXT()},
        {"role", S_WORDS("admin," SH_KEY_ROLES)},
        {"tenant", S_TEXT(.null = true, .text = "null: an admin key")}, {"suspended", S_BOOL()}))},
    {"Key", S_OBJECT(MEMBERS(KEY_FIELDS))},
    {"KeySecret", S_OBJECT(MEMBERS(KEY_FIELDS, {"key", S_TEXT(.null = true, .text = "null in a dry "
        "run, and if an Idempotency-Key is repeated, since secrets are not stored: rotate the key "
        "for a new one")}))},
    {"KeyCreate", S_BODY("name,role", MEMBERS({"name", S_STR(1, 64)},
        {"role", S_WORDS(SH_KEY_ROLES)}, {"expires_at", S_TIME()})),
     S_JSON({"name": "ci", "role": "submit", "expires_at": "2037-01-31T00:00:00Z"})},
    {"KeyRotate", S_BODY("", MEMBERS({"overlap_s", S_INTS(0, 2592000)})),
     S_JSON({"overlap_s": 3600})},
    {"Model", S_OBJECT(MEMBERS({"name", S_NAME()}, {"tenant", S_TEXT()}, {"visibility", VISIBILITY},
        {"created_at", S_TIME()}, {"versions", S_LIST(S_OBJECT(MEMBERS({"version", S_INT()},
        {"state", S_TEXT()}, {"reason", S_TEXT(.null = true)}, {"pinned", S_BOOL()},
        {"loading", LOADING})))}, {"aliases", S_LIST(S_OBJECT(MEMBERS({"name", S_TEXT()},
         {"targets", ALIAS_LIST()}, {"previous", ALIAS_LIST(.null = true)},
         {"rolled_back", OBJECT0})))}, {"traffic", TRAFFIC},
        {"slo", S_OBJECT(MEMBERS(
        {"latency_ms", S_NUM()}, {"percentile", S_NUM()}, {"requests", S_INT()},
        {"met", S_INT(.text = "of these requests")}), .null = true, .text = "the latency target "
        "and the requests of the last hour, as written every few seconds; null: there is no "
        "target")}, {"row_version", S_INT()}))},
    {"ModelCreate", S_BODY("name", MEMBERS({"name", S_NAME()}, {"visibility", VISIBILITY})),
     S_JSON({"name": "digits", "visibility": "private"})},
    {"ModelPatch", S_BODY("visibility", MEMBERS({"visibility", VISIBILITY})),
     S_JSON({"visibility": "private"})},
    {"Version", S_OBJECT(MEMBERS({"model", S_NAME()}, {"version", S_INT()}, {"state", S_TEXT()},
        {"pinned", S_BOOL()}, {"reason_code", S_TEXT(.null = true)},
        {"reason", S_TEXT(.null = true)}, {"digest", S_TEXT(.null = true)},
        {"bytes", S_INT(.null = true)}, {"inputs", TENSORS}, {"outputs", TENSORS},
        {"meta", OBJECT}, {"max_batch", S_INT()}, {"precision", S_TEXT()},
        {"image_bytes", S_INT(.null = true)}, {"profile", S_ANY()},
        {"source_job", S_INT(.null = true)}, {"created_at", S_TIME()},
        {"ready_at", S_TIME(.null = true)}, {"loading", LOADING}, {"row_version", S_INT()}))},
    {"VersionCreate", S_BODY("", MEMBERS({"version", S_INTS(1, SH_VERSION_MAX)},
        {"max_batch", S_INTS(1, 1024, .text = "default: the batch that the file fixes, else 8")},
        {"precision", S_WORDS(SH_PRECISIONS)},
        {"buckets", S_MAP(S_LIST(S_INTS(2, 1048576), .min = 1, .max = 16), .max = 8,
         .text = "sizes to which requests are padded, by the name of the axis; refused if padding "
         "may change an answer")})),
     S_JSON({"max_batch": 16, "precision": "fp32"})},
    {"Placements", S_OBJECT(MEMBERS({"model", S_NAME()}, {"version", S_INT()}, {"state", S_TEXT()},
        {"reason", S_TEXT(.null = true)}, {"solo_note", S_TEXT(.null = true)},
        {"pinned", S_BOOL()}, {"image_bytes", S_INT(.null = true)},
        {"placements", S_LIST(S_OBJECT(MEMBERS({"executor", S_TEXT()},
         {"state", S_WORDS(SH_PLACEMENT_STATES(SH_STATE_TEXT, ","))},
         {"pin", S_WORDS("none,held,waiting")}, {"device_bytes", S_INT()},
         {"host_bytes", S_INT()}, {"image_disk_bytes", S_INT(.text = "of the image, what the "
         "executor's host memory lacks: the next run reads it from disk")},
         {"shut", S_BOOL(.text = "requests with a deadline are refused there unless all weights "
         "are on the device, others wait: rule Thrashing")},
         {"disk_bytes", S_INT()}, {"last_use_at", S_TIME(.null = true)},
         {"at", S_TIME()})))}))},
    {"Profile", S_OBJECT(MEMBERS({"model", S_NAME()}, {"version", S_INT()}, {"percentile", S_NUM()},
        {"batches", S_LIST(S_OBJECT(MEMBERS({"batch", S_INT()}, {"predicted_ms", S_NUM()},
         {"source", S_WORDS("runs,profile,guess")}, {"runs", S_INT()}, {"recent", S_INT()},
         {"p50_ms", S_NUM(.null = true)}, {"p99_ms", S_NUM(.null = true)},
         {"at", S_TIME()})))}))},
    {"Alias", S_OBJECT(MEMBERS({"model", S_NAME()}, {"name", S_TEXT()},
        {"targets", ALIAS_LIST(.text = "the versions that serve, each in proportion to its weight; "
         "one that is not READY serves nothing, and while none is, those of previous do")},
        {"previous", ALIAS_LIST(.null = true, .text = "what it stood for before: a rollback goes "
         "back to it")}, {"sticky", S_BOOL()},
        {"rollback", S_OBJECT(MEMBERS(ALIAS_RULE), .null = true)},
        {"rolled_back", S_OBJECT(MEMBERS({"at", S_TIME()}, {"reason_code", S_TEXT()},
         {"reason", S_TEXT()}, {"from", ALIAS_LIST()}), .null = true, .text = "its last change was "
         "a rollback by itself, and why")},
        {"changed_by", S_TEXT(.null = true, .text = "id of the key; null: a training job, or a "
         "rollback by itself")}, {"changed_at", S_TIME()}, {"created_at", S_TIME()},
        {"row_version", S_INT()}))},
    {"AliasPut", S_BODY("targets", MEMBERS({"targets", S_LIST(S_BODY("version", MEMBERS(
         {"version", S_INTS(1, INT32_MAX)}, {"weight", S_INTS(1, ALIAS_WEIGHT, .value = "1")})),
         .min = 1, .max = ALIAS_TARGETS)},
        {"sticky", S_BOOL(.value = "false", .text = "requests with the same API key get the same "
         "version; those with a header Shunt-Session do so in any case, by its value")},
        {"rollback", S_BODY("", MEMBERS(ALIAS_RULE), .text = "roll it back by itself when the "
         "versions whose share has grown do worse than the others; absent: never")})),
     S_JSON({"targets": [{"version": 1, "weight": 1}], "sticky": false,
             "rollback": {"window_s": 300, "min_requests": 50, "error_percent": 5,
                          "burn_rate": 10}})},
    {"AliasPromote", S_BODY("", MEMBERS({"version", S_INTS(1, INT32_MAX)},
        {"from", S_STR(1, 63, .text = "an alias of the same model, such as canary")}),
        .any_of = "version,from", .not_both = "version,from"), S_JSON({"version": 1})},
    {"Slo", S_OBJECT(MEMBERS({"model", S_NAME()}, SLO_FIELDS, {"created_at", S_TIME()},
        {"row_version", S_INT()}))},
    {"Attainment", S_OBJECT(MEMBERS({"model", S_NAME()}, {"window", S_WORDS(SH_SLO_WINDOWS)},
        {"latency_ms", S_NUM()}, {"percentile", S_NUM()}, {"on_miss", S_TEXT()},
        {"requests", S_INT()}, {"met", S_INT()}, {"missed", S_INT()}, {"rejected", S_INT()},
        {"attained_percent", S_NUM(.null = true)},
        {"error_budget_left", S_NUMS(-INFINITY, 1, .text = "fraction of the budget, which is the "
         "share of requests that may miss (100 - percentile, in percent): 1 = unspent, 0 = spent, "
         "-24 = overspent by 24 times the budget")}, {"p50_ms", S_NUM(.null = true)},
        {"p95_ms", S_NUM(.null = true)}, {"p99_ms", S_NUM(.null = true)}))},
    {"SloPut", S_BODY("latency_ms", MEMBERS(SLO_FIELDS)),
     S_JSON({"latency_ms": 20, "on_miss": "reject"})},
    {"Dataset", S_OBJECT(MEMBERS({"name", S_NAME()}, {"state", S_TEXT()},
        {"digest", S_TEXT(.null = true)}, {"bytes", S_INT(.null = true)}, {"tensors", TENSORS},
        {"n_samples", S_INT(.null = true)}, {"created_at", S_TIME()}, {"row_version", S_INT()}))},
    {"DatasetCreate", S_BODY("name", MEMBERS({"name", S_NAME()})),
     S_JSON({"name": "digits-train"})},
    {"Queue", S_OBJECT(MEMBERS({"name", S_LOWER_NAME()}, {"shared", S_BOOL()},
        {"state", QUEUE_STATE}, {"priority", S_INT()}, {"jobs", S_INT()}, {"created_at", S_TIME()},
        {"row_version", S_INT()}))},
    {"QueueCreate", S_BODY("name", MEMBERS({"name", S_LOWER_NAME()}, {"state", QUEUE_STATE},
        {"priority", PRIORITY})), S_JSON({"name": "nightly", "priority": 10})},
    {"QueuePatch", S_BODY("", MEMBERS({"state", QUEUE_STATE}, {"priority", PRIORITY}), .min = 1),
     S_JSON({"state": "HELD"})},
    {"Usage", S_OBJECT(MEMBERS({"class", S_WORDS(SH_USAGE_CLASSES)},
        {"model", S_TEXT(.null = true)}, {"from", S_TIME()}, {"gpu_seconds", S_NUM()},
        {"requests", S_INT()}, {"samples", S_INT()}), .needs = "gpu_seconds,requests,samples")},
    {"Share", S_OBJECT(MEMBERS({"tenant", S_LOWER_NAME()}, {"at", S_TIME(.null = true)},
        {"guaranteed_gpus", S_NUM()}, {"max_gpus", S_NUM(.null = true)}, {"weight", S_NUM()},
        {"running_gpus", S_NUM()}, {"waiting_gpus", S_NUM()}, {"fair_gpus", S_NUM()},
        {"reserved_gpus", S_NUM()}, {"saturation", S_NUM(.null = true)},
        {"usage_gpu_seconds", S_NUM()}, {"usage_per_weight", S_NUM(.null = true)},
        {"usage_fraction", S_NUM()}, {"weight_fraction", S_NUM()},
        {"half_life_s", S_NUM(.null = true)}))},
    {"Audit", S_OBJECT(MEMBERS({"id", S_INT()}, {"at", S_TIME()}, {"actor", S_TEXT(.null = true)},
        {"tenant", S_TEXT(.null = true)}, {"request_id", S_TEXT()}, {"action", S_TEXT()},
        {"resource", S_TEXT()}, {"before", OBJECT0}, {"after", OBJECT0}))},
    {"Job", S_OBJECT(MEMBERS({"array", S_INT(.null = true)}, {"array_index", S_INT(.null = true)},
        {"labels", LABELS}, {"deadline", S_TIME(.null = true)}, {"min_runtime_ms", S_INT()},
        {"gpus", S_INT()}, {"preemptible", S_BOOL()}, {"not_before", S_TIME(.null = true)},
        {"queued_at", S_TIME()},
        {"flags", S_LIST(S_WORDS("SUSPEND_PENDING,REQUEUE_PENDING,CHECKPOINTING"))},
        {"id", S_INT()}, {"kind", S_TEXT()}, {"name", S_TEXT()},
        {"state", S_TEXT()}, {"reason", S_TEXT()}, {"priority", S_INT()},
        {"queue", S_TEXT()}, {"model", S_TEXT()}, {"version", S_INT()},
        {"dataset", S_TEXT(.null = true)}, {"eval_dataset", S_TEXT(.null = true)},
        {"spec", OBJECT}, {"client_token", S_TEXT(.null = true)}, {"attempt", S_INT()},
        {"max_attempts", S_INT()}, {"executor", S_TEXT(.null = true)}, {"step", S_INT()},
        {"steps", S_INT()}, {"loss", S_NUM(.null = true)}, {"samples_per_s", RATE("samples")},
        {"steps_per_s", RATE("steps; of batch inference samples")}, {"steps_redone", S_INT()},
        {"evaluation", {.type = SCHEMA_OBJECT, .null = true,
         .text = "the newest evaluation, and the best one"}}, {"preemptions", S_INT()},
        {"busy_ns", S_INT()}, {"result", OBJECT0}, {"result_version", S_INT(.null = true)},
        {"error_code", S_TEXT(.null = true)}, {"error", S_TEXT(.null = true)},
        {"created_at", S_TIME()}, {"started_at", S_TIME(.null = true)},
        {"finished_at", S_TIME(.null = true)}, {"row_version", S_INT()},
        {"training_assumes", ASSUMES}))},
    {"JobPatch", S_BODY("", MEMBERS({"priority", S_INTS(-1000, 1000, .stays = true)},
        {"labels", S_MAP(S_STR(0, 128, .null = true, .pattern = "^[^\\x00]*$",
         .text = "null removes the label"), .max = 32, .names = LABEL_NAME, .stays = true)},
        {"deadline", S_TIME(.null = true)}), .min = 1),
     S_JSON({"priority": 5, "labels": {"team": "vision"}})},
    {"JobCreate", {.type = SCHEMA_OBJECT, S_CHOICES(
        S_BODY(JOB_NEEDS, MEMBERS(JOB_FIELDS, {"kind", {.only = "training"}},
            {"eval_dataset", S_NAME()}, {"spec", {.build = spec_schema}})),
        S_BODY(JOB_NEEDS, MEMBERS(JOB_FIELDS, {"kind", {.only = "batch_inference"}},
            {"spec", BATCH_INFERENCE})))},
     S_JSON({"kind": "training", "model": "digits", "dataset": "digits-train", "queue": "default",
             "spec": {"optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9}, "batch": 32,
                      "epochs": 2}})},
    {"JobBatchCreate", S_BODY("jobs", MEMBERS({"jobs", S_LIST(S_REF("JobCreate"), .min = 1,
        .max = 1000)})),
     S_JSON({"jobs": [{"kind": "training", "model": "digits", "dataset": "digits-train",
                       "spec": {"optimizer": {"name": "sgd", "lr": 0.05}, "epochs": 1}}]})},
    {"JobBatch", S_OBJECT(MEMBERS({"items", S_LIST(S_OBJECT(MEMBERS(
        {"status", S_INT(.text = "201: submitted; 200: its client_token already identifies this "
         "job; otherwise the status that POST /jobs would give")}, {"job", S_INT()},
        {"version", S_INT(.text = "the version of the model that the "
         "job uses")}, {"code", S_TEXT()},
        {"error", S_TEXT()}, {"errors", FAULTS("in this job, as POST /jobs would list it; absent "
         "after 2000 in a batch")}), .needs = "status"),
        .text = "in the order of the jobs sent")}, {"created", S_INT()}, {"failed", S_INT()},
        {"training_assumes", ASSUMES}))},
    {"JobArrayCreate", S_BODY("job", MEMBERS(
        {"indices", S_STR(1, 255, .pattern = INDICES, .text = "0-99, 0-98:2 or 1,5,7-9")},
        {"count", S_INTS(1, 1000, .text = "indices from 0 on")},
        {"max_parallel", S_INTS(1, INT32_MAX)},
        {"grid", S_MAP(S_LIST(S_TYPES(SCHEMA_NUMBER | SCHEMA_STRING | SCHEMA_BOOLEAN,
         .max = 128, .by_length = true), .min = 1, .max = 1000, .unique = true), .min = 1,
         .max = 16, .names = "^[a-z0-9_]+([.][a-z0-9_]+)?$", .max_name = 63,
         .text = "fields of the spec, such as batch or optimizer.lr (or lr), with their values: "
         "one job for each combination and index")},
        {"client_token", S_STR(1, 255)}, {"job", S_REF("JobCreate")}),
        .any_of = "indices,count,grid", .not_both = "indices,count"),
     S_JSON({"indices": "0-9", "max_parallel": 2, "grid": {"lr": [0.1, 0.01], "batch": [16, 32]},
             "job": {"kind": "training", "model": "digits", "dataset": "digits-train",
                     "name": "seed-{index}",
                     "spec": {"optimizer": {"name": "sgd", "lr": 0.05}, "epochs": 1}}})},
    {"JobArrayPatch", S_BODY("", MEMBERS({"max_parallel", S_INTS(1, INT32_MAX)}), .min = 1),
     S_JSON({"max_parallel": 8})},
    {"JobArray", S_OBJECT(MEMBERS({"id", S_INT()}, {"name", S_TEXT()}, {"kind", S_TEXT()},
        {"model", S_TEXT()}, {"version", S_INT(.null = true, .text = "the version that its jobs "
         "use; null: the jobs "
         "are gone")},
        {"training_assumes", ASSUMES}, {"dataset", S_TEXT()}, {"queue", S_TEXT()},
        {"indices", S_TEXT()},
        {"jobs", S_INT(.text = "number of jobs created; old ones may be gone")},
        {"max_parallel", S_INT(.null = true)},
        {"states", S_MAP(S_INT(), .text = "how many of its jobs are in each state")},
        {"grid", OBJECT0}, {"template", {.type = SCHEMA_OBJECT,
         .text = "the job as it was submitted"}}, {"client_token", S_TEXT(.null = true)},
        {"created_at", S_TIME()}, {"row_version", S_INT()}))},
    {"JobArrayChange", S_OBJECT(MEMBERS({"changed", S_INT(.text = "jobs that were changed")},
        {"array", S_REF("JobArray")}))},
    {"JobResult", S_OBJECT(MEMBERS({"job", S_INT()}, {"kind", S_TEXT()}, {"state", S_TEXT()},
        {"result", OBJECT}, {"version", S_INT(.null = true)},
        {"artifact", S_OBJECT(MEMBERS({"name", S_TEXT()}, {"bytes", S_INT()},
         {"digest", S_TEXT()}, {"href", S_TEXT()}), .null = true, .needs = "")},
        {"finished_at", S_TIME()}))},
    {"JobEvent", S_OBJECT(MEMBERS({"id", S_INT()}, {"at", S_TIME()}, {"from", S_TEXT(.null = true)},
        {"to", S_TEXT()}, {"reason", S_TEXT()}, {"detail", OBJECT}))},
    {"Config", S_OBJECT(MEMBERS({"process", S_TEXT()}, {"row_version", S_INT()},
        {"version_in_force", S_INT()}, {"in_force_within_ms", S_INT()},
        {"options", S_LIST(S_OBJECT(MEMBERS({"name", S_TEXT()},
         {"value", {.type = SCHEMA_STRING | SCHEMA_NUMBER | SCHEMA_BOOLEAN, .null = true}},
         {"live", S_BOOL()}, {"changed", S_BOOL()}, {"help", S_TEXT()})))}))},
    {"ConfigPatch", {.build = config_schema}, S_JSON({"log-level": "info",
                                                      "max-tenant-streams": 64})},
    {"Snapshot", S_OBJECT(MEMBERS({"format", S_INT()}, {"at", S_TIME()}, {"scheduler", OBJECT},
        {"gpus", S_LIST(OBJECT)}, {"tenants", S_LIST(OBJECT)}, {"jobs", S_LIST(OBJECT)},
        {"jobs_left_out", S_INT(.text = "too many to be in it: the last ones of the queue")},
        {"models", S_LIST(OBJECT)}, {"arrivals", S_LIST(OBJECT)}))},
    {"Simulate", S_BODY("", MEMBERS(
        {"changes", S_LIST(S_BODY("set,to", MEMBERS({"set", S_STR(1, 300, .text = "gpus, "
         "tenant.NAME.FIELD, model.NAME.FIELD, job.ID.FIELD, queue.NAME.open or scheduler.FIELD: "
         "docs/simulate.md")},
         {"to", {.type = SCHEMA_STRING | SCHEMA_NUMBER | SCHEMA_BOOLEAN, .null = true,
          .stays = true, .text = "null: no limit"}})), .max = 64)},
        {"hours", S_NUMS(0, 24, .text = "of the recorded time whose jobs and requests come again "
         "from now on; 0: only what waits and runs now")},
        {"trace", S_STR(1, SH_WHATIF_MAX_TRACE, .text = "requests that come instead of recorded "
         "ones: lines at_s,tenant,model,batch, of which the first has these names")})),
     S_JSON({"changes": [{"set": "gpus", "to": "+2"}, {"set": "tenant.anna.guarantee", "to": 4}]})},
    {"Simulated", S_OBJECT(MEMBERS({"at", S_TIME()}, {"hours", S_NUM()},
        {"changes", S_LIST(OBJECT)}, {"before", SIMULATED}, {"after", SIMULATED},
        {"guessed", S_INT(.text = "jobs of unknown length, for which there is nothing to go by")},
        {"left_out", S_INT()}, {"recorded", S_OBJECT(MEMBERS(
         {"from_s", S_NUM(.text = "how long ago the first request came that comes again")},
         {"seconds", S_NUM(.text = "for how long they came")},
         {"left_out", S_INT(.text = "requests for versions that are not served now")},
         {"guessed", S_INT(.text = "versions of which no run is known")}))}))},
    {"Event", S_OBJECT(MEMBERS({"position", S_TEXT()}, {"tenant", S_TEXT()}, {"job", S_INT()},
        {"name", S_TEXT()}, {"kind", S_TEXT()}, {"queue", S_TEXT()}, {"id", S_INT()},
        {"at", S_TIME()}, {"from", S_TEXT(.null = true)}, {"to", S_TEXT()}, {"reason", S_TEXT()},
        {"detail", OBJECT}))},
    {"Explanation", S_OBJECT(MEMBERS({"id", S_INT()}, {"state", S_TEXT()},
        {"flags", S_LIST(S_TEXT())}, {"allowed", S_LIST(S_TEXT())}, {"reason", S_TEXT()},
        {"text", S_TEXT()}, {"position", S_INT()}, {"waiting", S_INT()},
        {"estimated_wait_ms", S_INT()}, {"estimated_start", S_TIME()}, {"basis", S_TEXT()},
        {"loss_ms", S_INT(.text = "of a preemptible job on an executor: GPU time that is lost if "
         "it gives way")},
        {"waits_for", S_LIST(S_OBJECT(MEMBERS({"executor", S_TEXT()}, {"job", S_INT()},
         {"state", S_TEXT()}, {"steps_left", S_INT()}, {"steps_per_s", S_NUM()},
         {"left_ms", S_INT()}), .needs = "executor"))},
        {"factors", S_OBJECT(MEMBERS({"priority", S_INT()}, {"preemptible", S_BOOL()},
         {"tenant_running_jobs", S_INT()}, {"tenant_guaranteed_gpus", S_NUM()},
         {"tenant_weight", S_NUM()}, {"tenant_usage_gpu_s", S_NUM()},
         {"tenant_share_gpu_s", S_NUM()}, {"min_run_ms", S_INT()}))}),
        .needs = "id,state,flags,allowed,reason,text")},
    {"Checkpoint", S_OBJECT(MEMBERS({"id", S_INT()}, {"attempt", S_INT()}, {"step", S_INT()},
        {"digest", S_TEXT()}, {"bytes", S_INT()}, {"created_at", S_TIME()}))},
    {"Losses", S_OBJECT(MEMBERS({"job", S_INT()}, {"offset", S_INT()}, {"total", S_INT()},
        {"losses", S_LIST(S_NUM(.null = true))}))},
    {"Gpu", S_OBJECT(MEMBERS({"name", S_TEXT()}, {"host_id", S_TEXT()}, {"device", S_TEXT()},
        {"device_name", S_TEXT(.null = true)},
        {"state", S_WORDS(SH_EXECUTOR_STATES(SH_STATE_TEXT, ","))},
        {"seen_at", S_TIME(.text = "when state last changed")},
        {"heard_at", S_TIME(.text = "time of its last message; a few seconds late")},
        {"workers", S_INT()}, {"memory_bytes", S_INT(.null = true)}, {"pool_bytes", S_INT()},
        {"link_bytes_per_s", S_NUM(.null = true)},
        {"host", S_OBJECT(MEMBERS({"images_bytes", S_INT()}, {"programs_bytes", S_INT()},
         {"used_bytes", S_INT()}, {"limit_bytes", S_INT()}), .null = true, .needs = "",
         .text = "host memory of models, including compiled programs; only for admins")},
        {"pool", S_OBJECT(MEMBERS({"weights_bytes", S_INT()}, {"training_bytes", S_INT()},
         {"workspace_bytes", S_INT()}, {"used_bytes", S_INT()}), .null = true, .needs = "",
         .text = "use of the device memory pool; only for admins")},
        {"busy", S_OBJECT(MEMBERS({"requests", S_NUM()}, {"jobs", S_NUM()}), .null = true,
         .needs = "", .text = "fractions of the last seconds, from 0 to 1; only for admins")},
        {"fences", S_OBJECT(MEMBERS({"calls", S_BOOL()}, {"capabilities", S_BOOL()},
         {"files", S_BOOL()}, {"user", S_BOOL()}, {"reason", S_TEXT(.null = true)}),
         .null = true, .needs = "", .text = "fences that all workers so far have put up "
         "(docs/security.md); only for admins")},
        {"runs", S_LIST(S_OBJECT(MEMBERS({"tenant", S_TEXT()}, {"model", S_TEXT()},
         {"version", S_INT()}, {"batch", S_INT()})), .text = "requests that were running; others "
         "than admins see only their own")},
        {"models", S_LIST(S_OBJECT(MEMBERS({"tenant", S_TEXT()}, {"model", S_TEXT()},
         {"version", S_INT()}, {"state", S_TEXT()}, {"pin", S_TEXT()}, {"device_bytes", S_INT()},
         {"host_bytes", S_INT()})))},
        {"job", S_OBJECT(MEMBERS({"id", S_INT()}, {"tenant", S_TEXT()}, {"name", S_TEXT()},
         {"kind", S_TEXT()}, {"state", S_TEXT()}, {"step", S_INT()}, {"steps", S_INT()}),
         .null = true, .needs = "")}))},
    {"Timeline", S_OBJECT(MEMBERS({"gpu", S_TEXT()},
        {"cells", S_LIST(S_OBJECT(MEMBERS({"at", S_TIME(.text = "end of the cell")},
         {"ms", S_INT(.text = "its length")}, {"parts", S_LIST(S_OBJECT(MEMBERS(
          {"tenant", S_TEXT(.null = true)},
          {"use", S_WORDS(TIMELINE_USES)}, {"ms", S_NUM()})),
          .text = "what was counted in it, which may be from before it")})),
         .text = "oldest first, about a minute; none for a GPU that is away, or after a change of "
         "schedulers")},
        {"switches", S_LIST(S_OBJECT(MEMBERS({"at", S_TIME()}, {"tenant", S_TEXT(.null = true,
          .text = "null: requests of several tenants, which only admins see")},
         {"model", S_TEXT()}, {"version", S_INT()}, {"batch", S_INT()},
         {"stopped_training", S_BOOL()},
         {"wait_ms", S_NUM(.text = "first stage: other runs go first")},
         {"memory_ms", S_NUM(.text = "second: it gets its memory, which training may have to give "
          "up")},
         {"first_ms", S_NUM(.text = "third: training stops, and the first weights come")},
         {"compute_ms", S_NUM(.text = "fourth: it computes, while more weights come")},
         {"copy_ms", S_NUM(.text = "from the second stage on, until the last weights were there; "
          "0: none came")}, {"copied_bytes", S_INT()})),
         .text = "newest first: runs of requests for which weights came or training stopped")}))},
    {"ServerMetadata", S_OBJECT(MEMBERS({"name", S_TEXT()}, {"version", S_TEXT()},
        {"extensions", S_LIST(S_TEXT())}))},
    {"ModelMetadata", S_OBJECT(MEMBERS({"name", S_NAME()}, {"versions", S_LIST(S_TEXT())},
        {"platform", S_TEXT()}, {"inputs", TENSORS}, {"outputs", TENSORS}))},
    {"ModelConfig", S_OBJECT(MEMBERS({"name", S_NAME()}, {"platform", S_TEXT()},
        {"backend", S_TEXT()}, {"max_batch_size", S_INT()}, {"input", {.type = SCHEMA_ARRAY}},
        {"output", {.type = SCHEMA_ARRAY}}, {"dynamic_batching", OBJECT}),
        .needs = "name,platform,max_batch_size,input,output")},
    {"Stats", S_OBJECT(MEMBERS({"model_stats", S_LIST(OBJECT)}))},
    {"IndexRequest", S_BODY("", MEMBERS({"ready", S_BOOL()}))},
    {"RepoRequest", S_OBJECT(MEMBERS({"parameters", OBJECT}), .needs = "")},
    {"Region", S_OBJECT(MEMBERS({"key", S_STR(1, 255)}, {"offset", S_INTS(0, 0x1p53)},
        {"byte_size", S_INTS(1, 0x1p53)}), .needs = "key,byte_size")},
    {"Regions", S_LIST(S_OBJECT(MEMBERS({"name", S_TEXT()}, {"key", S_TEXT()},
        {"offset", S_INT()}, {"byte_size", S_INT()})))},
    {"Index", S_LIST(S_OBJECT(MEMBERS({"name", S_TEXT()}, {"version", S_TEXT()},
        {"state", S_TEXT()}, {"reason", S_TEXT()})))},
    {"InferRequest", S_BODY("inputs", MEMBERS({"id", S_STR(0, 1024)}, {"parameters", PARAMETERS},
        {"inputs", S_LIST(S_BODY("name,datatype,shape", MEMBERS({"name", S_STR(0, 1024)},
         {"datatype", S_STR(0, 16)}, {"shape", S_LIST(S_INTS(0, INFINITY), .max = 32)},
         {"parameters", OBJECT}, {"data", {.type = SCHEMA_ARRAY}})), .min = 1, .max = 64)},
        {"outputs", S_LIST(S_BODY("name", MEMBERS({"name", S_STR(0, 1024)},
         {"parameters", OBJECT})), .max = 64)})),
     S_JSON({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4],
                         "data": [1, 0, 0, 0]}]})},
    {"InferResponse", S_OBJECT(MEMBERS({"model_name", S_TEXT()}, {"model_version", S_TEXT()},
        {"id", S_TEXT()}, {"outputs", S_LIST(S_OBJECT(MEMBERS(OF_TENSOR),
         .needs = "name,datatype,shape"))}), .needs = "model_name,model_version,outputs")},
    {"UploadPart", S_OBJECT(MEMBERS({"digest", S_TEXT()},
        {"bytes", S_INT(.text = "bytes of the file that the server has, from its beginning")},
        {"max_age_s", S_INT(.text = "how long the part is kept after its last byte, s")}))},
    {"Binary", S_ANY()},
    {"Text", S_TEXT()},
    {"Page", S_TEXT()},
    {"Site", S_ANY()},
};

const struct path_param API_PATH_PARAMS[] = {
    {"tenant", "name of the tenant", S_LOWER_NAME()},
    {"key", "the id of the key, not its secret", S_TEXT(.pattern = "^[a-z0-9]{12}$")},
    {"queue", "name of the queue", S_LOWER_NAME()},
    {"region", "name of a region of shared memory", S_STR(1, INFINITY)},
    {"model", "name of the model", S_NAME()},
    {"version", "number of the version", S_INTS(1, INT32_MAX)},
    {"alias", "name of the alias", S_TEXT(.pattern = SH_ALIAS_PATTERN)},
    {"choice", "number of a version, or an alias", S_TEXT(.pattern =
     "^([1-9][0-9]{0,9}|[a-z][a-z0-9-]{0,62})$")},
    {"dataset", "name of the dataset", S_NAME()},
    {"gpu", "name of the GPU, which is that of its executor", S_NAME()},
    {"array", "number of the array of jobs", S_INTS(1, SCHEMA_I64)},
    {"job", "number of the job", S_INTS(1, SCHEMA_I64)},
    {"digest", "SHA-256, hex", S_TEXT(.pattern = "^[0-9a-f]{64}$")},
    {"page", "name of a file of the console, or of the documentation", S_STR(1, INFINITY)},
    {"folder", "name of a folder of the documentation", S_STR(1, INFINITY)},
    {"inner", "the same, in that folder", S_STR(1, INFINITY)},
    {"innermost", "the same, in that one", S_STR(1, INFINITY)},
    {"file", "name in the folder of the job", S_TEXT(.pattern = "^(losses[.]json|log[.]txt|"
     "final[.]safetensors|trained[.]onnx|result[.]safetensors|"
     "ckpt-(0|[1-9][0-9]{0,17})(-[A-Za-z0-9][A-Za-z0-9._-]{0,62})?[.]safetensors)$")},
};
/* clang-format on */
const size_t API_N_SCHEMAS = SH_ARRAY_LEN(API_SCHEMAS);
const size_t API_N_PATH_PARAMS = SH_ARRAY_LEN(API_PATH_PARAMS);
