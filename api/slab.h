/* slab.h - the payload slab: one memfd that every executor of the host maps, cut into slots.
 *
 * First fit over a list of ranges in order of address; neighbours that are free are one range.
 * A slot must not be released while an executor may still write into it: link.c holds it until
 * somebody who knows says so. Thread-safe.
 */
#ifndef SH_API_SLAB_H
#define SH_API_SLAB_H

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

#define SLAB_ALIGN 256u

struct slab;
struct slab_slot { /* OWNED by its taker, slab_release() */
    uint64_t off;
    size_t bytes; /* as asked for */
};

int slab_new(size_t bytes, struct slab **out, struct sh_err *err); /* OWNED, slab_free() */
void slab_free(struct slab *s);
/* Fails: SH_E_QUEUEFULL, SH_E_NOMEM. bytes = 0 is a slot too. */
int slab_take(struct slab *s, size_t bytes, struct slab_slot **out, struct sh_err *err);
void slab_release(struct slab *s, struct slab_slot *slot); /* NULL is allowed */
void *slab_at(const struct slab *s, uint64_t off);
int slab_fd(const struct slab *s); /* BORROWED */
size_t slab_bytes(const struct slab *s);
size_t slab_used(struct slab *s);

#endif
