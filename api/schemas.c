/* schemas.c - JSON Schema of every body and path parameter, by the names that routes.c uses. Single
 * quotes stand for double ones; no text here holds an apostrophe.
 *
 * Objects: CLOSED is a body that we read (unknown fields are refused; openapi.c adds that null
 * stands for an absent field), OPEN is one that we write with all these fields, SOME one that may
 * lack some. */
#include "api/openapi.h"
#include "common/mem.h"
#include "common/quota.h"

/* clang-format off */
#define NAME "{'type':'string','pattern':'^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$'}"
#define LOWER_NAME "{'type':'string','pattern':'^[a-z0-9][a-z0-9-]{0,62}$'}"
#define TEXT "{'type':'string'}"
#define TEXTS "{'type':'array','items':" TEXT "}"
#define TEXT0 "{'type':['string','null']}"
#define TIME "{'type':'string','format':'date-time'}"
#define TIME0 "{'type':['string','null'],'format':'date-time'}"
#define INT "{'type':'integer'}"
#define INT0 "{'type':['integer','null']}"
#define NUM "{'type':'number'}"
#define QUEUE_STATE "{'enum':['OPEN','HELD','DRAINING']}"
#define NUM0 "{'type':['number','null']}"
#define RATE(what)                                                                                 \
    "{'type':['number','null'],'description':'" what " a second of time on the device, as last "   \
    "reported while it runs; else null'}"
#define BOOL "{'type':'boolean'}"
#define RANGE(type, min, max) "{'type':'" type "','minimum':" min ",'maximum':" max "}"
#define STR(min, max)                                                                              \
    "{'type':'string','minLength':" min ",'maxLength':" max "}"
#define OPEN(properties) "{'type':'object','required':'all','properties':{" properties "}}"
#define SOME(required, properties)                                                                 \
    "{'type':'object','required':[" required "],'properties':{" properties "}}"
#define CLOSED_IF(rule, required, properties)                                                      \
    "{'type':'object','additionalProperties':false," rule "'required':[" required                  \
    "],'properties':{" properties "}}"
#define CLOSED(required, properties) CLOSED_IF("", required, properties)
#define NUMBER(max) "'type':['number','null'],'minimum':0,'maximum':" max
#define LOADING                                                                                    \
    "{'type':['object','null'],'description':'how far the executor is that will be ready first; "  \
    "null unless one loads it','required':['step','done','total','seconds_left'],"                 \
    "'properties':{'step':" TEXT ",'done':" INT ",'total':" INT ",'seconds_left':" NUM0 "}}"
#define TRAFFIC                                                                                    \
    "{'type':['object','null'],'description':'requests that were answered in the last minute, by " \
    "all API processes, from their headers to the end of their run; at most 2 s old. null: no "    \
    "scheduler has said, or the model is of another tenant','required':['window_s','requests',"    \
    "'per_s','p50_ms','p99_ms'],'properties':{'window_s':{'type':'number','description':'what "   \
    "is counted: the last 50 to 60 s, less after a change of schedulers'},'requests':" INT         \
    ",'per_s':" NUM ",'p50_ms':" NUM0 ",'p99_ms':" NUM0 "}}"
#define TENSORS                                                                                    \
    "{'type':'array','items':{'type':'object','required':['name','datatype','shape'],"             \
    "'properties':{'name':" TEXT ",'datatype':" TEXT ",'shape':{'type':'array','items':" INT       \
    "},'dims':{'type':'array','description':'where sizes are open beside the batch: of each axis " \
    "a number, -1 for the batch, the name of a size, or {add, mul, of: [[-1 or name, plus, "       \
    "div]...]}: add + mul * (x + plus) / div * ..., each quotient rounded down'},"                 \
    "'mask':{'type':'boolean','description':'with buckets: zeros in it mask; a request in which "  \
    "it has nothing else along an axis that buckets fill up runs at its own sizes'}}}}"
#define PARAMETERS "{'type':'object','additionalProperties':{'type':['string','number','boolean']}}"
#define KEY_FIELDS                                                                                 \
    "'id':" TEXT ",'name':" TEXT ",'role':" TEXT ",'tenant':" TEXT0 ",'created_at':" TIME          \
    ",'expires_at':" TIME0 ",'revoked_at':" TIME0 ",'rotated_at':" TIME0                           \
    ",'old_secret_until':" TIME0 ",'last_used_at':" TIME0
#define SLO_FIELDS                                                                                 \
    "'latency_ms':" RANGE("number", "0.001", "3600000") ",'percentile':" RANGE("number",           \
    "0.001", "99.999") ",'priority':" RANGE("integer", "0", "100")                                 \
    ",'on_miss':{'enum':['reject','delay','best-effort']}"
#define ANY_OPTIMIZER                                                                              \
    ",'lr':" RANGE("number", "0", "1000000") ",'weight_decay':" RANGE("number", "0", "1000000")
#define LABEL_NAMES "'propertyNames':{'pattern':'^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$'}"
#define LABELS                                                                                     \
    "{'type':'object','maxProperties':32," LABEL_NAMES                                             \
    ",'additionalProperties':{'type':'string','maxLength':128}}"
