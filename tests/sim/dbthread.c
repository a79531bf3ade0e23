/* dbthread.c - scheduler/database/dbthread.h in virtual time: the same queue (dbqueue.h), whose
 * operations travel to the database of the simulation instead of running on a thread.
 *
 * An operation takes effect in the world and not in its process: one that was sent is not called
 * back by the death or the sleep of its sender. */
#include "scheduler/database/dbthread.h"

#include "common/clock.h"
#include "common/units.h"
#include "scheduler/database/dbqueue.h"
#include "tests/sim/database_int.h"
#include "tests/sim/scheduler.h"

#include <stdlib.h>

#define RETRY_NS SH_MS(DBTHREAD_RETRY_MS)
#define MAX_THREADS 64

struct dbthread {
    struct sim_proc *proc;
    uint64_t generation; /* of the process */
    struct sh_loop *loop;
    struct db *db;
    struct dbqueue queue;
    struct dbitem *running;
    bool has_arrived; /* the one that runs */
    int64_t back_ns;
    bool up;
    uint64_t turn; /* events of an earlier one mean nothing */
};

static struct dbthread *threads[MAX_THREADS]; /* of processes that live, and NULL */

static void go_on(struct dbthread *t);

static bool is_alive(const struct dbthread *t)
{
    return sim_proc_is_alive(t->proc) && sim_proc_generation(t->proc) == t->generation;
}

static bool reads(const struct dbitem *i)
{
    return i->op.run == store_view_load || i->op.run == store_past_read;
}

static void arrive(struct dbthread *t)
{
    t->has_arrived = true;
    dbitem_run(t->running, t->db, &t->up);
    database__hang_up(t->db); /* where it did not come to a transaction */
}

/* True: the loop has something to collect. */
static enum dbqueue_next settle(struct dbthread *t)
{
    struct dbitem *i = t->running;

    t->running = NULL;
    t->turn++;
    return dbqueue_settle(&t->queue, i, sh_clock_ns());
}

static void on_answer(void *arg, uint64_t turn)
{
    struct dbthread *t = arg;

    if (turn != t->turn)
        return;
    switch (settle(t)) {
    case DBQUEUE_FINISHED:
        sh_loop_wake(t->loop);
        break;
    case DBQUEUE_BEHIND:
        break;
    case DBQUEUE_RETRY:
        sim_after(t->proc, RETRY_NS, sim__dbthread_go_on, t, t->turn);
        return;
    }
    go_on(t);
}

static void on_arrival(void *arg, uint64_t turn)
{
    struct dbthread *t = arg;

    if (turn != t->turn || t->has_arrived)
        return;
    /* Of one that died in between it may have been the last that it sent. */
    if (!is_alive(t) && sim_chance(0.5)) {
        database__hang_up(t->db);
        t->turn++;
        return;
    }
    arrive(t);
    if (is_alive(t))
        sim_after(t->proc, t->back_ns, on_answer, t, t->turn);
}

static bool start(struct dbthread *t)
{
    struct database_trip trip;

    t->running = dbqueue_take(&t->queue, sh_clock_ns());
    if (!t->running)
        return false;
    trip = database__send(t->db, !reads(t->running));
    t->has_arrived = false;
    t->back_ns = trip.back_ns;
    t->turn++;
    sim_world_after(trip.to_ns, on_arrival, t, t->turn);
    return true;
}

static void go_on(struct dbthread *t)
{
    if (!t->running && !start(t) && t->queue.todo.head)
        sim_after(t->proc, RETRY_NS, sim__dbthread_go_on, t, t->turn);
}

void sim__dbthread_go_on(void *arg, uint64_t turn)
{
    struct dbthread *t = arg;

    if (turn == t->turn)
        go_on(t);
}

/* For a process that waits, and whose time goes on only by its waiting. */
static void pump(struct dbthread *t)
{
    if (!t->running && !start(t)) {
        sh_clock_advance(RETRY_NS);
        return;
    }
    if (!t->has_arrived)
        arrive(t);
    sh_clock_advance(t->back_ns);
    if (settle(t) == DBQUEUE_RETRY)
        sh_clock_advance(RETRY_NS);
}

void sim_dbthreads_pump(void)
{
    for (size_t i = 0; i < MAX_THREADS; i++)
        if (threads[i] && threads[i]->proc == sim_self() && is_alive(threads[i]) &&
            (threads[i]->running || threads[i]->queue.todo.head))
            pump(threads[i]);
}

int dbthread_new(struct sh_loop *l, const char *db_url, const char *app, size_t max_queued,
                 struct dbthread **out, struct sh_err *err)
{
    struct dbthread *t = calloc(1, sizeof(*t));
    size_t i = 0;
    int rc;

    *out = NULL;
    while (i < MAX_THREADS && threads[i] && is_alive(threads[i]))
        i++;
    if (!t || i == MAX_THREADS)
        sim_broken("simulator", "there are too many schedulers");
    t->proc = sim_self();
    t->generation = sim_proc_generation(t->proc);
    t->loop = l;
    dbqueue_init(&t->queue, max_queued);
    rc = db_new(db_url, app, &t->db, err);
    if (rc)
        return rc;
    threads[i] = t;
    *out = t;
    return SH_OK;
}

void dbthread_free(struct dbthread *t, int64_t max_wait_ms)
{
    int64_t until = sh_clock_ns() + SH_MS(max_wait_ms);

    if (!t)
        return;
    while ((t->queue.todo.head || t->running) && sh_clock_ns() < until)
        pump(t);
    for (size_t i = 0; i < MAX_THREADS; i++)
        if (threads[i] == t)
            threads[i] = NULL;
    t->turn++;
    database__hang_up(t->db);
    /* Its memory stays: events that mean nothing any more point to it. */
}

int dbthread_submit(struct dbthread *t, const struct dbop *op, struct sh_err *err)
{
    struct dbitem *i = NULL;
    int rc = dbitem_new(op, &i, err);

    if (!rc)
        rc = dbqueue_submit(&t->queue, i, err);
    if (!rc)
        go_on(t);
    else
        free(i); /* without its arg, which the caller keeps */
    return rc;
}

void dbthread_collect(struct dbthread *t, const uint64_t *generation)
{
    struct dbitem *i;

    while ((i = dblist_pop(&t->queue.finished))) {
        const bool is_fenced = generation && *generation && i->op.generation == *generation &&
                               i->rc == SH_E_PRECONDITION;

        dbitem_tell(i, generation);
        SIM_CHECK("fence", !is_fenced || i->op.generation != *generation,
                  "%s was told that its lease is another's (%s), and leads on",
                  sim_proc_name(t->proc), i->op.name);
        dbitem_free(i);
    }
}

void dbthread_hear(struct dbthread *t)
{
    (void)t;
}

void dbthread_drop(struct dbthread *t, uint64_t generation)
{
    struct dblist dropped;

    dblist_init(&dropped);
    dbqueue_drop(&t->queue, generation, &dropped);
    dblist_free(&dropped);
}

bool dbthread_is_up(struct dbthread *t)
{
    return t->up;
}
