/* models.h - model versions: mirror of the database, and what each executor makes of them.
 *
 *   REGISTERED -> LOADING  MODEL_LOAD went to an executor          [load_where_missing]
 *   REGISTERED, LOADING
 *              -> READY    every connected executor has answered, one is READY  [settle]
 *              -> FAILED   every connected executor has failed for good         [settle]
 *   FAILED     -> REGISTERED  a client loaded it again before we saw it FAILED  [follow]
 *   any of them -> UNLOADING  the database says so: a client asked             [follow]
 *   UNLOADING  -> UNLOADED  no connected executor holds it any more             [settle]
 *   UNLOADING, UNLOADED -> REGISTERED  a client asked for it again              [follow]
 *
 * A READY version is loaded by executors that come later too. A failure that is worth another try
 * (out of memory, a lost device) is tried LOAD_TRIES times with a growing pause. A version that is
 * UNLOADED, deleted, or whose model is, is unloaded everywhere and freed when its last request has
 * ended.
 */
#ifndef SH_SCHEDULER_MODELS_MODELS_H
#define SH_SCHEDULER_MODELS_MODELS_H

#include "common/idmap.h"
#include "common/states.h"
#include "scheduler/database/store.h"
#include "scheduler/database/store_view.h"
#include "scheduler/decide/predict.h"
#include "scheduler/decide/snapshot.h"
#include "scheduler/peers/executors.h"

#include <stdbool.h>
#include <stdint.h>

/* What requests for a version hear that a client has unloaded. */
#define MODEL_UNLOADED_TEXT "the model version was unloaded; load it to use it again"

struct run;
struct shape;

/* Those of its row. From FAILED on it is not to be loaded, from UNLOADING on it is to leave. */
enum model_state {
#define X(name) MODEL_##name,
    SH_VERSION_UPLOADED(X, )
#undef X
        MODEL_N_STATES
};
extern const struct sh_life VERSION_LIFE; /* common/life.h */
/* On one executor. */
enum model_phase {
    MODEL_ON_ABSENT,
#define X(name) MODEL_ON_##name,
    SH_PLACEMENT_STATES(X, )
#undef X
};

struct model_on { /* one executor */
    enum model_phase phase;
    uint32_t tries;
    int64_t retry_ns;        /* FAILED: try again then; 0 = never */
    uint64_t resident_bytes; /* for predictions: what a run that was sent brings counts already */
    int64_t arrives_ns;      /* until then some of them are on their way; 0: none */
    bool pin_told;           /* MODEL_PIN went out */
    bool is_urgent;          /* it was told that somebody waits; UNLOADING: it is to hear that */
    bool is_aside;           /* it stands aside, is to, or is on its way back: room.h */
    bool waits_for_room;     /* FAILED: others leave for it */
    bool is_chosen;          /* while room.c looks for room */
    int64_t ready_ns;        /* since when it is READY */
    struct model_step {      /* LOADING: as of MODEL_STATE */
        char step[16];
        uint32_t done, total;
        int64_t left_ns, at_ns; /* estimated when; left_ns < 0: unknown */
    } step;
    struct model_place { /* what report.c writes */
        uint64_t device_bytes, host_bytes;
        enum msg_pin pin;
        int64_t last_use_ms; /* wall clock; 0: none */
    } place;
    struct model_shown { /* as it stands in the database */
        enum model_phase phase;
        struct model_place place;
    } shown;
};

struct model { /* one version */
    int64_t version_id, model_id, tenant_id;
    char tenant[64], name[JOB_NAME_BYTES + 1], precision[8];
    char *package; /* OWNED: absolute path */
    uint32_t version, max_batch;
    bool is_solo; /* requests to it are not put together */
    enum model_state state;
    uint64_t image_bytes;
    int64_t slo_ns; /* 0: none */
    double slo_percentile;
    int32_t slo_priority;
    bool pinned;
    enum snap_on_miss on_miss;
    struct predict predict; /* of runs of all shapes */
    struct shape *shapes;   /* OWNED: shapes.h */
    size_t n_shapes;
    struct sh_sizes *warm; /* OWNED: to be compiled before somebody asks */
    size_t n_warm;
    int64_t refused_ns;     /* as in snapshot.h */
    int64_t asked_ns;       /* when somebody last asked for it */
    uint64_t n_runs_shown;  /* of predict.n_runs: report.c */
    uint64_t n_runs_before; /* under the leader before */
    struct model_told {     /* what APIs were told: serving.c */
        enum msg_up state;
        struct model_step step;
    } told;
    struct model_on on[EXECS_MAX];
    struct msg_profile profile[PREDICT_N_BUCKETS]; /* as the last executor measured it */
    size_t n_profile;
    int fail_rc;      /* of the last failure */
    int64_t again_ns; /* when it was last loaded again because somebody asked */
    char fail_msg[512];
    uint32_t n_requests, n_runs;
    uint32_t n_waiting; /* of all versions of the model; models.c */
    bool gone;
    uint64_t seen_poll;
    uint32_t snap; /* index in the snapshot of the present pass; pass.c */
    size_t index;
};

struct models {
    struct model **items; /* OWNED */
    size_t n, cap;
    struct idmap by_id;
    bool changed; /* something that serving_tell() may have to tell */
    struct msg_serving told;
};

void models_fini(struct sched *s);
struct model *models_find(const struct models *m, int64_t version_id); /* NULL if unknown */
int models_merge(struct sched *s, const struct store_view *v, struct sh_err *err);
void models_on_state(struct sched *s, struct exec *e, const struct msg_model_state *m);
void models_on_place(struct sched *s, struct exec *e, const struct msg_model_place *m);
void models_load_missing(struct sched *s); /* MODEL_LOAD for what an executor lacks */
/* Somebody asks for it: executors load it first, and bring it back that have put it aside. */
void models_want(struct sched *s, struct model *m);
void models_want_on(struct sched *s, struct model *m, struct exec *e); /* for a job of e */
void models_forget_exec(struct sched *s, uint32_t exec_index);
void models_second(struct sched *s); /* retries, gauges */
/* What e lacks of it will be copied, behind what is on its way already. */
/* Somebody asks for a version (its id, as text) that executors could not load, or whose next try is
 * yet to come: they try at once. At most once a second for each version. */
void models_load_again(struct sched *s, const char *version_id);
void models_expect(struct model *m, struct exec *e, int64_t now_ns);
/* Device time of a finished run. */
void models_charge(struct sched *s, const struct run *run, int64_t gpu_ns);
void models_release(struct sched *s, struct model *m); /* frees it if it is gone and unused */
/* For room.c: MODEL_LOAD, MODEL_UNLOAD. */
void models__load(struct sched *s, struct model *m, struct exec *e);
void models__leave(struct sched *s, struct model *m, struct exec *e);

#endif
