/* serve.h - GPUs in virtual time, on which a policy answers the requests of a trace.
 *
 * Each GPU computes one run at a time, and has one link over which images come from host memory,
 * one after the other, while it computes. The caller says how large a model is and how long its
 * layers take; a run takes that time give or take 2 %, one of a hundred a fifth more, the same ones
 * for every policy; or as much longer or shorter as runs that were measured. Messages take no time.
 * While a GPU has no run it may train.
 */
#ifndef SH_SIMULATE_SERVE_H
#define SH_SIMULATE_SERVE_H

#include "common/units.h"
#include "scheduler/database/store_view.h"
#include "scheduler/decide/conf.h"
#include "scheduler/decide/snapshot.h"
#include "simulate/queue.h"
#include "simulate/trace.h"

#define SERVE_NONE UINT32_MAX
#define SERVE_MAX_BATCH 64u
#define SERVE_MAX_LAYERS 64u
#define SERVE_BLOCK (2u << 20)
#define SERVE_BASE_NS SH_S(1) /* of the clock of policies at time 0 */

struct serve_model {                       /* the caller sets all but run_ns and asked */
    uint64_t layer_ends[SERVE_MAX_LAYERS]; /* of the image, bytes */
    int64_t layer_ns[SERVE_MAX_LAYERS];    /* with one sample */
    uint32_t n_layers, max_batch;
    double times[SERVE_MAX_BATCH + 1]; /* by samples, of the layers' */
    int64_t slo_ns;                    /* latency target; 0: none */
    /* Measured runs, over what they usually take. None: see above. */
    double factors[PREDICT_RING];
    uint32_t n_factors;
    int64_t over_ns; /* of one that waits for weights; may be below 0 */
    int64_t run_ns[SERVE_MAX_BATCH + 1];
    double asked; /* requests a second in this trace */
};

struct serve_place {     /* a GPU */
    uint64_t pool_bytes; /* for images and the workspace of a run */
    uint64_t workspace;  /* that a run takes until it ends, for SERVE_OURS */
    double ns_per_byte;  /* of its link */
    int64_t stop_ns;     /* until training has stopped; 0: as the conf says */
    bool has_no_job;     /* it does not train */
    /* What its training takes of the pool, for SERVE_OURS: state, workspace. 0: as if nothing. */
    uint64_t state_bytes, train_bytes;
    int64_t weight;  /* executor's --request-weight */
    int64_t step_ns; /* of a step of it; what is dropped of one is lost */
};

struct serve_end {            /* what became of a request */
    int64_t begun_ns, end_ns; /* < 0: never */
    double device_ns;         /* its part of the run */
    const char *rule;         /* BORROWED: behind its refusal (docs/rules.md); NULL: none */
};

struct serve_system {                   /* one as it is, for SERVE_OURS; by model, tenant or GPU */
    const struct sched_conf *options;   /* those of SCHED_DECIDES_BY */
    const struct store_tenant *tenants; /* of the trace */
    const struct store_model *rows;
    const struct predict *learnt; /* as of SERVE_BASE_NS */
    const bool *homes;            /* [gpu * models + model]: it is loaded there ... */
    const uint64_t *resident;     /* ... with so many bytes on the device */
    int64_t load_ns;              /* until a version is ready at a new home */
};

enum serve_copy {
    SERVE_PIPELINED, /* a layer runs as soon as it and those before it are there */
    SERVE_WHOLE      /* a run begins when all of the image is there */
};

struct gpu {
    /* The present run; n = 0: none. */
    uint32_t model, first, n;
    int64_t begun_ns, compute_ns, copied_ns;
    uint64_t copied;
    bool was_cold;
    uint32_t last_model; /* of the last run */
    int64_t lane_ns;     /* the link is busy until then */
    int64_t idle_ns;     /* no run since then */
    int64_t trained_ns, stop_ns;
    bool may_train;
    bool is_held_off; /* it has not the memory to train */
    int64_t back_ns;  /* what it had trained when it was last held off no more */
    /* What is on the device, for policies that keep whole images. */
    bool *has; /* OWNED; by model */
    int64_t *used_ns, *arrives_ns;
    uint64_t held, room;
    double ns_per_byte;
};

