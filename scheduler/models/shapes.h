/* shapes.h - a version whose file leaves sizes open (common/dim.h), for one list of sizes.
 *
 *   ABSENT  -> ASKED   SHAPE_LOAD went to an executor that has the version  [shapes_waits]
 *   ASKED   -> READY   SHAPE_STATE: compiled there                          [shapes_on_state]
 *   ASKED   -> FAILED  it cannot be; who waits for it is refused            [shapes_on_state]
 *   READY   -> ABSENT  others took its place there, or the executor is gone
 *
 * Requests of one shape run together, those of two never. While no executor has it, its requests
 * stand aside: nobody has promised them anything, so no pass looks at them, and other requests do
 * not wait for them. When it is there they are as others are, but for the target of the model, out
 * of their reach: only the client's own limit counts for them. How long it takes is predicted from
 * runs of that shape alone. Times of those that were not asked for the longest time are forgotten:
 * SHAPES_MAX of a version are remembered.
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
    struct shape *next; /* of the same version */
    struct model *model;
    struct sh_sizes sizes;
    struct predict predict;
    struct shape_on {
        enum shape_phase phase;
        int64_t asked_ns;
    } on[EXECS_MAX];
    int rc; /* of the last failure */
    char msg[512];
    uint32_t n_users; /* requests and runs */
    int64_t asked_ns; /* when somebody last asked for it */
    uint32_t snap;    /* index in the snapshot of the present pass; pass.c */
};

/* The shape of the version with these sizes, new or not, with one user more. Fails: SH_E_PROTO,
 * SH_E_QUEUEFULL (all that can be remembered are in use), SH_E_NOMEM. */
int shapes_use(struct model *m, struct sh_blob sizes, struct shape **out, struct sh_err *err);
void shapes_release(struct shape *h); /* NULL is allowed */
/* Is it to be waited for? Asks executors that have the version and not the shape. False where one
 * has both, and where none has the version: that is another matter. */
bool shapes_waits(struct sched *s, struct shape *h);
/* Can no executor that has the version have it? */
bool shapes_cannot(const struct sched *s, const struct shape *h);
/* text: of struct store_model. Fails: SH_E_NOMEM; what is not well formed is left out. */
int shapes_read_warm(struct model *m, const char *text, struct sh_err *err);
/* The executor has the version, and compiles its buckets. */
void shapes_warm(struct sched *s, struct model *m, struct exec *e);
void shapes_on_state(struct sched *s, struct exec *e, const struct msg_shape_state *m);
void shapes_forget_exec(struct model *m, uint32_t exec_index);
void shapes_free(struct model *m);

#endif
