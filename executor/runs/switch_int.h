/* switch_int.h - shared by switch.c (the state machine), run.c (runs and reports), room.c (their
 * memory), rivalry.c (whether training keeps its own) and parts.c. */
#ifndef SH_EXECUTOR_RUNS_SWITCH_INT_H
#define SH_EXECUTOR_RUNS_SWITCH_INT_H

#include "executor/memory/tenure.h"
#include "executor/runs/switch.h"

#define RUN_MAX_SPANS 256u /* inputs or outputs of a part */

enum run_phase { RUN_QUEUED, RUN_MEMORY, RUN_SEND, RUN_ACTIVE, RUN_N_PHASES };

struct run {
    struct run *next;
    struct switcher *sw;
    uint64_t id, n_ups;  /* n_ups: of the uplink, when it came */
    uint64_t turn;       /* of its worker */
    struct model *model; /* n_users counts this run */
    struct model
        *shape;    /* what a worker runs: the model, or one of its shapes; its n_users counts too */
    char *tenant;  /* OWNED; of its first request */
    bool is_mixed; /* others are of other tenants: nothing may be left in its memory, for either */
    uint32_t batch, tag;
    struct run_part *parts;
    size_t n_parts;   /* those that run together; batch is their sum */
    size_t n_rest;    /* those behind them in the array, which run later, one at a time */
    bool is_alone;    /* its parts run one at a time */
    int64_t spent_ns; /* device time, for the whole run and for parts that are done */
    int64_t held_ns;  /* internal run: how long it has had the device */
    int64_t sample;   /* current sample of an internal run split into samples; else -1 */
    int64_t recv_ns, deadline_ns, start_ns;
    int64_t memory_ns; /* when it got its memory */
    int64_t sent_ns;   /* when it went to its present worker */
    enum run_phase phase;
    uint32_t n_attempts;

    struct space_range ws;
    uint64_t ws_bytes; /* requested size of ws */
    bool has_ws, has_pin;
    bool has_apart;        /* it holds the packed copy of the image, too */
    bool has_inputs;       /* inputs.c sent them */
    uint64_t hit_bytes;    /* bytes of the image found on the device ... */
    uint64_t run_bytes;    /* ... of those that it needs there */
    uint64_t copied_bytes; /* over the link, for it */
    bool is_from_disk;     /* host memory lacked some of the rest */
    bool is_from_sibling;  /* some of the rest came from another image on the device */
    bool has_stopped;      /* training had the device when it was this run's turn */
    bool is_cold; /* some of the image was under way, or packed, when the worker got the run */
    struct worker *worker;
    enum stop_way way; /* what training was last asked for */
    bool has_asked, is_forced;
    bool is_packed;  /* its worker was told to unpack weights */
    bool is_overdue; /* its worker was killed because it took too long */

    bool is_own;     /* internal (switch_submit): no API or scheduler waits for it */
    run_done_fn *fn; /* of an internal run; NULL: withdrawn */
    void *arg;
    uint64_t n_passed; /* runs that overtook an internal one since its submission */
};

struct loose_parts { /* zeroed: none */
    struct loose *first;
    size_t n;
    uint64_t short_of; /* the last run of which a part could not be kept */
};

struct switcher {
    struct switch_env env;
    struct switch_rival rival;
    struct tenure tenure;
    struct switch_wish wish; /* of the rival, as of the last look */
    struct run *current;
    struct run *queue, **tail;
    size_t n_queued;
    struct loose_parts loose;
    struct sh_timer *tick;
    uint64_t n_started;
    uint32_t inputs_ticket;           /* last ticket value of TX_SLOT_INPUTS */
    uint32_t n_inputs_loose;          /* input copies under way that no ticket covers */
    int64_t own_start_ns, own_end_ns; /* of the last internal run; 0: none since a request's run */
};

