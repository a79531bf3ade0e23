/* msg.h - the messages of msg.def as structs, with one encoder and one decoder.
 *
 * Field types: u32 u64 i64 f64; str: view of a NUL-terminated text; blob: view of bytes. Views are
 * BORROWED: from the frame when decoded, from the caller when encoded. Unknown trailing bytes are
 * an error: both sides are of one release, which SH_WIRE_VERSION checks.
 *
 * Payloads are multiples of 8 bytes, and blobs start at a multiple of 8. So a blob of a received
 * frame may be read as an array of the structs below, once its length is checked.
 */
#ifndef SH_COMMON_MSG_H
#define SH_COMMON_MSG_H

#include "common/buf.h"
#include "common/err.h"
#include "common/units.h"

#include <stdint.h>

#define SH_MAX_EXECUTORS 16384 /* most that a scheduler may have, and its APIs know of */
/* A model is in the working set for so long after it was asked for, of the scheduler's gate and of
 * the executors' metrics. */
#define SH_WORKING_SET_NS SH_S(60)

struct sh_blob {
    const void *data;
    size_t len;
};

/* Elements of blobs: plain little-endian structs without padding. */
struct msg_span {
    uint64_t off, len; /* bytes in the slab */
};
struct msg_group {
    uint32_t end_layer;                 /* one past the group's last layer */
    uint32_t ticket_slot, ticket_value; /* wait for it before the group's first operation */
    uint32_t reserved;
};
struct msg_batch {
    uint32_t batch, reserved;
    uint64_t ws_bytes; /* workspace: activations, inputs, outputs, scratch */
};
struct msg_profile {
    uint32_t batch, reserved;
    double compute_ns; /* ready model: sum of its layers */
    double
        tail_ns; /* of a run with no weights resident: what is left when the last weights arrive */
};

struct msg_span_wish { /* in SPANS_WANTED; at most MSG_SPAN_WISHES */
    uint64_t rid;
    uint64_t parent; /* id of the span above those of the receiver */
    uint8_t trace[16];
};
#define MSG_SPAN_WISHES 1024u

#define MSG_USAGE_ROWS 256u /* at most, in one USAGE */
enum msg_usage_kind { MSG_USAGE_RUNS, MSG_USAGE_JOB };
struct msg_usage_row {
    char tenant[64]; /* for runs; NUL-terminated */
    uint32_t kind, reserved;
    int64_t id;                        /* the version or the job */
    int64_t age_s;                     /* since the middle of the minute of use */
    int64_t gpu_ns, requests, samples; /* for a job, samples is the samples of one step */
    int64_t step;                      /* for a job: its progress */
};

/* Who had a device: what each moment of its wall time was for (executor/report/device_time.h). */
#define MSG_USE_MAP(X)                                                            \
    X(INFERENCE, "inference")                                                     \
    X(TRAINING, "training")                                                       \
    X(BATCH, "batch")                                                             \
    X(SWITCH, "switch") /* a run held it: training stops, memory, weights come */ \
    X(LOAD, "load")     /* a worker compiles a version */                         \
    X(IDLE, "idle")
enum msg_use {
#define X(name, text) MSG_USE_##name,
    MSG_USE_MAP(X)
#undef X
        MSG_N_USES
};
extern const char *const SH_MSG_USE_NAME[MSG_N_USES];
#define MSG_USE_ROWS 32u /* at most, in one EXEC_USE */
struct msg_use_row {
    char tenant[64]; /* NUL-terminated; "": nobody's, or of more tenants than there are rows */
    uint32_t use, reserved;
    int64_t ns;
};
#define MSG_SWITCHES 8u /* at most, in one EXEC_USE */
struct msg_switch {     /* a run of requests for which weights came or training stopped */
    char tenant[64];    /* as above */
    int64_t version_id, age_ns;
    /* One after the other: other runs go first; it gets its memory, which training may have to give
     * up; training stops and the first weights come; it computes, while more come. copy_ns: from
     * the second stage on, until the last weights were there; 0: none came. */
    int64_t wait_ns, memory_ns, first_ns, compute_ns, copy_ns;
    uint64_t copied_bytes;
    uint32_t stopped, batch; /* stopped: training had the device */
};

enum msg_model_phase { MSG_MODEL_LOADING, MSG_MODEL_READY, MSG_MODEL_FAILED, MSG_MODEL_GONE };
enum msg_up {                 /* the state of a version on executors */
              MSG_UP_NONE,    /* it is not to be served */
              MSG_UP_ABSENT,  /* no connected executor could load it */
              MSG_UP_LOADING, /* one loads it, or soon will */
              MSG_UP_READY,   /* a request would be served */
              MSG_UP_FAILED   /* none can load it */
};
/* What confines whoever takes over a worker; docs/security.md. */
#define MSG_FENCE_MAP(X)                                   \
    X(CALLS, "calls")               /* few system calls */ \
    X(CAPABILITIES, "capabilities") /* none */             \
    X(FILES, "files")               /* none, or a list */  \
    X(USER, "user")                 /* not root */
