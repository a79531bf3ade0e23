/* arena.h - which blocks of the device memory are taken, by what, and whose data lies in them.
 *
 * Pure bookkeeping: no device, no clock. A block has a kind, an owner (an image's id) and a tag:
 * the tenant whose data it may still hold, also after it was given back. Who hands a block to
 * another tenant must scrub it first; the tag says whether that is needed.
 *
 *   ARENA_CLEAN     zeroed, or never used
 *   ARENA_SCRUBBING a scrub is enqueued (whether it is still on its way: space_is_clean())
 *   ARENA_FOREIGN   nobody can say whose data it is: dirty for everyone
 *   other           a tenant's tag (space.h)
 */
#ifndef SH_EXECUTOR_MEMORY_ARENA_H
#define SH_EXECUTOR_MEMORY_ARENA_H

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

#define ARENA_CLEAN 0u
#define ARENA_SCRUBBING UINT32_MAX
#define ARENA_FOREIGN (UINT32_MAX - 1)

enum arena_kind { ARENA_FREE, ARENA_IMAGE, ARENA_WORK, ARENA_TRAIN, ARENA_N_KINDS };

struct arena_range { /* blocks; n = 0: none */
    uint32_t first, n;
};

struct arena_seg { /* a maximal run of blocks that agree */
    uint32_t first, n;
    enum arena_kind kind;
    uint32_t owner, tag;
};

struct arena;

int arena_new(uint32_t n_blocks, struct arena **out, struct sh_err *err); /* OWNED, arena_free() */
int arena_clone(const struct arena *a, struct arena **out, struct sh_err *err);
void arena_free(struct arena *a);

uint32_t arena_blocks(const struct arena *a);
uint32_t arena_count(const struct arena *a, enum arena_kind k);
/* The range must be free (arena_take) or taken (arena_give): anything else is our bug, SH_E_BUG,
 * and nothing changes. */
int arena_take(struct arena *a, struct arena_range r, enum arena_kind k, uint32_t owner,
               struct sh_err *err); /* tags stay: the data is still there */
int arena_give(struct arena *a, struct arena_range r, uint32_t tag, struct sh_err *err);
void arena_set_tag(struct arena *a, struct arena_range r, uint32_t tag);
/* Blocks of the range that were being scrubbed are clean from now on. */
void arena_scrubbed(struct arena *a, struct arena_range r);
bool arena_has_tag(const struct arena *a, struct arena_range r, uint32_t tag);

/* All segments in the order of their blocks: BORROWED until the next change. */
const struct arena_seg *arena_segs(const struct arena *a, uint32_t *n_out);
/* Which of them holds a block; their number: it lies outside. */
uint32_t arena_find(const struct arena *a, uint32_t block);
/* What is left of the segment that holds block `from`, from there on; n = 0 at the end. */
struct arena_seg arena_seg_at(const struct arena *a, uint32_t from);

#endif
