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
/* method, path, access, body, flags, max body, handler, status, summary, request, response */
const struct api_route API_ROUTES[] = {
    {"GET", "/healthz", ACCESS_PUBLIC, BODY_NONE, ROUTE_HERE, 0, v2_live, 200,
     "is this process alive", NULL, "Health"},
    {"GET", "/openapi.json", ACCESS_PUBLIC, BODY_NONE, ROUTE_HERE | ROUTE_CACHED, 0, openapi_get,
     200,
     "this description", NULL, "Any"},

    {"GET", "/api/v1/whoami", ACCESS_ANY, BODY_NONE, 0, 0, keys_whoami, 200,
     "the key of this request: its id, role and tenant", NULL, "Whoami"},
    {"GET", TENANTS, ACCESS_PLATFORM, BODY_NONE, ROUTE_LIST, 0, tenants_list, 200,
     "list tenants", NULL, "[Tenant]"},
    {"POST", TENANTS, ACCESS_PLATFORM, BODY_JSON, 0, 16 * KIB, tenants_create, 201,
     "create a tenant with the default quota", "TenantCreate", "Tenant"},
    {"GET", TENANT, ACCESS_ANY, BODY_NONE, 0, 0, tenants_get, 200,
     "one tenant", NULL, "Tenant"},
    {"PATCH", TENANT, ACCESS_PLATFORM, BODY_JSON, ROUTE_ETAG, 16 * KIB, tenants_patch, 200,
     "suspend a tenant or make it active again", "TenantPatch", "Tenant"},
    {"DELETE", TENANT, ACCESS_PLATFORM, BODY_NONE, ROUTE_ETAG, 0, tenants_delete, 204,
     "delete a tenant that has no live jobs; its keys are revoked", NULL, NULL},
    {"GET", TENANT "/quota", ACCESS_ANY, BODY_NONE, 0, 0, quota_get, 200,
     "a tenant's limits", NULL, "Quota"},
    {"PUT", TENANT "/quota", ACCESS_PLATFORM, BODY_JSON, ROUTE_ETAG, 16 * KIB, quota_put, 200,
     "replace a tenant's limits; absent fields get their defaults", "QuotaPut", "Quota"},
    {"GET", TENANT "/usage", ACCESS_READ, BODY_NONE, ROUTE_LIST, 0, usage_get, 200,
     "device time, requests of inference, and samples (of inference that ran, and of committed "
     "steps of training, each once) of a range of time, added up",
     NULL, "[Usage]"},
    {"GET", TENANT "/share", ACCESS_READ, BODY_NONE, 0, 0, shares_get, 200,
     "what the scheduler decides by: guarantee, fair share, what runs and waits, decayed usage",
     NULL, "Share"},
    {"GET", "/api/v1/shares", ACCESS_PLATFORM, BODY_NONE, ROUTE_LIST, 0, shares_list, 200,
     "the shares of all tenants", NULL, "[Share]"},
    {"GET", "/api/v1/audit", ACCESS_PLATFORM, BODY_NONE, ROUTE_LIST, 0, audit_list, 200,
     "every change, newest first: who, what, before, after", NULL, "[Audit]"},
    {"GET", "/api/v1/config", ACCESS_PLATFORM, BODY_NONE, 0, 0, config_get, 200,
     "the options of the process that answers; live ones may be changed", NULL, "Config"},
    {"PATCH", "/api/v1/config", ACCESS_PLATFORM, BODY_JSON, ROUTE_ETAG, 16 * KIB, config_patch, 200,
     "change live options of every shunt-api, of those that start later too; null: as at the start",
     "ConfigPatch", "Config"},
    {"GET", KEYS, ACCESS_MANAGE, BODY_NONE, ROUTE_LIST, 0, keys_list, 200,
     "list a tenant's API keys, without secrets", NULL, "[Key]"},
    {"POST", KEYS, ACCESS_MANAGE, BODY_JSON, 0, 16 * KIB, keys_create, 201,
     "create an API key; the secret is shown this once", "KeyCreate", "KeySecret"},
    {"GET", KEYS "/{key}", ACCESS_MANAGE, BODY_NONE, 0, 0, keys_get, 200,
     "one API key, without its secret", NULL, "Key"},
    {"POST", KEYS "/{key}/rotate", ACCESS_MANAGE, BODY_JSON, ROUTE_OPTIONAL, 4 * KIB, keys_rotate,
     200,
     "give a key a new secret, shown this once; the old one is valid for overlap_s more seconds",
     "KeyRotate", "KeySecret"},
    {"DELETE", KEYS "/{key}", ACCESS_MANAGE, BODY_NONE, 0, 0, keys_delete, 204,
     "revoke an API key at once", NULL, NULL},

    {"GET", MODELS, ACCESS_READ, BODY_NONE, T | ROUTE_LIST, 0, models_list, 200,
     "list own models and those shared by others", NULL, "[Model]"},
    {"POST", MODELS, ACCESS_SUBMIT, BODY_JSON, T, 16 * KIB, models_create, 201,
     "create a model: a name for versions", "ModelCreate", "Model"},
    {"GET", MODEL, ACCESS_READ, BODY_NONE, T, 0, models_get, 200,
     "one model", NULL, "Model"},
    {"PATCH", MODEL, ACCESS_SUBMIT, BODY_JSON, T | ROUTE_ETAG, 16 * KIB, models_patch, 200,
     "share a model with every tenant for inference, or no longer", "ModelPatch", "Model"},
    {"DELETE", MODEL, ACCESS_SUBMIT, BODY_NONE, T | ROUTE_ETAG, 0, models_delete, 204,
     "delete a model and all its versions; refused while a job uses one or one is pinned", NULL,
     NULL},
    {"POST", MODEL "/load", ACCESS_SUBMIT, BODY_JSON, T | ROUTE_OPTIONAL, 4 * KIB,
     loads_load, 202, "load every version that was unloaded or has failed",
     "Empty", "Model"},
    {"POST", MODEL "/unload", ACCESS_SUBMIT, BODY_JSON, T | ROUTE_OPTIONAL, 4 * KIB,
     loads_unload, 202, "unload every version that is not pinned",
     "Empty", "Model"},
    {"POST", MODEL "/pin", ACCESS_SUBMIT, BODY_JSON, T | ROUTE_OPTIONAL, 4 * KIB,
     loads_pin, 200, "pin every READY version; 429 or 409 without room",
     "Empty", "Model"},
    {"POST", MODEL "/unpin", ACCESS_SUBMIT, BODY_JSON, T | ROUTE_OPTIONAL, 4 * KIB,
     loads_unpin, 200, "take the pins off every version",
     "Empty", "Model"},
    {"GET", VERSIONS, ACCESS_READ, BODY_NONE, T | ROUTE_LIST, 0, versions_list, 200,
     "list a model's versions", NULL, "[Version]"},
    {"POST", VERSIONS, ACCESS_SUBMIT, BODY_JSON, T | ROUTE_OPTIONAL, 16 * KIB, versions_create, 201,
     "create the next version; upload its file next", "VersionCreate", "Version"},
    {"GET", VERSION, ACCESS_READ, BODY_NONE, T, 0, versions_get, 200,
     "one version with its state and tensors", NULL, "Version"},
    {"DELETE", VERSION, ACCESS_SUBMIT, BODY_NONE, T | ROUTE_ETAG, 0, versions_delete, 204,
     "delete a version; refused while a job uses it or it is pinned", NULL, NULL},
    {"POST", VERSION "/load", ACCESS_SUBMIT, BODY_JSON, T | ROUTE_OPTIONAL, 4 * KIB,
     loads_load, 202, "load a version again that was unloaded or has failed",
     "Empty", "Version"},
    {"POST", VERSION "/unload", ACCESS_SUBMIT, BODY_JSON, T | ROUTE_OPTIONAL, 4 * KIB,
     loads_unload, 202, "take it off the executors; requests get 409 (UNLOADED) until it is loaded",
     "Empty", "Version"},
    {"POST", VERSION "/pin", ACCESS_SUBMIT, BODY_JSON, T | ROUTE_OPTIONAL, 4 * KIB,
     loads_pin, 200, "keep the image in device memory; 429 or 409 without room",
     "Empty", "Version"},
    {"POST", VERSION "/unpin", ACCESS_SUBMIT, BODY_JSON, T | ROUTE_OPTIONAL, 4 * KIB,
     loads_unpin, 200, "let the image be evicted like others",
     "Empty", "Version"},
    {"GET", VERSION "/placements", ACCESS_READ, BODY_NONE, T, 0, loads_placements, 200,
     "where a version stands: state and bytes by executor, as of the last seconds", NULL,
     "Placements"},
    {"GET", VERSION "/profile", ACCESS_READ, BODY_NONE, T, 0, loads_profile, 200,
     "how long runs of a version take by batch, and what the scheduler predicts", NULL, "Profile"},
    {"PUT", VERSION "/artifact", ACCESS_SUBMIT, BODY_MODEL, T | ROUTE_ETAG, 0, versions_upload, 200,
     "upload the ONNX file, or a tar file of one and the files with its weights; "
     "Content-Digest: sha-256=:...: is checked if given",
     "Binary", "Version"},
    {"GET", VERSION "/artifact/parts/{digest}", ACCESS_SUBMIT, BODY_NONE, T, 0, uploads_part, 200,
     "how much of a file with this SHA-256 a broken upload left; PUT the rest with Content-Range",
     NULL, "UploadPart"},
    {"GET", MODEL "/slo", ACCESS_READ, BODY_NONE, T, 0, slo_get, 200,
     "a model's latency target", NULL, "Slo"},
    {"PUT", MODEL "/slo", ACCESS_SUBMIT, BODY_JSON, T | ROUTE_ETAG, 16 * KIB, slo_put, 200,
     "set a model's latency target", "SloPut", "Slo"},
    {"GET", MODEL "/slo/attainment", ACCESS_READ, BODY_NONE, T, 0, slo_attainment, 200,
     "how requests met the latency target; error_budget_left is a fraction of the requests that "
     "may miss it: 1 = unspent, 0 = spent, -24 = overspent by 24 times as many",
     NULL, "Attainment"},
    {"DELETE", MODEL "/slo", ACCESS_SUBMIT, BODY_NONE, T | ROUTE_ETAG, 0, slo_delete, 204,
     "remove a model's latency target", NULL, NULL},

    {"GET", DATASETS, ACCESS_READ, BODY_NONE, T | ROUTE_LIST, 0, datasets_list, 200,
     "list datasets", NULL, "[Dataset]"},
    {"POST", DATASETS, ACCESS_SUBMIT, BODY_JSON, T, 16 * KIB, datasets_create, 201,
     "create a dataset; upload its file next", "DatasetCreate", "Dataset"},
    {"GET", DATASET, ACCESS_READ, BODY_NONE, T, 0, datasets_get, 200,
     "one dataset with its tensors", NULL, "Dataset"},
    {"DELETE", DATASET, ACCESS_SUBMIT, BODY_NONE, T | ROUTE_ETAG, 0, datasets_delete, 204,
     "delete a dataset; refused while a job uses it", NULL, NULL},
    {"PUT", DATASET "/artifact", ACCESS_SUBMIT, BODY_DATASET, T | ROUTE_ETAG, 0,
     datasets_upload, 200,
     "upload the safetensors file; axis 0 of every tensor is the sample", "Binary", "Dataset"},
    {"GET", DATASET "/artifact/parts/{digest}", ACCESS_SUBMIT, BODY_NONE, T, 0, uploads_part, 200,
     "how much of a file with this SHA-256 a broken upload left; PUT the rest with Content-Range",
     NULL, "UploadPart"},

    {"GET", QUEUES, ACCESS_READ, BODY_NONE, ROUTE_OWNER | ROUTE_LIST, 0, queues_list,
     200,
     "list the queues that a tenant may use", NULL, "[Queue]"},
    {"POST", QUEUES, ACCESS_MANAGE, BODY_JSON, ROUTE_OWNER, 16 * KIB, queues_create, 201,
     "create a queue of a tenant; an admin key that names none creates a shared one",
     "QueueCreate", "Queue"},
    {"GET", QUEUES "/{queue}", ACCESS_READ, BODY_NONE, ROUTE_OWNER, 0, queues_get, 200,
     "one queue", NULL, "Queue"},
    {"PATCH", QUEUES "/{queue}", ACCESS_MANAGE, BODY_JSON, ROUTE_OWNER | ROUTE_ETAG, 16 * KIB,
     queues_patch, 200,
     "change a queue's priority or state: HELD starts nothing, DRAINING takes nothing new",
     "QueuePatch", "Queue"},
    {"DELETE", QUEUES "/{queue}", ACCESS_MANAGE, BODY_NONE, ROUTE_OWNER | ROUTE_ETAG, 0,
     queues_delete, 204,
     "delete a queue; refused while it has live jobs", NULL, NULL},
    {"GET", JOBS, ACCESS_READ, BODY_NONE, T | ROUTE_LIST, 0, jobs_list, 200,
     "list jobs, newest first", NULL, "[Job]"},
    {"POST", JOBS, ACCESS_SUBMIT, BODY_JSON, T | ROUTE_KEEPS, 64 * KIB, jobs_create, 201,
     "submit a job; an Idempotency-Key that is repeated within a day gives the first answer again, "
     "a client_token the first job, with 200", "JobCreate", "Job"},
    {"GET", JOB, ACCESS_READ, BODY_NONE, T, 0, jobs_get, 200,
     "one job", NULL, "Job"},
    {"PATCH", JOB, ACCESS_SUBMIT, BODY_JSON, T | ROUTE_ETAG, 16 * KIB, jobs_patch, 200,
     "change priority, labels or deadline of a job that has not ended; null removes a label or the "
     "deadline", "JobPatch", "Job"},
    {"POST", JOB "/cancel", ACCESS_SUBMIT, BODY_JSON, T | ROUTE_OPTIONAL, 4 * KIB, jobs_control,
     200, "cancel a job; repeating it is no error", "Empty", "Job"},
    {"POST", JOB "/hold", ACCESS_SUBMIT, BODY_JSON, T | ROUTE_OPTIONAL, 4 * KIB, jobs_control, 200,
     "keep a queued job from starting; 409 says what is allowed instead", "Empty", "Job"},
    {"POST", JOB "/release", ACCESS_SUBMIT, BODY_JSON, T | ROUTE_OPTIONAL, 4 * KIB, jobs_control,
     200, "let a held job start", "Empty", "Job"},
    {"POST", JOB "/suspend", ACCESS_SUBMIT, BODY_JSON, T | ROUTE_OPTIONAL, 4 * KIB, jobs_control,
     200, "take a job from its executor with a checkpoint; it waits until it is resumed", "Empty",
     "Job"},
    {"POST", JOB "/resume", ACCESS_SUBMIT, BODY_JSON, T | ROUTE_OPTIONAL, 4 * KIB, jobs_control,
     200, "let a suspended job go on, or take a suspension back", "Empty", "Job"},
    {"POST", JOB "/requeue", ACCESS_SUBMIT, BODY_JSON, T | ROUTE_OPTIONAL, 4 * KIB, jobs_control,
     200, "take a job from its executor with a checkpoint, to the end of its queue", "Empty",
     "Job"},
    {"POST", JOB "/checkpoint", ACCESS_SUBMIT, BODY_JSON, T | ROUTE_OPTIONAL, 4 * KIB, jobs_control,
     200, "write a checkpoint after the next step; flag CHECKPOINTING until it is there", "Empty",
     "Job"},
    {"GET", JOB "/explain", ACCESS_READ, BODY_NONE, T, 0, jobs_explain, 200,
     "why a job waits, what for, its place and an estimated start; why a running one keeps its "
     "place", NULL, "Explanation"},
    {"GET", JOB "/events", ACCESS_READ, BODY_NONE, T | ROUTE_LIST | ROUTE_STREAM, 0, jobs_events,
     200,
     "every change of the job's state, oldest first; with Accept: text/event-stream as they "
     "happen, until the last one; Last-Event-ID goes on after an event", NULL, "[JobEvent]"},
    {"GET", JOB "/checkpoints", ACCESS_READ, BODY_NONE, T | ROUTE_LIST, 0, jobs_checkpoints, 200,
     "checkpoints that were written, oldest first; the files of the last two are kept", NULL,
     "[Checkpoint]"},
    {"GET", JOB "/losses", ACCESS_READ, BODY_NONE, T | ROUTE_RANGE, 0, jobs_losses, 200,
     "the losses of committed steps written so far; of more than a million steps each k-th", NULL,
     "Losses"},
    {"GET", JOB "/log", ACCESS_READ, BODY_NONE, T | ROUTE_FILE, 0, jobs_log, 200,
     "lines of text about all its attempts; empty before the first. It grows: ask with Range for "
     "what is new; beyond 1 MiB it keeps its beginning and its newest part", NULL, "Text"},
    {"GET", JOB "/result", ACCESS_READ, BODY_NONE, T, 0, jobs_result, 200,
     "what a job that has SUCCEEDED leaves; 409 before and after any other end", NULL, "JobResult"},
    {"GET", JOB "/result/artifact", ACCESS_READ, BODY_NONE, T | ROUTE_FILE, 0, jobs_artifact, 200,
     "the file that it leaves: outputs of batch inference (safetensors), the trained model (ONNX)",
     NULL, "Binary"},
    {"DELETE", JOB "/result/artifact", ACCESS_SUBMIT, BODY_NONE, T, 0, jobs_artifact_delete, 204,
     "remove that file, which then counts no longer as stored; the job and its result stay", NULL,
     NULL},
    {"GET", JOB "/files/{file}", ACCESS_EXECUTOR, BODY_NONE, ROUTE_FILE | ROUTE_BULK, 0, files_get,
     200,
     "for executors on other hosts: a file of a job's folder; for a checkpoint that was replaced "
     "the newest; ETag is its SHA-256", NULL, "Binary"},
    {"PUT", JOB "/files/{file}", ACCESS_EXECUTOR, BODY_FILE, 0, 0, files_put, 204,
     "for executors on other hosts: what their job leaves; 409 when another one has the job",
     "Binary", NULL},
    {"GET", "/api/v1/blobs/{digest}", ACCESS_EXECUTOR, BODY_NONE, ROUTE_FILE, 0, blobs_get, 200,
     "for executors on other hosts: the model or dataset of this SHA-256", NULL, "Binary"},
    {"POST", "/api/v1/job-batches", ACCESS_SUBMIT, BODY_JSON, T | ROUTE_KEEPS, 1024 * KIB,
     job_batches_create, 201,
     "submit up to 1000 jobs, each with a result of its own; 200 if none was made, 429 for all if "
     "the quota has no room for all", "JobBatchCreate", "JobBatch"},
    {"GET", ARRAYS, ACCESS_READ, BODY_NONE, T | ROUTE_LIST, 0, job_arrays_list, 200,
     "list arrays of jobs, newest first", NULL, "[JobArray]"},
    {"POST", ARRAYS, ACCESS_SUBMIT, BODY_JSON, T | ROUTE_KEEPS, 64 * KIB, job_arrays_create, 201,
     "submit up to 1000 jobs that differ in an index, all or none; max_parallel of them run at "
     "once; a repeated client_token gives the first array, with 200", "JobArrayCreate", "JobArray"},
    {"GET", ARRAY, ACCESS_READ, BODY_NONE, T, 0, job_arrays_get, 200,
     "one array, with how many of its jobs are in which state", NULL, "JobArray"},
    {"PATCH", ARRAY, ACCESS_SUBMIT, BODY_JSON, T | ROUTE_ETAG, 4 * KIB, job_arrays_patch, 200,
     "change how many jobs of an array run at once; those that run go on", "JobArrayPatch",
     "JobArray"},
    {"POST", ARRAY "/cancel", ACCESS_SUBMIT, BODY_JSON, T | ROUTE_OPTIONAL, 4 * KIB,
     job_arrays_control, 200, "cancel all its jobs that have not ended", "Empty", "JobArrayChange"},
    {"POST", ARRAY "/hold", ACCESS_SUBMIT, BODY_JSON, T | ROUTE_OPTIONAL, 4 * KIB,
     job_arrays_control, 200, "keep its queued jobs from starting", "Empty", "JobArrayChange"},
    {"POST", ARRAY "/release", ACCESS_SUBMIT, BODY_JSON, T | ROUTE_OPTIONAL, 4 * KIB,
     job_arrays_control, 200, "let its held jobs start", "Empty", "JobArrayChange"},
    {"POST", ARRAY "/suspend", ACCESS_SUBMIT, BODY_JSON, T | ROUTE_OPTIONAL, 4 * KIB,
     job_arrays_control, 200, "take its jobs from their executors, with checkpoints; they wait",
     "Empty", "JobArrayChange"},
    {"POST", ARRAY "/resume", ACCESS_SUBMIT, BODY_JSON, T | ROUTE_OPTIONAL, 4 * KIB,
     job_arrays_control, 200, "let its suspended jobs go on", "Empty", "JobArrayChange"},
    {"POST", ARRAY "/requeue", ACCESS_SUBMIT, BODY_JSON, T | ROUTE_OPTIONAL, 4 * KIB,
     job_arrays_control, 200, "as suspend, and to the end of their queue", "Empty",
     "JobArrayChange"},
    {"POST", ARRAY "/checkpoint", ACCESS_SUBMIT, BODY_JSON, T | ROUTE_OPTIONAL, 4 * KIB,
     job_arrays_control, 200, "write checkpoints of its jobs that run", "Empty", "JobArrayChange"},
    {"GET", "/api/v1/events", ACCESS_READ, BODY_NONE, ROUTE_OWNER | ROUTE_LIST | ROUTE_STREAM, 0,
     events_list, 200,
     "changes of state of all jobs, of the last day unless from is given, newest first; with "
     "Accept: text/event-stream as they happen, from now on, from a time or after Last-Event-ID",
     NULL, "[Event]"},
    {"GET", "/api/v1/gpus", ACCESS_READ, BODY_NONE, ROUTE_LIST, 0, gpus_list, 200,
     "list GPUs: each has one executor, which gives it its name; as of the last seconds", NULL,
     "[Gpu]"},
    {"GET", "/api/v1/gpus/{gpu}", ACCESS_READ, BODY_NONE, 0, 0, gpus_get, 200,
     "one GPU: its memory and link, what runs on it, which models are there", NULL, "Gpu"},
    {"GET", "/api/v1/executors", ACCESS_READ, BODY_NONE, ROUTE_LIST, 0, gpus_list, 200,
     "another name of /api/v1/gpus", NULL, "[Gpu]"},

    {"GET", "/v2", ACCESS_PUBLIC, BODY_NONE, V2, 0, v2_server, 200,
     "server metadata", NULL, "ServerMetadata"},
    {"GET", "/v2/health/live", ACCESS_PUBLIC, BODY_NONE, V2, 0, v2_live, 200,
     "is this process alive", NULL, "Health"},
    {"GET", "/v2/health/ready", ACCESS_PUBLIC, BODY_NONE, PROBE, 0, v2_ready, 200,
     "can inference requests be served (200) or not (503)", NULL, "Health"},
    {"POST", "/v2/repository/index", ACCESS_ANY, BODY_JSON, V2 | ROUTE_OPTIONAL, 4 * KIB,
     v2_index, 200,
     "models that this key may use, with their state", "IndexRequest", "Index"},
    {"POST", "/v2/repository/models/{model}/load", ACCESS_SUBMIT, BODY_JSON,
     ROUTE_V2 | T | ROUTE_OPTIONAL, 64 * KIB, v2_load, 200,
     "load every version that was unloaded or has failed, and wait for it", "RepoRequest", NULL},
    {"POST", "/v2/repository/models/{model}/unload", ACCESS_SUBMIT, BODY_JSON,
     ROUTE_V2 | T | ROUTE_OPTIONAL, 64 * KIB, v2_unload, 200,
     "unload every version that is not pinned; the index tells when it is done", "RepoRequest",
     NULL},
    {"GET", "/v2/systemsharedmemory/status", ACCESS_ANY, BODY_NONE, V2, 0,
     v2_region_list, 200, "regions of system shared memory of the tenant", NULL, "Regions"},
    {"GET", "/v2/systemsharedmemory/region/{region}/status", ACCESS_ANY, BODY_NONE, V2, 0,
     v2_region_status, 200, "one region of system shared memory", NULL, "Regions"},
    {"POST", "/v2/systemsharedmemory/region/{region}/register", ACCESS_INFER, BODY_JSON,
     V2 | ROUTE_OPTIONAL, 4 * KIB, v2_region_register, 200,
     "name POSIX shared memory of this host, for inputs and outputs (501: client-shm is off)",
     "Region", NULL},
    {"POST", "/v2/systemsharedmemory/unregister", ACCESS_INFER, BODY_JSON,
     V2 | ROUTE_OPTIONAL, 4 * KIB, v2_region_unregister, 200, "forget every region of the tenant",
     "Any", NULL},
    {"POST", "/v2/systemsharedmemory/region/{region}/unregister", ACCESS_INFER, BODY_JSON,
     V2 | ROUTE_OPTIONAL, 4 * KIB, v2_region_unregister, 200, "forget one region", "Any", NULL},
    {"GET", "/v2/cudasharedmemory/status", ACCESS_ANY, BODY_NONE, V2, 0,
     v2_shm_list, 200, "regions of cuda shared memory: none, they are off",
     NULL, "Regions"},
    {"GET", "/v2/cudasharedmemory/region/{region}/status", ACCESS_ANY, BODY_NONE, V2, 0,
     v2_shm_status, 200, "one region of cuda shared memory: there is none",
     NULL, NULL},
    {"POST", "/v2/cudasharedmemory/region/{region}/register", ACCESS_INFER, BODY_JSON,
     V2 | ROUTE_OPTIONAL, 4 * KIB, v2_shm_register, 200,
     "refused (501): send tensors in system shared memory or in the body",
     "Any", NULL},
    {"POST", "/v2/cudasharedmemory/unregister", ACCESS_INFER, BODY_JSON,
     V2 | ROUTE_OPTIONAL, 4 * KIB, v2_shm_unregister, 200, "nothing to do: there is no region",
     "Any", NULL},
    {"POST", "/v2/cudasharedmemory/region/{region}/unregister", ACCESS_INFER, BODY_JSON,
     V2 | ROUTE_OPTIONAL, 4 * KIB, v2_shm_unregister, 200, "nothing to do: there is no region",
     "Any", NULL},
    {"GET", "/v2/models/stats", ACCESS_ANY, BODY_NONE, V2, 0, v2_stats_all, 200,
     "statistics of every model since start", NULL, "Stats"},
    {"GET", V2M, ACCESS_ANY, BODY_NONE, V2, 0, v2_model, 200,
     "model metadata", NULL, "ModelMetadata"},
    {"GET", V2V, ACCESS_ANY, BODY_NONE, V2, 0, v2_model, 200,
     "metadata of one version", NULL, "ModelMetadata"},
    {"GET", V2M "/ready", ACCESS_ANY, BODY_NONE, PROBE, 0, v2_model_ready, 200,
     "is the model ready (200) or not (503)", NULL, "Health"},
    {"GET", V2V "/ready", ACCESS_ANY, BODY_NONE, PROBE, 0, v2_model_ready, 200,
     "is the version ready (200) or not (503)", NULL, "Health"},
    {"GET", V2M "/config", ACCESS_ANY, BODY_NONE, V2, 0, v2_config, 200,
     "model configuration", NULL, "ModelConfig"},
    {"GET", V2V "/config", ACCESS_ANY, BODY_NONE, V2, 0, v2_config, 200,
     "configuration of one version", NULL, "ModelConfig"},
    {"GET", V2M "/stats", ACCESS_ANY, BODY_NONE, V2, 0, v2_stats, 200,
     "statistics since start", NULL, "Stats"},
    {"GET", V2V "/stats", ACCESS_ANY, BODY_NONE, V2, 0, v2_stats, 200,
     "statistics of one version", NULL, "Stats"},
    {"POST", V2M "/infer", ACCESS_INFER, BODY_INFER, V2, 0, infer_main, 200,
     "infer with the newest ready version; JSON or binary tensors",
     "InferRequest", "InferResponse"},
    {"POST", V2V "/infer", ACCESS_INFER, BODY_INFER, V2, 0, infer_main, 200,
     "infer with one version", "InferRequest", "InferResponse"},
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
