/* schemas.c - JSON Schema of every body, by the names that routes.c uses. Single quotes stand for
 * double ones; no text here holds an apostrophe. */
#include "api/openapi.h"
#include "common/mem.h"

/* clang-format off */
#define NAME "{'type':'string','pattern':'^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$'}"
#define LOWER_NAME "{'type':'string','pattern':'^[a-z0-9][a-z0-9-]{0,62}$'}"
#define TEXT "{'type':'string'}"
#define TEXT0 "{'type':['string','null']}"
#define TIME "{'type':'string','format':'date-time'}"
#define TIME0 "{'type':['string','null'],'format':'date-time'}"
#define INT "{'type':'integer'}"
#define INT0 "{'type':['integer','null']}"
#define NUM "{'type':'number'}"
#define QUEUE_STATE "{'enum':['OPEN','HELD','DRAINING']}"
#define NUM0 "{'type':['number','null']}"
#define BOOL "{'type':'boolean'}"
#define RANGE(type, min, max) "{'type':'" type "','minimum':" min ",'maximum':" max "}"
#define OPEN(properties) "{'type':'object','properties':{" properties "}}"
#define CLOSED(required, properties)                                                               \
    "{'type':'object','additionalProperties':false,'required':[" required "],'properties':{"       \
    properties "}}"
#define TENSORS                                                                                    \
    "{'type':'array','items':{'type':'object','required':['name','datatype','shape'],"             \
    "'properties':{'name':" TEXT ",'datatype':" TEXT ",'shape':{'type':'array','items':" INT       \
    "}}}}"
#define STORED_ONLY                                                                                \
    "'description':'stored, without effect yet: executors do not divide memory by tenant'"
#define QUOTA_FIELDS                                                                               \
    "'guaranteed_gpus':{'type':'number','minimum':0},'max_gpus':{'type':['number','null'],"        \
    "'minimum':0},'over_quota_weight':{'type':'number','minimum':0},"                              \
    "'borrowing_limit':{'type':['number','null'],'minimum':0,'description':'most that may be "     \
    "held beyond guaranteed_gpus; null: up to max_gpus'},"                                         \
    "'lending_limit':{'type':['number','null'],'minimum':0,'description':'of guaranteed_gpus, "    \
    "what others may use while this tenant does not; null: all of it'},"                           \
    "'gpu_memory_min_bytes':{'type':'integer','minimum':0," STORED_ONLY "},"                       \
    "'gpu_memory_share':{'type':'number','minimum':0," STORED_ONLY "},"                            \
    "'gpu_memory_max_bytes':{'type':['integer','null'],'minimum':1,'description':'of pinned "      \
    "images on each device; null: a quarter of the smallest device'},"                             \
    "'max_running_jobs':{'type':'integer','minimum':0},'max_queued_jobs':{'type':'integer',"       \
    "'minimum':0},'max_concurrent_requests':{'type':'integer','minimum':0},"                       \
    "'requests_per_second':{'type':['number','null'],'minimum':0.001,'description':'inference "    \
    "requests a second, counted by each API process for itself and for the keys of the tenant; "   \
    "more get 429 with Retry-After; null: no limit'},'burst':{'type':['integer','null'],"          \
    "'minimum':1,'description':'inference requests that may come at once; null: as many as one "   \
    "second allows'},'max_storage_bytes':{'type':'integer','minimum':0}"
#define KEY_FIELDS                                                                                 \
    "'id':" TEXT ",'name':" TEXT ",'role':" TEXT ",'tenant':" TEXT0 ",'created_at':" TIME          \
    ",'expires_at':" TIME0 ",'revoked_at':" TIME0 ",'rotated_at':" TIME0                           \
    ",'old_secret_until':" TIME0 ",'last_used_at':" TIME0
#define SLO_FIELDS                                                                                 \
    "'latency_ms':" RANGE("number", "0.001", "3600000") ",'percentile':" RANGE("number",           \
    "0.001", "99.999") ",'priority':" RANGE("integer", "0", "100")                                 \
    ",'on_miss':{'enum':['reject','delay','best-effort']}"
