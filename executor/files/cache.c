/* cache.c - see cache.h. The list is in order of use, most recent first. */
#include "executor/files/cache.h"

#include "common/mem.h"

#include <inttypes.h>
#include <stdlib.h>

struct cache_item {
    struct cache_item *prev, *next;
    char *name;
    uint64_t bytes;
    uint32_t users;
};

struct cache {
    struct cache_item *head, *tail;
    uint64_t limit, bytes;
    cache_evict_fn *evict;
    void *arg;
};

int cache_new(uint64_t limit, cache_evict_fn *evict, void *arg, struct cache **out,
              struct sh_err *err)
{
    *out = calloc(1, sizeof(**out));
    if (!*out)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the cache of blobs");
    **out = (struct cache){.limit = limit ? limit : UINT64_MAX, .evict = evict, .arg = arg};
    return SH_OK;
}

static void unlink_item(struct cache *c, struct cache_item *i)
{
    *(i->prev ? &i->prev->next : &c->head) = i->next;
    *(i->next ? &i->next->prev : &c->tail) = i->prev;
}

static void to_head(struct cache *c, struct cache_item *i)
{
    i->prev = NULL;
    i->next = c->head;
    *(c->head ? &c->head->prev : &c->tail) = i;
    c->head = i;
}

void cache_remove(struct cache *c, struct cache_item *i)
{
    unlink_item(c, i);
    c->bytes -= i->bytes;
    free(i->name);
    free(i);
}

void cache_free(struct cache *c)
{
    while (c && c->head)
        cache_remove(c, c->head);
    free(c);
}

uint64_t cache_bytes(const struct cache *c)
{
    return c->bytes;
}

struct cache_item *cache_find(struct cache *c, const char *name)
{
    for (struct cache_item *i = c->head; i; i = i->next)
        if (strcmp(i->name, name) == 0)
            return i;
    return NULL;
}

static void make_cache_room(struct cache *c)
{
    struct cache_item *i = c->tail;

    while (i && c->bytes > c->limit) {
        struct cache_item *newer = i->prev;

        if (i->users == 0) {
            c->evict(i->name, i->bytes, c->arg);
            cache_remove(c, i);
        }
        i = newer;
    }
}

int cache_adopt(struct cache *c, const char *name, uint64_t bytes, struct cache_item **out,
                struct sh_err *err)
{
    struct cache_item *i = calloc(1, sizeof(*i));
    int rc;

    *out = NULL;
    if (!i)
        return SH_FAIL(err, SH_E_NOMEM, "could not note a blob");
    rc = sh_strdup(name, &i->name, err);
    if (rc) {
        free(i);
        return rc;
    }
    i->bytes = bytes;
    i->users = 1;
    c->bytes += bytes;
    to_head(c, i);
    make_cache_room(c);
    *out = i;
    return SH_OK;
}

int cache_reserve(struct cache *c, const char *name, uint64_t bytes, struct cache_item **out,
                  struct sh_err *err)
{
    uint64_t used = 0;

    *out = NULL;
    for (const struct cache_item *i = c->head; i; i = i->next)
        used += i->users ? i->bytes : 0;
    if (bytes > c->limit || used > c->limit - bytes)
        return SH_FAIL(err, SH_E_DISKFULL,
                       "a blob needs %" PRIu64 " MiB, and of the %" PRIu64
                       " MiB that this executor keeps %" PRIu64
                       " are in use; raise --blob-cache-bytes or unload models",
                       (bytes >> 20) + 1, c->limit >> 20, used >> 20);
    return cache_adopt(c, name, bytes, out, err);
}

void cache_resize(struct cache *c, struct cache_item *i, uint64_t bytes)
{
    c->bytes += bytes - i->bytes;
    i->bytes = bytes;
    make_cache_room(c);
}

void cache_use(struct cache *c, struct cache_item *i)
{
    i->users++;
    unlink_item(c, i);
    to_head(c, i);
}

void cache_release(struct cache *c, struct cache_item *i)
{
    i->users--;
    unlink_item(c, i);
    to_head(c, i);
    make_cache_room(c);
}
