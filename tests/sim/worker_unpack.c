/* worker_unpack.c - the packed layers of a run in a simulated worker; as unpack_layers() of
 * executor/worker/pack.h, and the device behind it.
 *
 * Where packed layers lie apart, they stay as they are: they may be unpacked again.
 *
 * A layer is there as its first half is written, and again as the rest is. Where it was packed lies
 * after that what nobody can unpack, so who is told to do so finds it. */
#include "common/mem.h"
#include "runtime/pack/layers.h"
#include "tests/sim/packing.h"
#include "tests/sim/worker_int.h"

#include <stdlib.h>

#define UNPACK_CHECK(cond, ...) SIM_CHECK("unpack", cond, __VA_ARGS__)

void worker__begin_unpacking(struct worker_unpack *u, const struct worker_model *model,
                             const struct msg_wk_run *m)
{
    const struct sim_model *s = model->model;
    const size_t n = m->link_ends.len / sizeof(*u->link_ends);

    *u = (struct worker_unpack){.package = &model->package,
                                .model = s,
                                .image_off = m->image_off,
                                .packed_at = m->packed_at,
                                .at = s->n_layers};
    if (n == 0)
        return;
    WORKER_CHECK(n == s->n_layers && m->packed_from < n,
                 "run %llu: from layer %u on it is packed, and %zu of %u have an end",
                 (unsigned long long)m->run_id, m->packed_from, n, s->n_layers);
    u->link_ends = malloc(m->link_ends.len);
    if (!u->link_ends)
        abort();
    memcpy(u->link_ends, m->link_ends.data, m->link_ends.len);
    u->at = m->packed_from;
}

void worker__end_unpacking(struct worker_unpack *u)
{
    free(u->link_ends);
    u->link_ends = NULL;
}

static uint64_t *words_at(const struct sim_worker *w, uint64_t off, uint64_t bytes)
{
    char *p = sim_device_at(w->device, off, bytes);

    UNPACK_CHECK(p && off % sizeof(uint64_t) == 0,
                 "%llu bytes at %llu are no place for a layer of packed weights",
                 (unsigned long long)bytes, (unsigned long long)off);
    return (uint64_t *)(void *)p;
}

/* Is the layer as somebody has packed it? What was never copied is not, and all know it. */
static bool look_at_packed(const struct sim_worker *w, const struct worker_unpack *u,
                           bool is_garbage)
{
    const uint64_t from = layer_begin(u->link_ends, u->at), bytes = u->link_ends[u->at] - from;
    const uint64_t *words = words_at(w, u->packed_at + from, bytes);
    const size_t n = bytes / sizeof(*words);
    const size_t i = sim_packed_look(u->package, words, from / sizeof(*words), n);

    UNPACK_CHECK(i == n || is_garbage,
                 "layer %u of package %u is to be unpacked, and its word %zu is %016llx", u->at,
                 u->package->id, i, (unsigned long long)words[i]);
    return i == n;
}

static void check_place(const struct worker_unpack *u)
{
    const uint64_t from = layer_begin(u->model->layer_ends, u->at),
                   to = u->model->layer_ends[u->at];
    const uint64_t last = u->link_ends[u->model->n_layers - 1];

    UNPACK_CHECK(u->image_off + to <= u->packed_at + layer_begin(u->link_ends, u->at) ||
                     u->image_off + from >= u->packed_at + last,
                 "layer %u of package %u is to be written over packed layers", u->at,
                 u->package->id);
}

static void write_half(const struct sim_worker *w, const struct worker_unpack *u, bool is_first)
{
    const uint64_t from = layer_begin(u->model->layer_ends, u->at);
    const size_t n = (u->model->layer_ends[u->at] - from) / sizeof(uint64_t), half = n / 2;
    const size_t begin = is_first ? 0 : half, end = is_first ? half : n;
    uint64_t *words = words_at(w, u->image_off + from, n * sizeof(*words));

    sim_image_fill(u->package, words + begin, from / sizeof(*words) + begin, end - begin);
}

static bool is_in_place(const struct worker_unpack *u)
{
    return u->packed_at >= u->image_off &&
           u->packed_at <= u->image_off + u->model->layer_ends[u->model->n_layers - 1];
}

static void spend(const struct sim_worker *w, const struct worker_unpack *u)
{
    const uint64_t from = layer_begin(u->link_ends, u->at), bytes = u->link_ends[u->at] - from;

    sim_spend(u->package, words_at(w, u->packed_at + from, bytes), bytes / sizeof(uint64_t));
}

static void unpack_next(struct sim_worker *w);

static void on_unpacked(void *arg, uint64_t n)
{
    struct sim_worker *w = arg;
    struct worker_unpack *u = w->unpack;

    (void)n;
    if (look_at_packed(w, u, u->is_garbage)) {
        write_half(w, u, false);
        if (is_in_place(u))
            spend(w, u);
    } else {
        u->is_damaged = true;
    }
    u->at++;
    unpack_next(w);
}

static void unpack_next(struct sim_worker *w)
{
    struct worker_unpack *u = w->unpack;
    uint64_t bytes;

    /* A call that fails, before or behind what it was to do. */
    u->has_failed |= u->link_ends && u->at < u->to && worker__fault(sim_worker_faults.unpack);
    if (!u->link_ends || u->at >= u->to || u->has_failed) {
        u->fn(w, 0);
        return;
    }
    check_place(u);
    if (look_at_packed(w, u, u->is_garbage))
        write_half(w, u, true);
    bytes = layer_bytes(u->model->layer_ends, u->at);
    worker__after(w, SIM_UNPACK_NS + (int64_t)(SIM_UNPACK_NS_PER_BYTE * (double)bytes), on_unpacked,
                  0);
}

void worker__unpack(struct sim_worker *w, struct worker_unpack *u, uint32_t to, bool is_garbage,
                    sim_event_fn *fn)
{
    w->unpack = u;
    u->to = SH_MIN(to, u->model->n_layers);
    u->is_garbage = is_garbage;
    u->fn = fn;
    u->said = u->at;
    unpack_next(w);
}