#define LABELS                                                                                     \
    "{'type':'object','maxProperties':32,'propertyNames':{'pattern':"                              \
    "'^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$'},'additionalProperties':{'type':'string','maxLength':"   \
    "128}}"
#define OPTIMIZER                                                                                  \
    CLOSED("'name'", "'name':{'enum':['sgd','adam','adamw']},'lr':" RANGE("number", "0",           \
    "1000000") ",'momentum':" RANGE("number", "0", "1") ",'weight_decay':" RANGE("number", "0",    \
    "1000000") ",'beta1':" RANGE("number", "0", "0.9999999") ",'beta2':" RANGE("number", "0",      \
    "0.9999999") ",'eps':" RANGE("number", "0", "1") ",'nesterov':" BOOL)
#define TRAINING                                                                                   \
    CLOSED("'optimizer'", "'loss':{'enum':['cross-entropy','mse']},'optimizer':" OPTIMIZER         \
    ",'batch':" RANGE("integer", "1", "65536") ",'steps':" RANGE("integer", "1",                   \
    "1000000000000") ",'epochs':" RANGE("integer", "1", "1000000000") ",'seed':" RANGE(            \
    "integer", "0", "9000000000000000") ",'labels':" TEXT ",'precision':{'enum':['fp32',"          \
    "'tf32','fp16','bf16']},'shuffle':" BOOL ",'publish':{'type':'boolean','description':'false: " \
    "the trained model is the file of the job and becomes no version of the model'},"              \
    "'checkpoint_interval_ms':" RANGE("integer", "0", "86400000"))
#define BATCH_INFERENCE                                                                            \
    CLOSED("", "'batch':{'type':'integer','minimum':1,'maximum':65536,'description':'at most, "    \
    "and if absent, the max_batch of the version'},'inputs':{'type':'object','description':'input "\
    "of the model: tensor of the dataset, where names differ','additionalProperties':" TEXT        \
    "},'outputs':{'type':'array','items':" TEXT ",'minItems':1,'maxItems':64,'description':"       \
    "'those that are kept; all if absent'},'checkpoint_interval_ms':" RANGE("integer", "0",        \
    "86400000"))

