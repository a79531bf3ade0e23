/* slow_disk.h - keeps the disk thread busy, as a slow disk does: what else is submitted to it
 * waits until the gate opens. One gate at a time. */
#ifndef SH_TESTS_UNIT_SLOW_DISK_H
#define SH_TESTS_UNIT_SLOW_DISK_H

#include "executor/files/disk.h"
#include "tests/unit/sh_test.h"

#include <semaphore.h>

struct slow_disk {
    struct disk_task task; /* first member */
    sem_t gate;
    bool is_through; /* it was let go, and the loop has heard of it */
};

static inline int slow_disk_wait(struct disk_task *t, struct sh_err *err)
{
    (void)err;
    sem_wait(&((struct slow_disk *)t)->gate);
    return SH_OK;
}

static inline void slow_disk_passed(struct disk_task *t)
{
    ((struct slow_disk *)t)->is_through = true;
}

static inline void slow_disk_begin(struct slow_disk *d, struct disk *c)
{
    *d = (struct slow_disk){.task = {.work = slow_disk_wait, .done = slow_disk_passed}};
    sem_init(&d->gate, 0, 0);
    assert_ok(disk_submit(c, &d->task, NULL));
}

static inline void slow_disk_end(struct slow_disk *d)
{
    sem_post(&d->gate);
}

#endif
