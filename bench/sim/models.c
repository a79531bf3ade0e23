/* models.c - see models.h. */
#include "bench/sim/models.h"

#include <stdlib.h>

#define REAL(bytes) ((bytes)*SIM_SCALE)

double models_ns_per_byte(const struct sim_profile *p)
{
    return p->to_ns_per_byte / (double)SIM_SCALE;
}

static void take(const struct sim_model *of, int64_t slo_ns, struct serve_model *m)
{
    uint32_t k = 0;

    *m =
        (struct serve_model){.n_layers = of->n_layers, .max_batch = MODELS_BATCH, .slo_ns = slo_ns};
    for (uint32_t i = 0; i < of->n_layers; i++) {
        m->layer_ends[i] = REAL(of->layer_ends[i]);
        m->layer_ns[i] = of->layer_ns[i];
    }
    for (uint32_t b = 1; b <= MODELS_BATCH; b++) {
        while (k + 1 < of->n_sizes && of->sizes[k].batch < b)
            k++;
        m->times[b] = of->sizes[k].times;
    }
}

int models_make(const struct sim_profile *p, size_t n, int64_t slo_ns, struct serve_model **out,
                struct sh_err *err)
{
    uint32_t usable[SIM_MAX_MODELS], n_usable = 0;
    struct serve_model *models = calloc(n + 1, sizeof(*models));

    *out = NULL;
    if (!models)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu models", n);
    for (uint32_t i = 0; i < p->n_models; i++)
        if (p->models[i].sizes[p->models[i].n_sizes - 1].batch == MODELS_BATCH)
            usable[n_usable++] = i;
    if (!n_usable) {
        free(models);
        return SH_FAIL(err, SH_E_INVALID, "the profile has no models of batch %u", MODELS_BATCH);
    }
    for (size_t i = 0; i < n; i++)
        take(&p->models[usable[i % n_usable]], slo_ns, &models[i]);
    *out = models;
    return SH_OK;
}

double models_capacity(const struct trace_requests *t, const struct serve_model *models)
{
    double ns = 0;

    for (size_t i = 0; i < t->n; i++) {
        const struct serve_model *m = &models[t->items[i].model];

        for (uint32_t k = 0; k < m->n_layers; k++)
            ns += (double)m->layer_ns[k] * m->times[1];
    }
    return ns > 0 ? (double)t->n * 1e9 / ns : 0;
}
