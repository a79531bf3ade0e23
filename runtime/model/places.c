/* places.c - see places.h. */
#include "runtime/model/places.h"

int64_t place_behind(const struct graph_value *v, int axis)
{
    int64_t n = 1;

    for (int i = axis + 1; i < v->rank; i++)
        n *= v->dims[i];
    return n;
}

int64_t place_step(const struct graph_value *v, struct place p)
{
    return p.after * place_behind(v, p.axis);
}

bool place_of(const struct graph_value *v, int64_t step, int64_t n, struct place *out)
{
    int64_t behind = 1;

    for (int i = v->rank - 1; i >= 0; i--) {
        int64_t whole = behind * v->dims[i];

        if (step % behind == 0 && whole % (step * n) == 0) {
            *out = (struct place){.axis = i, .after = step / behind};
            out->before = v->dims[i] / (out->after * n);
            return true;
        }
        behind = whole;
    }
    return false;
}

bool place_same(struct place a, struct place b)
{
    return a.axis == b.axis && a.before == b.before && a.after == b.after;
}

bool place_in_product(const struct graph_value *a, const struct graph_value *b,
                      const struct graph_value *y, uint32_t i, struct place *p, bool *leads)
{
    const int rank = i == 0 ? a->rank : b->rank;
    const int lead = y->rank - (a->rank > 1) - (b->rank > 1);
    const int inner = i == 0 || rank == 1 ? rank - 1 : rank - 2;

    if (p->axis == inner)
        return false;
    *leads = p->axis < rank - 2;
    if (*leads)
        p->axis += lead - (rank - 2);
    else
        p->axis = i == 0 ? lead : y->rank - 1;
    return true;
}
