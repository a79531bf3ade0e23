/* slo.c - a model's latency target, and how well it was met. */
#include "api/api.h"
#include "api/handlers.h"
#include "api/infer/link.h"
#include "api/infer/slo_count.h"
#include "api/request/noun.h"
#include "api/store/store.h"
#include "common/clock.h"
#include "common/latency.h"
#include "common/mem.h"

#include <string.h>

int slo_get(struct api_req *q, struct sh_err *err)
{
    json_t *j = NULL;
    int rc = SH_OK;

    if (noun_is_name(q->params[0]))
        rc = store_slo_get(q, q->params[0], &j, err);
    return noun_reply(q, rc, j, "latency target of model", q->params[0], err);
}

/* Adds what follows from the sums; takes the buckets out. */
static int add_figures(json_t *j, struct sh_err *err)
{
    int64_t count[SH_LATENCY_BUCKETS] = {0};
    double met = json_number_value(json_object_get(j, "met"));
    double missed = json_number_value(json_object_get(j, "missed"));
    double rejected = json_number_value(json_object_get(j, "rejected"));
    double all = met + missed + rejected;
    double may_fail = all * (1 - json_number_value(json_object_get(j, "percentile")) / 100);
    const json_t *pair;
    json_t *more;
    size_t i;

    json_array_foreach(json_object_get(j, "buckets"), i, pair)
    {
        json_int_t b = json_integer_value(json_array_get(pair, 0));

        if (b >= 0 && b < SH_LATENCY_BUCKETS)
            count[b] = json_integer_value(json_array_get(pair, 1));
    }
    json_object_del(j, "buckets");
    more = json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "requests", (json_int_t)all,
                     "attained_percent", all > 0 ? 100 * met / all : 0, "error_budget_left",
                     all > 0 ? 1 - (missed + rejected) / may_fail : 1, "p50_ms",
                     sh_latency_percentile_ms(count, 50), "p95_ms",
                     sh_latency_percentile_ms(count, 95), "p99_ms",
                     sh_latency_percentile_ms(count, 99));
    if (more && all == 0)
        json_object_set_new(more, "attained_percent", json_null());
    if (more && met + missed == 0)
        for (i = 0; i < 3; i++)
            json_object_set_new(more, (const char *const[]){"p50_ms", "p95_ms", "p99_ms"}[i],
                                json_null());
    return json_object_update_new(j, more)
               ? SH_FAIL(err, SH_E_NOMEM, "could not allocate the report")
               : SH_OK;
}

int slo_attainment(struct api_req *q, struct sh_err *err)
{
    static const int64_t MINUTES[] = {5, 60, 24 * 60};
    const char *window = uri_query(&q->uri, "window");
    json_t *j = NULL;
    unsigned w = 0;
    int rc;

    window = window ? window : "1h";
    rc = sh_field_word("window", window, SH_SLO_WINDOWS, &w, err);
    if (!rc)
        rc = slo_counts_flush(q->api->slo, q->db, sh_clock_wall_ms(), err); /* what we know best */
    if (!rc && noun_is_name(q->params[0]))
        rc = store_slo_attainment(q, q->params[0], MINUTES[w], &j, err);
    if (!rc && !j)
        rc = noun_missing("latency target of model", q->params[0], err);
    if (!rc)
        rc = add_figures(j, err);
    if (!rc && json_object_set_new(j, "window", json_string(window)))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the report");
    if (rc) {
        json_decref(j);
        return rc;
    }
    return req_reply(q, j, NULL, err);
}

int slo_put(struct api_req *q, struct sh_err *err)
{
    struct store_slo s = {.percentile = 99, .on_miss = "best-effort"};
    const char *match;
    char buf[24];
    struct sh_json_field f[] = {
        {"latency_ms", SH_JSON_F64, &s.latency_ms, .required = true, .min = 0.001, .max = 3.6e6},
        {"percentile", SH_JSON_F64, &s.percentile, .min = 0.001, .max = 99.999},
        {"priority", SH_JSON_INT, &s.priority, .min = 0, .max = 100},
        {"on_miss", SH_JSON_STR, &s.on_miss, .required = false},
    };
    json_t *j = NULL, *now = NULL;
    int rc = noun_is_name(q->params[0]) ? SH_OK : noun_missing("model", q->params[0], err);

    if (!rc)
        rc = noun_read(q, "", f, SH_ARRAY_LEN(f), err);
    if (!rc)
        rc = noun_check_choice("on_miss", s.on_miss, SH_ON_MISS, err);
    if (!rc)
        rc = req_if_match(q, buf, &match, err);
    if (!rc)
        rc = store_slo_put(q, q->params[0], match, &s, &j, err);
    if (!rc && !j) {
        rc = store_slo_get(q, q->params[0], &now, err);
        if (!rc && !now)
            rc = match ? SH_FAIL(err, SH_E_PRECONDITION, "the model has no latency target yet")
                       : noun_missing("model of your own", q->params[0], err);
        if (!rc)
            rc = noun_refused(now, match, "latency target", q->params[0],
                              "the model belongs to another tenant", err);
        json_decref(now);
    }
    if (rc)
        return rc;
    link_hint(q->api->link, "models");
    return req_reply(q, j, NULL, err);
}

int slo_delete(struct api_req *q, struct sh_err *err)
{
    const char *match;
    char buf[24];
    json_t *j = NULL, *now = NULL;
    int rc = noun_is_name(q->params[0]) ? SH_OK : noun_missing("model", q->params[0], err);

    if (!rc)
        rc = req_if_match(q, buf, &match, err);
    if (!rc)
        rc = store_slo_delete(q, q->params[0], match, &j, err);
    if (!rc && !j) {
        rc = store_slo_get(q, q->params[0], &now, err);
        if (!rc)
            rc = noun_refused(now, match, "latency target of model", q->params[0],
                              "the model belongs to another tenant", err);
    }
    if (!rc)
        link_hint(q->api->link, "models");
    json_decref(now);
    json_decref(j);
    return rc;
}
