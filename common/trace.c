/* trace.c - see trace.h.
 *
 * Each slot is a sequence lock: its number is odd while it is written. Readers and a writer may be
 * at the same words, so those are atomic: released by the writer, acquired by the reader, who then
 * sees the number that was there before any word that it read. Whoever finds its slot taken by
 * another writer, or by a span of a later round, gives its own up: two never write one slot.
 */
#include "common/trace.h"

#include "common/clock.h"
#include "common/io.h"
#include "common/json.h"
#include "common/mem.h"
#include "common/units.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct record {
    struct sh_trace_span span;
    char what[SH_TRACE_WHAT], id[SH_TRACE_ID];
};

/* Where in a slot what is, in words: a span up to its texts, what is behind these, the texts. */
#define WORD sizeof(uint64_t)
#define BEHIND offsetof(struct sh_trace_span, stages)
#define AT_BEHIND (offsetof(struct sh_trace_span, what) / WORD)
#define AT_WHAT (AT_BEHIND + (sizeof(struct sh_trace_span) - BEHIND) / WORD)
#define AT_ID (AT_WHAT + SH_TRACE_WHAT / WORD)
#define N_WORDS (AT_ID + SH_TRACE_ID / WORD)
#define AT_END (offsetof(struct sh_trace_span, end_ns) / WORD)
_Static_assert(offsetof(struct sh_trace_span, what) % WORD == 0 && BEHIND % WORD == 0 &&
                   SH_TRACE_WHAT % WORD == 0 && SH_TRACE_ID % WORD == 0,
               "each part is whole words");

#define CACHE_LINE 64
struct slot {
    /* 2 * (number of the span + 1), less one while it is written; 0: empty */
    _Alignas(CACHE_LINE) _Atomic uint64_t seq;
    _Atomic uint64_t words[N_WORDS];
};

static struct slot ring[SH_TRACE_SPANS];
static _Atomic uint64_t n_spans;
static _Atomic int64_t detail_until_ns;
static atomic_bool is_wishing;
static pthread_mutex_t wish_lock = PTHREAD_MUTEX_INITIALIZER; /* of what follows; held for a copy */
static struct sh_trace_wish wishes[SH_TRACE_WISHES];
static size_t n_wishes;
static uint64_t n_wishes_lost;

static void release_words(_Atomic uint64_t *at, const void *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t word;

        memcpy(&word, (const char *)from + i * WORD, WORD);
        atomic_store_explicit(&at[i], word, memory_order_release);
    }
}

/* Only the words that it has: what is behind its end is not read. */
static void release_text(_Atomic uint64_t *at, const char *text, size_t size)
{
    size_t len = text ? strnlen(text, size) : 0;
    uint64_t rest = 0;

    if (len == size)
        len = sh_utf8_cut(text, size - 1);
    release_words(at, text, len / WORD);
    if (len % WORD)
        memcpy(&rest, text + len / WORD * WORD, len % WORD);
    atomic_store_explicit(&at[len / WORD], rest, memory_order_release);
}

void sh_trace_add(const struct sh_trace_span *s)
{
    const uint64_t n = atomic_fetch_add_explicit(&n_spans, 1, memory_order_relaxed);
    struct slot *at = &ring[n % SH_TRACE_SPANS];
    uint64_t seq = atomic_load_explicit(&at->seq, memory_order_relaxed);

    if (seq % 2 || seq > 2 * n ||
        !atomic_compare_exchange_strong_explicit(&at->seq, &seq, 2 * n + 1, memory_order_acquire,
                                                 memory_order_relaxed))
        return;
    release_words(at->words, s, AT_BEHIND);
    release_words(at->words + AT_BEHIND, (const char *)s + BEHIND, AT_WHAT - AT_BEHIND);
    if (!s->end_ns)
        atomic_store_explicit(&at->words[AT_END], (uint64_t)sh_clock_ns(), memory_order_release);
    release_text(at->words + AT_WHAT, s->what, SH_TRACE_WHAT);
    release_text(at->words + AT_ID, s->id, SH_TRACE_ID);
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
static bool copy_span(uint64_t n, struct record *out)
{
    struct slot *at = &ring[n % SH_TRACE_SPANS];
    uint64_t words[N_WORDS];

    if (atomic_load_explicit(&at->seq, memory_order_acquire) != 2 * n + 2)
        return false;
    for (size_t i = 0; i < N_WORDS; i++)
        words[i] = atomic_load_explicit(&at->words[i], memory_order_acquire);
    memcpy(&out->span, words, AT_BEHIND * WORD);
    memcpy((char *)&out->span + BEHIND, words + AT_BEHIND, sizeof(out->span) - BEHIND);
    memcpy(out->what, words + AT_WHAT, SH_TRACE_WHAT);
    memcpy(out->id, words + AT_ID, SH_TRACE_ID);
    out->span.what = out->what;
    out->span.id = out->id;
    return atomic_load_explicit(&at->seq, memory_order_relaxed) == 2 * n + 2;
}

void sh_trace_each(sh_trace_span_fn *fn, void *arg)
{
    const uint64_t end = atomic_load(&n_spans);
    struct record s;

    for (uint64_t n = end > SH_TRACE_SPANS ? end - SH_TRACE_SPANS : 0; n < end; n++) {
        if (!copy_span(n, &s))
            continue;
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

static int print_one(const struct record *s, bool is_first, struct sh_buf *out, struct sh_err *err)
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
static int print_span(const struct record *s, bool is_first, struct sh_buf *out, struct sh_err *err)
{
    const char *const *stages = s->span.stages;
    struct record part = *s;
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
    struct record s;
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
