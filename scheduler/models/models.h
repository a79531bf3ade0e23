/* models.h - model versions: a mirror of the database, and their state on each executor.
 *
 *   REGISTERED -> LOADING  MODEL_LOAD went to an executor          [load_where_missing]
 *   REGISTERED, LOADING
 *              -> READY    a home of it is READY                               [settle]
 *              -> FAILED   all that were tried have failed for good             [settle]
 *   FAILED     -> REGISTERED  a client loaded it again before we saw it FAILED  [follow]
 *   any of them -> UNLOADING  the database says so: a client asked             [follow]
 *   UNLOADING  -> UNLOADED  no connected executor holds it any more      [settle_unload]
 *   UNLOADING, UNLOADED -> REGISTERED  a client asked for it again              [follow]
 *
 * homes.h says on which executors a version is loaded. A failure that may pass (out of
 * memory, a lost device; but not a quota) is retried, LOAD_TRIES times in all, with growing pauses.
 * A version that is UNLOADED or deleted, or whose model is, is unloaded everywhere and freed when
 * its last request has ended.
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

/* Answer to requests for a version that a client has unloaded. */
#define MODEL_UNLOADED_TEXT "the model version was unloaded; load it to use it again"

struct run;
struct shape;

/* As in its row. From FAILED on it is not loaded, from UNLOADING on it is unloaded. */
enum model_state {
#define X(name) MODEL_##name,
    SH_VERSION_UPLOADED(X, )
#undef X
        MODEL_N_STATES
};
extern const struct sh_life VERSION_LIFE; /* common/life.h */
/* Its state on one executor. */
enum model_phase {
    MODEL_ON_ABSENT,
#define X(name) MODEL_ON_##name,
    SH_PLACEMENT_STATES(X, )
#undef X
};

struct model_on {           /* one executor */
    enum model_phase phase; /* written by models__go() alone */
    uint32_t ready_at;      /* READY: in model.ready */
    uint32_t tries;
    int64_t retry_ns;        /* FAILED: try again then; 0: never */
    uint64_t resident_bytes; /* for predictions: includes what a sent run will bring */
    double link_share;       /* of the image's bytes go over the link: it may be packed; 0: all */
    uint64_t had_bytes;      /* of them, those that were there when the last copy was asked for */
    int64_t arrives_ns;      /* until then some are on their way; 0: none */
    int64_t unpack_ns;       /* the next run unpacks for so long what is packed of them */
    int64_t worker_ns;       /* so long a run may wait for a worker: EXEC_WAIT */
    bool is_on_disk;         /* some of the rest is not in the executor's host memory */
    bool pin_told;           /* MODEL_PIN was sent */
    bool is_urgent;          /* it was told that somebody waits; UNLOADING: has to be told */
    bool is_aside;           /* put aside, about to be, or on its way back (room.h) */
    bool waits_for_room;     /* FAILED: others are leaving for it */
    bool was_here;           /* it has been READY there; what that left may still be there */
    int64_t began_ns;        /* LOADING since then */
    int64_t ready_ns;        /* READY since then */
    int64_t ahead_ns;        /* not brought before this, unless somebody asks: ahead.h */
    struct model_step {      /* LOADING: as of MODEL_STATE */
        char step[16];
        uint32_t done, total;
        int64_t left_ns, at_ns; /* at_ns: when estimated; left_ns < 0: unknown */
    } step;
    struct model_place { /* what report.c writes */
        uint64_t device_bytes, host_bytes, disk_bytes;
        enum msg_pin pin;
        int64_t last_use_ms; /* wall clock; 0: none */
    } place;
    uint64_t shared_bytes; /* of place.host_bytes; as in MODEL_PLACE */
    struct model_shown {   /* as in the database */
        enum model_phase phase;
        struct model_place place;
        bool is_shut;
    } shown;
};

