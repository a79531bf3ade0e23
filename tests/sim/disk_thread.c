/* disk_thread.c - executor/files/disk.h without its thread: the same work (disk_work.c) at a
 * virtual time. It is done at once when the task begins or at once when it ends; in between the
 * task's memory is in use, and who changes it is found by what the file says. */
#include "common/units.h"
#include "executor/files/disk.h"
#include "tests/sim/disk.h"
#include "tests/sim/profile.h"

#include <stdlib.h>

#define MIN_NS SH_US(80)
#define MAX_NS SH_MS(6)
#define NS_PER_BYTE 0.4 /* of a disk of 2.5 GB/s; so many bytes of the simulation are real ones */

struct disk {
    struct sim_proc *proc;
    struct disk_task *first, **last;
    size_t n;
    bool is_busy, is_done;
};

int disk_new(struct sh_loop *l, struct disk **out, struct sh_err *err)
{
    struct disk *c = calloc(1, sizeof(*c));

    (void)l;
    *out = c;
    if (!c)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the disk thread");
    c->proc = sim_self();
    c->last = &c->first;
    return SH_OK;
}

static void work(struct disk_task *t)
{
    sim_disk_in_task(true);
    disk_work(t);
    sim_disk_in_task(false);
}

static int64_t duration(const struct disk *c, const struct disk_task *t)
{
    const struct sim_disk *d = sim_disk(sim_proc_host(c->proc));
    double ns = (double)sim_between(MIN_NS, MAX_NS);

    ns += (double)(t->reads * SIM_SCALE) * NS_PER_BYTE;
    for (size_t i = 0; t->write_path && i < t->n_tensors; i++)
        ns += (double)(t->tensors[i].bytes * SIM_SCALE) * NS_PER_BYTE;
    return (int64_t)(ns * (d->slow > 0 ? d->slow : 1));
}

static void begin(struct disk *c);

static void on_end(void *arg, uint64_t n)
{
    struct disk *c = arg;
    struct disk_task *t = c->first;

    (void)n;
    if (!c->is_done)
        work(t);
    if (!sim_proc_is_alive(c->proc))
        return;
    c->first = t->next;
    if (!c->first)
        c->last = &c->first;
    c->n--;
    c->is_busy = false;
    t->next = NULL;
    t->done(t);
    begin(c);
}

/* The task at hand ends, the others never begin. Where its process is killed meanwhile, nothing of
 * it goes on. */
void disk_free(struct disk *c)
{
    if (!c)
        return;
    if (c->is_busy)
        on_end(c, 0);
    while (sim_proc_is_alive(c->proc) && c->first) {
        struct disk_task *t = c->first;

        c->first = t->next;
        SH_FAIL(&t->err, SH_E_CANCELLED, "the executor stopped before it was written");
        t->done(t);
    }
}

/* Never within disk_submit(): who submits goes on first. */
static void on_begin(void *arg, uint64_t early)
{
    struct disk *c = arg;
    const int64_t ns = duration(c, c->first);

    c->is_done = early;
    if (early)
        work(c->first);
    if (sim_proc_is_alive(c->proc))
        sim_after(c->proc, ns, on_end, c, 0);
}

static void begin(struct disk *c)
{
    if (c->is_busy || !c->first)
        return;
    c->is_busy = true;
    c->is_done = false; /* of the one before it that may still be so, should this end at once */
    sim_after(c->proc, SH_US(5), on_begin, c, sim_below(2));
}

int disk_submit(struct disk *c, struct disk_task *t, struct sh_err *err)
{
    if (c->n >= DISK_MAX_TASKS)
        return SH_FAIL(err, SH_E_QUEUEFULL, "%u files wait to be written", DISK_MAX_TASKS);
    t->next = NULL;
    *c->last = t;
    c->last = &t->next;
    c->n++;
    begin(c);
    return SH_OK;
}
