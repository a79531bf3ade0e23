/* fake_shapes.c - the simple executor's shapes: what a version that leaves a size open is compiled
 * for. */
#include "common/mem.h"
#include "common/units.h"
#include "tests/sim/fake_int.h"

#include <string.h>

#define MAX_READY 10u /* then the one that came first goes */
#define FAIL_CHANCE 0.03

static void say(struct fake *f, const struct fake_shape *h, uint32_t state, int rc)
{
    const struct msg_profile profile[] = {{.batch = 1, .compute_ns = 2e6, .tail_ns = 4e5}};

    fake__send(f, &(struct sh_msg){.type = MSG_SHAPE_STATE,
                                   .u.shape_state = {.version_id = h->version_id,
                                                     .sizes = {&h->size, sizeof(h->size)},
                                                     .state = state,
                                                     .rc = rc,
                                                     .msg = rc ? "it cannot be compiled" : "",
                                                     .profile = {profile, sizeof(profile)},
                                                     .took_ns = SH_MS(100)}});
}

static struct fake_shape *find(struct fake *f, int64_t version_id, uint32_t size)
{
    for (size_t i = 0; i < FAKE_SHAPES; i++)
        if (f->now.shapes[i].version_id == version_id && f->now.shapes[i].size == size)
            return &f->now.shapes[i];
    return NULL;
}

static void forget_first(struct fake *f)
{
    struct fake_shape *first = NULL;
    size_t n = 0;

    for (size_t i = 0; i < FAKE_SHAPES; i++) {
        struct fake_shape *h = &f->now.shapes[i];

        n += h->version_id && h->is_ready;
        if (h->version_id && h->is_ready && (!first || h->turn < first->turn))
            first = h;
    }
    if (n <= MAX_READY || !first)
        return;
    say(f, first, MSG_MODEL_GONE, 0);
    *first = (struct fake_shape){0};
}

static void on_compiled(void *arg, uint64_t turn)
{
    struct fake *f = arg;

    for (size_t i = 0; i < FAKE_SHAPES; i++) {
        struct fake_shape *h = &f->now.shapes[i];

        if (!h->version_id || h->turn != turn)
            continue;
        if (sim_chance(FAIL_CHANCE)) {
            say(f, h, MSG_MODEL_FAILED, SH_E_INVALID);
            *h = (struct fake_shape){0};
            return;
        }
        h->is_ready = true;
        say(f, h, MSG_MODEL_READY, 0);
        forget_first(f);
        return;
    }
}

void fake__on_shape_load(struct fake *f, const struct msg_shape_load *m)
{
    static uint64_t turns;
    struct fake_shape *h;
    uint32_t size;

    SIM_CHECK("simulator", m->sizes.len == sizeof(size), "%zu bytes of sizes", m->sizes.len);
    memcpy(&size, m->sizes.data, sizeof(size));
    h = find(f, m->version_id, size);
    if (h && h->is_ready)
        say(f, h, MSG_MODEL_READY, 0);
    if (h)
        return;
    h = find(f, 0, 0);
    SIM_CHECK("simulator", h, "too many shapes");
    *h = (struct fake_shape){.version_id = m->version_id, .size = size, .turn = ++turns};
    sim_after(f->proc, fake__slowed(f, sim_between(SH_MS(30), SH_MS(900))), on_compiled, f,
              h->turn);
}

void fake__report_shapes(struct fake *f)
{
    for (size_t i = 0; i < FAKE_SHAPES; i++)
        if (f->now.shapes[i].version_id && f->now.shapes[i].is_ready)
            say(f, &f->now.shapes[i], MSG_MODEL_READY, 0);
}

void fake__forget_shapes(struct fake *f, int64_t version_id)
{
    for (size_t i = 0; i < FAKE_SHAPES; i++)
        if (f->now.shapes[i].version_id == version_id)
            f->now.shapes[i] = (struct fake_shape){0};
}

bool fake__has_shape(struct fake *f, int64_t version_id, const struct sh_blob *sizes)
{
    const struct fake_shape *h;
    uint32_t size;

    if (sizes->len == 0)
        return true;
    memcpy(&size, sizes->data, sizeof(size));
    h = find(f, version_id, size);
    return h && h->is_ready;
}
