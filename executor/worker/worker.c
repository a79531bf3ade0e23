/* worker.c - what infer.c and train.c share. */
#include "executor/worker/worker.h"

#include "common/wire.h"

int worker_send(struct worker *w, const struct sh_msg *m, const int *fds, size_t n_fds,
                struct sh_err *err)
{
    (void)w;
    return sh_wire_write_blocking(WORKER_FD, m, fds, n_fds, err);
}

bool worker_has_input(const struct worker *w, int ms)
{
    return sh_wire_has_ahead(&w->ahead) || sh_wire_has_input_within(WORKER_FD, ms);
}

int worker_settle(struct worker *w, struct sh_err *why)
{
    struct sh_err late = {0};

    const int rc = dev_sync(w->dev, &late);

    w->packed = MSG_PACKED_KNOWN;
    if (dev_take_damage(w->dev))
        w->packed = MSG_PACKED_DAMAGED;
    else if (rc && rc != SH_E_INVALID) /* that is a bad input: all of the work was done */
        w->packed = MSG_PACKED_UNSURE;
    if (rc && (why->rc == SH_OK || rc == SH_E_DEVLOST || w->packed == MSG_PACKED_DAMAGED))
        *why = late;
    return why->rc;
}

bool worker_must_stop(const struct worker *w)
{
    return atomic_load(&w->ctl->stop) != atomic_load(&w->ctl->stop_ack);
}

struct wk_slab *worker_slab(struct worker *w, uint64_t api_id)
{
    for (size_t i = 0; i < w->n_slabs; i++)
        if (w->slabs[i].api_id == api_id)
            return &w->slabs[i];
    return NULL;
}