#define OPTIMIZER                                                                                  \
    "{'type':'object','oneOf':[" CLOSED("'name'", "'name':{'const':'sgd'}" ANY_OPTIMIZER           \
    ",'momentum':" RANGE("number", "0", "1") ",'nesterov':" BOOL) "," CLOSED("'name'",             \
    "'name':{'enum':['adam','adamw']}" ANY_OPTIMIZER ",'beta1':" RANGE("number", "0", "0.9999999") \
    ",'beta2':" RANGE("number", "0", "0.9999999") ",'eps':" RANGE("number", "0", "1")) "]}"
#define PART RANGE("number", "0", "1")
#define POSITIVE(max) "{'type':'number','exclusiveMinimum':0,'maximum':" max "}"
#define WEIGHTS                                                                                    \
    "{'type':'array','minItems':1,'maxItems':100000,'items':" RANGE("number", "0", "1000000000") "}"
#define OF_HEAD                                                                                    \
    ",'output':" STR("1", "127") ",'labels':" STR("1", "127") ",'weight':" POSITIVE("1000000000")
#define LOSS_OBJECTS                                                                               \
    CLOSED("'name'", "'name':{'const':'cross-entropy'},'ignore_index':" RANGE(                     \
        "integer", "-1000000000", "1000000000") ",'class_weights':" WEIGHTS                        \
        ",'label_smoothing':" RANGE("number", "0", "1") ",'class_axis':" RANGE("integer", "-1",    \
        "7") OF_HEAD) "," CLOSED("'name'", "'name':{'const':'binary-cross-entropy'},'pos_weight':" \
        "{'oneOf':[" POSITIVE("1000000000") "," WEIGHTS "]}" OF_HEAD) "," CLOSED("'name'",         \
        "'name':{'const':'huber'},'delta':" POSITIVE("1000000000") OF_HEAD) "," CLOSED("'name'",   \
        "'name':{'enum':['mse','l1']}" OF_HEAD)
#define LOSS                                                                                       \
    "{'oneOf':[{'enum':['cross-entropy','binary-cross-entropy','mse','l1','huber']},"              \
    LOSS_OBJECTS ",{'type':'array','minItems':1,'maxItems':8,'items':{'oneOf':[" LOSS_OBJECTS      \
    "]}}]}"
#define WARM_UP                                                                                    \
    ",'warmup_steps':" RANGE("integer", "0", "1000000000000") ",'warmup_start':" PART
#define SCHEDULE                                                                                   \
    "{'oneOf':[{'enum':['constant','linear','cosine','one-cycle']}," CLOSED("'name'",              \
    "'name':{'const':'constant'}" WARM_UP) "," CLOSED("'name'",                                    \
    "'name':{'enum':['linear','cosine']}" WARM_UP ",'end':" PART) "," CLOSED("'name','every'",     \
    "'name':{'const':'step'}" WARM_UP ",'every':" RANGE("integer", "1", "1000000000000")           \
    ",'gamma':" PART) "," CLOSED("'name'", "'name':{'const':'one-cycle'},'peak_at':" PART          \
    ",'divide':" RANGE("number", "1", "1000000000") ",'end_divide':" RANGE("number", "1",          \
    "1000000000")) "]}"
#define GLOB STR("1", "255")
#define GLOBS "{'type':'array','minItems':1,'maxItems':64,'items':" GLOB "}"
#define UPDATE                                                                                     \
    "'clip_norm':" RANGE("number", "0", "1e30") ",'clip_value':" RANGE("number", "0", "1e30")      \
    ",'no_decay':{'oneOf':[" BOOL "," GLOB "," GLOBS "]},'frozen':{'oneOf':[" GLOB "," GLOBS       \
    "]},'init':{'oneOf':[{'enum':['version','random']}," CLOSED("'random'", "'random':{'oneOf':["  \
    GLOB "," GLOBS "]}") "]},'accumulate':" RANGE("integer", "1", "65536") ",'ema':"               \
    RANGE("number", "0", "0.9999999")                                                              \
    ",'loss_scale':{'oneOf':[{'const':0}," RANGE("number", "0.000001", "1e30") ","                 \
    CLOSED("", "'init':" RANGE("number", "0.000001", "1e30") ",'growth':" RANGE("number", "1",     \
    "1024") ",'backoff':" RANGE("number", "0.0009765625", "1") ",'interval':" RANGE("integer",     \
    "1", "1000000")) "]}"
#define COLOURS(min)                                                                               \
    "{'oneOf':[" RANGE("number", min, "1000000") ",{'type':'array','minItems':3,"                  \
    "'maxItems':3,'items':" RANGE("number", min, "1000000") "}]}"
