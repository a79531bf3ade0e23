/* routes.c - see routes.h. */
#include "api/routes.h"

#include "api/handlers.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>

#define KIB 1024
#define T ROUTE_TENANT
#define QUEUES "/api/v1/queues"
#define TENANTS "/api/v1/tenants"
#define TENANT TENANTS "/{tenant}"
#define KEYS TENANT "/keys"
#define MODELS "/api/v1/models"
#define MODEL MODELS "/{model}"
#define VERSIONS MODEL "/versions"
#define VERSION VERSIONS "/{version}"
#define DATASETS "/api/v1/datasets"
#define DATASET DATASETS "/{dataset}"
#define JOBS "/api/v1/jobs"
#define JOB JOBS "/{job}"
#define ARRAYS "/api/v1/job-arrays"
#define ARRAY ARRAYS "/{array}"
#define V2 ROUTE_V2 | ROUTE_HERE
#define PROBE V2 | ROUTE_PROBE
#define V2M "/v2/models/{model}"
#define V2V V2M "/versions/{version}"

/* clang-format off */
const struct api_route API_ROUTES[] = {
    {.method = "GET", .path = "/healthz", .fn = v2_live, .access = ACCESS_PUBLIC,
     .flags = ROUTE_HERE, .status = 200, .response = "Health", .summary = "is this process alive"},
    {.method = "GET", .path = "/openapi.json", .fn = openapi_get, .access = ACCESS_PUBLIC,
     .flags = ROUTE_HERE | ROUTE_CACHED, .status = 200, .response = "Any",
     .summary = "this description"},

    {.method = "GET", .path = "/api/v1/whoami", .fn = keys_whoami, .access = ACCESS_ANY,
     .status = 200, .response = "Whoami",
     .summary = "the key of this request: its id, role and tenant"},
    {.method = "GET", .path = TENANTS, .fn = tenants_list, .access = ACCESS_PLATFORM,
     .flags = ROUTE_LIST, .status = 200, .response = "[Tenant]", .summary = "list tenants"},
    {.method = "POST", .path = TENANTS, .fn = tenants_create, .access = ACCESS_PLATFORM,
     .body = BODY_JSON, .request = "TenantCreate", .max_body = 16 * KIB, .status = 201,
     .response = "Tenant", .summary = "create a tenant with the default quota"},
    {.method = "GET", .path = TENANT, .fn = tenants_get, .access = ACCESS_ANY, .status = 200,
     .response = "Tenant", .summary = "one tenant"},
    {.method = "PATCH", .path = TENANT, .fn = tenants_patch, .access = ACCESS_PLATFORM,
     .body = BODY_JSON, .request = "TenantPatch", .max_body = 16 * KIB, .flags = ROUTE_ETAG,
     .status = 200, .response = "Tenant", .summary = "suspend a tenant or make it active again"},
    {.method = "DELETE", .path = TENANT, .fn = tenants_delete, .access = ACCESS_PLATFORM,
     .flags = ROUTE_ETAG, .status = 204,
     .summary = "delete a tenant that has no live jobs; its keys are revoked"},
    {.method = "GET", .path = TENANT "/quota", .fn = quota_get, .access = ACCESS_ANY,
     .status = 200, .response = "Quota", .summary = "a tenant's limits"},
    {.method = "PUT", .path = TENANT "/quota", .fn = quota_put, .access = ACCESS_PLATFORM,
     .body = BODY_JSON, .request = "QuotaPut", .max_body = 16 * KIB, .flags = ROUTE_ETAG,
     .status = 200, .response = "Quota",
     .summary = "replace a tenant's limits; absent fields get their defaults"},
    {.method = "GET", .path = TENANT "/usage", .fn = usage_get, .access = ACCESS_READ,
     .flags = ROUTE_LIST, .query = QUERY_USAGE, .status = 200, .response = "[Usage]",
     .summary = "device time, requests of inference, and samples (of inference that ran, and of "
     "committed steps of training, each once) of a range of time, added up"},
    {.method = "GET", .path = TENANT "/share", .fn = shares_get, .access = ACCESS_READ,
     .status = 200, .response = "Share",
     .summary = "what the scheduler decides by: guarantee, fair share, what runs and waits, "
     "decayed usage"},
    {.method = "GET", .path = "/api/v1/shares", .fn = shares_list, .access = ACCESS_PLATFORM,
     .flags = ROUTE_LIST, .status = 200, .response = "[Share]",
     .summary = "the shares of all tenants"},
    {.method = "GET", .path = "/api/v1/audit", .fn = audit_list, .access = ACCESS_PLATFORM,
     .flags = ROUTE_LIST, .query = QUERY_AUDIT, .status = 200, .response = "[Audit]",
     .summary = "every change, newest first: who, what, before, after"},
    {.method = "GET", .path = "/api/v1/config", .fn = config_get, .access = ACCESS_PLATFORM,
     .status = 200, .response = "Config",
     .summary = "the options of the process that answers; live ones may be changed"},
    {.method = "PATCH", .path = "/api/v1/config", .fn = config_patch, .access = ACCESS_PLATFORM,
     .body = BODY_JSON, .request = "ConfigPatch", .max_body = 16 * KIB, .flags = ROUTE_ETAG,
     .status = 200, .response = "Config",
     .summary = "change live options of every shunt-api, of those that start later too; null: as "
     "at the start"},
    {.method = "GET", .path = KEYS, .fn = keys_list, .access = ACCESS_MANAGE, .flags = ROUTE_LIST,
     .status = 200, .response = "[Key]", .summary = "list a tenant's API keys, without secrets"},
    {.method = "POST", .path = KEYS, .fn = keys_create, .access = ACCESS_MANAGE, .body = BODY_JSON,
     .request = "KeyCreate", .max_body = 16 * KIB, .status = 201, .response = "KeySecret",
     .summary = "create an API key; the secret is shown this once"},
    {.method = "GET", .path = KEYS "/{key}", .fn = keys_get, .access = ACCESS_MANAGE,
     .status = 200, .response = "Key", .summary = "one API key, without its secret"},
    {.method = "POST", .path = KEYS "/{key}/rotate", .fn = keys_rotate, .access = ACCESS_MANAGE,
     .body = BODY_JSON, .request = "KeyRotate", .max_body = 4 * KIB, .flags = ROUTE_OPTIONAL,
     .status = 200, .response = "KeySecret",
     .summary = "give a key a new secret, shown this once; the old one is valid for overlap_s "
     "more seconds"},
    {.method = "DELETE", .path = KEYS "/{key}", .fn = keys_delete, .access = ACCESS_MANAGE,
     .status = 204, .summary = "revoke an API key at once"},

    {.method = "GET", .path = MODELS, .fn = models_list, .access = ACCESS_READ,
     .flags = T | ROUTE_LIST, .status = 200, .response = "[Model]",
     .summary = "list own models and those shared by others"},
    {.method = "POST", .path = MODELS, .fn = models_create, .access = ACCESS_SUBMIT,
     .body = BODY_JSON, .request = "ModelCreate", .max_body = 16 * KIB, .flags = T, .status = 201,
     .response = "Model", .summary = "create a model: a name for versions"},
    {.method = "GET", .path = MODEL, .fn = models_get, .access = ACCESS_READ, .flags = T,
     .status = 200, .response = "Model", .summary = "one model"},
    {.method = "PATCH", .path = MODEL, .fn = models_patch, .access = ACCESS_SUBMIT,
     .body = BODY_JSON, .request = "ModelPatch", .max_body = 16 * KIB, .flags = T | ROUTE_ETAG,
     .status = 200, .response = "Model",
     .summary = "share a model with every tenant for inference, or no longer"},
    {.method = "DELETE", .path = MODEL, .fn = models_delete, .access = ACCESS_SUBMIT,
     .flags = T | ROUTE_ETAG, .status = 204,
     .summary = "delete a model and all its versions; refused while a job uses one or one is "
     "pinned"},
    {.method = "POST", .path = MODEL "/load", .fn = loads_load, .access = ACCESS_SUBMIT,
     .body = BODY_JSON, .request = "Empty", .max_body = 4 * KIB, .flags = T | ROUTE_OPTIONAL,
     .status = 202, .response = "Model",
     .summary = "load every version that was unloaded or has failed"},
    {.method = "POST", .path = MODEL "/unload", .fn = loads_unload, .access = ACCESS_SUBMIT,
     .body = BODY_JSON, .request = "Empty", .max_body = 4 * KIB, .flags = T | ROUTE_OPTIONAL,
     .status = 202, .response = "Model", .summary = "unload every version that is not pinned"},
    {.method = "POST", .path = MODEL "/pin", .fn = loads_pin, .access = ACCESS_SUBMIT,
     .body = BODY_JSON, .request = "Empty", .max_body = 4 * KIB, .flags = T | ROUTE_OPTIONAL,
     .status = 200, .response = "Model",
     .summary = "pin every READY version; 429 or 409 without room"},
    {.method = "POST", .path = MODEL "/unpin", .fn = loads_unpin, .access = ACCESS_SUBMIT,
     .body = BODY_JSON, .request = "Empty", .max_body = 4 * KIB, .flags = T | ROUTE_OPTIONAL,
     .status = 200, .response = "Model", .summary = "take the pins off every version"},
    {.method = "GET", .path = VERSIONS, .fn = versions_list, .access = ACCESS_READ,
     .flags = T | ROUTE_LIST, .status = 200, .response = "[Version]",
     .summary = "list a model's versions"},
    {.method = "POST", .path = VERSIONS, .fn = versions_create, .access = ACCESS_SUBMIT,
     .body = BODY_JSON, .request = "VersionCreate", .max_body = 16 * KIB,
     .flags = T | ROUTE_OPTIONAL, .status = 201, .response = "Version",
     .summary = "create the next version; upload its file next"},
    {.method = "GET", .path = VERSION, .fn = versions_get, .access = ACCESS_READ, .flags = T,
     .status = 200, .response = "Version", .summary = "one version with its state and tensors"},
    {.method = "DELETE", .path = VERSION, .fn = versions_delete, .access = ACCESS_SUBMIT,
     .flags = T | ROUTE_ETAG, .status = 204,
     .summary = "delete a version; refused while a job uses it or it is pinned"},
    {.method = "POST", .path = VERSION "/load", .fn = loads_load, .access = ACCESS_SUBMIT,
     .body = BODY_JSON, .request = "Empty", .max_body = 4 * KIB, .flags = T | ROUTE_OPTIONAL,
     .status = 202, .response = "Version",
     .summary = "load a version again that was unloaded or has failed"},
    {.method = "POST", .path = VERSION "/unload", .fn = loads_unload, .access = ACCESS_SUBMIT,
     .body = BODY_JSON, .request = "Empty", .max_body = 4 * KIB, .flags = T | ROUTE_OPTIONAL,
     .status = 202, .response = "Version",
     .summary = "take it off the executors; requests get 409 (UNLOADED) until it is loaded"},
    {.method = "POST", .path = VERSION "/pin", .fn = loads_pin, .access = ACCESS_SUBMIT,
     .body = BODY_JSON, .request = "Empty", .max_body = 4 * KIB, .flags = T | ROUTE_OPTIONAL,
     .status = 200, .response = "Version",
     .summary = "keep the image in device memory; 429 or 409 without room"},
    {.method = "POST", .path = VERSION "/unpin", .fn = loads_unpin, .access = ACCESS_SUBMIT,
     .body = BODY_JSON, .request = "Empty", .max_body = 4 * KIB, .flags = T | ROUTE_OPTIONAL,
     .status = 200, .response = "Version", .summary = "let the image be evicted like others"},
    {.method = "GET", .path = VERSION "/placements", .fn = loads_placements, .access = ACCESS_READ,
     .flags = T, .status = 200, .response = "Placements",
     .summary = "where a version stands: state and bytes by executor, as of the last seconds"},
    {.method = "GET", .path = VERSION "/profile", .fn = loads_profile, .access = ACCESS_READ,
     .flags = T, .status = 200, .response = "Profile",
     .summary = "how long runs of a version take by batch, and what the scheduler predicts"},
    {.method = "PUT", .path = VERSION "/artifact", .fn = versions_upload, .access = ACCESS_SUBMIT,
     .body = BODY_MODEL, .request = "Binary", .flags = T | ROUTE_ETAG, .status = 200,
     .response = "Version",
     .summary = "upload the ONNX file, or a tar file of one and the files with its weights; "
     "Content-Digest: sha-256=:...: is checked if given"},
    {.method = "GET", .path = VERSION "/artifact/parts/{digest}", .fn = uploads_part,
     .access = ACCESS_SUBMIT, .flags = T, .status = 200, .response = "UploadPart",
     .summary = "how much of a file with this SHA-256 a broken upload left; PUT the rest with "
     "Content-Range"},
    {.method = "GET", .path = MODEL "/slo", .fn = slo_get, .access = ACCESS_READ, .flags = T,
     .status = 200, .response = "Slo", .summary = "a model's latency target"},
    {.method = "PUT", .path = MODEL "/slo", .fn = slo_put, .access = ACCESS_SUBMIT,
     .body = BODY_JSON, .request = "SloPut", .max_body = 16 * KIB, .flags = T | ROUTE_ETAG,
     .status = 200, .response = "Slo", .summary = "set a model's latency target"},
    {.method = "GET", .path = MODEL "/slo/attainment", .fn = slo_attainment, .access = ACCESS_READ,
     .flags = T, .query = QUERY_WINDOW, .status = 200, .response = "Attainment",
     .summary = "how requests met the latency target; error_budget_left is a fraction of the "
     "requests that may miss it: 1 = unspent, 0 = spent, -24 = overspent by 24 times as many"},
    {.method = "DELETE", .path = MODEL "/slo", .fn = slo_delete, .access = ACCESS_SUBMIT,
     .flags = T | ROUTE_ETAG, .status = 204, .summary = "remove a model's latency target"},

    {.method = "GET", .path = DATASETS, .fn = datasets_list, .access = ACCESS_READ,
     .flags = T | ROUTE_LIST, .status = 200, .response = "[Dataset]", .summary = "list datasets"},
    {.method = "POST", .path = DATASETS, .fn = datasets_create, .access = ACCESS_SUBMIT,
     .body = BODY_JSON, .request = "DatasetCreate", .max_body = 16 * KIB, .flags = T,
     .status = 201, .response = "Dataset", .summary = "create a dataset; upload its file next"},
    {.method = "GET", .path = DATASET, .fn = datasets_get, .access = ACCESS_READ, .flags = T,
     .status = 200, .response = "Dataset", .summary = "one dataset with its tensors"},
    {.method = "DELETE", .path = DATASET, .fn = datasets_delete, .access = ACCESS_SUBMIT,
     .flags = T | ROUTE_ETAG, .status = 204,
     .summary = "delete a dataset; refused while a job uses it"},
    {.method = "PUT", .path = DATASET "/artifact", .fn = datasets_upload, .access = ACCESS_SUBMIT,
     .body = BODY_DATASET, .request = "Binary", .flags = T | ROUTE_ETAG, .status = 200,
     .response = "Dataset",
     .summary = "upload the safetensors file; axis 0 of every tensor is the sample"},
    {.method = "GET", .path = DATASET "/artifact/parts/{digest}", .fn = uploads_part,
     .access = ACCESS_SUBMIT, .flags = T, .status = 200, .response = "UploadPart",
     .summary = "how much of a file with this SHA-256 a broken upload left; PUT the rest with "
     "Content-Range"},

    {.method = "GET", .path = QUEUES, .fn = queues_list, .access = ACCESS_READ,
     .flags = ROUTE_OWNER | ROUTE_LIST, .status = 200, .response = "[Queue]",
     .summary = "list the queues that a tenant may use"},
    {.method = "POST", .path = QUEUES, .fn = queues_create, .access = ACCESS_MANAGE,
     .body = BODY_JSON, .request = "QueueCreate", .max_body = 16 * KIB, .flags = ROUTE_OWNER,
     .status = 201, .response = "Queue",
     .summary = "create a queue of a tenant; an admin key that names none creates a shared one"},
    {.method = "GET", .path = QUEUES "/{queue}", .fn = queues_get, .access = ACCESS_READ,
     .flags = ROUTE_OWNER, .status = 200, .response = "Queue", .summary = "one queue"},
    {.method = "PATCH", .path = QUEUES "/{queue}", .fn = queues_patch, .access = ACCESS_MANAGE,
     .body = BODY_JSON, .request = "QueuePatch", .max_body = 16 * KIB,
     .flags = ROUTE_OWNER | ROUTE_ETAG, .status = 200, .response = "Queue",
     .summary = "change a queue's priority or state: HELD starts nothing, DRAINING takes nothing "
     "new"},
    {.method = "DELETE", .path = QUEUES "/{queue}", .fn = queues_delete, .access = ACCESS_MANAGE,
     .flags = ROUTE_OWNER | ROUTE_ETAG, .status = 204,
     .summary = "delete a queue; refused while it has live jobs"},
    {.method = "GET", .path = JOBS, .fn = jobs_list, .access = ACCESS_READ,
     .flags = T | ROUTE_LIST, .query = QUERY_JOBS, .status = 200, .response = "[Job]",
     .summary = "list jobs, newest first"},
    {.method = "POST", .path = JOBS, .fn = jobs_create, .access = ACCESS_SUBMIT, .body = BODY_JSON,
     .request = "JobCreate", .max_body = 64 * KIB, .flags = T | ROUTE_KEEPS, .status = 201,
     .response = "Job",
     .summary = "submit a job; an Idempotency-Key that is repeated within a day gives the first "
     "answer again, a client_token the first job, with 200"},
    {.method = "GET", .path = JOB, .fn = jobs_get, .access = ACCESS_READ, .flags = T,
     .status = 200, .response = "Job", .summary = "one job"},
    {.method = "PATCH", .path = JOB, .fn = jobs_patch, .access = ACCESS_SUBMIT, .body = BODY_JSON,
     .request = "JobPatch", .max_body = 16 * KIB, .flags = T | ROUTE_ETAG, .status = 200,
     .response = "Job",
     .summary = "change priority, labels or deadline of a job that has not ended; null removes a "
     "label or the deadline"},
    {.method = "POST", .path = JOB "/cancel", .fn = jobs_control, .access = ACCESS_SUBMIT,
     .body = BODY_JSON, .request = "Empty", .max_body = 4 * KIB, .flags = T | ROUTE_OPTIONAL,
     .status = 200, .response = "Job", .summary = "cancel a job; repeating it is no error"},
    {.method = "POST", .path = JOB "/hold", .fn = jobs_control, .access = ACCESS_SUBMIT,
     .body = BODY_JSON, .request = "Empty", .max_body = 4 * KIB, .flags = T | ROUTE_OPTIONAL,
     .status = 200, .response = "Job",
     .summary = "keep a queued job from starting; 409 says what is allowed instead"},
    {.method = "POST", .path = JOB "/release", .fn = jobs_control, .access = ACCESS_SUBMIT,
     .body = BODY_JSON, .request = "Empty", .max_body = 4 * KIB, .flags = T | ROUTE_OPTIONAL,
     .status = 200, .response = "Job", .summary = "let a held job start"},
    {.method = "POST", .path = JOB "/suspend", .fn = jobs_control, .access = ACCESS_SUBMIT,
     .body = BODY_JSON, .request = "Empty", .max_body = 4 * KIB, .flags = T | ROUTE_OPTIONAL,
     .status = 200, .response = "Job",
     .summary = "take a job from its executor with a checkpoint; it waits until it is resumed"},
    {.method = "POST", .path = JOB "/resume", .fn = jobs_control, .access = ACCESS_SUBMIT,
     .body = BODY_JSON, .request = "Empty", .max_body = 4 * KIB, .flags = T | ROUTE_OPTIONAL,
     .status = 200, .response = "Job",
     .summary = "let a suspended job go on, or take a suspension back"},
    {.method = "POST", .path = JOB "/requeue", .fn = jobs_control, .access = ACCESS_SUBMIT,
     .body = BODY_JSON, .request = "Empty", .max_body = 4 * KIB, .flags = T | ROUTE_OPTIONAL,
     .status = 200, .response = "Job",
     .summary = "take a job from its executor with a checkpoint, to the end of its queue"},
    {.method = "POST", .path = JOB "/checkpoint", .fn = jobs_control, .access = ACCESS_SUBMIT,
     .body = BODY_JSON, .request = "Empty", .max_body = 4 * KIB, .flags = T | ROUTE_OPTIONAL,
     .status = 200, .response = "Job",
     .summary = "write a checkpoint after the next step; flag CHECKPOINTING until it is there"},
    {.method = "GET", .path = JOB "/explain", .fn = jobs_explain, .access = ACCESS_READ,
     .flags = T, .status = 200, .response = "Explanation",
     .summary = "why a job waits, what for, its place and an estimated start; why a running one "
     "keeps its place"},
    {.method = "GET", .path = JOB "/events", .fn = jobs_events, .access = ACCESS_READ,
     .flags = T | ROUTE_LIST | ROUTE_STREAM, .status = 200, .response = "[JobEvent]",
     .summary = "every change of the job's state, oldest first; with Accept: text/event-stream "
     "as they happen, until the last one; Last-Event-ID goes on after an event"},
    {.method = "GET", .path = JOB "/checkpoints", .fn = jobs_checkpoints, .access = ACCESS_READ,
     .flags = T | ROUTE_LIST, .status = 200, .response = "[Checkpoint]",
     .summary = "checkpoints that were written, oldest first; the files of the last two are kept"},
    {.method = "GET", .path = JOB "/losses", .fn = jobs_losses, .access = ACCESS_READ,
     .flags = T | ROUTE_RANGE, .status = 200, .response = "Losses",
     .summary = "the losses of committed steps written so far; of more than a million steps each "
     "k-th"},
    {.method = "GET", .path = JOB "/log", .fn = jobs_log, .access = ACCESS_READ,
     .flags = T | ROUTE_FILE, .status = 200, .response = "Text",
     .summary = "lines of text about all its attempts; empty before the first. It grows: ask "
     "with Range for what is new; beyond 1 MiB it keeps its beginning and its newest part"},
    {.method = "GET", .path = JOB "/result", .fn = jobs_result, .access = ACCESS_READ,
     .flags = T | ROUTE_STATED, .status = 200, .response = "JobResult",
     .summary = "what a job that has SUCCEEDED leaves; 409 before and after any other end"},
    {.method = "GET", .path = JOB "/result/artifact", .fn = jobs_artifact, .access = ACCESS_READ,
     .flags = T | ROUTE_FILE | ROUTE_STATED, .status = 200, .response = "Binary",
     .summary = "the file that it leaves: outputs of batch inference (safetensors), the trained "
     "model (ONNX)"},
    {.method = "DELETE", .path = JOB "/result/artifact", .fn = jobs_artifact_delete,
     .access = ACCESS_SUBMIT, .flags = T, .status = 204,
     .summary = "remove that file, which then counts no longer as stored; the job and its result "
     "stay"},
    {.method = "GET", .path = JOB "/files/{file}", .fn = files_get, .access = ACCESS_EXECUTOR,
     .flags = ROUTE_FILE | ROUTE_BULK, .status = 200, .response = "Binary",
     .summary = "for executors on other hosts: a file of a job's folder; for a checkpoint that "
     "was replaced the newest; ETag is its SHA-256"},
    {.method = "PUT", .path = JOB "/files/{file}", .fn = files_put, .access = ACCESS_EXECUTOR,
     .body = BODY_FILE, .query = QUERY_ATTEMPT, .request = "Binary", .status = 204,
     .summary = "for executors on other hosts: what their job leaves; 409 when another one has "
     "the job"},
    {.method = "GET", .path = "/api/v1/blobs/{digest}", .fn = blobs_get, .access = ACCESS_EXECUTOR,
     .flags = ROUTE_FILE, .status = 200, .response = "Binary",
     .summary = "for executors on other hosts: the model or dataset of this SHA-256"},
    {.method = "POST", .path = "/api/v1/job-batches", .fn = job_batches_create,
     .access = ACCESS_SUBMIT, .body = BODY_JSON, .request = "JobBatchCreate",
     .max_body = 1024 * KIB, .flags = T | ROUTE_KEEPS, .status = 201, .response = "JobBatch",
     .summary = "submit up to 1000 jobs, each with a result of its own; 200 if none was made, "
     "429 for all if the quota has no room for all"},
    {.method = "GET", .path = ARRAYS, .fn = job_arrays_list, .access = ACCESS_READ,
     .flags = T | ROUTE_LIST, .status = 200, .response = "[JobArray]",
     .summary = "list arrays of jobs, newest first"},
    {.method = "POST", .path = ARRAYS, .fn = job_arrays_create, .access = ACCESS_SUBMIT,
     .body = BODY_JSON, .request = "JobArrayCreate", .max_body = 64 * KIB,
     .flags = T | ROUTE_KEEPS, .status = 201, .response = "JobArray",
     .summary = "submit up to 1000 jobs that differ in an index, all or none; max_parallel of "
     "them run at once; a repeated client_token gives the first array, with 200"},
    {.method = "GET", .path = ARRAY, .fn = job_arrays_get, .access = ACCESS_READ, .flags = T,
     .status = 200, .response = "JobArray",
     .summary = "one array, with how many of its jobs are in which state"},
    {.method = "PATCH", .path = ARRAY, .fn = job_arrays_patch, .access = ACCESS_SUBMIT,
     .body = BODY_JSON, .request = "JobArrayPatch", .max_body = 4 * KIB, .flags = T | ROUTE_ETAG,
     .status = 200, .response = "JobArray",
     .summary = "change how many jobs of an array run at once; those that run go on"},
    {.method = "POST", .path = ARRAY "/cancel", .fn = job_arrays_control, .access = ACCESS_SUBMIT,
     .body = BODY_JSON, .request = "Empty", .max_body = 4 * KIB, .flags = T | ROUTE_OPTIONAL,
     .status = 200, .response = "JobArrayChange",
     .summary = "cancel all its jobs that have not ended"},
    {.method = "POST", .path = ARRAY "/hold", .fn = job_arrays_control, .access = ACCESS_SUBMIT,
     .body = BODY_JSON, .request = "Empty", .max_body = 4 * KIB, .flags = T | ROUTE_OPTIONAL,
     .status = 200, .response = "JobArrayChange", .summary = "keep its queued jobs from starting"},
    {.method = "POST", .path = ARRAY "/release", .fn = job_arrays_control, .access = ACCESS_SUBMIT,
     .body = BODY_JSON, .request = "Empty", .max_body = 4 * KIB, .flags = T | ROUTE_OPTIONAL,
     .status = 200, .response = "JobArrayChange", .summary = "let its held jobs start"},
    {.method = "POST", .path = ARRAY "/suspend", .fn = job_arrays_control, .access = ACCESS_SUBMIT,
     .body = BODY_JSON, .request = "Empty", .max_body = 4 * KIB, .flags = T | ROUTE_OPTIONAL,
     .status = 200, .response = "JobArrayChange",
     .summary = "take its jobs from their executors, with checkpoints; they wait"},
    {.method = "POST", .path = ARRAY "/resume", .fn = job_arrays_control, .access = ACCESS_SUBMIT,
     .body = BODY_JSON, .request = "Empty", .max_body = 4 * KIB, .flags = T | ROUTE_OPTIONAL,
     .status = 200, .response = "JobArrayChange", .summary = "let its suspended jobs go on"},
    {.method = "POST", .path = ARRAY "/requeue", .fn = job_arrays_control, .access = ACCESS_SUBMIT,
     .body = BODY_JSON, .request = "Empty", .max_body = 4 * KIB, .flags = T | ROUTE_OPTIONAL,
     .status = 200, .response = "JobArrayChange",
     .summary = "as suspend, and to the end of their queue"},
    {.method = "POST", .path = ARRAY "/checkpoint", .fn = job_arrays_control,
     .access = ACCESS_SUBMIT, .body = BODY_JSON, .request = "Empty", .max_body = 4 * KIB,
     .flags = T | ROUTE_OPTIONAL, .status = 200, .response = "JobArrayChange",
     .summary = "write checkpoints of its jobs that run"},
    {.method = "GET", .path = "/api/v1/events", .fn = events_list, .access = ACCESS_READ,
     .flags = ROUTE_OWNER | ROUTE_LIST | ROUTE_STREAM, .query = QUERY_EVENTS, .status = 200,
     .response = "[Event]",
     .summary = "changes of state of all jobs, of the last day unless from is given, newest "
     "first; with Accept: text/event-stream as they happen, from now on, from a time or after "
     "Last-Event-ID"},
    {.method = "GET", .path = "/api/v1/gpus", .fn = gpus_list, .access = ACCESS_READ,
     .flags = ROUTE_LIST, .status = 200, .response = "[Gpu]",
     .summary = "list GPUs: each has one executor, which gives it its name; as of the last "
     "seconds"},
    {.method = "GET", .path = "/api/v1/gpus/{gpu}", .fn = gpus_get, .access = ACCESS_READ,
     .status = 200, .response = "Gpu",
     .summary = "one GPU: its memory and link, what runs on it, which models are there"},
    {.method = "GET", .path = "/api/v1/executors", .fn = gpus_list, .access = ACCESS_READ,
     .flags = ROUTE_LIST, .status = 200, .response = "[Gpu]",
     .summary = "another name of /api/v1/gpus"},

    {.method = "GET", .path = "/v2", .fn = v2_server, .access = ACCESS_PUBLIC, .flags = V2,
     .status = 200, .response = "ServerMetadata", .summary = "server metadata"},
    {.method = "GET", .path = "/v2/health/live", .fn = v2_live, .access = ACCESS_PUBLIC,
     .flags = V2, .status = 200, .response = "Health", .summary = "is this process alive"},
    {.method = "GET", .path = "/v2/health/ready", .fn = v2_ready, .access = ACCESS_PUBLIC,
     .flags = PROBE, .status = 200, .response = "Health",
     .summary = "can inference requests be served (200) or not (503)"},
    {.method = "POST", .path = "/v2/repository/index", .fn = v2_index, .access = ACCESS_ANY,
     .body = BODY_JSON, .request = "IndexRequest", .max_body = 4 * KIB,
     .flags = V2 | ROUTE_OPTIONAL, .status = 200, .response = "Index",
     .summary = "models that this key may use, with their state"},
    {.method = "POST", .path = "/v2/repository/models/{model}/load", .fn = v2_load,
     .access = ACCESS_SUBMIT, .body = BODY_JSON, .request = "RepoRequest", .max_body = 64 * KIB,
     .flags = ROUTE_V2 | T | ROUTE_OPTIONAL, .status = 200,
     .summary = "load every version that was unloaded or has failed, and wait for it"},
    {.method = "POST", .path = "/v2/repository/models/{model}/unload", .fn = v2_unload,
     .access = ACCESS_SUBMIT, .body = BODY_JSON, .request = "RepoRequest", .max_body = 64 * KIB,
     .flags = ROUTE_V2 | T | ROUTE_OPTIONAL, .status = 200,
     .summary = "unload every version that is not pinned; the index tells when it is done"},
    {.method = "GET", .path = "/v2/systemsharedmemory/status", .fn = v2_region_list,
     .access = ACCESS_ANY, .flags = V2, .status = 200, .response = "Regions",
     .summary = "regions of system shared memory of the tenant"},
    {.method = "GET", .path = "/v2/systemsharedmemory/region/{region}/status",
     .fn = v2_region_status, .access = ACCESS_ANY, .flags = V2, .status = 200,
     .response = "Regions", .summary = "one region of system shared memory"},
    {.method = "POST", .path = "/v2/systemsharedmemory/region/{region}/register",
     .fn = v2_region_register, .access = ACCESS_INFER, .body = BODY_JSON, .request = "Region",
     .max_body = 4 * KIB, .flags = V2 | ROUTE_OPTIONAL | ROUTE_OFFERED | ROUTE_STATED,
     .status = 200,
     .summary = "name POSIX shared memory of this host, for inputs and outputs (501: client-shm "
     "is off)"},
    {.method = "POST", .path = "/v2/systemsharedmemory/unregister", .fn = v2_region_unregister,
     .access = ACCESS_INFER, .body = BODY_JSON, .request = "Any", .max_body = 4 * KIB,
     .flags = V2 | ROUTE_OPTIONAL, .status = 200, .summary = "forget every region of the tenant"},
    {.method = "POST", .path = "/v2/systemsharedmemory/region/{region}/unregister",
     .fn = v2_region_unregister, .access = ACCESS_INFER, .body = BODY_JSON, .request = "Any",
     .max_body = 4 * KIB, .flags = V2 | ROUTE_OPTIONAL, .status = 200,
     .summary = "forget one region"},
    {.method = "GET", .path = "/v2/cudasharedmemory/status", .fn = v2_shm_list,
     .access = ACCESS_ANY, .flags = V2, .status = 200, .response = "Regions",
     .summary = "regions of cuda shared memory: none, they are off"},
    {.method = "GET", .path = "/v2/cudasharedmemory/region/{region}/status", .fn = v2_shm_status,
     .access = ACCESS_ANY, .flags = V2, .status = 200,
     .summary = "one region of cuda shared memory: there is none"},
    {.method = "POST", .path = "/v2/cudasharedmemory/region/{region}/register",
     .fn = v2_shm_register, .access = ACCESS_INFER, .body = BODY_JSON, .request = "Any",
     .max_body = 4 * KIB, .flags = V2 | ROUTE_OPTIONAL | ROUTE_OFFERED, .status = 200,
     .summary = "refused (501): send tensors in system shared memory or in the body"},
    {.method = "POST", .path = "/v2/cudasharedmemory/unregister", .fn = v2_shm_unregister,
     .access = ACCESS_INFER, .body = BODY_JSON, .request = "Any", .max_body = 4 * KIB,
     .flags = V2 | ROUTE_OPTIONAL, .status = 200, .summary = "nothing to do: there is no region"},
    {.method = "POST", .path = "/v2/cudasharedmemory/region/{region}/unregister",
     .fn = v2_shm_unregister, .access = ACCESS_INFER, .body = BODY_JSON, .request = "Any",
     .max_body = 4 * KIB, .flags = V2 | ROUTE_OPTIONAL, .status = 200,
     .summary = "nothing to do: there is no region"},
    {.method = "GET", .path = "/v2/models/stats", .fn = v2_stats_all, .access = ACCESS_ANY,
     .flags = V2, .status = 200, .response = "Stats",
     .summary = "statistics of every model since start"},
    {.method = "GET", .path = V2M, .fn = v2_model, .access = ACCESS_ANY, .flags = V2,
     .status = 200, .response = "ModelMetadata", .summary = "model metadata"},
    {.method = "GET", .path = V2V, .fn = v2_model, .access = ACCESS_ANY, .flags = V2,
     .status = 200, .response = "ModelMetadata", .summary = "metadata of one version"},
    {.method = "GET", .path = V2M "/ready", .fn = v2_model_ready, .access = ACCESS_ANY,
     .flags = PROBE, .status = 200, .response = "Health",
     .summary = "is the model ready (200) or not (503)"},
    {.method = "GET", .path = V2V "/ready", .fn = v2_model_ready, .access = ACCESS_ANY,
     .flags = PROBE, .status = 200, .response = "Health",
     .summary = "is the version ready (200) or not (503)"},
    {.method = "GET", .path = V2M "/config", .fn = v2_config, .access = ACCESS_ANY, .flags = V2,
     .status = 200, .response = "ModelConfig", .summary = "model configuration"},
    {.method = "GET", .path = V2V "/config", .fn = v2_config, .access = ACCESS_ANY, .flags = V2,
     .status = 200, .response = "ModelConfig", .summary = "configuration of one version"},
    {.method = "GET", .path = V2M "/stats", .fn = v2_stats, .access = ACCESS_ANY, .flags = V2,
     .status = 200, .response = "Stats", .summary = "statistics since start"},
    {.method = "GET", .path = V2V "/stats", .fn = v2_stats, .access = ACCESS_ANY, .flags = V2,
     .status = 200, .response = "Stats", .summary = "statistics of one version"},
    {.method = "POST", .path = V2M "/infer", .fn = infer_main, .access = ACCESS_INFER,
     .body = BODY_INFER, .request = "InferRequest", .flags = V2, .status = 200,
     .response = "InferResponse",
     .summary = "infer with the newest ready version; JSON or binary tensors"},
    {.method = "POST", .path = V2V "/infer", .fn = infer_main, .access = ACCESS_INFER,
     .body = BODY_INFER, .request = "InferRequest", .flags = V2, .status = 200,
     .response = "InferResponse", .summary = "infer with one version"},
};
/* clang-format on */
const size_t API_N_ROUTES = SH_ARRAY_LEN(API_ROUTES);

