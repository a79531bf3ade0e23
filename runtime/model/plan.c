/* plan.c - lifetimes, and greedy placement of what is alive at the same time.
 *
 * The placement problem is NP-hard. Taking the largest first, at the lowest place that is free
 * during its life, comes within a few per cent of the bound on real networks. Where it does not,
 * taking them in order of birth often does, so both are tried. The first costs O(n^2), so a very
 * long program gets only the second, which forgets the dead.
 */
#include "runtime/model/plan.h"

#include "common/mem.h"
#include "runtime/device/dev.h"

#include <stdlib.h>

#define PLAN_MAX_BYTES ((size_t)1 << 46)
#define PLAN_MAX_QUADRATIC 20000u

struct block { /* one alias class, or one operation's scratch */
    size_t bytes, offset;
    int64_t first, last; /* operations, both included; -1 = before the run */
    uint32_t id;         /* tensor, or n_tensors + op; n_tensors + n_ops: the keep bytes */
};

struct work {
    struct dev_graph *g;
    struct block *blocks;
    uint32_t n;
    const struct block **order, **placed; /* placed: sorted by offset */
    size_t *best;
};

static uint32_t root_of(const struct dev_graph *g, uint32_t t)
{
    return g->tensors[t].alias_of == DEV_NONE ? t : g->tensors[t].alias_of;
}

static bool in_workspace(const struct dev_tensor *t)
{
    return t->role != DEV_ROLE_WEIGHT && t->role != DEV_ROLE_STATE && t->role != DEV_ROLE_TABLE;
}

/* Does this much fit behind `at`? Both may be any number. */
static int check_room(size_t at, size_t bytes, struct sh_err *err)
{
    return bytes <= PLAN_MAX_BYTES && at <= PLAN_MAX_BYTES - bytes
               ? SH_OK
               : SH_FAIL(err, SH_E_TOOBIG, "the program needs more than %zu bytes", PLAN_MAX_BYTES);
}

static int advance_bytes(size_t *at, size_t bytes, struct sh_err *err)
{
    int rc = check_room(*at, bytes, err);

    if (!rc)
        *at = SH_ALIGN_UP(*at + bytes, (size_t)DEV_ALIGN);
    return rc;
}

/* ------------------------------------------------------------------ image and state */

/* What lies from `from` on is one layer, or several of about the same size. */
static void end_layer(struct dev_graph *g, uint64_t from, struct plan *p)
{
    const uint64_t bytes = p->image_bytes - from;
    const uint64_t n = SH_MAX((bytes + PLAN_LAYER_MOST - 1) / PLAN_LAYER_MOST, (uint64_t)1);

    for (uint64_t i = 1; i <= n; i++)
        p->layer_ends[g->n_layers++] =
            from + SH_MIN(SH_ALIGN_UP(bytes / n * i, (uint64_t)DEV_ALIGN), bytes);
    p->layer_ends[g->n_layers - 1] = p->image_bytes;
}

static int place_weights_of(struct dev_graph *g, struct dev_op *op, bool *seen, struct plan *p,
                            struct sh_err *err)
{
    const uint64_t from = p->image_bytes;
    bool begins = false;
    int rc = SH_OK;

    for (uint32_t k = 0; k < op->n_in && rc == SH_OK; k++) {
        uint32_t t = op->in[k] == DEV_NONE ? DEV_NONE : root_of(g, op->in[k]);

        if (t == DEV_NONE || g->tensors[t].role != DEV_ROLE_WEIGHT || seen[t])
            continue;
        seen[t] = begins = true;
        g->tensors[t].offset = p->image_bytes;
        rc = advance_bytes(&p->image_bytes, g->tensors[t].bytes, err);
    }
    if (begins && rc == SH_OK)
        end_layer(g, from, p);
    op->layer = g->n_layers ? g->n_layers - 1 : 0;
    return rc;
}

static int place_table(struct dev_graph *g, uint32_t t, size_t *at, struct plan *p,
                       struct sh_err *err)
{
    int rc;

    if (p->n_tables == 0) {
        p->tables_at = SH_ALIGN_UP(p->image_bytes, (size_t)DEV_TABLES_ALIGN);
        if (g->n_layers)
            p->layer_ends[g->n_layers - 1] = p->tables_at;
    }
    g->tensors[t].offset = *at;
    rc = advance_bytes(at, g->tensors[t].bytes, err);
    if (!rc)
        rc = check_room(p->tables_at, *at, err);
    if (rc)
        return rc;
    while (p->image_bytes < p->tables_at + *at || p->n_tables == 0) {
        p->image_bytes = SH_MAX(p->image_bytes, p->tables_at);
        p->image_bytes = SH_MIN(p->image_bytes + PLAN_LAYER_MOST, p->tables_at + *at);
        p->layer_ends[g->n_layers++] = p->image_bytes;
        p->n_tables++;
    }
    return SH_OK;
}