enum {
#define X(name, text) MSG_FENCE_AT_##name,
    MSG_FENCE_MAP(X)
#undef X
        MSG_N_FENCES
};
enum msg_fence {
#define X(name, text) MSG_FENCE_##name = 1 << MSG_FENCE_AT_##name,
    MSG_FENCE_MAP(X)
#undef X
        MSG_FENCES = (1 << MSG_N_FENCES) - 1
};
enum msg_evict {                 /* of PREPARE: what may leave the device for it */
                 MSG_EVICT_NONE, /* nobody asks for it yet: it comes while nothing else does */
                 MSG_EVICT_ANY,  /* what nobody keeps */
                 MSG_EVICT_STALE /* as NONE, but what nobody has used for long */
};
enum msg_pin { MSG_PIN_NONE, MSG_PIN_HELD, MSG_PIN_WAITING /* for room on the device */ };
enum msg_job_phase { /* an executor's report on a job */
                     MSG_JOB_STARTING,
                     MSG_JOB_RUNNING,
                     MSG_JOB_PREEMPTED,
                     MSG_JOB_COMPLETING, /* exporting and evaluating */
                     MSG_JOB_DONE,
                     MSG_JOB_FAILED,
                     MSG_JOB_CANCELLED,
                     MSG_JOB_SUSPENDED /* stopped with a checkpoint, as the scheduler asked */
};
enum msg_job_how { MSG_JOB_HOW_CANCEL, MSG_JOB_HOW_SUSPEND };
enum msg_pack { /* of an image that is made (runtime/pack/pack.h) */
                MSG_PACK_NEVER,
                MSG_PACK_ALWAYS, /* if that makes it smaller */
                MSG_PACK_GAINS   /* if a run for which all of it is copied ends sooner */
};
enum msg_tables { /* of embeddings, at the end of an image that is made (runtime/model/tables.h) */
                  MSG_TABLES_NEVER,
                  MSG_TABLES_ALWAYS, /* what can be read by rows */
                  MSG_TABLES_GAIN    /* if reading the rows takes less than half of the copy */
};
enum msg_tables_at { /* where a run finds them */
                     MSG_TABLES_ON_DEVICE,
                     MSG_TABLES_IN_HOST /* WK_TABLES */
};
enum msg_packed {                   /* what became of the packed weights that a run was to unpack */
                  MSG_PACKED_KNOWN, /* some are unpacked, the others as they were */
                  MSG_PACKED_UNSURE, /* a call of the device failed: who knows what it has done */
                  MSG_PACKED_DAMAGED /* they were not as somebody packed them */
};
enum msg_run_memory { /* memory of a run; all but the first are for tests/lab/ */
                      MSG_RUN_ARENA,
                      MSG_RUN_MAP_ANEW, /* the arena, mapped anew. fds: dev_mem_export */
                      MSG_RUN_PRIVATE   /* its own memory, to be filled. fd: the image */
};
enum msg_run_inputs {
    MSG_INPUTS_BRING,      /* the worker copies them to the workspace */
    MSG_INPUTS_COME,       /* they are there when the ticket has arrived */
    MSG_INPUTS_BRING_AFTER /* the worker copies them, after the ticket has arrived */
};
enum msg_train_at {
    MSG_TRAIN_AT_BOUNDARY, /* between two steps: only the state matters */
    MSG_TRAIN_AT_STEP,     /* in forward or backward: the state is that of `step` */
    MSG_TRAIN_AT_UPDATE,   /* in the update: the state is torn; only a pause is possible */
    MSG_TRAIN_AT_END       /* all steps are committed */
};

typedef uint32_t sh_msg_u32;
typedef uint64_t sh_msg_u64;
typedef int64_t sh_msg_i64;
typedef double sh_msg_f64;
typedef const char *sh_msg_str;
typedef struct sh_blob sh_msg_blob;

#define F(type, name) sh_msg_##type name;
#define SH_MSG(NAME, name, number, ...) \
    struct msg_##name {                 \
        __VA_ARGS__                     \
    };
#include "common/msg.def"
#undef SH_MSG
#undef F

enum sh_msg_type {
#define F(type, name)
#define SH_MSG(NAME, name, number, ...) MSG_##NAME = (number),
#include "common/msg.def"
#undef SH_MSG
#undef F
};

struct sh_msg {
    enum sh_msg_type type;
    union {
#define F(type, name)
#define SH_MSG(NAME, name, number, ...) struct msg_##name name;
#include "common/msg.def"
#undef SH_MSG
#undef F
    } u;
};

extern const char *const SH_MSG_FENCE_NAME[MSG_N_FENCES];
#define SH_MSG_FENCES_TEXT 48
/* "calls,user"; "none" */
void sh_msg_fences_text(uint32_t fences, char out[static SH_MSG_FENCES_TEXT]);

const char *sh_msg_name(enum sh_msg_type t); /* "INFER_OPEN"; "?" if unknown */
/* Appends the payload without the frame header. A NULL str is encoded as "". */
int sh_msg_encode(const struct sh_msg *m, struct sh_buf *out, struct sh_err *err);
/* Fails: SH_E_PROTO with message and field. The payload must be aligned to 8 bytes. */
int sh_msg_decode(uint16_t type, const void *payload, size_t len, struct sh_msg *out,
                  struct sh_err *err);

#endif
