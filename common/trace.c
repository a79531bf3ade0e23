/* trace.c - see trace.h. Each slot is a sequence lock: its number is odd while it is written. */
#include "common/trace.h"

#include "common/clock.h"
#include "common/io.h"
#include "common/json.h"
#include "common/mem.h"
#include "common/units.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

struct slot {
    _Atomic uint64_t seq; /* 2 * (number of the span + 1), less one while it is written; 0: empty */
    struct sh_trace_span span;
    char what[SH_TRACE_WHAT], id[SH_TRACE_ID];
};

static struct slot ring[SH_TRACE_SPANS];
static _Atomic uint64_t n_spans;
static _Atomic int64_t detail_until_ns;
static atomic_bool is_wishing;
static pthread_mutex_t wish_lock = PTHREAD_MUTEX_INITIALIZER; /* of what follows; held for a copy */
static struct sh_trace_wish wishes[SH_TRACE_WISHES];
static size_t n_wishes;
static uint64_t n_wishes_lost;

void sh_trace_add(const struct sh_trace_span *s)
{
    const uint64_t n = atomic_fetch_add_explicit(&n_spans, 1, memory_order_relaxed);
    struct slot *at = &ring[n % SH_TRACE_SPANS];

    atomic_store_explicit(&at->seq, 2 * n + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    at->span = *s;
    if (!s->end_ns)
        at->span.end_ns = sh_clock_ns();
    sh_strlcpy(at->what, s->what ? s->what : "", sizeof(at->what));
    sh_strlcpy(at->id, s->id ? s->id : "", sizeof(at->id));
    atomic_store_explicit(&at->seq, 2 * n + 2, memory_order_release);
}

void sh_trace_detail(double seconds)
{
    seconds = SH_MIN(SH_MAX(seconds, 0), SH_TRACE_MAX_S);
    atomic_store(&detail_until_ns, sh_clock_ns() + (int64_t)(seconds * 1e9));
}

bool sh_trace_is_detailed(void)
{
    const int64_t until = atomic_load_explicit(&detail_until_ns, memory_order_relaxed);

    return until != 0 && sh_clock_ns() < until;
}

/* A whole copy of span n; false: it is being written, or another has taken its slot. */
static bool copy_span(uint64_t n, struct slot *out)
{
    struct slot *at = &ring[n % SH_TRACE_SPANS];

    if (atomic_load_explicit(&at->seq, memory_order_acquire) != 2 * n + 2)
        return false;
    out->span = at->span;
    memcpy(out->what, at->what, sizeof(out->what));
    memcpy(out->id, at->id, sizeof(out->id));
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&at->seq, memory_order_relaxed) == 2 * n + 2;
}

void sh_trace_each(sh_trace_span_fn *fn, void *arg)
{
    const uint64_t end = atomic_load(&n_spans);
    struct slot s;

    for (uint64_t n = end > SH_TRACE_SPANS ? end - SH_TRACE_SPANS : 0; n < end; n++) {
        if (!copy_span(n, &s))
            continue;
        s.span.what = s.what;
        s.span.id = s.id;
        fn(&s.span, arg);
    }
}

static void add_id(json_t *j, const char *name, uint64_t value)
{
    char text[24];

    if (!value)
        return;
    snprintf(text, sizeof(text), "%" PRIu64, value); /* beyond what JSON's readers keep exact */
    json_object_set_new(j, name, json_string(text));
}

static int print_one(const struct slot *s, bool is_first, struct sh_buf *out, struct sh_err *err)
{
    json_t *j =
        json_pack("{s:s, s:s, s:I, s:I}", "name", s->span.name, "track", s->span.track, "begin_ns",
                  (json_int_t)s->span.begin_ns, "end_ns", (json_int_t)s->span.end_ns);
    char *text = NULL;
    int rc;

    if (!j)
        return SH_FAIL(err, SH_E_NOMEM, "could not describe a span");
    add_id(j, "api", s->span.api);
    add_id(j, "rid", s->span.rid);
    add_id(j, "run", s->span.run);
    if (s->span.bytes)
        json_object_set_new(j, "bytes", json_integer((json_int_t)s->span.bytes));
    if (s->span.job)
        json_object_set_new(j, "job", json_integer(s->span.job));
    if (s->span.rc)
        json_object_set_new(j, "code", json_string(sh_rc_name(s->span.rc)));
    if (s->what[0])
        json_object_set_new(j, "what", json_string(s->what));
    if (s->id[0])
        json_object_set_new(j, "id", json_string(s->id));
    rc = sh_json_dump_unsorted(j, &text, err);
    if (!rc)
        rc = sh_buf_printf(out, err, "%s%s", is_first ? "" : ",\n", text);
    free(text);
    json_decref(j);
    return rc;
}