#define AUGMENT                                                                                    \
    "{'type':'array','maxItems':16,'items':{'oneOf':[" CLOSED("'name','mean','std'",               \
    "'name':{'const':'normalise'},'mean':" COLOURS("-1000000") ",'std':"                           \
    COLOURS("0.000001")) "," CLOSED("'name','padding'", "'name':{'const':'crop'},'padding':"       \
    RANGE("integer", "1", "4096")) "," CLOSED("'name'", "'name':{'const':'flip'},'probability':"   \
    RANGE("number", "0", "1")) "," CLOSED("'name','alpha'", "'name':{'const':'mixup'},'alpha':"    \
    RANGE("number", "0.001", "1000")) "," CLOSED("'name','input','mask','vocabulary'",             \
    "'name':{'const':'mask-tokens'},'input':" STR("1", "127") ",'labels':" STR("1", "127")         \
    ",'mask':" RANGE("integer", "0", "2147483647") ",'vocabulary':" RANGE("integer", "1",          \
    "2147483647") ",'probability':" RANGE("number", "0", "1") ",'special':{'type':'array',"        \
    "'maxItems':16,'items':" INT "}") "]}}"
#define EVALUATION                                                                                 \
    CLOSED("'every'", "'every':" RANGE("integer", "1", "1000000000000")                            \
    ",'best':{'enum':['loss','perplexity','accuracy','top5','f1']},'output':" STR("1", "127")      \
    ",'patience':" RANGE("integer", "0", "1000000000") ",'min_delta':" RANGE("number", "0", "1e30"))
#define STEPS_OR_EPOCHS                                                                            \
    "'oneOf':[{'required':['steps'],'properties':{'steps':{'type':'integer'}}},"                   \
    "{'required':['epochs'],'properties':{'epochs':{'type':'integer'}}}],"
#define TRAINING                                                                                   \
    CLOSED_IF(STEPS_OR_EPOCHS, "'optimizer'", "'loss':" LOSS ",'optimizer':" OPTIMIZER             \
    ",'schedule':" SCHEDULE "," UPDATE ",'evaluation':" EVALUATION                                 \
    ",'batch':" RANGE("integer", "1", "65536")                  \
    ",'steps':" RANGE("integer", "1", "1000000000000")                                             \
    ",'epochs':" RANGE("integer", "1", "1000000000") ",'seed':" RANGE(            \
    "integer", "0", "9000000000000000") ",'labels':" STR("1", "127") ",'precision':{'enum':["      \
    "'fp32','tf32','fp16','bf16']},'shuffle':" BOOL ",'shuffle_window':" RANGE(                    \
    "integer", "0", "4294967295") ",'publish':{'type':'boolean','description':"                    \
    "'false: the trained model is the file of the job and becomes no version of the model'}"       \
    ",'checkpoint_interval_ms':" RANGE("integer", "0", "86400000") ",'augment':" AUGMENT)
#define REF(name) "{'$ref':'#/components/schemas/" name "'}"
#define INDICES                                                                                    \
    "^[0-9]{1,7}(-[0-9]{1,7}(:[1-9][0-9]{0,6})?)?(,[0-9]{1,7}(-[0-9]{1,7}(:[1-9][0-9]{0,6})?)?)*$"
#define ARRAY_FIELDS                                                                               \
    "'id':" INT ",'name':" TEXT ",'kind':" TEXT ",'model':" TEXT ",'version':{'type':['integer',"  \
    "'null'],'description':'that its jobs use; null: they are gone'},'dataset':" TEXT ",'queue':"  \
    TEXT ",'indices':" TEXT ",'jobs':{'type':'integer','description':'of which old ones may be "   \
    "gone'},'max_parallel':" INT0 ",'states':{'type':'object','description':'how many of its jobs "\
    "are in each state','additionalProperties':" INT "},'grid':{'type':['object','null']},"        \
    "'template':{'type':'object','description':"\
    "'the job as it was submitted'},'client_token':" TEXT0 ",'created_at':" TIME ",'row_version':" \
    INT
#define JOB_NEEDS "'kind','model','dataset','spec'"
#define JOB_FIELDS                                                                                 \
    "'labels':" LABELS ",'deadline':" TIME ",'min_runtime_ms':" RANGE("integer", "0", "86400000")  \
    ",'hold':" BOOL ",'preemptible':" BOOL ",'model':" NAME ",'version':{'type':['integer',"       \
    "'string'],'minimum':1,'maximum':2147483647,'pattern':'^latest$','description':'if absent, "   \
    "training starts from the newest version that was uploaded, and batch inference is of the "    \
    "newest; latest: the newest, trained ones included'},'dataset':" NAME ",'queue':" LOWER_NAME   \
    ",'priority':" RANGE("integer", "-1000", "1000") ",'name':" STR("0", "128")                    \
    ",'max_attempts':" RANGE("integer", "1", "100")                                                \
    ",'client_token':" STR("1", "255")