/* In order of first use. */
static int place_tables(struct dev_graph *g, bool *seen, struct plan *p, struct sh_err *err)
{
    size_t at = 0;
    int rc = SH_OK;

    p->tables_at = p->image_bytes;
    for (uint32_t i = 0; i < g->n_ops && rc == SH_OK; i++) {
        uint32_t t = g->ops[i].n_in ? g->ops[i].in[0] : DEV_NONE;

        if (t == DEV_NONE || g->tensors[t].role != DEV_ROLE_TABLE || seen[t])
            continue;
        seen[t] = true;
        rc = place_table(g, t, &at, p, err);
    }
    return rc;
}

/* One for each operation, and those that large weights and tables have more. */
static size_t most_layers(const struct dev_graph *g)
{
    size_t n = g->n_ops;

    for (uint32_t i = 0; i < g->n_tensors; i++)
        if (g->tensors[i].role == DEV_ROLE_TABLE || g->tensors[i].role == DEV_ROLE_WEIGHT)
            n += SH_MIN(g->tensors[i].bytes, PLAN_MAX_BYTES) / PLAN_LAYER_MOST + 2;
    return n;
}

static int place_image(struct dev_graph *g, struct plan *p, struct sh_err *err)
{
    bool *seen = calloc(g->n_tensors + 1u, 1);
    int rc = SH_OK;

    p->layer_ends = calloc(most_layers(g) + 1u, sizeof(*p->layer_ends));
    if (!seen || !p->layer_ends)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the layers of %u operations", g->n_ops);
    g->n_layers = 0;
    for (uint32_t i = 0; i < g->n_ops && rc == SH_OK; i++)
        rc = place_weights_of(g, &g->ops[i], seen, p, err);
    if (rc == SH_OK)
        rc = place_tables(g, seen, p, err);
    free(seen);
    return rc;
}

static void mark_written_state(const struct dev_graph *g, bool *written)
{
    uint32_t list[DEV_MAX_IN + DEV_MAX_OUT];

    for (uint32_t i = 0; i < g->n_ops; i++)
        for (uint32_t n = dev_op_written(g, &g->ops[i], list); n > 0; n--)
            written[root_of(g, list[n - 1])] = true;
}

static int place_state_part(struct dev_graph *g, const bool *written, bool is_written,
                            struct plan *p, struct sh_err *err)
{
    int rc = SH_OK;

    for (uint32_t i = 0; i < g->n_tensors && rc == SH_OK; i++) {
        struct dev_tensor *t = &g->tensors[i];

        if (t->role != DEV_ROLE_STATE || t->alias_of != DEV_NONE || written[i] != is_written)
            continue;
        t->offset = p->state_bytes;
        rc = advance_bytes(&p->state_bytes, t->bytes, err);
    }
    return rc;
}

static int place_state_tensors(struct dev_graph *g, struct plan *p, struct sh_err *err)
{
    bool *written = calloc(g->n_tensors + 1u, sizeof(*written));
    int rc;

    if (!written)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the state of %u tensors", g->n_tensors);
    mark_written_state(g, written);
    rc = place_state_part(g, written, true, p, err);
    p->written_bytes = p->state_bytes = SH_ALIGN_UP(p->state_bytes, (size_t)DEV_PAGE);
    if (!rc)
        rc = place_state_part(g, written, false, p, err);
    free(written);
    return rc;
}

/* ------------------------------------------------------------------ lifetimes */

static void use_block(struct block *b, int64_t op)
{
    b->first = SH_MIN(b->first, op);
    b->last = SH_MAX(b->last, op);
}

/* Integers that come in stay, so that a second run on the same inputs (a profile) finds valid
 * indices and not what the first run left in their place. */
static bool lives_to_the_end(const struct dev_tensor *t)
{
    bool comes_in = t->role == DEV_ROLE_INPUT || t->role == DEV_ROLE_LABEL;

    return t->role == DEV_ROLE_OUTPUT || t->role == DEV_ROLE_KEEP ||
           (comes_in && t->dtype != SH_F32);
}

