/* recent.c - see recent.h. */
#include "scheduler/peers/recent.h"

#include "common/mem.h"
#include "common/units.h"

#include <stdlib.h>
#include <string.h>

#define CELL_ROWS 16 /* what does not fit is left out */

struct cell { /* the time between two reports */
    int64_t at_ms, ms;
    struct msg_use_row rows[CELL_ROWS];
    size_t n;
};

struct shown {
    int64_t at_ms;
    struct msg_switch s;
};

struct recent {
    struct cell cells[RECENT_CELLS]; /* the oldest first */
    size_t n;
    struct cell now; /* not over yet; at_ms: its begin */
    struct shown switches[RECENT_SWITCHES];
    size_t n_switches;
};

int recent_new(struct recent **out, struct sh_err *err)
{
    *out = calloc(1, sizeof(**out));
    return *out ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate what an executor did");
}

void recent_free(struct recent *r)
{
    free(r);
}

static bool is_named(const char tenant[static 64])
{
    return memchr(tenant, 0, 64) != NULL;
}

static void add_row(struct cell *c, const struct msg_use_row *row)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->rows[i].use == row->use && strcmp(c->rows[i].tenant, row->tenant) == 0) {
            c->rows[i].ns += row->ns;
            return;
        }
    if (c->n < CELL_ROWS)
        c->rows[c->n++] = *row;
}

static void add_switch(struct recent *r, const struct msg_switch *s, int64_t now_ms)
{
    if (r->n_switches == RECENT_SWITCHES) {
        memmove(r->switches, r->switches + 1, (RECENT_SWITCHES - 1) * sizeof(r->switches[0]));
        r->n_switches--;
    }
    r->switches[r->n_switches++] = (struct shown){now_ms - s->age_ns / SH_MS(1), *s};
}

void recent_add(struct recent *r, const struct msg_exec_use *m, int64_t now_ms)
{
    const char *rows = m->rows.data, *switches = m->switches.data;
    struct msg_use_row row;
    struct msg_switch s;

    for (size_t i = 0; i < SH_MIN(m->rows.len / sizeof(row), (size_t)MSG_USE_ROWS); i++) {
        memcpy(&row, rows + i * sizeof(row), sizeof(row)); /* it lies anywhere in a frame */
        if (is_named(row.tenant) && row.use < MSG_N_USES && row.ns > 0)
            add_row(&r->now, &row);
    }
    for (size_t i = 0; i < SH_MIN(m->switches.len / sizeof(s), (size_t)MSG_SWITCHES); i++) {
        memcpy(&s, switches + i * sizeof(s), sizeof(s));
        if (is_named(s.tenant) && s.age_ns >= 0)
            add_switch(r, &s, now_ms);
    }
}

static void end_cell(struct recent *r, int64_t now_ms)
{
    if (r->n == RECENT_CELLS) {
        memmove(r->cells, r->cells + 1, (RECENT_CELLS - 1) * sizeof(r->cells[0]));
        r->n--;
    }
    if (r->now.at_ms) { /* else it is the first one, and nobody knows when it began */
        r->cells[r->n] = r->now;
        r->cells[r->n].at_ms = now_ms;
        r->cells[r->n++].ms = now_ms - r->now.at_ms;
    }
    r->now.at_ms = now_ms;
    r->now.n = 0;
}

static json_t *name_of(const char *tenant)
{
    return tenant[0] ? json_string(tenant) : json_null();
}

static json_t *cell_of(const struct cell *c)
{
    json_t *parts = json_array();

    for (size_t i = 0; i < c->n; i++)
        json_array_append_new(parts,
                              json_pack("{s:o, s:s, s:I}", "tenant", name_of(c->rows[i].tenant),
                                        "use", SH_MSG_USE_NAME[c->rows[i].use], "us",
                                        (json_int_t)(c->rows[i].ns / 1000)));
    return json_pack("{s:I, s:I, s:o}", "at", (json_int_t)c->at_ms, "ms", (json_int_t)c->ms,
                     "parts", parts);
}

static double ms_of(int64_t ns)
{
    return (double)ns / 1e6;
}

static json_t *switch_of(const struct shown *x)
{
    const struct msg_switch *s = &x->s;

    return json_pack(
        "{s:I, s:o, s:I, s:I, s:b, s:f, s:f, s:f, s:f, s:f, s:I}", "at", (json_int_t)x->at_ms,
        "tenant", name_of(s->tenant), "version", (json_int_t)s->version_id, "batch",
        (json_int_t)s->batch, "stopped", s->stopped != 0, "wait_ms", ms_of(s->wait_ns), "memory_ms",
        ms_of(s->memory_ns), "first_ms", ms_of(s->first_ns), "compute_ms", ms_of(s->compute_ns),
        "copy_ms", ms_of(s->copy_ns), "copied_bytes", (json_int_t)s->copied_bytes);
}

json_t *recent_show(struct recent *r, int64_t now_ms)
{
    json_t *cells = json_array(), *switches = json_array();

    if (!r) {
        json_decref(cells);
        json_decref(switches);
        return NULL;
    }
    end_cell(r, now_ms);
    for (size_t i = 0; i < r->n; i++)
        json_array_append_new(cells, cell_of(&r->cells[i]));
    for (size_t i = 0; i < r->n_switches; i++)
        json_array_append_new(switches, switch_of(&r->switches[i]));
    return json_pack("{s:o, s:o}", "cells", cells, "switches", switches);
}
