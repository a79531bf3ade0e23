/* slab.h - the payload slab: one memfd that every executor on the host maps, divided into slots.
 *
 * A tenant may hold at most its share, so that senders that are slow or send a lot leave room for
 * others. The share is the same for all and independent of who else is there, so that limits can be
 * stated in advance.
 *
 * First fit over a list of ranges in address order; adjacent free ranges are merged. A slot must
 * not be released while an executor may still write to it: link.c holds it until it knows that none
 * can. Thread-safe.
 */
#ifndef SH_API_REQUEST_SLAB_H
#define SH_API_REQUEST_SLAB_H

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

#define SLAB_ALIGN 256u

struct slab;
struct slab_holder;
struct slab_count { /* what counts in a share without a slot; zeroed: nothing */
    struct slab_holder *holder;
    size_t bytes;
};
struct slab_slot { /* OWNED by its taker, slab_release() */
    uint64_t off;
    size_t bytes; /* as requested */
};

/* share: bytes that one tenant may hold. *out: OWNED, slab_free(). */
int slab_new(size_t bytes, size_t share, struct slab **out, struct sh_err *err);
void slab_free(struct slab *s);
/* bytes 0 is a slot too. Fails: SH_E_QUOTA: the tenant's slots leave no room in its share;
 * SH_E_TOOBIG: more than a share; SH_E_QUEUEFULL; SH_E_NOMEM. */
int slab_take(struct slab *s, const char *tenant, size_t bytes, struct slab_slot **out,
              struct sh_err *err);
void slab_release(struct slab *s, struct slab_slot *slot); /* NULL is allowed */
/* What a tenant has elsewhere in memory counts in its share as well: from now on n stands for so
 * many bytes. n is zeroed at first, and stands for none at last; tenant is the same meanwhile.
 * Fails: SH_E_QUOTA, SH_E_NOMEM: it is as before. Less than before never fails. */
int slab_count(struct slab *s, struct slab_count *n, const char *tenant, size_t bytes,
               struct sh_err *err);
void *slab_at(const struct slab *s, uint64_t off);
int slab_fd(const struct slab *s); /* BORROWED */
size_t slab_bytes(const struct slab *s);
size_t slab_used(struct slab *s);

#endif