#define BATCH_INFERENCE                                                                            \
    CLOSED("", "'batch':{'type':'integer','minimum':1,'maximum':65536,'description':'at most, "    \
    "and if absent, the max_batch of the version'},'inputs':{'type':'object','description':'input "\
    "of the model: tensor of the dataset, where names differ','additionalProperties':" TEXT        \
    ",'maxProperties':64,'propertyNames':{'pattern':'^[^\\\\u0000]+$'}},'outputs':{'type':"        \
    "'array','items':" TEXT                                                                        \
    ",'minItems':1,'maxItems':64,'description':'those that are kept; all if absent'},'checkpoin"   \
    "t_interval_ms':" RANGE("integer", "0", "86400000"))

#define FAULTS(where)                                                                              \
    "{'type':'array','maxItems':16,'items':{'type':'object','properties':{'pointer':" TEXT         \
    ",'detail':" TEXT "}},'description':'all that is wrong " where "; pointer: RFC 6901'}"

const struct api_schema API_SCHEMAS[] = {
    {"Any", "{'type':'object'}"},
    {"Empty", CLOSED("", "")},
    {"Health", SOME("", "'live':" BOOL ",'ready':" BOOL ",'name':" TEXT ",'executors':" INT
     ",'loading':" INT ",'error':" TEXT)},
    {"Problem", "{'type':'object','required':['type','title','status','detail','code','error'],"
     "'properties':{'type':" TEXT ",'title':" TEXT ",'status':" INT ",'detail':" TEXT ",'code':"
     TEXT ",'error':{'type':'string','description':'the same as detail, for clients of the "
     "inference protocol'},'request_id':" TEXT ",'errors':" FAULTS("in the body, detail "
     "being the first of it") ",'bytes':{'type':'integer','description':'of a file that cannot go "
     "on where it was wished: so much is here'},"
     "'reason_code':" TEXT ",'predicted_ms':" INT ",'nodes':{'type':'array','items':{'type':"
     "'object'},'description':'of a model that was refused: every node that is not supported'},"
     "'state':" TEXT ",'flags':" TEXTS ",'allowed':{'type':'array','items':" TEXT
     ",'description':'of a job: what can be done with it now'}}}",
     "{'type':'urn:shunt:error:NOTFOUND','title':'not found','status':404,'detail':'there is no "
     "model \\\"digits\\\"','code':'NOTFOUND','error':'there is no model \\\"digits\\\"',"
     "'request_id':'446de02435d592c0f8b0f5c99018fd8a'}"},
    {"Tenant", OPEN("'name':" LOWER_NAME ",'state':{'enum':['ACTIVE','SUSPENDED','DELETED']},"
     "'created_at':" TIME ",'row_version':" INT)},
    {"TenantCreate", CLOSED("'name'", "'name':" LOWER_NAME), "{'name':'vision'}"},
    {"TenantPatch", CLOSED("'state'", "'state':{'enum':['ACTIVE','SUSPENDED']}"),
     "{'state':'SUSPENDED'}"},
    {"Quota", OPEN("'row_version':" INT), NULL, SH_QUOTA_FIELDS, &SH_N_QUOTA_FIELDS},
    {"QuotaPut", CLOSED("", ""),
     "{'guaranteed_gpus':1,'max_gpus':4,'max_queued_jobs':100,'requests_per_second':50}",
     SH_QUOTA_FIELDS, &SH_N_QUOTA_FIELDS},
    {"Whoami", OPEN("'key':" TEXT ",'role':{'enum':['admin','tenant-admin','submit',"
     "'infer','read']},'tenant':{'type':['string','null'],'description':'null: an "
     "admin key'},'suspended':" BOOL)},
    {"Key", OPEN(KEY_FIELDS)},
    {"KeySecret", OPEN(KEY_FIELDS ",'key':{'type':['string','null'],'description':'null in a dry "
     "run, as there is no such key, and where an Idempotency-Key is repeated, as secrets are not "
     "kept: rotate the key for a new one'}")},
    {"KeyCreate", CLOSED("'name','role'", "'name':" STR("1", "64") ",'role':{'enum':["
     "'tenant-admin','submit','infer','read']},'expires_at':" TIME),
     "{'name':'ci','role':'submit','expires_at':'2037-01-31T00:00:00Z'}"},
    {"KeyRotate", CLOSED("", "'overlap_s':" RANGE("integer", "0", "2592000")),
     "{'overlap_s':3600}"},
    {"Model", OPEN("'name':" NAME ",'tenant':" TEXT ",'visibility':{'enum':['private','shared']},"
     "'created_at':" TIME ",'versions':{'type':'array','items':" OPEN("'version':" INT ",'state':"
     TEXT ",'reason':" TEXT0 ",'pinned':" BOOL ",'loading':" LOADING) "},'traffic':" TRAFFIC
     ",'row_version':" INT)},
    {"ModelCreate", CLOSED("'name'", "'name':" NAME ",'visibility':{'enum':['private','shared']}"),
     "{'name':'digits','visibility':'private'}"},
    {"ModelPatch", CLOSED("'visibility'", "'visibility':{'enum':['private','shared']}"),
     "{'visibility':'private'}"},
    {"Version", OPEN("'model':" NAME ",'version':" INT ",'state':" TEXT ",'pinned':" BOOL
     ",'reason_code':" TEXT0
     ",'reason':" TEXT0 ",'digest':" TEXT0 ",'bytes':" INT0 ",'inputs':" TENSORS ",'outputs':"
     TENSORS ",'meta':{'type':'object'},'max_batch':" INT ",'precision':" TEXT ",'image_bytes':"
     INT0 ",'profile':{},'source_job':" INT0 ",'created_at':" TIME ",'ready_at':" TIME0
     ",'loading':" LOADING ",'row_version':" INT)},
    {"VersionCreate", CLOSED("", "'version':" RANGE("integer", "1", "2147483647") ",'max_batch':{"
     "'type':'integer','minimum':1,'maximum':1024,'description':'without it the batch that the "
     "file fixes, else 8'},'precision':{'enum':['fp32','tf32','fp16','bf16']},'buckets':{'type':"
     "'object','description':'sizes that requests are filled up to, by the name of the axis; "
     "refused where that may change an answer','maxProperties':8,'additionalProperties':{'type':"
     "'array','minItems':1,'maxItems':16,'items':" RANGE("integer", "2", "1048576") "}}"),
     "{'max_batch':16,'precision':'fp32'}"},
    {"Placements", OPEN("'model':" NAME ",'version':" INT ",'state':" TEXT ",'reason':" TEXT0
     ",'solo_note':" TEXT0 ",'pinned':" BOOL ",'image_bytes':" INT0
     ",'placements':{'type':'array','items':" OPEN("'executor':" TEXT
     ",'state':{'enum':['LOADING','READY','UNLOADING','FAILED','ASIDE']},"
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
     ",'error_budget_left':{'type':'number','maximum':1,'description':'fraction of the budget, "
     "which is the share of requests that may miss (100 - percentile, in percent): 1 = unspent, 0 "
     "= spent, -24 = overspent by 24 times the budget'},'p50_ms':" NUM0 ",'p95_ms':" NUM0
     ",'p99_ms':" NUM0)},
    {"SloPut", CLOSED("'latency_ms'", SLO_FIELDS), "{'latency_ms':20,'on_miss':'reject'}"},
    {"Dataset", OPEN("'name':" NAME ",'state':" TEXT ",'digest':" TEXT0 ",'bytes':" INT0
     ",'tensors':" TENSORS ",'n_samples':" INT0 ",'created_at':" TIME ",'row_version':" INT)},
    {"DatasetCreate", CLOSED("'name'", "'name':" NAME), "{'name':'digits-train'}"},
    {"Queue", OPEN("'name':" LOWER_NAME ",'shared':" BOOL ",'state':" QUEUE_STATE ",'priority':" INT
     ",'jobs':" INT ",'created_at':" TIME ",'row_version':" INT)},
    {"QueueCreate", CLOSED("'name'", "'name':" LOWER_NAME ",'state':" QUEUE_STATE ",'priority':"
     RANGE("integer", "-1000", "1000")), "{'name':'nightly','priority':10}"},
    {"QueuePatch", CLOSED_IF("'minProperties':1,", "", "'state':" QUEUE_STATE ",'priority':"
     RANGE("integer", "-1000", "1000")), "{'state':'HELD'}"},
    {"Usage", SOME("'gpu_seconds','requests','samples'", "'class':{'enum':['inference',"
     "'training']},'model':" TEXT0 ",'from':" TIME ",'gpu_seconds':" NUM ",'requests':" INT
     ",'samples':" INT)},
    {"Share", OPEN("'tenant':" LOWER_NAME ",'at':" TIME0 ",'guaranteed_gpus':" NUM ",'max_gpus':"
     NUM0 ",'weight':" NUM ",'running_gpus':" NUM ",'waiting_gpus':" NUM ",'fair_gpus':" NUM
     ",'reserved_gpus':" NUM ",'saturation':" NUM0 ",'usage_gpu_seconds':" NUM
     ",'usage_per_weight':" NUM0 ",'usage_fraction':" NUM ",'weight_fraction':" NUM
     ",'half_life_s':" NUM0)},
    {"Audit", OPEN("'id':" INT ",'at':" TIME ",'actor':" TEXT0 ",'tenant':" TEXT0 ",'request_id':"
     TEXT ",'action':" TEXT ",'resource':" TEXT ",'before':{'type':['object','null']},"
     "'after':{'type':['object','null']}")},
    {"Job", OPEN("'array':" INT0 ",'array_index':" INT0 ",'labels':" LABELS ",'deadline':" TIME0
     ",'min_runtime_ms':" INT ",'preemptible':" BOOL ",'not_before':" TIME0 ",'queued_at':" TIME
     ",'flags':{'type':'array',"
     "'items':{'enum':['SUSPEND_PENDING','REQUEUE_PENDING','CHECKPOINTING']}},'id':" INT
     ",'kind':" TEXT ",'name':" TEXT ",'state':" TEXT ",'reason':" TEXT
     ",'priority':" INT ",'queue':" TEXT ",'model':" TEXT ",'version':" INT ",'dataset':" TEXT0
     ",'eval_dataset':" TEXT0 ",'spec':{'type':'object'},'client_token':" TEXT0 ",'attempt':" INT
     ",'max_attempts':" INT ",'executor':" TEXT0 ",'step':" INT ",'steps':" INT ",'loss':" NUM0
     ",'samples_per_s':" RATE("samples") ",'steps_per_s':" RATE("steps; of batch inference samples")
     ",'steps_redone':" INT ",'evaluation':{'type':['object','null'],'description':'the newest "
     "between two steps, and which was best'},'preemptions':" INT ",'busy_ns':" INT
     ",'result':{'type':['object','null']},'result_version':" INT0 ",'error_code':" TEXT0
     ",'error':" TEXT0 ",'created_at':" TIME ",'started_at':" TIME0 ",'finished_at':" TIME0
     ",'row_version':" INT)},
    {"JobPatch", CLOSED_IF("'minProperties':1,", "", "'priority':{'type':['integer'],"
     "'minimum':-1000,'maximum':1000},'labels':{'type':['object'],'maxProperties':32," LABEL_NAMES
     ",'additionalProperties':{'type':['string','null'],'maxLength':128,'pattern':'^[^\\\\x00]*$',"
     "'description':'null removes the label'}},'deadline':" TIME0),
     "{'priority':5,'labels':{'team':'vision'}}"},
    {"JobCreate", "{'type':'object','oneOf':[" CLOSED(JOB_NEEDS, JOB_FIELDS
     ",'kind':{'const':'training'},'eval_dataset':" NAME ",'spec':" TRAINING) "," CLOSED(JOB_NEEDS,
     JOB_FIELDS ",'kind':{'const':'batch_inference'},'spec':" BATCH_INFERENCE) "]}",
     "{'kind':'training','model':'digits','dataset':'digits-train','queue':'default',"
     "'spec':{'optimizer':{'name':'sgd','lr':0.05,'momentum':0.9},'batch':32,'epochs':2}}"},
    {"JobBatchCreate", CLOSED("'jobs'", "'jobs':{'type':'array','minItems':1,'maxItems':1000,"
     "'items':" REF("JobCreate") "}"),
     "{'jobs':[{'kind':'training','model':'digits','dataset':'digits-train','spec':{'optimizer':{"
     "'name':'sgd','lr':0.05},'epochs':1}}]}"},
    {"JobBatch", OPEN("'items':{'type':'array','description':'in the order of the jobs','items':"
     SOME("'status'", "'status':{'type':'integer','description':'201: submitted; 200: its "
     "client_token named this job before; else what POST /jobs would have answered'},'job':" INT
     ",'version':{'type':'integer','description':'of the model, that the job uses'},'code':" TEXT
     ",'error':" TEXT ",'errors':" FAULTS("in this job, as POST /jobs would have listed "
     "it; absent where the batch has listed 2000 before")) "},'created':" INT ",'failed':"
     INT)},
    {"JobArrayCreate", CLOSED_IF("'anyOf':[{'required':['indices']},{'required':['count']},"
     "{'required':['grid']}],'not':{'required':['indices','count']},", "'job'",
     "'indices':{'type':'string','minLength':1,'maxLength':255,'pattern':'" INDICES
     "','description':'0-99, 0-98:2 or 1,5,7-9'},'count':{'type':'integer','minimum':1,"
     "'maximum':1000,'description':'indices from 0 on'},'max_parallel':" RANGE("integer", "1",
     "2147483647") ",'grid':{'type':'object','minProperties':1,'maxProperties':16,'propertyNames':"
     "{'pattern':'^[a-z0-9_]+([.][a-z0-9_]+)?$','maxLength':63},'additionalProperties':{'type':"
     "'array','minItems':1,'maxItems':1000,'uniqueItems':true,'items':{'type':['number','string',"
     "'boolean'],'maxLength':128}},'description':'fields of the spec, batch or optimizer.lr (also "
     "lr), with their values: a job for every combination, and for each of these every index'},"
     "'client_token':" STR("1", "255") ",'job':" REF("JobCreate")),
     "{'indices':'0-9','max_parallel':2,'grid':{'lr':[0.1,0.01],'batch':[16,32]},'job':{"
     "'kind':'training','model':'digits','dataset':"
     "'digits-train','name':'seed-{index}','spec':{'optimizer':{'name':'sgd','lr':0.05},"
     "'epochs':1}}}"},
    {"JobArrayPatch", CLOSED_IF("'minProperties':1,", "", "'max_parallel':" RANGE("integer",
     "1", "2147483647")), "{'max_parallel':8}"},
    {"JobArray", OPEN(ARRAY_FIELDS)},
    {"JobArrayChange", OPEN("'changed':{'type':'integer','description':'jobs that allowed it'},"
     "'array':" REF("JobArray"))},
    {"JobResult", OPEN("'job':" INT ",'kind':" TEXT ",'state':" TEXT ",'result':{'type':'object'},"
     "'version':" INT0 ",'artifact':{'type':['object','null'],'properties':{'name':" TEXT
     ",'bytes':" INT ",'digest':" TEXT ",'href':" TEXT "}},'finished_at':" TIME)},
    {"JobEvent", OPEN("'id':" INT ",'at':" TIME ",'from':" TEXT0 ",'to':" TEXT ",'reason':" TEXT
     ",'detail':{'type':'object'}")},
    {"Config", OPEN("'process':" TEXT ",'row_version':" INT ",'version_in_force':" INT
     ",'in_force_within_ms':" INT ",'options':{'type':'array','items':" OPEN("'name':" TEXT
     ",'value':{'type':['string','number','boolean','null']},'live':" BOOL ",'changed':" BOOL
     ",'help':" TEXT) "}")},
    {"ConfigPatch", CLOSED_IF("'minProperties':1,", "",
     "'log-level':{'enum':['error','warn','info','debug']},'max-connections-per-key':"
     RANGE("integer", "0", "1000000") ",'header-timeout-s':" RANGE("integer", "2", "3600")
     ",'upload-min-rate':" RANGE("integer", "1", "1000000000") ",'upload-grace-s':"
     RANGE("integer", "1", "3600") ",'max-inflight':" RANGE("integer", "1", "1000000")
     ",'max-streams':" RANGE("integer", "1", "100000") ",'max-tenant-streams':"
     RANGE("integer", "1", "100000") ",'infer-timeout-ms':" RANGE("integer", "10", "3600000")
     ",'import-timeout-s':" RANGE("integer", "1", "3600") ",'blob-keep-s':"
     RANGE("integer", "1", "31536000") ",'drain-s':" RANGE("integer", "0", "600")),
     "{'log-level':'info','max-tenant-streams':64}"},
    {"Event", OPEN("'position':" TEXT ",'tenant':" TEXT ",'job':" INT ",'name':" TEXT
     ",'kind':" TEXT ",'queue':" TEXT ",'id':" INT ",'at':" TIME ",'from':" TEXT0 ",'to':" TEXT
     ",'reason':" TEXT ",'detail':{'type':'object'}")},
    {"Explanation", SOME("'id','state','flags','allowed','reason','text'", "'id':" INT ",'state':"
     TEXT ",'flags':" TEXTS ",'allowed':" TEXTS ",'reason':" TEXT ",'text':" TEXT ",'position':" INT
     ",'waiting':" INT ",'estimated_wait_ms':" INT ",'estimated_start':" TIME ",'basis':" TEXT
     ",'waits_for':{'type':'array','items':" SOME("'executor'", "'executor':" TEXT ",'job':" INT
     ",'state':" TEXT ",'steps_left':" INT ",'steps_per_s':" NUM ",'left_ms':" INT)
     "},'factors':" OPEN("'priority':" INT ",'preemptible':" BOOL ",'tenant_running_jobs':" INT
     ",'tenant_guaranteed_gpus':" NUM ",'tenant_weight':" NUM ",'tenant_usage_gpu_s':" NUM
     ",'tenant_share_gpu_s':" NUM ",'min_run_ms':" INT))},
    {"Checkpoint", OPEN("'id':" INT ",'attempt':" INT ",'step':" INT ",'digest':" TEXT ",'bytes':"
     INT ",'created_at':" TIME)},
    {"Losses", OPEN("'job':" INT ",'offset':" INT ",'total':" INT
     ",'losses':{'type':'array','items':" NUM0 "}")},
    {"Gpu", OPEN("'name':" TEXT ",'host_id':" TEXT ",'device':" TEXT ",'device_name':" TEXT0
     ",'state':{'enum':['UP','DOWN']},'seen_at':{'type':'string','format':'date-time',"
     "'description':'when state last changed'},'heard_at':{'type':'string','format':'date-time',"
     "'description':'its last message, some seconds late'},'workers':" INT ",'memory_bytes':" INT0
     ",'pool_bytes':" INT ",'link_bytes_per_s':" NUM0 ",'host':{'type':['object','null'],"
     "'description':'host memory of models, what workers have compiled included; of admins alone',"
     "'properties':{'images_bytes':" INT ",'programs_bytes':" INT ",'used_bytes':" INT
     ",'limit_bytes':" INT "}},'pool':{'type':['object','null'],"
     "'description':'how the pool is used; of admins alone','properties':{'weights_bytes':" INT
     ",'training_bytes':" INT ",'workspace_bytes':" INT ",'used_bytes':" INT "}},"
     "'busy':{'type':['object','null'],'description':'parts of the last seconds, from 0 to 1; of "
     "admins alone','properties':{'requests':" NUM ",'jobs':" NUM "}},'fences':{'type':['object',"
     "'null'],'description':'what holds whoever takes a worker over, in all workers so far; of "
     "admins alone','properties':{'calls':" BOOL ",'capabilities':" BOOL ",'files':" BOOL
     ",'user':" BOOL ",'reason':" TEXT0 "}},'runs':{'type':'array','description':'requests at that "
     "moment; of others only the own ones','items':"
     OPEN("'tenant':" TEXT ",'model':" TEXT ",'version':" INT ",'batch':" INT) "},'models':{"
     "'type':'array','items':" OPEN("'tenant':" TEXT ",'model':" TEXT ",'version':" INT
     ",'state':" TEXT ",'pin':" TEXT ",'device_bytes':" INT ",'host_bytes':" INT) "},'job':{'type':"
     "['object','null'],'properties':{'id':" INT ",'tenant':" TEXT ",'name':" TEXT ",'kind':" TEXT
     ",'state':" TEXT ",'step':" INT ",'steps':" INT "}}")},
    {"ServerMetadata", OPEN("'name':" TEXT ",'version':" TEXT
     ",'extensions':{'type':'array','items':" TEXT "}")},
    {"ModelMetadata", OPEN("'name':" NAME ",'versions':{'type':'array','items':" TEXT
     "},'platform':" TEXT ",'inputs':" TENSORS ",'outputs':" TENSORS)},
    {"ModelConfig", SOME("'name','platform','max_batch_size','input','output'", "'name':" NAME
     ",'platform':" TEXT ",'backend':" TEXT
     ",'max_batch_size':" INT ",'input':{'type':'array'},'output':{'type':'array'},"
     "'dynamic_batching':{'type':'object'}")},
    {"Stats", OPEN("'model_stats':{'type':'array','items':{'type':'object'}}")},
    {"IndexRequest", CLOSED("", "'ready':" BOOL)},
    {"RepoRequest", SOME("", "'parameters':{'type':'object'}")},
    {"Region", SOME("'key','byte_size'", "'key':" STR("1", "255")
     ",'offset':" RANGE("integer", "0", "9007199254740992") ",'byte_size':"
     RANGE("integer", "1", "9007199254740992"))},
    {"Regions", "{'type':'array','items':" OPEN("'name':" TEXT ",'key':" TEXT ",'offset':" INT
     ",'byte_size':" INT) "}"},
    {"Index", "{'type':'array','items':" OPEN("'name':" TEXT ",'version':" TEXT ",'state':" TEXT
     ",'reason':" TEXT) "}"},
    {"InferRequest", CLOSED("'inputs'", "'id':" STR("0", "1024") ",'parameters':" PARAMETERS
     ",'inputs':{'type':'array','minItems':1,'maxItems':64,'items':" CLOSED(
     "'name','datatype','shape'", "'name':" STR("0", "1024") ",'datatype':" STR("0", "16")
     ",'shape':{'type':'array','maxItems':32,'items':{'type':'integer','minimum':0}},'parameters':"
     "{'type':'object'},'data':{'type':'array'}")
     "},'outputs':{'type':'array','maxItems':64,'items':" CLOSED("'name'", "'name':" STR("0",
     "1024") ",'parameters':{'type':'object'}") "}"),
     "{'inputs':[{'name':'x','datatype':'FP32','shape':[1,4],'data':[1,0,0,0]}]}"},
    {"InferResponse", SOME("'model_name','model_version','outputs'", "'model_name':" TEXT
     ",'model_version':" TEXT ",'id':" TEXT ",'outputs':{'type':'array','items':" SOME(
     "'name','datatype','shape'", "'name':" TEXT ",'datatype':" TEXT ",'shape':{'type':'array',"
     "'items':" INT "},'data':{'type':'array'},'parameters':{'type':'object'}") "}")},
    {"UploadPart", OPEN("'digest':" TEXT ",'bytes':{'type':'integer','description':'of the file, "
     "from its beginning'},'max_age_s':{'type':'integer','description':'so long after its last "
     "byte it is kept'}")},
    {"Binary", "{}"},
    {"Text", "{'type':'string'}"},
};

const struct path_param API_PATH_PARAMS[] = {
    {"tenant", "name of the tenant", LOWER_NAME},
    {"key", "the id of the key, not its secret", "{'type':'string','pattern':'^[a-z0-9]{12}$'}"},
    {"queue", "name of the queue", LOWER_NAME},
    {"region", "name of a region of shared memory", "{'type':'string','minLength':1}"},
    {"model", "name of the model", NAME},
    {"version", "number of the version", RANGE("integer", "1", "2147483647")},
    {"dataset", "name of the dataset", NAME},
    {"gpu", "name of the GPU: of its executor", NAME},
    {"array", "number of the array of jobs", RANGE("integer", "1", "9223372036854775807")},
    {"job", "number of the job", RANGE("integer", "1", "9223372036854775807")},
    {"digest", "SHA-256, hex", "{'type':'string','pattern':'^[0-9a-f]{64}$'}"},
    {"file", "name in the folder of the job", "{'type':'string','pattern':'^(losses[.]json|"
     "log[.]txt|final[.]safetensors|trained[.]onnx|result[.]safetensors|"
     "ckpt-(0|[1-9][0-9]{0,17})[.]safetensors)$'}"},
};
/* clang-format on */
const size_t API_N_SCHEMAS = SH_ARRAY_LEN(API_SCHEMAS);
const size_t API_N_PATH_PARAMS = SH_ARRAY_LEN(API_PATH_PARAMS);
