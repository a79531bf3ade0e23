/* rewrite_loss.c - losses inside of a model: the negative log-likelihood of labels along axis 1. */
#include "common/mem.h"
#include "runtime/model/rewrite.h"

struct nll {
    struct shape_ctx *c;
    uint32_t labels, weights; /* [N, 1, ...]; GRAPH_NONE: all 1 */
    uint32_t counts;          /* BOOL [N, 1, ...]: labels that are not ignored; or GRAPH_NONE */
    struct graph_value target;
};

/* Labels as indices beside the scores. One that is ignored points to class 0 and weighs nothing. */
static void read_nll_labels(struct nll *l, uint32_t target, enum sh_dtype t)
{
    struct shape_ctx *c = l->c;
    const uint32_t weight = rw_in(c, 2);
    int64_t dims[SH_MAX_RANK + 1], ignored;
    int rank = 0;

    l->target = *rw_v(c, target);
    dims[rank++] = l->target.dims[0];
    dims[rank++] = 1;
    for (int i = 1; i < l->target.rank; i++)
        dims[rank++] = l->target.dims[i];
    l->labels = rw_reshape(c, rw_cast(c, target, SH_I64), rank, dims);
    l->weights = l->counts = GRAPH_NONE;
    if (graph__attr(&c->n, "ignore_index")) {
        ignored = shape__int(c, "ignore_index", 0);
        l->counts =
            rw1(c, "Not", rw2(c, "Equal", l->labels, rw_number(c, SH_I64, (double)ignored)));
        l->labels = rw3(c, "Where", l->counts, l->labels, rw_number(c, SH_I64, 0));
        l->weights = rw_cast(c, l->counts, t);
    }
    if (weight != GRAPH_NONE) {
        const uint32_t each = rw2(c, "Gather", weight, l->labels);

        l->weights =
            l->counts == GRAPH_NONE ? each : rw3(c, "Where", l->counts, each, rw_number(c, t, 0));
    }
}

static uint32_t sum_of_all(struct shape_ctx *c, uint32_t x)
{
    return rw1_with(c, "ReduceSum", x, RW_INT("keepdims", 0));
}

static int finish_nll(struct nll *l, uint32_t log_prob)
{
    struct shape_ctx *c = l->c;
    const char *reduction;
    uint32_t y = rw2_with(c, "GatherElements", log_prob, l->labels, RW_INT("axis", 1));

    y = rw1(c, "Neg", y);
    if (l->weights != GRAPH_NONE)
        y = rw2(c, "Mul", y, l->weights);
    reduction = shape__str(c, "reduction", "mean");
    if (strcmp(reduction, "none") == 0)
        return rw_is(c, 0, rw_reshape(c, y, l->target.rank, l->target.dims));
    if (strcmp(reduction, "sum") == 0)
        return rw_is(c, 0, sum_of_all(c, y));
    if (strcmp(reduction, "mean") != 0)
        return shape__fail(c, SH_E_INVALID, "reduction %.32s is not known", reduction);
    if (l->weights == GRAPH_NONE)
        return rw_is(c, 0, rw1_with(c, "ReduceMean", y, RW_INT("keepdims", 0)));
    return rw_is(c, 0, rw2(c, "Div", sum_of_all(c, y), sum_of_all(c, l->weights)));
}

static int check_loss_shapes(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0), *t = shape__in(c, 1);
    bool fits = x->rank >= 2 && t->rank == x->rank - 1 && t->dims[0] == x->dims[0];

    for (int i = 1; fits && i < t->rank; i++)
        fits = t->dims[i] == x->dims[i + 1];
    return fits ? SH_OK : shape__fail(c, SH_E_INVALID, "scores and labels do not fit together");
}

int shape__rewrite_nll_loss(struct shape_ctx *c)
{
    struct nll l = {.c = c};
    const uint32_t x = rw_in(c, 0);

    check_loss_shapes(c);
    if (c->err->rc)
        return c->err->rc;
    read_nll_labels(&l, rw_in(c, 1), rw_v(c, x)->dtype);
    return finish_nll(&l, x);
}

int shape__rewrite_softmax_loss(struct shape_ctx *c)
{
    struct nll l = {.c = c};
    const uint32_t x = rw_in(c, 0);
    uint32_t log_prob;

    check_loss_shapes(c);
    if (c->err->rc)
        return c->err->rc;
    log_prob = rw1_with(c, "LogSoftmax", x, RW_INT("axis", 1));
    read_nll_labels(&l, rw_in(c, 1), rw_v(c, x)->dtype);
    if (c->n.n_out > 1)
        rw_is(c, 1, log_prob);
    return finish_nll(&l, log_prob);
}
