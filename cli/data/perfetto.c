/* perfetto.c - see perfetto.h. */
#include "cli/data/perfetto.h"

#include "common/hash.h"
#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LANES 256
#define MAX_HOSTS 32
#define MAX_IDS 64 /* of a run that are named */

struct span {
    const json_t *j;                                        /* BORROWED from its source */
    const char *name, *track, *what, *id, *api, *rid, *run; /* "": none */
    int64_t begin_ns, end_ns;
    size_t source;
    unsigned lane;
};

struct group { /* spans of one request or run on a track: they stay together */
    struct span *first;
    size_t n;
    int64_t begin_ns, end_ns;
};

struct merge {
    const struct perfetto_source *sources;
    size_t n_sources;
    struct span *spans; /* OWNED */
    size_t n;
    struct {
        const char *boot;
        int64_t to_wall_ns;
    } hosts[MAX_HOSTS];
    size_t n_hosts;
    int64_t start_ns;
    json_t *ids;    /* OWNED: "api/rid" -> id */
    json_t *runs;   /* OWNED: run -> [id] */
    json_t *events; /* OWNED */
};

/* ---------------------------------------------------------------- reading */

/* What is added to the clock of a source's host. The first word of a host counts for all of its
 * processes: wall clocks are read in milliseconds. */
static int host_offset(struct merge *m, const json_t *trace, int64_t *out, struct sh_err *err)
{
    const char *boot = sh_json_text(trace, "boot");

    for (size_t i = 0; i < m->n_hosts; i++)
        if (strcmp(m->hosts[i].boot, boot) == 0) {
            *out = m->hosts[i].to_wall_ns;
            return SH_OK;
        }
    if (m->n_hosts == MAX_HOSTS)
        return SH_FAIL(err, SH_E_TOOBIG, "a trace takes at most %d hosts", MAX_HOSTS);
    *out = json_integer_value(json_object_get(trace, "wall_ns")) -
           json_integer_value(json_object_get(trace, "now_ns"));
    m->hosts[m->n_hosts].boot = boot;
    m->hosts[m->n_hosts++].to_wall_ns = *out;
    return SH_OK;
}

static int read_source(struct merge *m, size_t source, struct sh_err *err)
{
    const json_t *trace = m->sources[source].trace, *j;
    int64_t offset = 0;
    size_t i;
    int rc = host_offset(m, trace, &offset, err);

    json_array_foreach(json_object_get(trace, "spans"), i, j)
    {
        struct span *s = &m->spans[m->n];

        if (rc)
            return rc;
        *s = (struct span){.j = j,
                           .name = sh_json_text(j, "name"),
                           .track = sh_json_text(j, "track"),
                           .what = sh_json_text(j, "what"),
                           .id = sh_json_text(j, "id"),
                           .api = sh_json_text(j, "api"),
                           .rid = sh_json_text(j, "rid"),
                           .run = sh_json_text(j, "run"),
                           .begin_ns = json_integer_value(json_object_get(j, "begin_ns")) + offset,
                           .end_ns = json_integer_value(json_object_get(j, "end_ns")) + offset,
                           .source = source};
        if (!s->name[0] || !s->track[0] || s->end_ns < s->begin_ns)
            return SH_FAIL(err, SH_E_INVALID, "%s sent a span without name, track or length",
                           m->sources[source].name);
        m->start_ns = m->n ? SH_MIN(m->start_ns, s->begin_ns) : s->begin_ns;
        m->n++;
    }
    return rc;
}

static int read_all(struct merge *m, struct sh_err *err)
{
    size_t n = 0;
    int rc = SH_OK;

    for (size_t i = 0; i < m->n_sources; i++)
        n += json_array_size(json_object_get(m->sources[i].trace, "spans"));
    m->spans = calloc(n + 1, sizeof(*m->spans));
    if (!m->spans)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu spans", n);
    for (size_t i = 0; !rc && i < m->n_sources; i++)
        rc = read_source(m, i, err);
    return rc;
}

/* ---------------------------------------------------------------- joining */

static void request_key(const struct span *s, char key[static 64])
{
    snprintf(key, 64, "%.24s/%.24s", s->api, s->rid);
}

/* The ids of the clients' requests, and of the requests of each run. */
static void join_requests(struct merge *m)
{
    char key[64];

    for (size_t i = 0; i < m->n; i++) {
        const struct span *s = &m->spans[i];

        if (!s->rid[0] || !s->id[0])
            continue;
        request_key(s, key);
        json_object_set_new(m->ids, key, json_string(s->id));
    }
    for (size_t i = 0; i < m->n; i++) {
        const struct span *s = &m->spans[i];
        json_t *list, *id;

        if (!s->rid[0] || !s->run[0])
            continue;
        request_key(s, key);
        id = json_object_get(m->ids, key);
        list = json_object_get(m->runs, s->run);
        if (!list) {
            list = json_object();
            json_object_set_new(m->runs, s->run, list);
        }
        if (id && json_object_size(list) < MAX_IDS)
            json_object_set_new(list, json_string_value(id), json_true());
    }
}

