/* request.h - synchronous requests, from INFER_OPEN to the end of their run.
 *
 *   (new)  -> OPEN     within the limits; the body is on its way     [requests_on_open]
 *   OPEN   -> READY    the body is complete                          [requests_on_ready]
 *   READY  -> RUNNING  part of a run                                 [requests_run]
 *   OPEN, READY -> end refused or expired                            [requests_refuse]
 *   OPEN, READY -> end cancelled                                     [requests_on_cancel]
 *   RUNNING -> end     RUN_DONE, with no INFER_AGAIN before it       [requests_on_run_done]
 *   RUNNING -> READY   RUN_DONE after INFER_AGAIN: the result is lost
 *   RUNNING -> LOST    its executor is gone                          [requests_on_exec_lost]
 *   LOST -> READY      the API has not got its result either         [requests_on_again]
 *   LOST -> end        the API does not say so, or it was lost before
 *
 * OPEN and READY requests wait (waiting.h); a pass places them on an executor (exec is then set).
 * The executor sends the result straight to the API; we only learn that the run is over. If its
 * API is gone, a request has api == NULL and ends with its run. So only the API knows whether the
 * result of a lost run has arrived. If not, it sends INFER_AGAIN, and keeps the payload reserved
 * until no process can still write to it.
 *
 * Limits, which include running requests: --max-requests in all, --max-model-requests for a model
 * version, the quota's max_concurrent_requests for a tenant.
 */
#ifndef SH_SCHEDULER_PASS_REQUEST_H
#define SH_SCHEDULER_PASS_REQUEST_H

#include "common/due.h"
#include "common/idmap.h"
#include "common/msg.h"
#include "common/units.h"
#include "scheduler/pass/waiting.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sched;
struct api;
struct decision;
struct exec;
struct model;
struct shape;
struct tenant;

#define REQUEST_DOUBT_NS SH_S(2) /* between two words that an executor is gone */

enum request_state { REQUEST_OPEN, REQUEST_READY, REQUEST_RUNNING, REQUEST_LOST, REQUEST_N_STATES };
extern const struct sh_life REQUEST_LIFE; /* common/life.h */

struct request {
    uint64_t rid;
    struct api *api; /* NULL when it is gone */
    uint64_t api_id;
    struct tenant *tenant;
    struct model *model; /* counted in model->n_requests */
    struct shape
        *shape;     /* READY: counts this request; NULL: the model's file leaves no sizes open */
    bool has_sizes; /* OPEN: it will have a shape, still unknown */
    bool waits_for_shape;
    int64_t compile_ns; /* how long it waited for its shape; 0: not at all */
    struct exec *exec;  /* where it is placed; NULL: nowhere yet */
    struct run *run;    /* RUNNING */
    enum request_state state;
    bool cancelled; /* the executor was told */
    bool again;     /* the API said INFER_AGAIN */
    bool asked;     /* ... of no placement: the result may be lost */
    bool is_modest; /* as in snapshot.h, when it came */
    uint32_t n_lost, n_placed;
    uint32_t n_asked;    /* samples, of those that count in what is asked of executors */
    int64_t doubt_ns;    /* when we or the API first noticed that its executor is gone; 0: not */
    bool promised;       /* as in snapshot.h */
    int waits;           /* as in snapshot.h */
    int64_t promised_ns; /* the limit that it was promised, wherever; 0: none, or it was counted */
    uint32_t batch;
    int32_t priority;
    int64_t turn_ns;               /* as in snapshot.h */
    int64_t turn_cost_ns;          /* by which it moved its tenant's turn on */
    int64_t open_ns, ready_ns;     /* open: when its headers arrived, by the API's word */
    int64_t deadline_ns, limit_ns; /* as in snapshot.h */
    int64_t let_in_ns;             /* as in snapshot.h */
    int64_t expires_ns;            /* the API gives up then, and so do we */
    int64_t predicted_ms;          /* if it is refused for that; else 0 */
    struct msg_span *spans;        /* OWNED: inputs, then outputs */
    size_t n_in, n_out;
    struct sh_due due; /* requests.timed: requests_expire() looks at it then */
    size_t index;
    struct exec_requests *list; /* it waits in; NULL: it does not. waiting.h */
    struct request *before, *behind;
};

