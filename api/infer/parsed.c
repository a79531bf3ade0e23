/* parsed.c - see parsed.h. Each text has one place; the last that came there has it. The counts are
 * ours: those of jansson order nothing between the last user and who frees. */
#include "api/infer/parsed.h"

#include "common/hash.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct parsed_text {
    atomic_int refs;
    int64_t version_id;
    json_t *json; /* OWNED */
    size_t n;
    char text[];
};

struct parsed {
    pthread_mutex_t lock;
    struct parsed_text *texts[PARSED_N]; /* a reference each; NULL: none */
};

int parsed_new(struct parsed **out, struct sh_err *err)
{
    struct parsed *p = calloc(1, sizeof(*p));

    *out = p;
    if (!p)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate memory for parsed requests");
    pthread_mutex_init(&p->lock, NULL);
    return SH_OK;
}

void parsed_free(struct parsed *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < PARSED_N; i++)
        parsed_put(p->texts[i]);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

const json_t *parsed_json(const struct parsed_text *t)
{
    return t ? t->json : NULL;
}

void parsed_put(struct parsed_text *t)
{
    if (!t || atomic_fetch_sub(&t->refs, 1) > 1)
        return;
    json_decref(t->json);
    free(t);
}

/* Of a copy: `text` is in memory that others share, and what is kept must be what was parsed. */
static struct parsed_text *parse_text(int64_t version_id, const char *text, size_t n)
{
    struct parsed_text *t = malloc(sizeof(*t) + n);

    if (!t)
        return NULL;
    t->version_id = version_id;
    t->json = NULL;
    t->n = n;
    memcpy(t->text, text, n);
    atomic_init(&t->refs, 1);
    if (sh_json_parse(t->text, n, n, &t->json, NULL) == SH_OK)
        return t;
    parsed_put(t);
    return NULL;
}

static struct parsed_text *find_text(struct parsed *p, size_t at, int64_t version_id,
                                     const char *text, size_t n)
{
    struct parsed_text *t;

    pthread_mutex_lock(&p->lock);
    t = p->texts[at];
    if (t && (t->version_id != version_id || t->n != n || memcmp(t->text, text, n) != 0))
        t = NULL;
    if (t)
        atomic_fetch_add(&t->refs, 1);
    pthread_mutex_unlock(&p->lock);
    return t;
}

static void keep_text(struct parsed *p, size_t at, struct parsed_text *t)
{
    struct parsed_text *old;

    atomic_fetch_add(&t->refs, 1);
    pthread_mutex_lock(&p->lock);
    old = p->texts[at];
    p->texts[at] = t;
    pthread_mutex_unlock(&p->lock);
    parsed_put(old);
}

struct parsed_text *parsed_get(struct parsed *p, int64_t version_id, const char *text, size_t n)
{
    struct parsed_text *t;
    size_t at;

    if (n > PARSED_MAX_BYTES)
        return NULL;
    at = sh_crc32c((uint32_t)version_id, text, n) % PARSED_N;
    t = find_text(p, at, version_id, text, n);
    if (t)
        return t;
    t = parse_text(version_id, text, n);
    if (t)
        keep_text(p, at, t);
    return t;
}
