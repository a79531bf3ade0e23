/* switch_int.h - between switch.c (the state machine), run.c (runs and reports) and parts.c. */
#ifndef SH_EXECUTOR_RUNS_SWITCH_INT_H
#define SH_EXECUTOR_RUNS_SWITCH_INT_H

#include "executor/runs/switch.h"

#define RUN_MAX_SPANS 256u /* of a part, inputs or outputs */

enum run_phase { RUN_QUEUED, RUN_MEMORY, RUN_SEND, RUN_ACTIVE, RUN_N_PHASES };

struct run {
    struct run *next;
    struct switcher *sw;
    uint64_t id;
    struct model *model; /* n_users counts this run */
    struct model
        *shape;   /* what a worker runs: the model, or a shape of it, whose n_users does too */
    char *tenant; /* OWNED */
    uint32_t batch, tag;
    struct run_part *parts;
    size_t n_parts;   /* that run together; batch: sum over these */
    size_t n_rest;    /* behind them in the array: their turn comes, one at a time */
    bool is_alone;    /* its parts run one at a time */
    int64_t spent_ns; /* on the device, for it as a whole and for parts that are done */
    int64_t sample;   /* of an own run that fell into samples: the present one; else -1 */
    int64_t recv_ns, deadline_ns, start_ns;
    int64_t memory_ns; /* it got its memory */
    int64_t sent_ns;   /* to the worker that has it now */
    enum run_phase phase;
    uint32_t n_attempts;

    struct space_range ws;
    uint64_t ws_bytes; /* of ws, as asked for */
    bool has_ws, has_pin;
    bool has_inputs;    /* inputs.c sent them */
    uint64_t hit_bytes; /* of the image, found on the device */
    bool is_cold;       /* some of it was still on its way when the worker was told */
    struct worker *worker;
    enum stop_way way; /* asked of training so far */
    bool has_asked, is_forced;
    bool is_overdue; /* its worker was killed for it */

    bool is_own;     /* switch_submit: no API and no scheduler waits for it */
    run_done_fn *fn; /* of an own run; NULL: withdrawn */
    void *arg;
    uint64_t n_passed; /* runs that had the device before an own one, from its submission on */
};

struct loose_parts { /* zeroed: none */
    struct loose *first;
    size_t n;
};

struct switcher {
    struct switch_env env;
    struct switch_rival rival;
    struct run *current;
    struct run *queue, **tail;
    size_t n_queued;
    struct loose_parts loose;
    struct sh_timer *tick;
    uint64_t n_started;
    uint32_t inputs_ticket;           /* last value of TX_SLOT_INPUTS */
    uint32_t n_inputs_loose;          /* on their way, and no ticket says when they have come */
    int64_t own_start_ns, own_end_ns; /* of the last own run; 0: none since a request's */
};

extern const struct sh_life RUN_LIFE;
void run__go(struct run *r, enum run_phase to); /* by the diagram in switch.h */
/* What it runs, once; n_users count it from here on. */
void run__use(struct run *r, struct model *version, struct model *shape);
void run__give_back(struct run *r); /* its workspace, and its hold on the image */
void run__free(struct run *r);      /* gives back what it holds */
/* Tells all who wait: API, scheduler or fn. why->rc = 0: done. */
void run__report(struct run *r, const struct sh_err *why, const struct msg_wk_run_done *done);
/* Removes the parts that match (0 = any); keeps the batch right. Their APIs get a RESULT each, but
 * for an API that is named here: it is gone. */
void run__drop_parts(struct run *r, uint64_t rid, uint64_t api_id);
void run__free_part(struct run_part *p);
/* What its worker said, with times that can be: between its start and now. Tenants pay by them, and
 * a worker that somebody has taken over says what it likes. */
struct msg_wk_run_done run__believed(const struct run *r, const struct msg_wk_run_done *said);
void run__note_failed(struct run_part *p, const struct msg_wk_part_failed *m);
/* After a failure that may be one part's, of its data or of its worker: what is left to run now is
 * the first part of it alone, the others come in their turn, and the failed ones have been told.
 * False: it cannot be divided (or was already), so the failure is its own. */
bool run__divide(struct run *r, const struct sh_err *why, const struct msg_wk_run_done *done);
/* The present part of a divided run is done or has failed by itself: tells its API and takes the
 * next. done is NULL when its worker died. False: that was the last one, which is still there, or
 * it is a failure that ends an own run. */
bool run__next_part(struct run *r, const struct sh_err *why, const struct msg_wk_run_done *done);

/* parts.c */
void parts__add(struct loose_parts *ls, const struct msg_run_part *m);
/* Moves those of r->id into it, in the order they came. Fails if it is not `n`: r has what came. */
int parts__collect(struct loose_parts *ls, struct run *r, uint32_t n, struct sh_err *err);
void parts__expire(struct loose_parts *ls, int64_t before_ns); /* frees what came before */

#endif
