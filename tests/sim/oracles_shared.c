/* oracles_shared.c - images that share chunks in host memory (executor/models/share.h) have the
 * bytes that are theirs, share them with images of their tenant alone, and count for what they
 * take. */
#include "executor/files/folder.h"
#include "executor/models/model_int.h"
#include "executor/models/share.h"
#include "tests/sim/content.h"
#include "tests/sim/executor.h"
#include "tests/sim/oracles_exec.h"

#include <sys/stat.h>
#include <unistd.h>

#define LOOKS 32u /* of all turns: at what lies there in one of so many */

#define SHARED_CHECK(cond, ...) SIM_CHECK("shared", cond, __VA_ARGS__)

static bool package_of(const struct model *m, struct sim_package *out)
{
    int fds[2];
    bool is_there;

    if (folder_open_package(m->package, fds, NULL))
        return false; /* the disk fails now and then */
    is_there = sim_package_read(fds[0], out);
    close(fds[0]);
    close(fds[1]);
    return is_there;
}

static void look_at_shared(const struct model *m)
{
    const uint64_t *words = m->image.base;
    const size_t n = m->link_bytes / sizeof(*words);
    struct sim_package p;
    size_t i;

    SHARED_CHECK(m->tx.host == (const char *)words, "version %lld is copied from elsewhere",
                 (long long)m->handle);
    if (!package_of(m, &p))
        return;
    i = m->link_ends ? sim_packed_look(&p, words, 0, n) : sim_image_look(&p, words, 0, n);
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

/* Each chunk in equal parts, rounded up, and in all what the kernel says that they have. */
static void check_counts(const struct exec *x)
{
    uint64_t held = share_trunk_bytes(x->store), counted = 0, parts = 0;
    struct stat st;

    if (store__share(x->store)->trunk) /* it has more than anybody uses yet */
        return;
    for (const struct model *m = store_next(x->store, NULL); m; m = store_next(x->store, m)) {
        if (!m->share.trunk)
            continue;
        held += fstat(m->image.fd, &st) == 0 ? (uint64_t)st.st_blocks * 512 : 0;
        counted += share__bytes(m);
        parts += m->share.n;
    }
    SHARED_CHECK(counted >= held && counted <= held + parts,
                 "images that share have %llu bytes, and count for %llu", (unsigned long long)held,
                 (unsigned long long)counted);
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
