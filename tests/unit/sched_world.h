/* sched_world.h - a real scheduler that leads, and peers that speak to it over a socket, while time
 * stands still unless it is moved.
 *
 * Only the database is not there: what dbthread.h offers is in sched_world.c. It answers each
 * operation when turn() comes to it, as PostgreSQL would answer one that goes well, from rows that
 * a test may write to at any time. A test can hold an operation back, or let it fail.
 *
 * A test links tests/unit/sched_world.o before libscheduler.a.
 */
#ifndef SH_TESTS_UNIT_SCHED_WORLD_H
#define SH_TESTS_UNIT_SCHED_WORLD_H

#include "common/clock.h"
#include "common/mem.h"
#include "common/wire.h"
#include "scheduler/sched.h"
#include "tests/unit/sh_test.h"

#include <math.h>

#define MS INT64_C(1000000)
#define SECOND (1000 * MS)
#define W_ROWS 300 /* more than twice the window of a line */
#define W_DIGEST "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

struct dbthread { /* of jobs and models; the one that sweeps answers nothing */
    bool sweeps;
};

struct world_op {
    struct dbop op;
    struct world_op *next;
    int rc;
    bool is_done;
};

struct peer;

struct world {                        /* one at a time: dbthread.h has no argument for it */
    struct sched_conf defaults, conf; /* strings of conf: BORROWED */
    struct sh_loop *loop;
    struct sched *s;
    char dir[SH_TEST_DIR_BYTES], listen[SH_TEST_DIR_BYTES + 16];

    struct peer *peers[128];  /* BORROWED: those that are connected */
    void (*own)(bool begins); /* around what peers do, who may lose their connection; or NULL */

    struct dbthread main, sweep;
    struct world_op *ops;
    const char *held;    /* operations of this name are not answered */
    const char *failing; /* they end with fail_rc, the next n_fails of them */
    int fail_rc, n_fails;
    bool one_look;                     /* behind the next one, looks are held */
    bool is_down, is_full;             /* dbthread_is_up(); dbthread_submit() fails */
    struct store_start_out *start_out; /* job.start: instead of STARTING; BORROWED */
    bool conflict;                     /* job.write: the state was another one */
    bool says_little;                  /* poll: neither tenants nor models have changed */
    bool forgets_all; /* changes.forget: nothing is left; else a whole batch went */

    struct store_tenant tenants[W_ROWS];
    struct store_model models[W_ROWS];
    struct store_job jobs[W_ROWS];
    size_t n_tenants, n_models, n_jobs;
    char executor[W_ROWS][JOB_NAME_BYTES]; /* of each job */
    struct store_view look;  /* what else the next look brings: arrays BORROWED, cleared by it */
    struct store_view asked; /* what it asked for; arrays are gone */
    struct store_place asked_first; /* of its lines */
    struct store_write wrote;       /* by the last job.write; what it OWNED is gone */
    struct store_model_state model_wrote;
    struct store_share shares[STORE_MAX_SHARES];
    size_t n_shares;
    uint64_t n_arrivals, n_slices; /* requests and slices that reports brought */
    double arrived_s;              /* of the last slice */
    size_t n_places;               /* reports that brought places */
    size_t n_ops[16];              /* answered, by name */
    const char *op_names[16];
};

extern struct world w;

/* ------------------------------------------------------------------ the database */

void db_fail(const char *name, int rc, int n); /* the next n operations of that name fail so */
size_t *world_count(const char *name);         /* how many of that name were answered */
struct store_job *world_job(int64_t id);       /* its row; NULL: none */
void world_set_job(int64_t id, enum job_state state, const char *executor);

/* Rows. A job is QUEUED, trains version 1, and may be preempted. */
struct store_tenant *add_tenant(int64_t id, const char *name);
struct store_model *add_model(int64_t version_id, const char *name);
struct store_job *add_job(int64_t id);

/* ------------------------------------------------------------------ time */

void turn(void); /* until nothing happens any more */
void advance(int64_t ns);
void look_again(void);
void look_at_all(void);

/* ------------------------------------------------------------------ peers */

struct peer {
    int fd; /* -1: not connected */
    struct sh_wire_ahead ahead;
    struct sh_buf buf;
    struct sh_msg msg; /* views into buf */
};

void peer_open(struct peer *p);
void peer_close(struct peer *p);
void say(struct peer *p, const struct sh_msg *m);
/* The next message of this type, without those before it; heard(): NULL if none has come. */
#define ANY_MSG ((enum sh_msg_type)0xffff)
const struct sh_msg *heard(struct peer *p, enum sh_msg_type type);
const struct sh_msg *hear(struct peer *p, enum sh_msg_type type);
void forget_heard(struct peer *p);
void stay(int64_t ns); /* time passes, and all that are connected speak often enough */
bool is_closed(struct peer *p);

void api_hello(struct peer *p, uint64_t id);
void exec_hello(struct peer *p, const char *name, uint64_t incarnation);
struct exec *exec_synced(struct peer *p, const char *name);
struct exec *exec_up(struct peer *p, const char *name); /* both: it holds nothing */
void model_said(struct peer *p, struct msg_model_state m);
void model_ready(struct peer *p, int64_t version_id);
/* INFER_OPEN of tenant t, and INFER_READY with one sample. n_sizes 0: none are open. */
void infer_open(struct peer *api, uint64_t rid, int64_t version_id, bool has_sizes);
void infer_ready(struct peer *api, uint64_t rid, const uint32_t *sizes, size_t n_sizes);
/* RUN of one request, and its end. */
uint64_t run_sent(struct peer *x);
void run_done(struct peer *x, uint64_t run_id, int rc);

/* ------------------------------------------------------------------ the scheduler */

struct job *job_of(int64_t id);  /* NULL: it is not held */
double metric(const char *name); /* with its labels, if it has any */
/* shunt_decisions_total */
double decided(const char *decision, const char *rule);

/* A tenant, a model, and a scheduler that does not run yet: conf and rows can still change. */
int world_begin(void **state);
void world_lead(void); /* it has read the database, and listens */
int world_lead_at_once(void **state);
int world_end(void **state); /* closes all peers */

#endif