const struct api_schema API_SCHEMAS[] = {
    {"Any", "{}"},
    {"Empty", CLOSED("", "")},
    {"Health", OPEN("'live':" BOOL ",'ready':" BOOL ",'name':" TEXT)},
    {"Problem", "{'type':'object','required':['type','title','status','detail','code','error'],"
     "'properties':{'type':" TEXT ",'title':" TEXT ",'status':" INT ",'detail':" TEXT ",'code':"
     TEXT ",'error':" TEXT ",'request_id':" TEXT ",'predicted_ms':" INT ",'nodes':{'type':'array',"
     "'items':{'type':'object'}}}}"},
    {"Tenant", OPEN("'name':" LOWER_NAME ",'state':{'enum':['ACTIVE','SUSPENDED','DELETED']},"
     "'created_at':" TIME ",'row_version':" INT)},
    {"TenantCreate", CLOSED("'name'", "'name':" LOWER_NAME)},
    {"TenantPatch", CLOSED("'state'", "'state':{'enum':['ACTIVE','SUSPENDED']}")},
    {"Quota", OPEN(QUOTA_FIELDS ",'row_version':" INT)},
    {"QuotaPut", CLOSED("", QUOTA_FIELDS)},
    {"Key", OPEN(KEY_FIELDS)},
    {"KeySecret", OPEN(KEY_FIELDS ",'key':" TEXT)},
    {"KeyCreate", CLOSED("'name','role'", "'name':{'type':'string','minLength':1,'maxLength':64},"
     "'role':{'enum':['tenant-admin','submit','infer','read']},'expires_at':" TIME)},
    {"KeyRotate", CLOSED("", "'overlap_s':" RANGE("integer", "0", "2592000"))},
    {"Model", OPEN("'name':" NAME ",'tenant':" TEXT ",'visibility':{'enum':['private','shared']},"
     "'created_at':" TIME ",'versions':{'type':'array','items':{'type':'object'}},'row_version':"
     INT)},
    {"ModelCreate", CLOSED("'name'", "'name':" NAME ",'visibility':{'enum':['private','shared']}")
     },
    {"ModelPatch", CLOSED("'visibility'", "'visibility':{'enum':['private','shared']}")},
    {"Version", OPEN("'model':" NAME ",'version':" INT ",'state':" TEXT ",'pinned':" BOOL
     ",'reason_code':" TEXT0
     ",'reason':" TEXT0 ",'digest':" TEXT0 ",'bytes':" INT0 ",'inputs':" TENSORS ",'outputs':"
     TENSORS ",'meta':{'type':'object'},'max_batch':" INT ",'precision':" TEXT ",'image_bytes':"
     INT0 ",'profile':{},'source_job':" INT0 ",'created_at':" TIME ",'ready_at':" TIME0
     ",'row_version':" INT)},
    {"VersionCreate", CLOSED("", "'version':" RANGE("integer", "1", "2147483647") ",'max_batch':"
     RANGE("integer", "1", "1024") ",'precision':{'enum':['fp32','tf32','fp16','bf16']}")},
    {"Placements", OPEN("'model':" NAME ",'version':" INT ",'state':" TEXT ",'reason':" TEXT0
     ",'pinned':" BOOL ",'image_bytes':" INT0 ",'placements':{'type':'array','items':" OPEN(
     "'executor':" TEXT ",'state':{'enum':['LOADING','READY','UNLOADING','FAILED']},"
     "'pin':{'enum':['none','held','waiting']},'device_bytes':" INT ",'host_bytes':" INT
     ",'disk_bytes':" INT ",'last_use_at':" TIME0 ",'at':" TIME) "}")},
    {"Profile", OPEN("'model':" NAME ",'version':" INT
     ",'percentile':{'type':'number'},'batches':{'type':'array','items':" OPEN("'batch':" INT
     ",'predicted_ms':{'type':'number'},'source':{'enum':['runs','profile','guess']},'runs':" INT
     ",'recent':" INT ",'p50_ms':" NUM0 ",'p99_ms':" NUM0 ",'at':" TIME) "}")},
    {"Slo", OPEN("'model':" NAME "," SLO_FIELDS ",'created_at':" TIME ",'row_version':" INT)},
    {"Attainment", OPEN("'model':" NAME ",'window':{'enum':['5m','1h','1d']},'latency_ms':"
     "{'type':'number'},'percentile':{'type':'number'},'on_miss':" TEXT ",'requests':" INT
     ",'met':" INT ",'missed':" INT ",'rejected':" INT ",'attained_percent':" NUM0
     ",'error_budget_left':{'type':'number'},'p50_ms':" NUM0 ",'p95_ms':" NUM0 ",'p99_ms':" NUM0)},
    {"SloPut", CLOSED("'latency_ms'", SLO_FIELDS)},
    {"Dataset", OPEN("'name':" NAME ",'state':" TEXT ",'digest':" TEXT0 ",'bytes':" INT0
     ",'tensors':" TENSORS ",'n_samples':" INT0 ",'created_at':" TIME ",'row_version':" INT)},
    {"DatasetCreate", CLOSED("'name'", "'name':" NAME)},
    {"Queue", OPEN("'name':" LOWER_NAME ",'shared':" BOOL ",'state':" QUEUE_STATE ",'priority':" INT
     ",'jobs':" INT ",'created_at':" TIME ",'row_version':" INT)},
    {"QueueCreate", CLOSED("'name'", "'name':" LOWER_NAME ",'state':" QUEUE_STATE ",'priority':"
     RANGE("integer", "-1000", "1000"))},
    {"QueuePatch", "{'type':'object','additionalProperties':false,'minProperties':1,'properties':{"
     "'state':" QUEUE_STATE ",'priority':" RANGE("integer", "-1000", "1000") "}}"},
    {"Usage", OPEN("'class':{'enum':['inference','training']},'model':" NAME ",'from':" TIME
     ",'gpu_seconds':{'type':'number'},'requests':" INT ",'samples':" INT)},
    {"Share", OPEN("'tenant':" LOWER_NAME ",'at':" TIME0 ",'guaranteed_gpus':" NUM ",'max_gpus':"
     NUM0 ",'weight':" NUM ",'running_gpus':" NUM ",'waiting_gpus':" NUM ",'fair_gpus':" NUM
     ",'reserved_gpus':" NUM ",'saturation':" NUM0 ",'usage_gpu_seconds':" NUM
     ",'usage_per_weight':" NUM0 ",'usage_fraction':" NUM ",'weight_fraction':" NUM
     ",'half_life_s':" NUM0)},
    {"Audit", OPEN("'id':" INT ",'at':" TIME ",'actor':" TEXT0 ",'tenant':" TEXT0 ",'request_id':"
     TEXT ",'action':" TEXT ",'resource':" TEXT ",'before':{'type':['object','null']},"
     "'after':{'type':['object','null']}")},
    {"Job", OPEN("'labels':" LABELS ",'deadline':" TIME0 ",'min_runtime_ms':" INT
     ",'preemptible':" BOOL ",'not_before':" TIME0 ",'queued_at':" TIME ",'flags':{'type':'array',"
     "'items':{'enum':['SUSPEND_PENDING','REQUEUE_PENDING','CHECKPOINTING']}},'id':" INT
     ",'kind':" TEXT ",'name':" TEXT ",'state':" TEXT ",'reason':" TEXT
     ",'priority':" INT ",'queue':" TEXT ",'model':" TEXT ",'version':" INT ",'dataset':" TEXT0
     ",'eval_dataset':" TEXT0 ",'spec':{'type':'object'},'client_token':" TEXT0 ",'attempt':" INT
     ",'max_attempts':" INT ",'executor':" TEXT0 ",'step':" INT ",'steps':" INT ",'loss':" NUM0
     ",'samples_per_s':" NUM0 ",'steps_redone':" INT ",'preemptions':" INT ",'busy_ns':" INT
     ",'result':{'type':['object','null']},'result_version':" INT0 ",'error_code':" TEXT0
     ",'error':" TEXT0 ",'created_at':" TIME ",'started_at':" TIME0 ",'finished_at':" TIME0
     ",'row_version':" INT)},
    {"JobPatch", CLOSED("", "'priority':" RANGE("integer", "-1000", "1000") ",'labels':{'type':"
     "'object','maxProperties':32,'additionalProperties':{'type':['string','null'],'maxLength':"
     "128}},'deadline':" TIME0)},
    {"JobCreate", CLOSED("'kind','model','dataset','spec'", "'labels':" LABELS ",'deadline':" TIME
     ",'min_runtime_ms':" RANGE("integer", "0", "86400000") ",'hold':" BOOL ",'preemptible':" BOOL
     ",'kind':{'enum':['training','batch_inference']},"
     "'model':" NAME ",'version':" RANGE("integer", "1", "2147483647") ",'dataset':" NAME
     ",'eval_dataset':" NAME ",'queue':" LOWER_NAME ",'priority':" RANGE("integer", "-1000", "1000"
     ) ",'name':{'type':'string','maxLength':128},'max_attempts':" RANGE("integer", "1", "100")
     ",'client_token':{'type':'string','minLength':1,'maxLength':255},'spec':{'anyOf':["
     TRAINING "," BATCH_INFERENCE "]}")},
    {"JobResult", OPEN("'job':" INT ",'kind':" TEXT ",'state':" TEXT ",'result':{'type':'object'},"
     "'version':" INT0 ",'artifact':{'type':['object','null'],'properties':{'name':" TEXT
     ",'bytes':" INT ",'digest':" TEXT ",'href':" TEXT "}},'finished_at':" TIME)},
    {"JobEvent", OPEN("'id':" INT ",'at':" TIME ",'from':" TEXT0 ",'to':" TEXT ",'reason':" TEXT
     ",'detail':{'type':'object'}")},
    {"Explanation", OPEN("'id':" INT ",'state':" TEXT ",'flags':{'type':'array','items':" TEXT
     "},'allowed':{'type':'array','items':" TEXT "},'reason':" TEXT ",'text':" TEXT
     ",'position':" INT ",'waiting':" INT ",'estimated_wait_ms':" INT ",'estimated_start':" TIME
     ",'basis':" TEXT
     ",'waits_for':{'type':'array','items':" OPEN("'executor':" TEXT ",'job':" INT ",'state':" TEXT
     ",'steps_left':" INT ",'steps_per_s':{'type':'number'},'left_ms':" INT) "},'factors':" OPEN(
     "'priority':" INT ",'preemptible':" BOOL ",'tenant_running_jobs':" INT
     ",'tenant_guaranteed_gpus':{'type':'number'},'tenant_weight':{'type':'number'},"
     "'tenant_usage_gpu_s':{'type':'number'},'tenant_share_gpu_s':{'type':'number'},'min_run_ms':"
     INT))},
    {"Checkpoint", OPEN("'id':" INT ",'attempt':" INT ",'step':" INT ",'digest':" TEXT ",'bytes':"
     INT ",'created_at':" TIME)},
    {"Losses", OPEN("'job':" INT ",'offset':" INT ",'total':" INT
     ",'losses':{'type':'array','items':" NUM0 "}")},
    {"Executor", OPEN("'name':" TEXT ",'host_id':" TEXT ",'device':" TEXT ",'pool_bytes':" INT
     ",'state':{'enum':['UP','DOWN']},'seen_at':" TIME)},
    {"ServerMetadata", OPEN("'name':" TEXT ",'version':" TEXT
     ",'extensions':{'type':'array','items':" TEXT "}")},
    {"ModelMetadata", OPEN("'name':" NAME ",'versions':{'type':'array','items':" TEXT
     "},'platform':" TEXT ",'inputs':" TENSORS ",'outputs':" TENSORS)},
    {"ModelConfig", OPEN("'name':" NAME ",'platform':" TEXT ",'backend':" TEXT
     ",'max_batch_size':" INT ",'input':{'type':'array'},'output':{'type':'array'},"
     "'dynamic_batching':{'type':'object'}")},
    {"Stats", OPEN("'model_stats':{'type':'array','items':{'type':'object'}}")},
    {"IndexRequest", CLOSED("", "'ready':" BOOL)},
    {"RepoRequest", OPEN("'parameters':{'type':'object'}")},
    {"Regions", "{'type':'array','items':{'type':'object'}}"},
    {"Index", "{'type':'array','items':{'type':'object','properties':{'name':" TEXT ",'version':"
     TEXT ",'state':" TEXT ",'reason':" TEXT "}}}"},
    {"InferRequest", CLOSED("'inputs'", "'id':" TEXT ",'parameters':{'type':'object'},"
     "'inputs':{'type':'array','minItems':1,'items':" CLOSED("'name','datatype','shape'", "'name':"
     TEXT ",'datatype':" TEXT ",'shape':{'type':'array','items':" INT
     "},'parameters':{'type':'object'},'data':{'type':'array'}")
     "},'outputs':{'type':'array','items':" CLOSED("'name'", "'name':" TEXT
     ",'parameters':{'type':'object'}") "}")},
    {"InferResponse", OPEN("'model_name':" TEXT ",'model_version':" TEXT ",'id':" TEXT
     ",'outputs':{'type':'array','items':{'type':'object','required':['name','datatype','shape']}}"
     )},
    {"Binary", "{}"},
};
/* clang-format on */
const size_t API_N_SCHEMAS = SH_ARRAY_LEN(API_SCHEMAS);
