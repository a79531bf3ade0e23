/* model_go.c - the steps of a model from phase to phase, and how many are in each. */
#include "common/life.h"
#include "executor/models/model_int.h"

void model__count(const struct model *m, int change)
{
    struct store_counts *c = store__counts(m->store);

    c->n_in[m->phase] += (size_t)change;
    c->n_changes++;
}

void model__go(struct model *m, enum model_phase to)
{
    if (m->phase != to) {
        model__count(m, -1);
        m->phase = (enum model_phase)sh_life_step(&MODEL_LIFE, m->phase, to, m->handle);
        model__count(m, 1);
    }
    m->is_served = m->is_served && to == MODEL_READY;
}
