/* lane.h - what a lane reports to its process: marks that it has reached, and tickets. For back
 * ends whose lanes run beside their callers (cpu, cuda). Any thread may make any call.
 *
 * A mark is promised when it is enqueued, reached by its lane, and fetched by the executor's loop.
 * The promise reserves room for it, so a lane that reaches a mark neither waits nor drops it.
 */
#ifndef SH_RUNTIME_DEVICE_LANE_H
#define SH_RUNTIME_DEVICE_LANE_H

#include "common/err.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define DEV_MAX_MARKS 16384u /* promised but not fetched, on all lanes of a device */

struct dev_marks {
    int event_fd;         /* OWNED; readable while a mark can be fetched */
    pthread_mutex_t lock; /* protects what follows */
    uint64_t *ring;       /* OWNED, DEV_MAX_MARKS: reached but not fetched */
    uint32_t head, n, n_promised;
};

int dev_marks_init(struct dev_marks *m, struct sh_err *err);
void dev_marks_fini(struct dev_marks *m); /* after init, even if that failed */

/* Fails: SH_E_QUEUEFULL: DEV_MAX_MARKS are promised. */
int dev_marks_promise(struct dev_marks *m, struct sh_err *err);
void dev_marks_withdraw(struct dev_marks *m); /* it could not be enqueued */
void dev_marks_reach(struct dev_marks *m, uint64_t cookie);
/* The mark that was reached first. False: none. */
bool dev_marks_next(struct dev_marks *m, uint64_t *cookie);

/* Raises a ticket to at least `value` (cyclic); other processes, and a device, may write it at the
 * same time. False: it was there already. */
bool dev_ticket_raise(uint32_t *word, uint32_t value);

#endif