static void add_ids(const struct merge *m, const struct span *s, json_t *args)
{
    char key[64];
    json_t *list = json_object_get(m->runs, s->run);
    const char *name;
    json_t *value, *ids;

    if (s->rid[0]) {
        const json_t *id;

        request_key(s, key);
        id = json_object_get(m->ids, key);
        if (id)
            json_object_set(args, "id", (json_t *)(uintptr_t)id);
        return;
    }
    if (json_object_size(list) == 0)
        return;
    ids = json_array();
    json_object_foreach(list, name, value) json_array_append_new(ids, json_string(name));
    json_object_set_new(args, "ids", ids);
}

/* ---------------------------------------------------------------- lanes */

static bool is_one_group(const struct span *a, const struct span *b)
{
    if (a->source != b->source || strcmp(a->track, b->track) != 0)
        return false;
    if (a->rid[0] || b->rid[0])
        return strcmp(a->api, b->api) == 0 && strcmp(a->rid, b->rid) == 0;
    return a->run[0] && strcmp(a->run, b->run) == 0;
}

/* By source and track, then what belongs together, then in order of begin; the longer first. */
static int by_group(const void *va, const void *vb)
{
    const struct span *a = va, *b = vb;
    int d = (a->source > b->source) - (a->source < b->source);

    if (!d)
        d = strcmp(a->track, b->track);
    if (!d)
        d = strcmp(a->api, b->api);
    if (!d)
        d = strcmp(a->rid, b->rid);
    if (!d)
        d = a->rid[0] ? 0 : strcmp(a->run, b->run);
    if (!d)
        d = (a->begin_ns > b->begin_ns) - (a->begin_ns < b->begin_ns);
    return d ? d : (a->end_ns < b->end_ns) - (a->end_ns > b->end_ns);
}

static int by_begin(const void *va, const void *vb)
{
    const struct group *a = va, *b = vb;
    int d = (a->first->source > b->first->source) - (a->first->source < b->first->source);

    if (!d)
        d = strcmp(a->first->track, b->first->track);
    return d ? d : (a->begin_ns > b->begin_ns) - (a->begin_ns < b->begin_ns);
}

/* Each group takes the first lane of its track that is free when it begins; what finds none (there
 * are MAX_LANES) shares the last. */
static void take_lanes(struct group *groups, size_t n)
{
    int64_t ends[MAX_LANES];
    size_t n_lanes = 0;

    for (size_t i = 0; i < n; i++) {
        const struct span *s = groups[i].first;
        unsigned lane = 0;

        if (i == 0 || s->source != groups[i - 1].first->source ||
            strcmp(s->track, groups[i - 1].first->track) != 0)
            n_lanes = 0;
        while (lane < n_lanes && ends[lane] > groups[i].begin_ns)
            lane++;
        if (lane == n_lanes && n_lanes < MAX_LANES)
            n_lanes++;
        lane = SH_MIN(lane, (unsigned)MAX_LANES - 1);
        ends[lane] = groups[i].end_ns;
        for (size_t k = 0; k < groups[i].n; k++)
            groups[i].first[k].lane = lane;
    }
}

static int assign_lanes(struct merge *m, struct sh_err *err)
{
    struct group *groups = calloc(m->n + 1, sizeof(*groups));
    size_t n = 0;

    if (!groups)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the lanes of %zu spans", m->n);
    qsort(m->spans, m->n, sizeof(*m->spans), by_group);
    for (size_t i = 0; i < m->n; i++) {
        struct span *s = &m->spans[i];

        if (i == 0 || !is_one_group(&m->spans[i - 1], s))
            groups[n++] = (struct group){.first = s, .begin_ns = s->begin_ns};
        groups[n - 1].n++;
        groups[n - 1].end_ns = SH_MAX(groups[n - 1].end_ns, s->end_ns);
    }
    qsort(groups, n, sizeof(*groups), by_begin);
    take_lanes(groups, n);
    free(groups);
    return SH_OK;
}

/* ---------------------------------------------------------------- writing */

static void add_event(struct merge *m, json_t *e)
{
    json_array_append_new(m->events, e);
}

static double us(const struct merge *m, int64_t ns)
{
    return (double)(ns - m->start_ns) / 1e3;
}