/* by_root[t] collects the life of the class whose root is t. */
static int lifetimes(const struct dev_graph *g, struct block *by_root, struct sh_err *err)
{
    for (uint32_t i = 0; i < g->n_tensors; i++)
        by_root[i] = (struct block){.first = INT64_MAX, .last = INT64_MIN, .id = i};
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct dev_tensor *t = &g->tensors[i];
        struct block *b = &by_root[root_of(g, i)];

        b->bytes = SH_MAX(b->bytes, t->bytes);
        if (t->role == DEV_ROLE_INPUT || t->role == DEV_ROLE_LABEL)
            use_block(b, -1);
    }
    for (uint32_t i = 0; i < g->n_ops; i++) {
        const struct dev_op *op = &g->ops[i];

        for (uint32_t k = 0; k < op->n_in; k++) {
            uint32_t r = op->in[k] == DEV_NONE ? DEV_NONE : root_of(g, op->in[k]);

            if (r == DEV_NONE || !in_workspace(&g->tensors[r]))
                continue;
            if (by_root[r].first == INT64_MAX)
                return SH_FAIL(err, SH_E_BUG, "\"%s\" reads \"%s\" before anything writes it",
                               op->name, g->tensors[r].name);
            use_block(&by_root[r], i);
        }
        for (uint32_t k = 0; k < op->n_out; k++)
            if (op->out[k] != DEV_NONE)
                use_block(&by_root[root_of(g, op->out[k])], i);
    }
    for (uint32_t i = 0; i < g->n_tensors; i++)
        if (lives_to_the_end(&g->tensors[i]))
            use_block(&by_root[root_of(g, i)], g->n_ops);
    return SH_OK;
}

static void collect_blocks(struct work *w, const struct block *by_root, const size_t *scratch,
                           size_t keep)
{
    const struct dev_graph *g = w->g;

    for (uint32_t i = 0; i < g->n_tensors; i++)
        if (g->tensors[i].alias_of == DEV_NONE && in_workspace(&g->tensors[i]) &&
            by_root[i].first != INT64_MAX && by_root[i].bytes)
            w->blocks[w->n++] = by_root[i];
    for (uint32_t i = 0; i < g->n_ops && scratch; i++)
        if (scratch[i])
            w->blocks[w->n++] =
                (struct block){.bytes = scratch[i], .first = i, .last = i, .id = g->n_tensors + i};
    if (keep)
        w->blocks[w->n++] = (struct block){
            .bytes = keep, .first = -1, .last = g->n_ops, .id = g->n_tensors + g->n_ops};
}

/* ------------------------------------------------------------------ placement */

static int by_block_size(const void *pa, const void *pb)
{
    const struct block *a = *(const struct block *const *)pa, *b = *(const struct block *const *)pb;

    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

static int by_area(const void *pa, const void *pb)
{
    const struct block *a = *(const struct block *const *)pa, *b = *(const struct block *const *)pb;
    double x = (double)a->bytes * (double)(a->last - a->first + 1);
    double y = (double)b->bytes * (double)(b->last - b->first + 1);

    return x != y ? (x > y ? -1 : 1) : by_block_size(pa, pb);
}

static int by_birth(const void *pa, const void *pb)
{
    const struct block *a = *(const struct block *const *)pa, *b = *(const struct block *const *)pb;

    return a->first != b->first ? (a->first < b->first ? -1 : 1) : by_block_size(pa, pb);
}

/* The smallest gap that b fits into among those placed that live at the same time; above them all
 * if there is none. */
static size_t find_gap(const struct work *w, uint32_t n_placed, const struct block *b)
{
    size_t end = 0, best = SIZE_MAX, best_gap = SIZE_MAX;

    for (uint32_t i = 0; i < n_placed; i++) {
        const struct block *o = w->placed[i];

        if (o->first > b->last || b->first > o->last)
            continue;
        if (o->offset >= end + b->bytes && o->offset - end < best_gap) {
            best_gap = o->offset - end;
            best = end;
        }
        end = SH_MAX(end, SH_ALIGN_UP(o->offset + o->bytes, (size_t)DEV_ALIGN));
    }
    return best == SIZE_MAX ? end : best;
}

static void insert_block(struct work *w, uint32_t n_placed, const struct block *b)
{
    uint32_t i = n_placed;

    for (; i > 0 && w->placed[i - 1]->offset > b->offset; i--)
        w->placed[i] = w->placed[i - 1];
    w->placed[i] = b;
}

/* In order of birth, what died before `now` is in nobody's way any more. */
static uint32_t forget_dead(struct work *w, uint32_t n_placed, int64_t now)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < n_placed; i++)
        if (w->placed[i]->last >= now)
            w->placed[n++] = w->placed[i];
    return n;
}

static size_t place_blocks(struct work *w, int (*order)(const void *, const void *),
                           bool in_birth_order)
{
    uint32_t n_placed = 0;
    size_t total = 0;

    for (uint32_t i = 0; i < w->n; i++)
        w->order[i] = &w->blocks[i];
    qsort(w->order, w->n, sizeof(struct block *), order);
    for (uint32_t i = 0; i < w->n; i++) {
        struct block *b = &w->blocks[w->order[i] - w->blocks];

        if (in_birth_order)
            n_placed = forget_dead(w, n_placed, b->first);
        b->offset = find_gap(w, n_placed, b);
        insert_block(w, n_placed++, b);
        total = SH_MAX(total, SH_ALIGN_UP(b->offset + b->bytes, (size_t)DEV_ALIGN));
    }
    return total;
}

