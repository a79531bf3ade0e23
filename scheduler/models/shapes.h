/* shapes.h - a version whose file leaves sizes open (common/dim.h), for one list of sizes.
 *
 *   ABSENT  -> ASKED   SHAPE_LOAD went to an executor that has the version  [shapes_waits]
 *   ASKED   -> READY   SHAPE_STATE: compiled there                          [shapes_on_state]
 *   ASKED   -> FAILED  it cannot be compiled; its requests are refused      [shapes_on_state]
 *   READY   -> ABSENT  others took its place there, or the executor is gone
 *
 * Requests of one shape run together, those of different shapes never. While no executor has the
 * shape its requests stand aside: nothing was promised to them, no pass looks at them, and other
 * requests do not wait for them. Once it is there they are like others, except that the model's
 * latency target does not apply: only the client's own limit does. Predictions use runs of that
 * shape only. Up to SHAPES_MAX shapes of a version are remembered; the least recently requested go
 * first.
 */
#ifndef SH_SCHEDULER_MODELS_SHAPES_H
#define SH_SCHEDULER_MODELS_SHAPES_H

#include "common/dim.h"
#include "common/msg.h"
#include "scheduler/decide/predict.h"
#include "scheduler/peers/executors.h"

#include <stdbool.h>

#define SHAPES_MAX 128u
#define SHAPES_MAX_WARM 16u

struct sched;
struct exec;
struct model;

enum shape_phase { SHAPE_ABSENT, SHAPE_ASKED, SHAPE_READY, SHAPE_FAILED };

struct shape {
    struct shape *next; /* next of the same version */
    struct model *model;
    struct sh_sizes sizes;
    struct predict predict;
    struct shape_on {
        enum shape_phase phase;
        int64_t asked_ns;
        int64_t worker_ns; /* READY: so long a run may wait for a worker */
    } * on;                /* OWNED: by executor, rows as execs.cap */
    int rc;                /* reason of the last failure */
    char msg[512];
    uint32_t n_users; /* requests and runs */
    int64_t asked_ns; /* when somebody last asked for it */
    uint32_t snap;    /* index in the current pass's snapshot; pass.c */
};

/* The shape of the version with these sizes, found or created, with one more user. Fails:
 * SH_E_PROTO, SH_E_QUEUEFULL (all remembered shapes are in use), SH_E_NOMEM. */
int shapes_use(const struct sched *s, struct model *m, struct sh_blob sizes, struct shape **out,
               struct sh_err *err);
void shapes_release(struct shape *h); /* NULL is allowed */
/* Must its requests wait? Asks executors that have the version but not the shape. False if one has
 * both, and also if none has the version, which is handled elsewhere. */
bool shapes_waits(struct sched *s, struct shape *h);
/* True: no executor that has the version can compile the shape. */
bool shapes_cannot(const struct sched *s, const struct shape *h);
/* text: `warm` of struct store_model; malformed parts are ignored. Fails: SH_E_NOMEM. */
int shapes_read_warm(struct model *m, const char *text, struct sh_err *err);
/* e has the version: asks it to compile the warm shapes. */
void shapes_warm(struct sched *s, struct model *m, struct exec *e);
/* Of a version, or of one of its shapes. */
void shapes_on_wait(struct sched *s, const struct exec *e, const struct msg_exec_wait *msg);
void shapes_on_state(struct sched *s, struct exec *e, const struct msg_shape_state *m);
void shapes_forget_exec(struct model *m, uint32_t exec_index);
void shapes_free(struct model *m);

#endif