/* A number for each lane of each track, and a name for it. */
static int name_lanes(struct merge *m, unsigned *tids, struct sh_err *err)
{
    json_t *known = json_object(); /* "source/lane/track" -> its number */
    char key[128], name[96];

    for (size_t i = 0; known && i < m->n; i++) {
        const struct span *s = &m->spans[i];

        snprintf(key, sizeof(key), "%zu/%u/%s", s->source, s->lane, s->track);
        tids[i] = (unsigned)json_integer_value(json_object_get(known, key));
        if (tids[i])
            continue;
        tids[i] = (unsigned)json_object_size(known) + 1;
        json_object_set_new(known, key, json_integer(tids[i]));
        snprintf(name, sizeof(name), s->lane ? "%s %u" : "%s", s->track, s->lane + 1);
        add_event(m,
                  json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "ph", "M", "name", "thread_name",
                            "pid", (int)s->source + 1, "tid", (int)tids[i], "args", "name", name));
    }
    json_decref(known);
    return known ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not name the tracks");
}

static json_t *arguments(const struct merge *m, const struct span *s)
{
    static const char *const KEPT[] = {"what", "rid", "run", "job", "bytes", "code"};
    json_t *args = json_object();

    for (size_t i = 0; i < SH_ARRAY_LEN(KEPT); i++) {
        json_t *value = json_object_get(s->j, KEPT[i]);

        if (value)
            json_object_set(args, KEPT[i], value);
    }
    add_ids(m, s, args);
    return args;
}

/* An arrow from the API's span of a request to the scheduler's and on to the executor's. Perfetto
 * takes its id as a number in hexadecimal, and draws none of another form. */
static void add_arrow(struct merge *m, const struct span *s, unsigned tid)
{
    const char *phase = strcmp(s->name, "request") == 0 ? "s"
                        : strcmp(s->name, "queue") == 0 ? "t"
                        : strcmp(s->name, "part") == 0  ? "f"
                                                        : NULL;
    char key[64], id[24];

    if (!phase || !s->rid[0])
        return;
    request_key(s, key);
    snprintf(id, sizeof(id), "%" PRIx64, sh_hash_name(key));
    add_event(m, json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:f, s:s}", "ph", phase, "name",
                           "request", "cat", "request", "id", id, "pid", (int)s->source + 1, "tid",
                           (int)tid, "ts", us(m, s->begin_ns), "bp", "e"));
}

static void write_span(struct merge *m, const struct span *s, unsigned tid)
{
    char name[128];

    snprintf(name, sizeof(name), s->what[0] ? "%s %s" : "%s", s->name, s->what);
    add_event(m, json_pack("{s:s, s:s, s:s, s:i, s:i, s:f, s:f, s:o}", "ph", "X", "name", name,
                           "cat", s->track, "pid", (int)s->source + 1, "tid", (int)tid, "ts",
                           us(m, s->begin_ns), "dur", (double)(s->end_ns - s->begin_ns) / 1e3,
                           "args", arguments(m, s)));
    add_arrow(m, s, tid);
}

static int write_all(struct merge *m, struct sh_err *err)
{
    unsigned *tids = calloc(m->n + 1, sizeof(*tids));
    int rc;

    if (!tids)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the tracks");
    for (size_t i = 0; i < m->n_sources; i++)
        add_event(m, json_pack("{s:s, s:s, s:i, s:{s:s}}", "ph", "M", "name", "process_name", "pid",
                               (int)i + 1, "args", "name", m->sources[i].name));
    rc = name_lanes(m, tids, err);
    for (size_t i = 0; !rc && i < m->n; i++)
        write_span(m, &m->spans[i], tids[i]);
    free(tids);
    return rc;
}

int perfetto_merge(const struct perfetto_source *sources, size_t n, json_t **out, size_t *n_spans,
                   size_t *n_cut, struct sh_err *err)
{
    struct merge m = {.sources = sources,
                      .n_sources = n,
                      .ids = json_object(),
                      .runs = json_object(),
                      .events = json_array()};
    int rc =
        m.ids && m.runs && m.events ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not begin a trace");

    *out = NULL;
    *n_cut = 0;
    for (size_t i = 0; i < n; i++)
        *n_cut += json_is_true(json_object_get(sources[i].trace, "is_cut"));
    if (!rc)
        rc = read_all(&m, err);
    if (!rc)
        join_requests(&m);
    if (!rc)
        rc = assign_lanes(&m, err);
    if (!rc)
        rc = write_all(&m, err);
    *n_spans = m.n;
    if (!rc) {
        *out = json_pack("{s:s, s:O}", "displayTimeUnit", "ms", "traceEvents", m.events);
        if (!*out)
            rc = SH_FAIL(err, SH_E_NOMEM, "could not write the trace");
    }
    free(m.spans);
    json_decref(m.ids);
    json_decref(m.runs);
    json_decref(m.events);
    return rc;
}
