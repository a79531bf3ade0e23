/* oracles_shared.c - images that share chunks in host memory (executor/models/share.h) have the
 * bytes that are theirs, share them with images of their tenant alone, and count for what they
 * take. */
#include "executor/models/host.h"
#include "executor/models/share.h"
#include "tests/sim/content.h"
#include "tests/sim/executor.h"
#include "tests/sim/oracles_exec.h"

#define LOOKS 32u /* of all turns: at what lies there in one of so many */

#define SHARED_CHECK(cond, ...) SIM_CHECK("shared", cond, __VA_ARGS__)

/* The last word says whose it is: siblings differ there, if they do. */
static void look_at_shared(const struct model *m)
{
    const uint64_t *words = m->image.base;
    const size_t n = m->link_bytes / sizeof(*words);
    const struct sim_package p = {.tenant = sim_word_tenant(words[n - 1]),
                                  .id = (unsigned)(words[n - 1] >> 24 & 0xffffff)};
    const size_t i =
        m->link_ends ? sim_packed_look(&p, words, 0, n) : sim_image_look(&p, words, 0, n);

    SHARED_CHECK(m->tx.host == (const char *)words, "version %lld is copied from elsewhere",
                 (long long)m->handle);
    SHARED_CHECK(i == n, "version %lld: word %zu of it in host memory is %016llx",
                 (long long)m->handle, i, (unsigned long long)words[i]);
}

static void check_tenants(const struct exec *x, const struct model *m)
{
    for (const struct model *o = store_next(x->store, m); o; o = store_next(x->store, o))
        SHARED_CHECK(o->share.trunk != m->share.trunk || o->tag == m->tag,
                     "versions %lld and %lld of two tenants share memory", (long long)m->handle,
                     (long long)o->handle);
}

/* Each chunk in equal parts, rounded up. */
static void check_counts(const struct exec *x)
{
    const uint64_t counted = host_totals(x->store).images + share_saved_bytes(x->store);
    uint64_t bytes = 0, parts = 0;

    for (const struct model *m = store_next(x->store, NULL); m; m = store_next(x->store, m)) {
        bytes += m->image.bytes;
        parts += m->share.trunk ? m->share.n : 0;
    }
    SHARED_CHECK(counted >= bytes && counted <= bytes + parts,
                 "images of %llu bytes count, with what they share, for %llu",
                 (unsigned long long)bytes, (unsigned long long)counted);
}

void oracles__check_shared(const struct exec *x)
{
    if (sim_below(LOOKS))
        return;
    check_counts(x);
    for (const struct model *m = store_next(x->store, NULL); m; m = store_next(x->store, m)) {
        if (!m->share.trunk)
            continue;
        check_tenants(x, m);
        look_at_shared(m);
    }
}
