/* room.c - see switch_int.h: the memory of a run, its image and its workspace. */
#include "common/mem.h"
#include "executor/models/apart.h"
#include "executor/models/tables.h"
#include "executor/runs/inputs.h"
#include "executor/runs/switch_int.h"

static struct residency_need need_of(const struct run *r)
{
    return (struct residency_need){.tag = r->tag, .kind = ARENA_WORK, .is_mixed = r->is_mixed};
}

/* Of what it did not find. */
static void note_copies(struct run *r)
{
    const struct model *m = r->model;
    const bool lacked = r->hit_bytes < r->run_bytes;

    r->is_from_disk = m->tx.lacks > 0;
    r->is_from_sibling = lacked && m->at.resident > r->hit_bytes;
    r->copied_bytes = lacked ? m->tx.copied_bytes : 0;
}

/* On the lane: the scrub of the workspace, if it needs one, then the inputs if they are large, then
 * the first group, which has to follow whatever has become of the inputs: its place is taken. */
static int take_memory_way(struct run *r, enum space_way way, struct sh_err *err)
{
    const double *layer_ns = NULL;
    const struct msg_batch *b = model_batch(r->shape, r->batch, &layer_ns);
    const struct residency_need need = need_of(r);
    int rc, rc_begin;

    if (!b)
        return SH_FAIL(err, SH_E_INVALID, "a batch of %u is more than the model's %u", r->batch,
                       r->model->max_batch);
    rc = space_alloc_beside(r->sw->env.space, r->model->res, b->ws_bytes, way, &need, &r->ws, err);
    if (rc)
        return rc;
    r->ws_bytes = b->ws_bytes;
    r->has_ws = true;
    r->run_bytes = model_run_bytes(r->model);
    rc = model_place(r->model, &r->hit_bytes, err);
    if (!rc) {
        rc = inputs_send(r, err);
        rc_begin = model_transmit_begin(r->model, layer_ns, rc ? NULL : err);
        rc = rc ? rc : rc_begin;
    }
    if (rc) {
        run__give_back(r);
        return rc;
    }
    residency_pin(space_residency(r->sw->env.space), r->model->res);
    r->has_apart = model_hold_apart(r->model);
    model_unkeep(r->model, INT64_MAX); /* kept for this run: training may have it after that */
    store_note_use(r->model, r->shape);
    r->has_pin = true;
    note_copies(r);
    return SH_OK;
}

const struct msg_batch *room__batch(const struct run *r)
{
    const double *layer_ns;

    return model_batch(r->shape, r->batch, &layer_ns);
}

static int find_way(const struct run *r, const struct space_if *x, enum space_way *way,
                    struct sh_err *err)
{
    const struct residency_need need = need_of(r);

    return space_find_way(r->sw->env.space, r->model->res, (size_t)room__batch(r)->ws_bytes, &need,
                          x, way, err);
}

/* The tenant is told why the last try failed, not the first one. */
static void forget_try(struct sh_err *err)
{
    if (err)
        *err = (struct sh_err){0};
}

static int take_run_memory(struct run *r, struct sh_err *err)
{
    const struct space_if now = {.n_given = 0};
    enum space_way way;
    int rc = take_memory_way(r, SPACE_FREE, err);

    if (rc != SH_E_DEVMEM)
        return rc;
    forget_try(err);
    rc = find_way(r, &now, &way, err);
    return rc ? rc : take_memory_way(r, way, err);
}

int room__take(struct run *r, struct sh_err *err)
{
    int rc;

    if (!HOOK_ASK(r->sw->env.hooks, has_memory, true))
        return SH_OK; /* the worker takes it, elsewhere */
    rc = take_run_memory(r, err);
    if (rc == SH_E_DEVMEM && model_yield_apart(r->model)) {
        forget_try(err);
        rc = take_run_memory(r, err);
    }
    if (rc == SH_E_DEVMEM && store_unkeep_all(r->sw->env.store)) {
        forget_try(err);
        rc = take_run_memory(r, err);
    }
    return rc;
}

enum stop_way room__way(const struct run *r)
{
    const struct switch_rival *rival = &r->sw->rival;
    const bool waits = model_resident_bytes(r->model) < model_run_bytes(r->model);
    struct space_range freed[2];
    enum space_way way;

    for (int w = waits ? STOP_PAUSE : STOP_DROP; w < STOP_SWAP; w++) {
        const struct space_if x = {.given = freed,
                                   .n_given = rival->ranges(rival->arg, (enum stop_way)w, freed),
                                   .is_unpinned = waits};

        if (find_way(r, &x, &way, NULL) == SH_OK)
            return (enum stop_way)w;
    }
    return STOP_SWAP;
}