struct model { /* one version */
    int64_t version_id, model_id, tenant_id;
    char tenant[64], name[JOB_NAME_BYTES + 1], precision[8];
    char *package; /* OWNED: absolute path */
    uint32_t version, max_batch;
    bool is_solo; /* its requests are not batched together */
    enum model_state state;
    uint64_t image_bytes;
    uint64_t stored_bytes; /* of the image in host memory, where it was loaded last; 0: unknown */
    uint64_t host_bytes;   /* with programs, as far as known */
    int64_t slo_ns;        /* 0: none */
    double slo_percentile;
    int32_t slo_priority;
    bool pinned;
    enum snap_on_miss on_miss;
    struct predict predict; /* runs of all shapes */
    struct shape *shapes;   /* OWNED: shapes.h */
    size_t n_shapes;
    struct sh_sizes *warm; /* OWNED: sizes to compile before somebody asks */
    size_t n_warm;
    int64_t refused_ns;     /* as in snapshot.h */
    int64_t copied_ns;      /* the same */
    int64_t asked_ns;       /* when somebody last asked for it */
    uint64_t n_runs_shown;  /* predict.n_runs as last shown: report.c */
    uint64_t n_runs_before; /* under earlier leaders */
    struct model_told {     /* what APIs were told: serving.c */
        enum msg_up state;
        struct model_step step;
    } told;
    struct place_version lives; /* homes.h */
    struct place_demand demand;
    double unit_ns;      /* a run of one sample, on a device of speed 1; 0: not known */
    int64_t load_ns;     /* the last load took so long; 0: none yet */
    uint64_t need_bytes; /* of device memory, where it had too little; 0: nowhere */
    uint32_t n_failed;   /* executors that cannot load it; HOMES_MAX_FAILED: no other is tried */
    struct model_on *on; /* OWNED: by executor, rows as execs.cap */
    /* OWNED, as many: connected executors on which it is READY; all of it is on the device of the
     * first n_resident of them, or on its way */
    uint32_t *ready;
    uint32_t n_ready, n_resident;
    uint32_t n_failed_on;                          /* executors on which it is FAILED */
    struct msg_profile profile[PREDICT_N_BUCKETS]; /* as the last executor measured it */
    size_t n_profile;
    int fail_rc;      /* reason of the last failure */
    int64_t again_ns; /* when models_load_again() last retried */
    char fail_msg[512];
    uint32_t n_requests, n_runs;
    uint32_t n_waiting; /* all versions of the model together; models.c */
    bool gone;
    uint64_t seen_poll;
    uint32_t snap;          /* index in the current pass's snapshot; pass.c */
    uint32_t next_ready;    /* pass_requests.c looks for a place from there on, and ... */
    uint32_t next_resident; /* ... from there among those that hold it */
    size_t index;
};

struct models {
    struct model **items; /* OWNED */
    size_t n, cap;
    struct idmap by_id;
    bool changed;      /* serving_tell() may have something to tell */
    bool ahead_is_due; /* ahead_tick() has something to look at */
    bool fits_changed; /* what models_has_failed_on() says; jobs_sync() takes it back */
    struct msg_serving told;
    struct placement placement; /* homes.h */
    int64_t began_ns;           /* this leader began then */
};

void models_fini(struct sched *s);
struct model *models_find(const struct models *m, int64_t version_id); /* NULL if unknown */
int models_merge(struct sched *s, const struct store_view *v, struct sh_err *err);
void models_on_state(struct sched *s, struct exec *e, const struct msg_model_state *m);
void models_on_place(struct sched *s, struct exec *e, const struct msg_model_place *m);
/* What each byte of m that e has to read from disk takes; 0: host memory has them. */
double models_disk_ns(const struct model *m, const struct exec *e);
/* Until what is missing of m would be on e's device, were nothing else on its way. */
int64_t models_copy_ns(const struct model *m, const struct exec *e);
void models_load_missing(struct sched *s); /* decides where versions live, and loads them there */
/* For good: nothing will run it there before somebody loads it again. */
bool models_has_failed_on(const struct model *m, uint32_t exec);
/* There will be up to n executors. Fails: SH_E_NOMEM; tables that grew stay longer. */
int models_grow(struct sched *s, size_t n, struct sh_err *err);
void models_on_exec_lost(struct sched *s, struct exec *e); /* no request is placed there */
void models_forget_exec(struct sched *s, uint32_t exec_index);
void models_second(struct sched *s); /* retries, gauges */
/* Somebody asks for a version (its id, as text) that executors failed to load, or will retry later:
 * they retry at once. At most once a second for each version. */
void models_load_again(struct sched *s, const char *version_id);
/* ready.c. It is in the list of those on which it is READY, or no more. */
void models__list(struct model *m, uint32_t exec, bool is_ready);
/* So many bytes of it are on that executor's device, or on their way. */
void models_hold(struct model *m, uint32_t exec, uint64_t bytes);
/* What e lacks of m will be copied, after the copies already under way. */
void models_expect(struct model *m, struct exec *e, int64_t now_ns);
/* The same before somebody asks for it: no other copy waits for this one. */
void models_expect_ahead(struct model *m, struct exec *e, int64_t now_ns);
/* How long a run that is sent now unpacks what e has packed; 0 behind another one of m. */
int64_t models_unpack_ns(const struct model *m, const struct exec *e);
void models_set_unpacking(struct model *m, const struct exec *e, int64_t ns); /* as e says */
/* Were some of its weights there before the rest was asked for? */
bool models_had_some(const struct model_on *on, int64_t now_ns);
void models_release(struct sched *s, struct model *m); /* frees it if it is gone and unused */
/* profile.c. [{"batch":1,"compute_ns":1234.5,"tail_ns":99.5}, ...]: OWNED; NULL when there is none,
 * or no memory. */
char *models__profile_json(const struct model *m);
void models__read_profile(struct model *m, const char *text); /* text NULL: none */
/* For room.c: send MODEL_LOAD, MODEL_UNLOAD. */
void models__load(struct sched *s, struct model *m, struct exec *e);
/* The only writer of the phase, and so of fits_changed, but where retry_ns alone changes. reset:
 * forgets all else but what the database has. */
void models__go(struct sched *s, struct model *m, uint32_t exec, enum model_phase to);
void models__reset(struct sched *s, struct model *m, uint32_t exec, enum model_phase to);
void models__leave(struct sched *s, struct model *m, struct exec *e);

#endif
