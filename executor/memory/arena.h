/* arena.h - the blocks of device memory: which are taken, by what, and whose data they hold.
 *
 * Pure bookkeeping: no device, no clock. A block has a kind, an owner (an image's id) and a tag:
 * the tenant whose data it may hold, even after it is given back. Before a block goes to another
 * tenant it must be scrubbed; the tag tells.
 *
 *   ARENA_CLEAN     zeroed, or never used
 *   ARENA_SCRUBBING a scrub is enqueued; space_is_clean() tells when it is done
 *   ARENA_FOREIGN   unknown data: dirty for everyone
 *   other           a tenant's tag (space.h)
 *
 * Not thread-safe.
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

struct arena_range { /* in blocks; n = 0: none */
    uint32_t first, n;
};

struct arena_seg { /* a maximal run of blocks that are alike */
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
/* The range must be free (arena_take) or taken (arena_give). Otherwise SH_E_BUG, and nothing
 * changes. arena_take() keeps the tags, since the data is still there. */
int arena_take(struct arena *a, struct arena_range r, enum arena_kind k, uint32_t owner,
               struct sh_err *err);
int arena_give(struct arena *a, struct arena_range r, uint32_t tag, struct sh_err *err);
void arena_set_tag(struct arena *a, struct arena_range r, uint32_t tag);
/* Marks the blocks of the range that were being scrubbed as clean. */
void arena_scrubbed(struct arena *a, struct arena_range r);
bool arena_has_tag(const struct arena *a, struct arena_range r, uint32_t tag);

/* All segments, in the order of their blocks. BORROWED until the next change. */
const struct arena_seg *arena_segs(const struct arena *a, uint32_t *n_out);
/* Index of the segment that holds the block; the number of segments if the block is outside. */
uint32_t arena_find(const struct arena *a, uint32_t block);
/* The segment that holds block `from`, from that block on; n = 0 at the end. */
struct arena_seg arena_seg_at(const struct arena *a, uint32_t from);

#endif
