/* traffic.c - see traffic.h. */
#include "api/infer/traffic.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct traffic {
    pthread_mutex_t lock;
    json_t *models;  /* by "tenant/model"; those without a request are not there */
    double window_s; /* < 0: no scheduler has said */
};

int traffic_new(struct traffic **out, struct sh_err *err)
{
    struct traffic *t = calloc(1, sizeof(*t));

    *out = NULL;
    if (t)
        t->models = json_object();
    if (!t || !t->models) {
        free(t);
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the rates of models");
    }
    pthread_mutex_init(&t->lock, NULL);
    t->window_s = -1;
    *out = t;
    return SH_OK;
}

void traffic_free(struct traffic *t)
{
    if (!t)
        return;
    json_decref(t->models);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

void traffic_clear(struct traffic *t)
{
    pthread_mutex_lock(&t->lock);
    json_object_clear(t->models);
    t->window_s = -1;
    pthread_mutex_unlock(&t->lock);
}

/* To so many places: more of them say nothing. */
static double round_to(double x, double places)
{
    return round(x * places) / places;
}

static json_t *line(double window_s, uint64_t n, double p50_ms, double p99_ms)
{
    const double least = fmax(window_s, 1);

    return json_pack("{s:f, s:I, s:f, s:o, s:o}", "window_s", round_to(least, 10), "requests",
                     (json_int_t)n, "per_s", round_to((double)n / least, 100), "p50_ms",
                     n ? json_real(round_to(p50_ms, 1000)) : json_null(), "p99_ms",
                     n ? json_real(round_to(p99_ms, 1000)) : json_null());
}

static void name(const char *tenant, const char *model, char out[static 256])
{
    snprintf(out, 256, "%.63s/%.128s", tenant, model);
}

void traffic_note(struct traffic *t, const struct msg_model_traffic *m)
{
    char key[256];

    name(m->tenant, m->model, key);
    pthread_mutex_lock(&t->lock);
    t->window_s = m->window_s;
    if (m->n_requests)
        json_object_set_new(t->models, key, line(m->window_s, m->n_requests, m->p50_ms, m->p99_ms));
    else
        json_object_del(t->models, key);
    pthread_mutex_unlock(&t->lock);
}

json_t *traffic_of(struct traffic *t, const char *tenant, const char *model)
{
    json_t *out;
    char key[256];

    name(tenant, model, key);
    pthread_mutex_lock(&t->lock);
    out = json_object_get(t->models, key);
    if (out)
        out = json_deep_copy(out);
    else
        out = t->window_s < 0 ? json_null() : line(t->window_s, 0, 0, 0);
    pthread_mutex_unlock(&t->lock);
    return out;
}
