/* cache.h - which blobs an executor keeps in its own folder. Evicts the least recently used blob
 * that nobody uses; a blob in use is never evicted. Pure: it removes no files, and the order of the
 * calls is its clock. Not thread-safe.
 */
#ifndef SH_EXECUTOR_FILES_CACHE_H
#define SH_EXECUTOR_FILES_CACHE_H

#include "common/err.h"

struct cache;
struct cache_item;

/* The item has left the cache: remove its files. */
typedef void cache_evict_fn(const char *name, uint64_t bytes, void *arg);

/* limit: bytes; 0: none. *out: OWNED, cache_free(). */
int cache_new(uint64_t limit, cache_evict_fn *evict, void *arg, struct cache **out,
              struct sh_err *err);
void cache_free(struct cache *c);
uint64_t cache_bytes(const struct cache *c);

/* BORROWED until it is evicted or removed; NULL if it is not there. */
/* BORROWED until evicted or removed; NULL: not found. */
struct cache_item *cache_find(struct cache *c, const char *name);
/* Adds a blob that is on the disk already, as in use. It counts even above the limit; others are
 * then evicted as far as possible. Fails: SH_E_NOMEM. */
int cache_adopt(struct cache *c, const char *name, uint64_t bytes, struct cache_item **out,
                struct sh_err *err);
/* Makes room for a new item and adds it as in use. Fails, evicting nothing, with SH_E_DISKFULL if
 * it is larger than the limit or the items in use leave too little. */
int cache_reserve(struct cache *c, const char *name, uint64_t bytes, struct cache_item **out,
                  struct sh_err *err);
void cache_resize(struct cache *c, struct cache_item *i, uint64_t bytes); /* to its real size */
void cache_use(struct cache *c, struct cache_item *i);                    /* nests */
void cache_release(struct cache *c, struct cache_item *i); /* ends one use, now its last use */
void cache_remove(struct cache *c, struct cache_item *i);  /* without calling evict() */

#endif
