/* profile.c - what executors measured of a version, as the database keeps it; what copies take. */
#include "common/json.h"
#include "common/mem.h"
#include "scheduler/models/models.h"
#include "scheduler/peers/executors.h"
#include "scheduler/sched.h"

#include <math.h>
#include <string.h>

char *models__profile_json(const struct model *m)
{
    json_t *list = json_array();
    char *text = NULL;

    for (size_t i = 0; list && i < m->n_profile; i++)
        json_array_append_new(
            list, json_pack("{s:I,s:f,s:f}", "batch", (json_int_t)m->profile[i].batch, "compute_ns",
                            m->profile[i].compute_ns, "tail_ns", m->profile[i].tail_ns));
    if (list && m->n_profile)
        text = json_dumps(list, JSON_COMPACT);
    json_decref(list);
    return text;
}

void models__read_profile(struct model *m, const char *text)
{
    json_t *list = NULL, *item;
    size_t i;

    if (!text || sh_json_parse(text, strlen(text), 1u << 16, &list, NULL))
        return; /* only a first estimate: executors measure again */
    json_array_foreach(list, i, item)
    {
        if (m->n_profile == PREDICT_N_BUCKETS)
            break;
        m->profile[m->n_profile++] = (struct msg_profile){
            .batch = (uint32_t)json_integer_value(json_object_get(item, "batch")),
            .compute_ns = json_number_value(json_object_get(item, "compute_ns")),
            .tail_ns = json_is_number(json_object_get(item, "tail_ns"))
                           ? json_number_value(json_object_get(item, "tail_ns"))
                           : NAN};
    }
    json_decref(list);
    predict_profile(&m->predict, m->profile, m->n_profile);
}

double models_disk_ns(const struct model *m, const struct exec *e)
{
    const double rate = e->state.disk_bytes_per_s;

    return m->on[e->index].is_on_disk && isfinite(rate) && rate >= 1 ? 1e9 / rate : 0;
}

int64_t models_copy_ns(const struct model *m, const struct exec *e)
{
    const struct model_on *on = &m->on[e->index];
    const double share = on->link_share > 0 ? on->link_share : 1;

    return predict_missing_ns(m->image_bytes, on->resident_bytes, share * e->ns_per_byte,
                              share * models_disk_ns(m, e));
}

void models_set_unpacking(struct model *m, const struct exec *e, int64_t ns)
{
    m->on[e->index].unpack_ns = SH_MIN(SH_MAX(ns, 0), SH_DAYS(1));
}

int64_t models_unpack_ns(const struct model *m, const struct exec *e)
{
    const int64_t ns = m->on[e->index].unpack_ns;

    for (const struct run *r = ns ? e->runs : NULL; r; r = r->next)
        if (r->model == m)
            return 0;
    return ns;
}