struct run {
    uint64_t id;
    struct exec *exec;
    struct model *model;
    struct shape *shape; /* NULL: none */
    struct tenant *tenant;
    struct request **parts; /* OWNED array */
    size_t n_parts;
    uint32_t batch;
    int64_t sent_ns, predicted_ns, forecast_ns, slack_ns; /* as decide() predicted */
    enum predict_kind kind;
    unsigned before; /* predict_before() */
    bool stopped_training;
    struct run *next; /* next of the same executor, younger */
};

struct requests {
    struct request **items; /* OWNED */
    size_t n, cap;
    struct sh_tree timed; /* by when their time is over, or a doubt */
    struct waiting waiting;
    struct idmap runs;
    uint64_t last_run, last_serial;
    int64_t turn_ns; /* of the last one that was sent to an executor: virtual time */
};

void requests_fini(struct sched *s);

void requests_on_open(struct sched *s, struct api *a, const struct msg_infer_open *m);
void requests_on_ready(struct sched *s, struct api *a, const struct msg_infer_ready *m);
void requests_on_cancel(struct sched *s, struct api *a, uint64_t rid);
void requests_on_again(struct sched *s, struct api *a, const struct msg_infer_again *m);
void requests_on_run_done(struct sched *s, struct exec *e, const struct msg_run_done *m);
void requests_on_api_lost(struct sched *s, struct api *a);
void requests_on_exec_lost(struct sched *s, struct exec *e);
void requests_on_exec_stopping(struct sched *s, struct exec *e); /* what runs there goes on */
/* Refuses the waiting requests of m; running ones go on. */
void requests_on_model_away(struct sched *s, struct model *m, int rc, const char *why);
/* No executor can compile the shape: refuses the requests that wait for it. */
void requests_on_shape_away(struct sched *s, const struct shape *h);
/* What waits at e for m, or for that shape of it, is placed anew. h: NULL: whatever its shape. */
void requests_on_unready(struct sched *s, struct exec *e, const struct model *m,
                         const struct shape *h);
/* Is it READY, with its shape compiled, so that a pass may look at it? */
bool requests_has_shape(struct sched *s, struct request *r);
void requests_expire(struct sched *s, int64_t now_ns);
bool requests_are_timed(const struct sched *s); /* for tests: is each where its time says? */
/* Refuses all requests, to every API, when the scheduler stands down. */
void requests_refuse_all(struct sched *s, const char *why);

/* For the pass. Tells the API where the payload goes, and the executor what to copy. For a request
 * that is placed already: tells that it has a promise. A probe loses its limit. */
void requests_place(struct sched *s, struct request *r, struct exec *e, bool is_probe);
/* Has the weights copied to e, for the requests that follow a refused one. */
void requests_bring(struct sched *s, const struct request *r, struct exec *e);
/* rule: docs/rules.md; frees r */
void requests_refuse_by(struct sched *s, struct request *r, const char *rule, int rc,
                        int64_t retry_after_ms, const char *msg);
static inline void requests_refuse(struct sched *s, struct request *r, int rc,
                                   int64_t retry_after_ms, const char *msg)
{
    requests_refuse_by(s, r, sh_rc_name(rc), rc, retry_after_ms, msg);
}
/* parts: READY requests of one model, placed on e. Fails: SH_E_NOMEM; they then stay
 * READY. */
int requests_run(struct sched *s, struct exec *e, struct request *const *parts, size_t n,
                 const struct decision *d, struct sh_err *err);

/* request_due.c, for request.c. State, time or doubt of r have changed. */
void requests__set_due(struct sched *s, struct request *r);
void requests__never_due(struct sched *s, struct request *r);
struct request *requests__first_due(const struct sched *s, int64_t now_ns); /* NULL: none is */

/* request_learn.c, for request.c. Learns from a run that went well. */
void requests__learn(struct exec *e, const struct run *run, const struct msg_run_done *m,
                     int64_t now);
/* Metrics of a run that is sent. */
void requests__note_sent(const struct run *run, int64_t now);
/* Charges a finished run's device time to its tenants, by their samples. */
void requests__charge(struct sched *s, const struct run *run, int64_t gpu_ns);
/* Of a time that an executor says: what can be added up. */
int64_t requests__span(int64_t ns);

#endif
