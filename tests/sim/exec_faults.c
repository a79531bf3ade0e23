/* exec_faults.c - see exec_faults.h. */
#include "tests/sim/exec_faults.h"

#include "common/units.h"
#include "executor/pool/kernels_dir.h"
#include "executor/pool/pool.h"
#include "tests/sim/disk.h"
#include "tests/sim/oracles_exec.h"
#include "tests/sim/shortage.h"
#include "tests/sim/worker.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int64_t exec_fault_time(uint64_t r)
{
    return SH_MS(20) + (int64_t)(r % (uint64_t)SH_S(3));
}

/* ------------------------------------------------------------------ the end of each */

void exec_calm_workers(void)
{
    sim_worker_faults = (struct sim_worker_faults){0};
}

void exec_calm_device(struct sim_exec *e)
{
    e->device.refuse = e->device.refuse_ticket = e->device.refuse_lock = e->device.stall = 0;
    e->device.refuse_link = 0;
}

void exec_calm_disk(unsigned host)
{
    *sim_disk(host) = (struct sim_disk){0};
}

void exec_calm_shortage(void)
{
    sim_shortage = 0;
}

static void end_workers(void *arg, uint64_t n)
{
    (void)arg, (void)n;
    exec_calm_workers();
}

static void end_device(void *arg, uint64_t n)
{
    (void)n;
    exec_calm_device(arg);
}

static void end_disk(void *arg, uint64_t host)
{
    (void)arg;
    exec_calm_disk((unsigned)host);
}

static void end_shortage(void *arg, uint64_t n)
{
    (void)arg, (void)n;
    exec_calm_shortage();
}

/* ------------------------------------------------------------------ workers */

static const struct worker *worker_of(const struct sim_exec *e, uint64_t r)
{
    const struct exec *x = sim_exec_running(e);

    return x && x->pool ? pool_at(x->pool, r % pool_size(x->pool)) : NULL;
}

void exec_fault_worker(struct sim_exec *e, const uint64_t r[static 3])
{
    const struct worker *w = worker_of(e, r[0]);
    struct sim_proc *p = w && w->pid > 0 ? sim_proc_of_pid(w->pid) : NULL;
    const int64_t ns = (int64_t)(r[2] % (uint64_t)SH_S(8));

    if (!p)
        return;
    oracles_exec_disturbed(ns);
    if (r[1] % 2) {
        sim_proc_kill(p, r[1] % 4 == 1 ? 9 : 11);
        return;
    }
    sim_proc_pause_for(p, ns);
}

void exec_fault_workers(const uint64_t r[static 3])
{
    struct sim_worker_faults *f = &sim_worker_faults;
    const double p = 0.0005 * (double)(1 + r[1] % 40);
    const int64_t ns = exec_fault_time(r[2]);

    switch (r[0] % 8) {
    case 0:
        f->die = p;
        break;
    case 1:
        f->hang = p;
        break;
    case 2:
        f->slow = 5 * p;
        break;
    case 3:
        f->unfit = 20 * p;
        break;
    case 4:
        f->refuse = 20 * p;
        break;
    case 5:
        f->bad_part = 10 * p;
        break;
    case 6:
        f->unpack = 30 * p;
        break;
    default:
        f->nan = p;
    }
    oracles_exec_disturbed(ns + SH_S(30));
    sim_world_after(ns, end_workers, NULL, 0);
}

void exec_fault_lies(const uint64_t r[static 3])
{
    const int64_t ns = exec_fault_time(r[2]);

    sim_worker_faults.lie = 0.015 * (double)(1 + r[1] % 40);
    oracles_exec_lies();
    oracles_exec_disturbed(ns + SH_S(30));
    sim_world_after(ns, end_workers, NULL, 0);
}

void exec_fault_starts(const uint64_t r[static 3])
{
    const int64_t ns = 2 * exec_fault_time(r[2]);

    sim_worker_faults.unfit = 0.5 + 0.5 * (double)(r[1] % 2);
    oracles_exec_disturbed(ns + SH_S(30));
    sim_world_after(ns, end_workers, NULL, 0);
}

void exec_fault_folder(const struct sim_exec *e, const uint64_t r[static 3])
{
    char path[300];

    for (unsigned i = 0; i <= KERNELS_DIR_MAX_FILES; i++) {
        int fd;

        snprintf(path, sizeof(path), "%.200s/kernels-%.40s/%u", e->state_dir, e->name, i);
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd >= 0)
            close(fd);
    }
    (void)r;
    oracles_exec_disturbed(SH_S(15));
}

/* ------------------------------------------------------------------ device and disk */

void exec_fault_device(struct sim_exec *e, const uint64_t r[static 3])
{
    const int64_t ns = exec_fault_time(r[2]);

    switch (r[0] % 5) {
    case 0:
        e->device.refuse = 0.002 * (double)(1 + r[1] % 100);
        break;
    case 1:
        e->device.refuse_lock = 0.5;
        break;
    case 2:
        e->device.refuse_ticket = e->device.stall = 0.5;
        break;
    case 3: /* a neighbour goes away, or comes and goes */
        e->device.refuse_link = r[1] % 2 ? 1 : 0.2;
        break;
    default:
        e->device.stall = 0.01 * (double)(1 + r[1] % 20);
    }
    e->device.max_stall_ns = r[1] % 4 ? SH_MS(30) : SH_S(12);
    oracles_exec_disturbed(ns + SH_S(15));
    sim_world_after(ns, end_device, e, 0);
}

void exec_fault_disk(unsigned host, const uint64_t r[static 3])
{
    struct sim_disk *d = sim_disk(host);

    switch (r[0] % 4) {
    case 0:
        d->is_full = true;
        break;
    case 1:
        d->fail = 0.3;
        break;
    case 2:
        d->slow = (double)(r[1] % 200);
        break;
    default:
        d->kill_in = 1 + r[1] % 12;
        return; /* whenever that is */
    }
    sim_world_after(exec_fault_time(r[2]), end_disk, NULL, host);
}

/* ------------------------------------------------------------------ what the host has */

void exec_fault_shortage(const uint64_t r[static 3])
{
    const int64_t ns = exec_fault_time(r[2]);

    sim_shortage = r[1] % 5 == 0 ? 0.3 : 0.001 * (double)(1 + r[1] % 100);
    oracles_exec_disturbed(ns + SH_S(30));
    sim_world_after(ns, end_shortage, NULL, 0);
}