unsigned access_roles(enum api_access a)
{
    static const unsigned ROLES[API_N_ACCESS] = {
        [ACCESS_PUBLIC] = 0,
        [ACCESS_ANY] = ROLE_ADMIN | ROLE_TENANT_ADMIN | ROLE_SUBMIT | ROLE_INFER | ROLE_READ,
        [ACCESS_READ] = ROLE_ADMIN | ROLE_TENANT_ADMIN | ROLE_SUBMIT | ROLE_READ,
        [ACCESS_INFER] = ROLE_ADMIN | ROLE_TENANT_ADMIN | ROLE_SUBMIT | ROLE_INFER,
        [ACCESS_SUBMIT] = ROLE_ADMIN | ROLE_TENANT_ADMIN | ROLE_SUBMIT,
        [ACCESS_MANAGE] = ROLE_ADMIN | ROLE_TENANT_ADMIN,
        [ACCESS_PLATFORM] = ROLE_ADMIN,
        [ACCESS_EXECUTOR] = ROLE_EXECUTOR,
    };

    return ROLES[a];
}

const char *access_text(enum api_access a)
{
    static const char *const TEXT[API_N_ACCESS] = {
        [ACCESS_PUBLIC] = "no key",
        [ACCESS_ANY] = "any key",
        [ACCESS_READ] = "a key of role admin, tenant-admin, submit or read",
        [ACCESS_INFER] = "a key of role admin, tenant-admin, submit or infer",
        [ACCESS_SUBMIT] = "a key of role admin, tenant-admin or submit",
        [ACCESS_MANAGE] = "a key of role admin or tenant-admin",
        [ACCESS_PLATFORM] = "an admin key",
        [ACCESS_EXECUTOR] = "the key of the executors",
    };

    return TEXT[a];
}

