/* lock.c - page-locks images at once. Those of arrival.c and share.c wait (memory/locking.h). */
#include "executor/models/model_int.h"

int model_lock(struct model *m, struct sh_err *err)
{
    int rc = SH_OK;

    while (!rc && m->locked < m->image.bytes)
        rc = dev_mem_host_lock_next(store__env(m->store)->mem, m->image.base, m->image.bytes,
                                    &m->locked, err);
    if (rc)
        model_unlock(m);
    return rc;
}

void model_unlock(struct model *m)
{
    dev_mem_host_unlock_all(store__env(m->store)->mem, m->image.base, &m->locked);
}
