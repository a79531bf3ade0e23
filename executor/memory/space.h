/* space.h - device memory for models, runs and training: residency.h with the device behind it.
 *
 * Scrubbing. A block remembers whose data it holds (arena.h). A range that is handed to a tenant
 * gets its foreign blocks zeroed on the copy lane first; in the background (space_idle) free blocks
 * are scrubbed, and tails of idle images are evicted, so that on the path there is rarely anything
 * to do.
 *
 * Moves. The head of an image that gets another place is copied there on the same lane. Nobody
 * waits for that on the CPU but one who takes the blocks it comes from as memory that a worker
 * writes (must_wait). Whoever reads the new place waits for the tickets of the image's groups, all
 * of which come behind the move (tx_load_begin); what else is put into either place is copied on
 * this lane, behind it too; training waits for a ticket of its own there.
 */
#ifndef SH_EXECUTOR_MEMORY_SPACE_H
#define SH_EXECUTOR_MEMORY_SPACE_H

#include "executor/memory/residency.h"
#include "executor/memory/transmit.h"

struct space;

struct space_range {
    struct arena_range blocks;
    bool must_wait; /* the lane is not done with it: first use it when space_is_clean() */
};

/* tx is BORROWED. *out: OWNED, space_free(). */
int space_new(struct tx *tx, const char *executor, const struct residency_conf *conf,
              struct space **out, struct sh_err *err);
void space_free(struct space *s);
uint64_t space_bytes(const struct space *s, enum arena_kind kind);
struct residency *space_residency(struct space *s); /* BORROWED */

/* A small number for a tenant, never 0. Fails: SH_E_TOOBIG after 65,536 tenants. */
int space_tag(struct space *s, const char *tenant, uint32_t *out, struct sh_err *err);

/* Quotas of residency.h in bytes; max_bytes 0: none. */
int space_set_quota(struct space *s, const char *tenant, uint64_t min_bytes, uint64_t max_bytes,
                    double share, struct sh_err *err);
/* Can a tenant ever have so much at once? Fails: SH_E_QUOTA; what: of the message. */
int space_check_max(struct space *s, uint32_t tag, uint64_t bytes, const char *what,
                    struct sh_err *err);

/* need->n_blocks is set from bytes. Fails: SH_E_DEVMEM. */
int space_alloc(struct space *s, size_t bytes, const struct residency_need *need,
                struct space_range *out, struct sh_err *err);
void space_give(struct space *s, struct space_range *r, uint32_t tag);
/* Gives back what lies behind its first `bytes`. */
void space_cut(struct space *s, struct space_range *r, size_t bytes, uint32_t tag);
/* No scrub of any of its blocks, and no move away from them, is on its way any more. */
uint64_t space_n_evicted(const struct space *s); /* how often images have lost something */
bool space_is_clean(const struct space *s, const struct space_range *r);
size_t space_offset(const struct space_range *r); /* bytes in the arena */

/* Puts the whole image in its place and says how many of its bytes are there already; a head that
 * lies elsewhere is moved [enqueue], and *out says so (tx_load_begin). The image must not be pinned
 * or on its way unless it is whole. Fails: SH_E_DEVMEM; and what the device says. */
int space_place(struct space *s, uint32_t image, uint64_t image_bytes, bool may_evict,
                struct tx_place *out, struct sh_err *err);

/* Would an image and a workspace fit if these ranges were given back? Changes nothing. */
bool space_would_fit(struct space *s, uint32_t image, size_t ws_bytes,
                     const struct space_range *given, size_t n_given);

/* Background work of one tick; only while nothing runs. */
void space_idle(struct space *s, uint32_t low_percent, uint32_t high_percent);
void space_update_metrics(struct space *s);

#endif
