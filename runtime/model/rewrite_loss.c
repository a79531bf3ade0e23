/* rewrite_loss.c - losses inside of a model: the negative log-likelihood of labels along axis 1. */
#include "common/mem.h"
#include "runtime/model/rewrite.h"

struct nll {
    struct rewrite w;
    uint32_t labels, weights; /* [N, 1, ...]; GRAPH_NONE: all 1 */
    uint32_t counts;          /* BOOL [N, 1, ...]: labels that are not ignored; or GRAPH_NONE */
    struct graph_value target;
};

/* Labels as indices beside the scores. One that is ignored points to class 0 and weighs nothing. */
static void read_labels(struct nll *l, uint32_t target, enum sh_dtype t)
{
    struct shape_ctx *c = l->w.c;
    const uint32_t weight = rw_in(&l->w, 2);
    int64_t dims[SH_MAX_RANK + 1], ignored = 0;
    int rank = 0;

    l->target = *rw_v(&l->w, target);
    dims[rank++] = l->target.dims[0];
    dims[rank++] = 1;
    for (int i = 1; i < l->target.rank; i++)
        dims[rank++] = l->target.dims[i];
    l->labels = rw_reshape(&l->w, rw_cast(&l->w, target, SH_I64), rank, dims);
    l->weights = l->counts = GRAPH_NONE;
    if (graph__attr(&c->n, "ignore_index")) {
        rw_fail(&l->w, graph_int(&c->n, "ignore_index", 0, &ignored, c->err));
        l->counts = rw1(&l->w, "Not",
                        rw2(&l->w, "Equal", l->labels, rw_number(&l->w, SH_I64, (double)ignored)));
        l->labels = rw3(&l->w, "Where", l->counts, l->labels, rw_number(&l->w, SH_I64, 0));
        l->weights = rw_cast(&l->w, l->counts, t);
    }
    if (weight != GRAPH_NONE) {
        const uint32_t each = rw2(&l->w, "Gather", weight, l->labels);

        l->weights = l->counts == GRAPH_NONE
                         ? each
                         : rw3(&l->w, "Where", l->counts, each, rw_number(&l->w, t, 0));
    }
}

static uint32_t total(struct rewrite *w, uint32_t x)
{
    return rw1_with(w, "ReduceSum", x, RW_INT("keepdims", 0));
}

static int finish(struct nll *l, uint32_t log_prob)
{
    struct rewrite *w = &l->w;
    struct shape_ctx *c = w->c;
    const char *reduction = "mean";
    uint32_t y = rw2_with(w, "GatherElements", log_prob, l->labels, RW_INT("axis", 1));

    y = rw1(w, "Neg", y);
    if (l->weights != GRAPH_NONE)
        y = rw2(w, "Mul", y, l->weights);
    if (w->rc == SH_OK)
        w->rc = graph_str(&c->n, "reduction", "mean", &reduction, c->err);
    if (strcmp(reduction, "none") == 0)
        return rw_is(w, 0, rw_reshape(w, y, l->target.rank, l->target.dims));
    if (strcmp(reduction, "sum") == 0)
        return rw_is(w, 0, total(w, y));
    if (strcmp(reduction, "mean") != 0)
        return shape__fail(c, SH_E_INVALID, "reduction %.32s is not known", reduction);
    if (l->weights == GRAPH_NONE)
        return rw_is(w, 0, rw1_with(w, "ReduceMean", y, RW_INT("keepdims", 0)));
    return rw_is(w, 0, rw2(w, "Div", total(w, y), total(w, l->weights)));
}

static int check(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0), *t = shape__in(c, 1);
    bool fits = x->rank >= 2 && t->rank == x->rank - 1 && t->dims[0] == x->dims[0];

    for (int i = 1; fits && i < t->rank; i++)
        fits = t->dims[i] == x->dims[i + 1];
    return fits ? SH_OK : shape__fail(c, SH_E_INVALID, "scores and labels do not fit together");
}

int shape__rewrite_nll_loss(struct shape_ctx *c)
{
    struct nll l = {.w = {.c = c, .rc = check(c)}};
    const uint32_t x = rw_in(&l.w, 0);

    if (l.w.rc)
        return l.w.rc;
    read_labels(&l, rw_in(&l.w, 1), rw_v(&l.w, x)->dtype);
    return finish(&l, x);
}

int shape__rewrite_softmax_loss(struct shape_ctx *c)
{
    struct nll l = {.w = {.c = c, .rc = check(c)}};
    const uint32_t x = rw_in(&l.w, 0);
    uint32_t log_prob;

    if (l.w.rc)
        return l.w.rc;
    log_prob = rw1_with(&l.w, "LogSoftmax", x, RW_INT("axis", 1));
    read_labels(&l, rw_in(&l.w, 1), rw_v(&l.w, x)->dtype);
    if (c->n.n_out > 1)
        rw_is(&l.w, 1, log_prob);
    return finish(&l, log_prob);
}
