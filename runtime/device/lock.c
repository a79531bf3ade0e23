/* lock.c - page-locks host memory piece by piece: see dev.h. */
#include "runtime/device/lock.h"

#include "runtime/device/dev.h"

int dev_mem_host_lock_next(struct dev_mem *m, void *base, size_t bytes, size_t *locked,
                           struct sh_err *err)
{
    char *from = (char *)base + *locked;
    const size_t piece = dev_lock_piece(from, bytes - *locked);
    const int rc = dev_mem_host_lock(m, from, piece, err);

    *locked += rc ? 0 : piece;
    return rc;
}

void dev_mem_host_unlock_last(struct dev_mem *m, void *base, size_t *locked)
{
    const size_t piece = dev_lock_last_piece(base, *locked);

    *locked -= piece;
    if (piece)
        dev_mem_host_unlock(m, (char *)base + *locked);
}