extern const struct sh_life RUN_LIFE;
void run__go(struct run *r, enum run_phase to); /* a step of the diagram in switch.h */
/* Sets what it runs, once; both n_users count it from here on. */
void run__use(struct run *r, struct model *version, struct model *shape);
void run__give_back(struct run *r); /* gives back its workspace and its hold on the image */
void run__free(struct run *r);      /* with all that it holds */
/* What it held since it was last asked: its tenants pay for gpu_ns of it, or its job for all. */
void run__bill(struct run *r, int64_t gpu_ns);
/* Tells all who wait: APIs, scheduler or fn. why->rc 0: it succeeded. */
void run__report(struct run *r, const struct sh_err *why, const struct msg_wk_run_done *done);
/* Removes the parts that match (0: any) and corrects the batch. Requests of two APIs may have one
 * rid. Each of their APIs gets a RESULT; with rid 0, api_id is gone and gets none. */
void run__drop_parts(struct run *r, uint64_t rid, uint64_t api_id);
/* Likewise of the current run, whose memory a worker may be using: they are answered at its end. */
void run__cancel_parts(struct run *r, uint64_t rid, uint64_t api_id);
bool run__is_wanted(const struct run *r); /* somebody waits for what runs now */
void run__free_part(struct run_part *p);
/* The worker's report, with its times limited to what is possible (between start and now): tenants
 * pay by them, and a worker that has been taken over may say anything. */
struct msg_wk_run_done run__believed(const struct run *r, const struct msg_wk_run_done *said);
void run__note_failed(struct run_part *p, const struct msg_wk_part_failed *m);
/* After a failure that one part may have caused, by its data or through its worker: reports the
 * failed parts, keeps the first remaining part to run alone, and leaves the others for their turn.
 * False: the run cannot be divided (again), so the failure is its own. */
bool run__divide(struct run *r, const struct sh_err *why, const struct msg_wk_run_done *done);
/* The current part of a divided run succeeded or failed by itself: tells its API and takes the
 * next. done: NULL if its worker died. False: that was the last part, which is still there, or the
 * failure ends an internal run. */
bool run__next_part(struct run *r, const struct sh_err *why, const struct msg_wk_run_done *done);

/* room.c */
/* Its row of what it runs; NULL: no worker has compiled that batch size. */
const struct msg_batch *room__batch(const struct run *r);
/* Takes what it needs. The pieces that are free may be too small although there is enough: then
 * some of its image is better copied again elsewhere than that training loses its step. What was
 * only prepared goes before training gives up anything. What fits in no way takes nothing from any
 * image. Fails, by the last try: SH_E_DEVMEM, SH_E_UNAVAILABLE, SH_E_NOMEM, SH_E_INVALID. */
int room__take(struct run *r, struct sh_err *err);
/* The least that training must give up so that there is room for it. What it lacks of its image
 * would go behind what is on the lane in any case, so it waits for images that arrive before that:
 * PAUSE if they alone are in its way. */
enum stop_way room__way(const struct run *r);

/* rivalry.c */
void rivalry__begin(struct switcher *sw, int64_t now); /* a run has become the current one */
void rivalry__end(struct switcher *sw);                /* none is any more */
void rivalry__look(struct switcher *sw, int64_t now);  /* at each tick */
void rivalry__pay(struct run *r); /* it was sent: what images would have been there for it? */
void rivalry__lose(struct switcher *sw); /* training gives up its step for a run */
/* Training is held off and stands, but has stopped within an update: it has to finish that before
 * its workspace is free. Then a run whose image is not here waits for that. */
bool rivalry__waits_for_drop(const struct run *r);

/* parts.c */
/* Fails: SH_E_NOMEM, SH_E_QUEUEFULL, SH_E_PROTO: nobody else answers its API. */
int parts__add(struct loose_parts *ls, const struct msg_run_part *m, struct sh_err *err);
/* Any part of this run that was not collected: *out is the caller's. False: there is none. */
bool parts__take(struct loose_parts *ls, uint64_t run_id, struct run_part *out);
/* Moves the parts of r->id into r, in order of arrival. Fails if there are not n: r has those. */
int parts__collect(struct loose_parts *ls, struct run *r, uint32_t n, struct sh_err *err);
void parts__expire(struct loose_parts *ls, int64_t before_ns); /* frees parts that came earlier */

#endif
