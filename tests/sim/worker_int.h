/* worker_int.h - between worker.c (the process: messages, what comes when), worker_load.c,
 * worker_run.c, worker_unpack.c, worker_train.c and worker_lies.c. */
#ifndef SH_TESTS_SIM_WORKER_INT_H
#define SH_TESTS_SIM_WORKER_INT_H

#include "common/loop.h"
#include "common/msg.h"
#include "common/shm.h"
#include "common/units.h"
#include "common/wire.h"
#include "executor/pool/worker_ctl.h"
#include "tests/sim/content.h"
#include "tests/sim/device.h"
#include "tests/sim/worker.h"

#define WORKER_MAX_SLABS 64
#define WORKER_MAX_PARTS 256
#define WORKER_MAX_MODELS 256
#define WORKER_TICKET_NS SH_S(60)
#define NO_TICKET UINT32_MAX

struct worker_slab {
    uint64_t api_id;
    struct sh_shm shm;
};

struct worker_model {
    int64_t handle;
    int64_t of; /* a shape: of this version; else 0 */
    struct sim_package package;
    const struct sim_model *model;
    uint32_t n_sizes; /* that it is compiled for: the first of the profile's, and max_batch */
    uint32_t batch[SIM_MAX_SIZES + 1];
    uint64_t ws_bytes[SIM_MAX_SIZES + 1];
    double times[SIM_MAX_SIZES + 1];
    uint32_t size; /* of what the package leaves open; 0: nothing */
    /* Of a version: so many of its last layers are tables, ... */
    uint32_t n_tables;
    int tables_fd; /* OWNED: ... and what it reads them from; -1: nothing */
    uint64_t tables_at;
    bool has_lied; /* it said another number of them */
};

struct worker_part {
    uint64_t run_id, api_id;
    uint32_t batch;
    struct msg_span *in, *out; /* OWNED */
    size_t n_in, n_out;
    bool is_out; /* it cannot run, and has been told of */
};

struct worker_msg { /* that waits to be served */
    struct worker_msg *next;
    struct sh_buf frame; /* payload */
    uint16_t type;
    int fds[SH_WIRE_MAX_FDS];
    size_t n_fds;
};

struct worker_unpack { /* the packed layers of a run */
    const struct sim_package *package;
    const struct sim_model *model;
    uint64_t image_off, packed_at;
    uint64_t *link_ends; /* OWNED; NULL: none is packed */
    uint32_t at, to;     /* the first that is, and the one behind those asked for */
    uint32_t said;       /* of the calls before the present one */
    bool is_garbage, is_damaged, has_failed;
    sim_event_fn *fn;
};

struct loading;
struct worker_train;
struct worker_run;

struct sim_worker {
    struct sim_proc *proc;
    struct sh_loop *loop;
    struct sh_wire *wire;
    struct worker_msg *queue, **tail;
    struct worker_msg *now;             /* that is being handled: its views and descriptors */
    bool is_busy;                       /* an event of its own goes on with it */
    void (*then)(struct sim_worker *w); /* a load: its next piece, when nobody waits */
    struct sim_device *device;          /* NULL before WK_INIT */
    const struct sim_profile *profile;
    struct sh_shm ctl_shm;
    struct worker_ctl *ctl;
    uint32_t id, ckpt_slot, ckpt_value;
    size_t arena_bytes;
    bool is_queued;
    struct worker_slab slabs[WORKER_MAX_SLABS];
    size_t n_slabs;
    struct worker_model *models[WORKER_MAX_MODELS];
    size_t n_models;
    struct worker_part parts[WORKER_MAX_PARTS];
    size_t n_parts;
    struct loading *load; /* NULL: none */
    struct worker_run *run;
    struct worker_unpack *unpack; /* of the run, while it goes on */
    struct worker_train *train;
    uint64_t wait; /* number of the present wait for a ticket */
    sim_event_fn *waited;
    bool waited_long;
    struct sh_msg ended; /* the last end of a run or of steps that it has told of; type 0: none */
};

/* worker.c */
void worker__send(struct sim_worker *w, const struct sh_msg *m, const int *fds, size_t n_fds);
/* fn(w, n) a while later, unless it dies or stands still then. Shows a sign of life. */
void worker__after(struct sim_worker *w, int64_t ns, sim_event_fn *fn, uint64_t n);
/* fn(w, n): the ticket is there, or w->waited_long. NO_TICKET: at once. */
void worker__when(struct sim_worker *w, uint32_t slot, uint32_t value, sim_event_fn *fn);
/* What it was busy with is done: the next message. */
void worker__done(struct sim_worker *w);
void worker__begin_piece(struct sim_worker *w); /* of a load */
void worker__end_piece(struct sim_worker *w);
/* The piece of a load is done: who waits goes first, then `next`, which begins one. */
void worker__pause(struct sim_worker *w, void (*next)(struct sim_worker *w));
struct worker_slab *worker__slab(struct sim_worker *w, uint64_t api_id);
bool worker__fault(double chance); /* counted */
/* Who breaks the protocol here is the executor. */
#define WORKER_CHECK(cond, ...) SIM_CHECK("worker-protocol", cond, __VA_ARGS__)

/* worker_lies.c: m becomes something that is not so; what is said beside m: it, or what is of no
 * worker, or of no run. */
void worker__lie(struct sim_worker *w, struct sh_msg *m, size_t *n_fds);
struct sh_msg worker__stray(const struct sh_msg *m);
void worker__note_end(struct sim_worker *w, const struct sh_msg *m); /* it may say so again */

/* worker_load.c */
struct worker_model *worker__model(struct sim_worker *w, int64_t handle); /* NULL */
void worker__on_model(struct sim_worker *w, const struct msg_wk_model *m, const int *fds,
                      size_t n_fds);
void worker__drop_model(struct sim_worker *w, int64_t handle);
/* The version whose image it runs with. */
struct worker_model *worker__base(struct sim_worker *w, struct worker_model *m);
void worker__on_tables(struct sim_worker *w, const struct msg_wk_tables *m, const int *fds,
                       size_t n_fds);
/* What it reads of them in host memory is what its package has. */
void worker__check_tables(const struct worker_model *base);

/* worker_run.c */
void worker__on_part(struct sim_worker *w, const struct msg_wk_part *m);
void worker__on_run(struct sim_worker *w, const struct msg_wk_run *m);

/* worker_unpack.c */
void worker__begin_unpacking(struct worker_unpack *u, const struct worker_model *model,
                             const struct msg_wk_run *m);
void worker__end_unpacking(struct worker_unpack *u);
/* fn(w, 0): the layers up to `to` are unpacked, or u->has_failed. is_garbage: they may not have
 * come; then u->is_damaged. */
void worker__unpack(struct sim_worker *w, struct worker_unpack *u, uint32_t to, bool is_garbage,
                    sim_event_fn *fn);

/* worker_train.c */
void worker__on_train(struct sim_worker *w, const struct msg_wk_train *m, const int *fds,
                      size_t n_fds);
void worker__on_go(struct sim_worker *w, const struct msg_wk_train_go *m);
void worker__drop_train(struct sim_worker *w, int64_t job); /* < 0: whichever */

#endif