static void keep_if_better(struct work *w, size_t total, size_t *best)
{
    if (total >= *best)
        return;
    *best = total;
    for (uint32_t i = 0; i < w->n; i++)
        w->best[i] = w->blocks[i].offset;
}

static void place_workspace(struct work *w, struct plan *p)
{
    size_t best = SIZE_MAX;

    keep_if_better(w, place_blocks(w, by_birth, true), &best);
    if (w->n <= PLAN_MAX_QUADRATIC && best > p->live_bytes) {
        keep_if_better(w, place_blocks(w, by_block_size, false), &best);
        if (best > p->live_bytes)
            keep_if_better(w, place_blocks(w, by_area, false), &best);
    }
    p->workspace_bytes = w->n ? best : 0;
    for (uint32_t i = 0; i < w->n; i++) {
        const struct block *b = &w->blocks[i];

        if (b->id < w->g->n_tensors)
            w->g->tensors[b->id].offset = w->best[i];
        else if (b->id == w->g->n_tensors + w->g->n_ops)
            p->keep = w->best[i];
        else
            p->scratch[b->id - w->g->n_tensors] = w->best[i];
    }
}

/* No offset can overflow when not even the sum does. */
static int check_plan_sum(const struct work *w, struct sh_err *err)
{
    size_t sum = 0;
    int rc = SH_OK;

    for (uint32_t i = 0; i < w->n && rc == SH_OK; i++)
        rc = advance_bytes(&sum, w->blocks[i].bytes, err);
    return rc;
}

/* The most that is alive at once. */
static int live_bytes(const struct work *w, size_t *out, struct sh_err *err)
{
    size_t n = (size_t)w->g->n_ops + 2;
    int64_t *delta = calloc(n + 1, sizeof(*delta)), at = 0, most = 0;

    if (!delta)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu counters", n);
    for (uint32_t i = 0; i < w->n; i++) {
        int64_t bytes = (int64_t)SH_ALIGN_UP(w->blocks[i].bytes, (size_t)DEV_ALIGN);

        delta[w->blocks[i].first + 1] += bytes;
        delta[w->blocks[i].last + 2] -= bytes;
    }
    for (size_t i = 0; i < n; i++) {
        at += delta[i];
        most = SH_MAX(most, at);
    }
    *out = (size_t)most;
    free(delta);
    return SH_OK;
}

static int plan_workspace(struct dev_graph *g, const size_t *scratch, size_t keep, struct plan *p,
                          struct sh_err *err)
{
    size_t n = (size_t)g->n_tensors + g->n_ops + 1;
    struct block *by_root = calloc(g->n_tensors + 1u, sizeof(*by_root));
    struct work w = {.g = g,
                     .blocks = calloc(n, sizeof(*w.blocks)),
                     .order = calloc(n, sizeof(*w.order)),
                     .placed = calloc(n, sizeof(*w.placed)),
                     .best = calloc(n, sizeof(*w.best))};
    int rc = SH_OK;

    p->scratch = malloc((g->n_ops + 1u) * sizeof(*p->scratch));
    if (!by_root || !w.blocks || !w.order || !w.placed || !w.best || !p->scratch)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the memory plan of %zu blocks", n);
    for (uint32_t i = 0; rc == SH_OK && i < g->n_ops; i++)
        p->scratch[i] = SIZE_MAX;
    if (!rc)
        rc = lifetimes(g, by_root, err);
    if (!rc) {
        collect_blocks(&w, by_root, scratch, keep);
        rc = check_plan_sum(&w, err);
    }
    if (!rc)
        rc = live_bytes(&w, &p->live_bytes, err);
    if (!rc)
        place_workspace(&w, p);
    free(by_root);
    free(w.blocks);
    free(w.order);
    free(w.placed);
    free(w.best);
    return rc;
}

int plan_make(struct dev_graph *g, const size_t *scratch_bytes, size_t keep_bytes, struct plan *out,
              struct sh_err *err)
{
    int rc;

    *out = (struct plan){0};
    rc = place_image(g, out, err);
    if (!rc)
        rc = place_state_tensors(g, out, err);
    if (!rc)
        rc = plan_workspace(g, scratch_bytes, keep_bytes, out, err);
    for (uint32_t i = 0; rc == SH_OK && i < g->n_tensors; i++)
        g->tensors[i].offset = g->tensors[root_of(g, i)].offset;
    if (rc)
        plan_fini(out);
    return rc;
}

void plan_fini(struct plan *p)
{
    free(p->layer_ends);
    free(p->scratch);
    *p = (struct plan){0};
}
