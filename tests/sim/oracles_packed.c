/* oracles_packed.c - what of an image on the device counts as packed is, and the rest is not. */
#include "common/mem.h"
#include "executor/memory/residency_int.h"
#include "executor/models/apart.h"
#include "executor/runs/switch_int.h"
#include "runtime/pack/layers.h"
#include "tests/sim/content.h"
#include "tests/sim/executor.h"
#include "tests/sim/oracles_exec.h"

#define LOOKS 32u /* of all turns: at what lies there in one of so many */

#define PACKED_CHECK(cond, ...) SIM_CHECK("packed", cond, __VA_ARGS__)

static const struct image *image_of(const struct exec *x, const struct model *m)
{
    return &space_residency(x->space)->images[m->res];
}

/* No copy, no worker and no loss stands between what is known and what is there. */
static bool is_at_rest(const struct exec *x, const struct model *m)
{
    const struct run *r = x->sw->current;

    return !tx_image_busy(&m->tx) && !m->is_placed && !m->is_broken && !m->is_spoiled &&
           m->rest == MODEL_REST_NONE && !(r && r->model == m) &&
           image_of(x, m)->held >= residency_blocks(space_residency(x->space), m->res) &&
           image_of(x, m)->held > 0;
}

static const uint64_t *at_device(const struct exec *x, const struct model *m, uint64_t off,
                                 uint64_t bytes)
{
    const char *p = sim_device_at(sim_device_of_mem(x->mem),
                                  (size_t)image_of(x, m)->first * DEV_BLOCK + off, bytes);

    PACKED_CHECK(p, "version %lld lies outside of the arena", (long long)m->handle);
    return (const uint64_t *)(const void *)p;
}

/* Whose words these are, one of them says that siblings do not have, if there is one; the worker of
 * a run knows it better. */
static struct sim_package package_of(uint64_t word)
{
    return (struct sim_package){.tenant = sim_word_tenant(word),
                                .id = (unsigned)(word >> 24 & 0xffffff)};
}

/* All of what lies packed apart is there, as long as it counts. */
static void look_at_apart(const struct exec *x, const struct model *m)
{
    const struct image *im = &space_residency(x->space)->images[m->apart.res];
    const uint64_t *words = (const uint64_t *)(const void *)sim_device_at(
        sim_device_of_mem(x->mem), (size_t)im->first * DEV_BLOCK, m->link_bytes);
    const size_t n = m->link_bytes / sizeof(*words);
    struct sim_package p;
    size_t i;

    PACKED_CHECK(words && m->apart.off == (size_t)im->first * DEV_BLOCK,
                 "version %lld: its packed copy is not where it was put", (long long)m->handle);
    p = package_of(words[n - 1]);
    i = sim_packed_look(&p, words, 0, n);
    PACKED_CHECK(i == n && im->conf.tag == m->tag,
                 "version %lld: word %zu of its packed copy is %016llx", (long long)m->handle, i,
                 (unsigned long long)words[i]);
}

/* Who copies to it and who unpacks from it keeps it where it is, and nobody else. */
static void check_apart_pins(const struct exec *x, const struct model *m)
{
    const struct run *r = x->sw->current;
    const uint32_t n =
        m->apart.has_res ? residency_pins(space_residency(x->space), m->apart.res) : 0;

    PACKED_CHECK(n == (m->apart.at == APART_COMING) + m->apart.n_held,
                 "version %lld: its packed copy has %u pins", (long long)m->handle, n);
    PACKED_CHECK(m->apart.n_held == (r && r->has_apart && r->model == m),
                 "version %lld: its packed copy is held by %u", (long long)m->handle,
                 m->apart.n_held);
}

static void look_at(const struct exec *x, const struct model *m)
{
    const uint64_t unpacked = layer_begin(m->layer_ends, m->packed_from);
    const uint64_t from = layer_begin(m->link_ends, m->packed_from);
    const size_t n = unpacked / sizeof(uint64_t), n_packed = (m->link_bytes - from) / sizeof(from);
    const uint64_t *words = at_device(x, m, 0, unpacked);
    const uint64_t *packed = at_device(x, m, m->tx.shift + from, m->link_bytes - from);
    const bool is_partly = !m->apart.is_source && n_packed > 0;
    const struct sim_package p = package_of(is_partly || !n ? packed[n_packed - 1] : words[n - 1]);
    size_t i = sim_image_look(&p, words, 0, n);

    PACKED_CHECK(i == n, "version %lld: word %zu, which counts as unpacked, is %016llx",
                 (long long)m->handle, i, (unsigned long long)words[i]);
    if (m->apart.is_source)
        return; /* look_at_apart() */
    i = sim_packed_look(&p, packed, from / sizeof(from), n_packed);
    PACKED_CHECK(i == n_packed,
                 "version %lld: word %zu behind layer %u, which counts as packed, is %016llx",
                 (long long)m->handle, i, m->packed_from, (unsigned long long)packed[i]);
}

void oracles__check_packed(const struct exec *x)
{
    const bool looks = sim_below(LOOKS) == 0;

    for (const struct model *m = store_next(x->store, NULL); m; m = store_next(x->store, m)) {
        if (!m->has_image || !m->link_ends)
            continue;
        PACKED_CHECK(image_of(x, m)->is_packed == (m->packed_from < m->n_layers),
                     "version %lld: from layer %u of %u on it is packed, and residency knows "
                     "otherwise",
                     (long long)m->handle, m->packed_from, m->n_layers);
        check_apart_pins(x, m);
        if (looks && is_at_rest(x, m))
            look_at(x, m);
        if (looks && model_is_apart(m))
            look_at_apart(x, m);
    }
}
