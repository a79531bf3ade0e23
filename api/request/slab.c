/* slab.c - see slab.h. */
#include "api/request/slab.h"

#include "common/mem.h"
#include "common/shm.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct slab_holder { /* a tenant that holds a slot; gone with its last one */
    struct slab_holder *next;
    size_t used;
    char tenant[];
};

struct range {
    struct slab_slot slot;      /* first: a slot is its range */
    size_t len;                 /* multiple of SLAB_ALIGN */
    struct slab_holder *holder; /* NULL: free */
    struct range *prev, *next;
};

struct slab {
    pthread_mutex_t lock; /* the lists and the sums */
    struct sh_shm shm;
    struct range *first;
    struct slab_holder *holders;
    size_t used, share;
};

int slab_new(size_t bytes, size_t share, struct slab **out, struct sh_err *err)
{
    struct slab *s = calloc(1, sizeof(*s));
    int rc;

    *out = NULL;
    if (!s)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the payload slab");
    pthread_mutex_init(&s->lock, NULL);
    s->shm.fd = -1;
    s->share = SH_ALIGN_UP(share, SLAB_ALIGN);
    s->first = calloc(1, sizeof(*s->first));
    rc = s->first ? sh_shm_create("shunt-payload", SH_ALIGN_UP(bytes, SLAB_ALIGN), &s->shm, err)
                  : SH_FAIL(err, SH_E_NOMEM, "could not allocate the payload slab");
    if (rc) {
        slab_free(s);
        return rc;
    }
    s->first->len = s->shm.bytes;
    *out = s;
    return SH_OK;
}

void slab_free(struct slab *s)
{
    if (!s)
        return;
    for (struct range *r = s->first, *next; r; r = next) {
        next = r->next;
        free(r);
    }
    for (struct slab_holder *h = s->holders, *next; h; h = next) {
        next = h->next;
        free(h);
    }
    if (s->shm.fd >= 0)
        sh_shm_fini(&s->shm);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* Cuts r so that it is `len` long; the rest becomes a free range after it. */
static bool split_range(struct range *r, size_t len)
{
    struct range *rest;

    if (r->len == len)
        return true;
    rest = calloc(1, sizeof(*rest));
    if (!rest)
        return false;
    rest->slot.off = r->slot.off + len;
    rest->len = r->len - len;
    rest->prev = r;
    rest->next = r->next;
    if (rest->next)
        rest->next->prev = rest;
    r->next = rest;
    r->len = len;
    return true;
}

/* The tenant's entry, made where there is none; NULL: no memory. */
static struct slab_holder *holder_of(struct slab *s, const char *tenant)
{
    size_t len = strlen(tenant) + 1;
    struct slab_holder *h = s->holders;

    while (h && strcmp(h->tenant, tenant) != 0)
        h = h->next;
    if (h)
        return h;
    h = calloc(1, sizeof(*h) + len);
    if (!h)
        return NULL;
    memcpy(h->tenant, tenant, len);
    h->next = s->holders;
    s->holders = h;
    return h;
}

static void drop_if_empty(struct slab *s, struct slab_holder *h)
{
    struct slab_holder **p = &s->holders;

    if (h->used > 0)
        return;
    while (*p != h)
        p = &(*p)->next;
    *p = h->next;
    free(h);
}

static int check_share(const struct slab *s, const struct slab_holder *h, size_t more,
                       struct sh_err *err)
{
    if (more > s->share - SH_MIN(h->used, s->share))
        return SH_FAIL(err, SH_E_QUOTA,
                       "requests in flight of tenant \"%s\" use %zu bytes of payload memory, at "
                       "most %zu are allowed; wait until some have ended",
                       h->tenant, h->used, s->share);
    return SH_OK;
}

static int slot_take(struct slab *s, struct slab_holder *h, size_t len, struct range **out,
                     struct sh_err *err)
{
    struct range *r = s->first;
    int rc = check_share(s, h, len, err);

    if (rc)
        return rc;
    while (r && (r->holder || r->len < len))
        r = r->next;
    if (!r)
        return SH_FAIL(err, SH_E_QUEUEFULL,
                       "the memory for payloads of requests in flight is full; try again later");
    if (!split_range(r, len))
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a payload slot");
    r->holder = h;
    h->used += len;
    s->used += len;
    *out = r;
    return SH_OK;
}

int slab_take(struct slab *s, const char *tenant, size_t bytes, struct slab_slot **out,
              struct sh_err *err)
{
    struct range *r = NULL;
    struct slab_holder *h;
    int rc;

    *out = NULL;
    if (bytes > s->share)
        return SH_FAIL(err, SH_E_TOOBIG,
                       "%zu bytes do not fit in the payload memory of a tenant, %zu", bytes,
                       s->share);
    pthread_mutex_lock(&s->lock);
    h = holder_of(s, tenant);
    rc = h ? slot_take(s, h, SH_ALIGN_UP(SH_MAX(bytes, 1u), SLAB_ALIGN), &r, err)
           : SH_FAIL(err, SH_E_NOMEM, "could not allocate a payload slot");
    if (!rc) {
        r->slot.bytes = bytes;
        *out = &r->slot;
    } else if (h) {
        drop_if_empty(s, h);
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

/* a and the range after it become one. */
static void merge(struct range *a)
{
    struct range *b = a->next;

    a->len += b->len;
    a->next = b->next;
    if (b->next)
        b->next->prev = a;
    free(b);
}

void slab_release(struct slab *s, struct slab_slot *slot)
{
    struct range *r = (struct range *)slot;

    if (!r)
        return;
    pthread_mutex_lock(&s->lock);
    s->used -= r->len;
    r->holder->used -= r->len;
    drop_if_empty(s, r->holder);
    r->holder = NULL;
    if (r->next && !r->next->holder)
        merge(r);
    if (r->prev && !r->prev->holder)
        merge(r->prev);
    pthread_mutex_unlock(&s->lock);
}

int slab_count(struct slab *s, struct slab_count *n, const char *tenant, size_t bytes,
               struct sh_err *err)
{
    struct slab_holder *h;
    int rc = SH_OK;

    if (bytes == n->bytes)
        return SH_OK;
    pthread_mutex_lock(&s->lock);
    h = n->holder ? n->holder : holder_of(s, tenant);
    if (!h)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a tenant's share");
    else if (bytes > n->bytes)
        rc = check_share(s, h, bytes - n->bytes, err);
    if (!rc) {
        h->used = h->used - n->bytes + bytes;
        *n = (struct slab_count){bytes > 0 ? h : NULL, bytes};
    }
    if (h)
        drop_if_empty(s, h);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

void *slab_at(const struct slab *s, uint64_t off)
{
    return (char *)s->shm.base + off;
}

int slab_fd(const struct slab *s)
{
    return s->shm.fd;
}

size_t slab_bytes(const struct slab *s)
{
    return s->shm.bytes;
}

size_t slab_used(struct slab *s)
{
    size_t used;

    pthread_mutex_lock(&s->lock);
    used = s->used;
    pthread_mutex_unlock(&s->lock);
    return used;
}