/* A span, then its stages, each of which begins where the one before ends. */
static int print_span(const struct slot *s, bool is_first, struct sh_buf *out, struct sh_err *err)
{
    const char *const *stages = s->span.stages;
    struct slot part = *s;
    int rc = print_one(s, is_first, out, err);

    for (size_t i = 0; !rc && stages && i < SH_TRACE_STAGES && stages[i]; i++) {
        const bool is_last = i + 1 == SH_TRACE_STAGES || !stages[i + 1];
        const int64_t end = is_last ? s->span.end_ns : s->span.stage_ends_ns[i];

        part.span.name = stages[i];
        part.span.end_ns = SH_MIN(SH_MAX(end, part.span.begin_ns), s->span.end_ns);
        rc = print_one(&part, false, out, err);
        part.span.begin_ns = part.span.end_ns;
    }
    return rc;
}

int sh_trace_render(double seconds, struct sh_buf *out, struct sh_err *err)
{
    const int64_t now = sh_clock_ns();
    const int64_t from = now - (int64_t)(SH_MIN(SH_MAX(seconds, 0), (double)SH_TRACE_MAX_S) * 1e9);
    const uint64_t end = atomic_load(&n_spans);
    const uint64_t begin = end > SH_TRACE_SPANS ? end - SH_TRACE_SPANS : 0;
    char boot[SH_BOOT_ID];
    struct slot s;
    bool is_first = true, is_older = begin == 0;
    int rc;

    sh_boot_id(boot);
    rc = sh_buf_printf(
        out, err, "{\"boot\":\"%s\",\"now_ns\":%" PRId64 ",\"wall_ns\":%" PRId64 ",\n\"spans\":[\n",
        boot, now, SH_MS(sh_clock_wall_ms()));

    for (uint64_t n = begin; !rc && n < end; n++) {
        if (!copy_span(n, &s))
            continue;
        is_older |= s.span.end_ns < from;
        if (s.span.end_ns < from)
            continue;
        rc = print_span(&s, is_first, out, err);
        is_first = false;
    }
    /* All that is left ended in the time asked for, so there was more. */
    return rc ? rc : sh_buf_printf(out, err, "],\n\"is_cut\":%s}\n", is_older ? "false" : "true");
}

/* ---------------------------------------------------------------- what a collector gets */

void sh_trace_set_wishing(bool does)
{
    pthread_mutex_lock(&wish_lock);
    n_wishes = 0;
    n_wishes_lost = 0;
    pthread_mutex_unlock(&wish_lock);
    atomic_store(&is_wishing, does);
}

bool sh_trace_is_wishing(void)
{
    return atomic_load_explicit(&is_wishing, memory_order_relaxed);
}

bool sh_trace_wish(const struct sh_trace_wish *w)
{
    bool has_room;

    if (!sh_trace_is_wishing())
        return true;
    pthread_mutex_lock(&wish_lock);
    has_room = n_wishes < SH_TRACE_WISHES;
    if (has_room)
        wishes[n_wishes++] = *w;
    else
        n_wishes_lost++;
    pthread_mutex_unlock(&wish_lock);
    return has_room;
}

void sh_trace_wish_all(uint64_t api, const struct msg_spans_wanted *m)
{
    const struct msg_span_wish *rows = m->rows.data;

    for (size_t i = 0; i < m->rows.len / sizeof(*rows); i++) {
        struct sh_trace_wish w = {.api = api, .rid = rows[i].rid, .parent = rows[i].parent};

        memcpy(w.trace, rows[i].trace, sizeof(w.trace));
        sh_trace_wish(&w);
    }
}

size_t sh_trace_take_wishes(struct sh_trace_wish *out, size_t n, uint64_t *lost)
{
    pthread_mutex_lock(&wish_lock);
    n = SH_MIN(n, n_wishes);
    memcpy(out, wishes, n * sizeof(*out));
    memmove(wishes, wishes + n, (n_wishes - n) * sizeof(*out));
    n_wishes -= n;
    *lost = n_wishes_lost;
    n_wishes_lost = 0;
    pthread_mutex_unlock(&wish_lock);
    return n;
}

uint64_t sh_trace_stage_id(uint64_t span, unsigned k)
{
    uint64_t x = span + (k + 1) * UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */

    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    return x ? x : 1;
}
