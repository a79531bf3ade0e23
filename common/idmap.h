/* idmap.h - a map from 64-bit ids to pointers: open addressing, grows, never shrinks.
 *
 * Values are BORROWED and never NULL. Not thread-safe.
 */
#ifndef SH_COMMON_IDMAP_H
#define SH_COMMON_IDMAP_H

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

struct idmap_slot {
    uint64_t key;
    void *value; /* NULL: free */
};

struct idmap {
    struct idmap_slot *slots; /* OWNED, idmap_fini() */
    size_t cap, n;
};

void idmap_fini(struct idmap *m);                     /* a zeroed struct is an empty map */
void *idmap_get(const struct idmap *m, uint64_t key); /* NULL if absent */
/* Replaces an older value. Fails: SH_E_NOMEM, SH_E_TOOBIG; the map is unchanged. */
int idmap_put(struct idmap *m, uint64_t key, void *value, struct sh_err *err);
void *idmap_del(struct idmap *m, uint64_t key); /* the removed value, or NULL */

#endif
