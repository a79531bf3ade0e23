/* slab.c - see slab.h. */
#include "api/slab.h"

#include "common/mem.h"
#include "common/shm.h"

#include <pthread.h>
#include <stdlib.h>

struct range {
    struct slab_slot slot; /* first: a slot is its range */
    size_t len;            /* multiple of SLAB_ALIGN */
    bool used;
    struct range *prev, *next;
};

struct slab {
    pthread_mutex_t lock; /* the list and the sum */
    struct sh_shm shm;
    struct range *first;
    size_t used;
};

int slab_new(size_t bytes, struct slab **out, struct sh_err *err)
{
    struct slab *s = calloc(1, sizeof(*s));
    int rc;

    *out = NULL;
    if (!s)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the payload slab");
    pthread_mutex_init(&s->lock, NULL);
    s->shm.fd = -1;
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
    if (s->shm.fd >= 0)
        sh_shm_fini(&s->shm);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* Cuts r so that it is `len` long; the rest becomes a free range after it. */
static bool split(struct range *r, size_t len)
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

int slab_take(struct slab *s, size_t bytes, struct slab_slot **out, struct sh_err *err)
{
    size_t len = SH_ALIGN_UP(SH_MAX(bytes, 1u), SLAB_ALIGN);
    struct range *r;
    int rc = SH_OK;

    *out = NULL;
    if (bytes > s->shm.bytes)
        return SH_FAIL(err, SH_E_TOOBIG, "%zu bytes do not fit in the payload memory of %zu", bytes,
                       s->shm.bytes);
    pthread_mutex_lock(&s->lock);
    for (r = s->first; r && (r->used || r->len < len); r = r->next)
        ;
    if (!r) {
        rc = SH_FAIL(err, SH_E_QUEUEFULL,
                     "the memory for payloads of requests in flight is full; try again later");
    } else if (!split(r, len)) {
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a payload slot");
    } else {
        r->used = true;
        r->slot.bytes = bytes;
        s->used += len;
        *out = &r->slot;
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
    r->used = false;
    if (r->next && !r->next->used)
        merge(r);
    if (r->prev && !r->prev->used)
        merge(r->prev);
    pthread_mutex_unlock(&s->lock);
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
