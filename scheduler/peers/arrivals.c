/* arrivals.c - see arrivals.h. */
#include "scheduler/peers/arrivals.h"

#include "common/mem.h"
#include "common/units.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_AT_BYTES 24u /* of a moment as text */

void arrivals_fini(struct arrivals *a)
{
    while (a->all) {
        struct arrivals_row *next = a->all->next;

        free(a->all);
        a->all = next;
    }
    idmap_fini(&a->by_version);
    *a = (struct arrivals){0};
}

static struct arrivals_row *find_arrivals(const struct arrivals *a, const char *tenant,
                                          int64_t version_id)
{
    struct arrivals_row *r = idmap_get(&a->by_version, (uint64_t)version_id);

    while (r && strcmp(r->tenant, tenant) != 0)
        r = r->next_of_version;
    return r;
}

static struct arrivals_row *make_arrivals(struct arrivals *a, const char *tenant,
                                          int64_t version_id)
{
    struct arrivals_row *first = idmap_get(&a->by_version, (uint64_t)version_id);
    struct arrivals_row *r = a->n_rows < ARRIVALS_ROWS ? calloc(1, sizeof(*r)) : NULL;

    if (!r || (!first && idmap_put(&a->by_version, (uint64_t)version_id, r, NULL))) {
        free(r);
        return NULL;
    }
    sh_strlcpy(r->tenant, tenant, sizeof(r->tenant));
    r->version_id = version_id;
    r->unit_ms = 1;
    if (first) {
        r->next_of_version = first->next_of_version;
        first->next_of_version = r;
    }
    r->next = a->all;
    a->all = r;
    a->n_rows++;
    return r;
}

/* Moments become twice as long; until there is room for another. */
static void make_coarser(struct arrivals_row *r)
{
    while (r->n_bins == ARRIVALS_BINS) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < r->n_bins; i++) {
            const struct arrivals_bin b = {r->bins[i].at / 2, r->bins[i].n};

            if (n && r->bins[n - 1].at == b.at)
                r->bins[n - 1].n += b.n;
            else
                r->bins[n++] = b;
        }
        r->n_bins = n;
        r->unit_ms *= 2;
    }
}

void arrivals_add(struct arrivals *a, const char *tenant, int64_t version_id, int64_t now_ns)
{
    struct arrivals_row *r = find_arrivals(a, tenant, version_id);
    struct arrivals_bin *last;
    uint32_t at;

    if (!a->n_requests++)
        a->begun_ns = now_ns;
    if (!r)
        r = make_arrivals(a, tenant, version_id);
    if (!r)
        return;
    make_coarser(r);
    at = (uint32_t)((now_ns - a->begun_ns) / SH_MS(1)) / r->unit_ms;
    last = r->n_bins ? &r->bins[r->n_bins - 1] : NULL;
    r->n_requests++;
    if (last && last->at >= at)
        last->n++;
    else
        r->bins[r->n_bins++] = (struct arrivals_bin){at, 1};
}

void arrivals_sized(struct arrivals *a, const char *tenant, int64_t version_id, uint32_t samples)
{
    struct arrivals_row *r = find_arrivals(a, tenant, version_id);
    unsigned i = 0;

    if (!r)
        return;
    while (i + 1 < ARRIVALS_SIZES && (1u << i) < samples)
        i++;
    r->sized[i]++;
    r->samples[i] += samples;
}

bool arrivals_is_over(const struct arrivals *a, int64_t now_ns)
{
    return a->n_requests && now_ns - a->begun_ns >= ARRIVALS_SLICE_NS;
}

static json_t *arrivals_text(const struct arrivals_row *r)
{
    char text[ARRIVALS_BINS * MAX_AT_BYTES], *p = text;
    uint32_t was = 0;

    for (uint32_t i = 0; i < r->n_bins; i++) {
        const struct arrivals_bin b = r->bins[i];
        const size_t left = sizeof(text) - (size_t)(p - text);

        p += snprintf(p, left, "%s%u", i ? " " : "", b.at - was);
        if (b.n > 1)
            p += snprintf(p, left - 12, "*%u", b.n);
        was = b.at;
    }
    return json_stringn(text, (size_t)(p - text));
}

static json_t *arrivals_sizes(const struct arrivals_row *r)
{
    json_t *list = json_array();

    for (unsigned i = 0; list && i < ARRIVALS_SIZES; i++)
        if (r->sized[i])
            json_array_append_new(
                list, json_pack("[I, I]", (json_int_t)r->sized[i], (json_int_t)r->samples[i]));
    return list;
}

char *arrivals_take(struct arrivals *a, uint64_t *n_requests_out)
{
    json_t *list = json_array();
    char *text = NULL;

    *n_requests_out = a->n_requests;
    for (const struct arrivals_row *r = a->all; list && r; r = r->next)
        json_array_append_new(list,
                              json_pack("{s:s, s:I, s:i, s:I, s:o, s:o}", "tenant", r->tenant,
                                        "version", (json_int_t)r->version_id, "unit_ms",
                                        (int)r->unit_ms, "requests", (json_int_t)r->n_requests,
                                        "at", arrivals_text(r), "sizes", arrivals_sizes(r)));
    if (json_array_size(list))
        text = json_dumps(list, JSON_COMPACT);
    json_decref(list);
    arrivals_fini(a);
    return text;
}
