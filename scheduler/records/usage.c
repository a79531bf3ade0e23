/* usage.c - see usage.h. */
#include "scheduler/records/usage.h"

#include "common/clock.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/units.h"
#include "scheduler/sched.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_AMOUNT SH_S(1000000) /* 11 days of ns: more is no minute's */
_Static_assert(MAX_AMOUNT <= INT64_MAX / MSG_USAGE_ROWS, "a batch has a sum");
#define MAX_AGE_S (31 * INT64_C(86400)) /* what is older by its clock counts as of then */

/* The place of a source that is being written, or of "" a free one; NULL: none. */
static char *writing_place(struct usage *u, const char *source)
{
    for (size_t i = 0; i < USAGE_MAX_WRITING; i++)
        if (strcmp(u->writing[i], source) == 0)
            return u->writing[i];
    return NULL;
}

static void on_stored(void *ctx, void *arg, int rc, const struct sh_err *err)
{
    struct sched *s = ctx;
    const struct store_usage *u = arg;
    struct exec *e = execs_find(&s->execs, u->executor);
    char *place = writing_place(&s->usage, u->source);

    if (place)
        place[0] = '\0';
    if (sched_op_ok(s, "usage.add", rc, err) && e && e->session)
        session_send(e->session, &(struct sh_msg){
                                     .type = MSG_USAGE_STORED,
                                     .u.usage_stored = {.source = u->source, .number = u->number}});
}

static bool is_source(const char *s)
{
    size_t n = strlen(s);

    for (size_t i = 0; i < n; i++)
        if (sh_hex_digit(s[i]) < 0)
            return false;
    return n > 0 && n < STORE_SOURCE_BYTES;
}

/* As the database has it: it can stand between quotes. */
static bool is_tenant(const char t[64])
{
    return memchr(t, '\0', 64) && t[strspn(t, "abcdefghijklmnopqrstuvwxyz0123456789-")] == '\0';
}

static bool is_amount(int64_t n)
{
    return n >= 0 && n <= MAX_AMOUNT;
}

/* Whatever it says, the sums of a batch are numbers that the database can have. */
static bool is_good(const struct msg_usage_row *r)
{
    bool is_job = r->kind == MSG_USAGE_JOB;

    return r->kind <= MSG_USAGE_JOB && is_tenant(r->tenant) && (is_job || r->tenant[0]) &&
           is_amount(r->gpu_ns) && is_amount(r->requests) && is_amount(r->samples) &&
           is_amount(r->step) && (!is_job || r->step <= MAX_AMOUNT / SH_MAX(r->samples, 1));
}

static struct store_usage *usage_batch_new(struct sched *s, const struct exec *e,
                                           const struct msg_usage *m)
{
    size_t n = m->rows.len / sizeof(struct msg_usage_row), n_bad = 0;
    const char *from = m->rows.data;
    struct store_usage *u = calloc(1, sizeof(*u));

    if (u)
        u->rows = calloc(n + 1, sizeof(u->rows[0]));
    if (!u || !u->rows) {
        store_usage_free(u);
        return NULL;
    }
    u->fence = sched_fence(s);
    u->number = (int64_t)m->number;
    u->heard_ns = sh_clock_ns();
    sh_strlcpy(u->source, m->source, sizeof(u->source));
    sh_strlcpy(u->executor, e->info.name, sizeof(u->executor));
    for (size_t i = 0; i < n; i++) {
        struct msg_usage_row *r = &u->rows[u->n];

        memcpy(r, from + i * sizeof(*r), sizeof(*r)); /* it lies anywhere in a frame */
        r->age_s = SH_MAX(SH_MIN(r->age_s, MAX_AGE_S), (int64_t)0);
        if (is_good(r))
            u->n++;
        else
            n_bad++;
    }
    if (n_bad)
        SH_ERROR("usage.rows", "executor=%s rows=%zu msg=\"make no sense, and are not counted\"",
                 e->info.name, n_bad);
    return u;
}

/* What is not taken now is said again. */
void usage_on_batch(struct sched *s, struct exec *e, const struct msg_usage *m)
{
    static const struct sched_op OP = {"usage.add", store_usage_add, on_stored, store_usage_free,
                                       DBOP_ANY_ORDER};
    struct store_usage *u;
    struct sh_err err = {0};
    char *place;

    if (!is_source(m->source) || m->number == 0 || m->number > INT64_MAX ||
        m->rows.len % sizeof(struct msg_usage_row) ||
        m->rows.len / sizeof(struct msg_usage_row) > MSG_USAGE_ROWS) {
        SH_ERROR("usage.batch", "executor=%s msg=\"no batch of usage\"", e->info.name);
        return;
    }
    place = writing_place(&s->usage, m->source) ? NULL : writing_place(&s->usage, "");
    u = place ? usage_batch_new(s, e, m) : NULL;
    if (!u)
        return;
    sh_strlcpy(place, m->source, STORE_SOURCE_BYTES);
    if (sched_submit(s, &OP, u, &err))
        place[0] = '\0';
}
