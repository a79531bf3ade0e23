/* cache.h - which blobs an executor keeps in its own folder: the least recently used of those that
 * nobody uses goes first, and what is in use never goes. Pure: it removes nothing itself, and the
 * order of calls is its clock. Not thread-safe.
 */
#ifndef SH_EXECUTOR_FILES_CACHE_H
#define SH_EXECUTOR_FILES_CACHE_H

#include "common/err.h"

struct cache;
struct cache_item;

/* The item has left the cache; its files are to go. */
typedef void cache_evict_fn(const char *name, uint64_t bytes, void *arg);

/* limit: bytes; 0 = none. *out: OWNED, cache_free(). */
int cache_new(uint64_t limit, cache_evict_fn *evict, void *arg, struct cache **out,
              struct sh_err *err);
void cache_free(struct cache *c);
uint64_t cache_bytes(const struct cache *c);

/* BORROWED until it is evicted or removed; NULL if it is not there. */
struct cache_item *cache_find(struct cache *c, const char *name);
/* What is there already, in use: it counts even above the limit, then others go as far as they can.
 * Fails: SH_E_NOMEM. */
int cache_adopt(struct cache *c, const char *name, uint64_t bytes, struct cache_item **out,
                struct sh_err *err);
/* Makes room and gives it to a new item, in use. Fails: SH_E_DISKFULL, and nothing was evicted, if
 * it is larger than the limit or what is in use leaves too little. */
int cache_reserve(struct cache *c, const char *name, uint64_t bytes, struct cache_item **out,
                  struct sh_err *err);
void cache_resize(struct cache *c, struct cache_item *i, uint64_t bytes); /* as it turned out */
void cache_use(struct cache *c, struct cache_item *i);                    /* counts */
void cache_release(struct cache *c, struct cache_item *i); /* this moment is its last use */
void cache_remove(struct cache *c, struct cache_item *i);  /* without evict() */

#endif
