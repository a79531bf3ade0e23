/* reach.c - host memory that operations read by themselves: the wrappers of dev.h for it. */
#include "common/shm.h"
#include "runtime/device/backend.h"

#include <sys/mman.h>

/* What is mapped for reading only needs more of a driver than what is not. */
static bool try_reach(struct dev *d)
{
    struct sh_shm page;
    const void *at = NULL;
    bool ok;

    if (!d->ops->stream->reach || sh_shm_create("shunt-reach", DEV_TABLES_ALIGN, &page, NULL))
        return false;
    ok = mprotect(page.base, page.bytes, PROT_READ) == 0 &&
         d->ops->stream->reach(d, page.base, page.bytes, &at, NULL) == SH_OK;
    if (ok)
        d->ops->stream->leave(d, page.base);
    sh_shm_fini(&page);
    return ok;
}

bool dev_can_reach_host(struct dev *d)
{
    if (d->reach == DEV_REACH_UNTRIED)
        d->reach = try_reach(d) ? DEV_REACH_YES : DEV_REACH_NO;
    return d->reach == DEV_REACH_YES;
}

int dev_reach_host(struct dev *d, const void *base, size_t bytes, const void **out,
                   struct sh_err *err)
{
    *out = NULL;
    if (!dev_can_reach_host(d))
        return SH_FAIL(err, SH_E_UNSUPPORTED, "the device cannot read host memory");
    if (!base || bytes == 0)
        return SH_FAIL(err, SH_E_BUG, "no host memory to read");
    return d->ops->stream->reach(d, base, bytes, out, err);
}

void dev_leave_host(struct dev *d, const void *base)
{
    if (d->ops->stream->leave && base)
        d->ops->stream->leave(d, base);
}