static bool matches(const char *pattern, const struct uri *u, const char **params)
{
    size_t seg = 0, n_params = 0;

    memset(params, 0, API_MAX_PARAMS * sizeof(*params));
    for (const char *p = pattern; *p; seg++) {
        const char *have = seg < u->n_segments ? u->segments[seg] : NULL;

        if (!have)
            return false;
        if (*++p == '{') { /* p stood on the slash before the segment */
            if (!have[0] || n_params == API_MAX_PARAMS)
                return false;
            params[n_params++] = have;
            p += strcspn(p, "/");
            continue;
        }
        while (*p && *p != '/' && *p == *have)
            p++, have++;
        if (*have || (*p && *p != '/'))
            return false;
    }
    return seg == u->n_segments;
}

static void allow_add(char allow[static 64], const char *method)
{
    size_t n = strlen(allow);

    if (strstr(allow, method))
        return;
    snprintf(allow + n, 64 - n, "%s%s%s", n ? ", " : "", method,
             strcmp(method, "GET") == 0 ? ", HEAD" : "");
}

int route_find(const char *method, const struct uri *u, const struct api_route **out,
               const char **params, char allow[static 64], struct sh_err *err)
{
    const char *want = strcmp(method, "HEAD") == 0 ? "GET" : method;
    const char *tried[API_MAX_PARAMS];
    const struct api_route *other = NULL;

    allow[0] = '\0';
    for (size_t i = 0; i < API_N_ROUTES; i++) {
        const struct api_route *r = &API_ROUTES[i];

        if (!matches(r->path, u, tried))
            continue;
        if (strcmp(r->method, want) == 0) {
            *out = r;
            memcpy(params, tried, sizeof(tried));
            allow[0] = '\0';
            return SH_OK;
        }
        other = r;
        allow_add(allow, r->method);
    }
    if (!other)
        return SH_FAIL(err, SH_E_NOTFOUND, "there is nothing at this URL; see /openapi.json");
    allow_add(allow, "OPTIONS");
    return SH_FAIL(err, SH_E_METHOD, "%s is not allowed here; allowed: %s", method, allow);
}