struct serve_conf {
    uint32_t n_gpus;
    const struct serve_place *places; /* BORROWED; by GPU */
    int64_t latency_ns;               /* of a copy, however small */
    int64_t stop_ns, resume_ns;       /* training: until it has stopped; until it goes on */
    int64_t process_ns;               /* stop-and-start: a new process */
    double train_part;                /* static partition: GPUs set apart for training */
    int64_t from_ns;                  /* what comes before is not counted: devices are filled */
    uint64_t most_missed; /* the replay ends when more are late or refused; 0: it goes on */
    double most_cpu_s;    /* ... and when it has taken so long; 0: it goes on */
    const struct serve_system *system; /* BORROWED; NULL: every model is on every GPU */
    struct serve_end *ends;            /* BORROWED: filled, by request; NULL: nobody asks */
};

struct serve {
    const struct trace_requests *trace;
    struct serve_conf conf;
    struct serve_model *models; /* BORROWED */
    size_t n_models;
    struct gpu *gpus;        /* OWNED */
    uint32_t *next;          /* OWNED; by request: lists of policies and of runs */
    int64_t *end_ns;         /* OWNED; by request; < 0: refused or not ended */
    int64_t now_ns, last_ns; /* last_ns: the last arrival */
    struct queue events;
    uint64_t bytes, n_switches, n_runs, n_samples, n_missed;
    int64_t run_ns; /* of all GPUs */
    uint64_t seed, digest;
    double began_s; /* processor time */
    bool by_clock;  /* of serve_result */
    int rc;
    struct sh_err err;
};

struct serve_policy {
    const char *name;
    bool trains;
    void *(*create)(struct serve *s); /* NULL: see s->err */
    void (*destroy)(void *p);
    void (*arrived)(void *p, uint32_t request);
    void (*idle)(void *p, uint32_t gpu);  /* its run has ended */
    void (*timer)(void *p, uint32_t arg); /* serve_timer() asked for it; NULL: never does */
};

struct serve_result { /* from conf.from_ns until the last arrival; of requests that came then */
    double attained;  /* answered within the SLO, of all */
    double refused, p50_ms, p99_ms; /* p50, p99: of those answered */
    double trained, busy;           /* of all GPU time: training; runs, with waits for copies */
    double mean_batch;
    double switches_s, gb_s; /* a second of all GPUs */
    uint64_t digest;
    double cpu_s;
    bool by_clock; /* it ended at most_cpu_s, which depends on the machine */
};

extern const struct serve_policy SERVE_OURS, SERVE_PIPESWITCH, SERVE_TRITON, SERVE_CLOCKWORK,
    SERVE_STATIC, SERVE_STOP_START;

/* models: by number in the trace. */
int serve_replay(const struct trace_requests *t, struct serve_model *models,
                 const struct serve_policy *p, const struct serve_conf *conf,
                 struct serve_result *out, struct sh_err *err);

/* ------------------------------------------------------------------ for policies */

void serve_timer(struct serve *s, int64_t at_ns, uint32_t arg);
void serve_refuse(struct serve *s, uint32_t request);
/* Puts a copy of so many bytes on the link. Returns when it is there. */
int64_t serve_copy(struct serve *s, uint32_t g, uint64_t bytes);
/* Begins a run of the requests first, next[first], ... : n of them. The missing bytes of the image
 * (its tail) are there at arrives_ns. extra_ns: more time before it. */
void serve_begin(struct serve *s, uint32_t g, uint32_t first, uint32_t n, enum serve_copy how,
                 uint64_t missing, int64_t arrives_ns, int64_t extra_ns);
/* Training has no workspace from now on, or has one again. most_lost_ns: so much at most of what it
 * has done since then is lost. */
void serve_hold_off(struct serve *s, uint32_t g, bool is_held_off, int64_t most_lost_ns);
int64_t serve_copy_ns(const struct serve *s, uint32_t g, uint64_t bytes);
uint64_t serve_image(const struct serve *s, uint32_t model);
uint32_t serve_samples(const struct serve *s, uint32_t request);

/* Whole images by least recent use: the model comes to g, and others leave for it, but not the one
 * that runs. Returns when all of it is there; INT64_MAX: it does not fit. gone: told of
 * each that leaves; or NULL. */
int64_t serve_bring(struct serve *s, uint32_t g, uint32_t model,
                    void (*gone)(void *ctx, uint32_t g, uint32_t model), void *ctx);

#endif
