/* space.h - device memory for models, runs and training: residency.h with the device behind it.
 *
 * Scrubbing. A block remembers whose data it holds (arena.h). Before a range goes to a tenant, the
 * copy lane zeroes the blocks in it that hold foreign data. In the background (space_idle) free
 * blocks are scrubbed and tails of idle images are evicted, so that there is rarely anything to do
 * on the path of a request.
 *
 * Moves. If an image gets another place, the same lane copies its head there; likewise the head of
 * another image that begins with the same bytes (space_copy). The CPU waits for that only if the
 * old blocks become memory that a worker writes (must_wait). Readers of the new place wait for the
 * tickets of the image's groups, which all come after the move (tx_load_begin). Other data for
 * either place also goes through this lane, after the move; training waits for its
 * own ticket there.
 *
 * Belongs to the loop's thread.
 */
#ifndef SH_EXECUTOR_MEMORY_SPACE_H
#define SH_EXECUTOR_MEMORY_SPACE_H

#include "executor/memory/residency.h"
#include "executor/memory/transmit.h"

struct space;

struct space_range {
    struct arena_range blocks;
    bool must_wait; /* the lane still uses it: wait for space_is_clean() */
};

/* tx is BORROWED. *out: OWNED, space_free(). */
int space_new(struct tx *tx, const char *executor, const struct residency_conf *conf,
              struct space **out, struct sh_err *err);
void space_free(struct space *s);
uint64_t space_bytes(const struct space *s, enum arena_kind kind);
struct residency *space_residency(struct space *s); /* BORROWED */

/* The tag of a tenant, a small number, never 0. Fails: SH_E_TOOBIG after 65,536 tenants. */
int space_tag(struct space *s, const char *tenant, uint32_t *out, struct sh_err *err);

/* Sets a quota (residency.h), in bytes; max_bytes 0: no limit. */
int space_set_quota(struct space *s, const char *tenant, uint64_t min_bytes, uint64_t max_bytes,
                    double share, struct sh_err *err);
/* Can the tenant ever have so much at once? what: names it in the message. Fails: SH_E_QUOTA. */
int space_check_max(struct space *s, uint32_t tag, uint64_t bytes, const char *what,
                    struct sh_err *err);

/* Sets need->n_blocks from bytes. Fails: SH_E_DEVMEM. */
int space_alloc(struct space *s, size_t bytes, const struct residency_need *need,
                struct space_range *out, struct sh_err *err);
void space_give(struct space *s, struct space_range *r, uint32_t tag);
/* Gives back what lies behind the first `bytes` of the range. */
void space_cut(struct space *s, struct space_range *r, size_t bytes, uint32_t tag);
uint64_t space_n_evicted(const struct space *s); /* how often images have lost blocks */
/* No scrub of its blocks, and no move away from them, is under way. */
bool space_is_clean(const struct space *s, const struct space_range *r);
bool space_is_settled(const struct space *s, size_t off, size_t bytes); /* as well, by bytes */
size_t space_offset(const struct space_range *r);                       /* bytes in the arena */

/* Gives the whole image a place and tells how many of its bytes are there already. image_bytes: may
 * end some blocks before the range does, which belong to it all the same. A head that lies
 * elsewhere is moved [enqueue], and *out says so (tx_load_begin). The image must not be pinned or
 * on its way unless it is whole. Fails: SH_E_DEVMEM, or as the device. */
int space_place(struct space *s, uint32_t image, uint64_t image_bytes, bool may_evict,
                struct tx_place *out, struct sh_err *err);

/* Of the place that space_place() has just given, some bytes that nothing is copied to: what others
 * left there is zeroed [enqueue], unless the image had these blocks before. Fails: as the device;
 * then the image has no place any more. */
int space_scrub(struct space *s, uint32_t image, size_t off, size_t bytes, struct sh_err *err);

/* Bytes of an image that is there are copied to the place of one that has the same [enqueue], which
 * space_place() has just given, as a head that moves. off: from the first byte of the image. False:
 * they are not. */
bool space_copy(struct space *s, size_t to, uint32_t image, size_t off, size_t bytes);

/* How a run's workspace and its image, which each need one piece, find their places. In all ways
 * but the first two something may have been evicted for the workspace when it turns out that the
 * image has no place, so ask space_find_way() before. */
enum space_way {
    SPACE_FREE,     /* the workspace from what is free, then the image */
    SPACE_ASIDE,    /* the same, but not from the piece that the image would get */
    SPACE_SPARING,  /* the workspace without taking from the image, then the image */
    SPACE_ANY,      /* the workspace where it costs least, then the image */
    SPACE_TOGETHER, /* both in one piece */
    SPACE_N_WAYS
};
/* The workspace: need->spare is set here. In one piece with the image it leaves the rest of that
 * piece free for space_place(). Fails as space_alloc(). */
int space_alloc_beside(struct space *s, uint32_t image, size_t bytes, enum space_way way,
                       const struct residency_need *need, struct space_range *out,
                       struct sh_err *err);
struct space_if {                    /* what is not so yet; zeroed: all is as it is */
    const struct space_range *given; /* these were given back ... */
    size_t n_given;
    bool is_unpinned; /* ... and no image was pinned */
};
/* The first way in which workspace and image would fit, where what is free does not do. Changes
 * nothing. Fails: SH_E_DEVMEM: in none, err says why not in the first; SH_E_NOMEM. */
int space_find_way(struct space *s, uint32_t image, size_t ws_bytes,
                   const struct residency_need *need, const struct space_if *x,
                   enum space_way *way_out, struct sh_err *err);

/* Are so many bytes free besides what space_idle() keeps free? */
bool space_has_spare(const struct space *s, uint64_t bytes);
/* Evicts tails of images that nobody has used for idle_ns, until so many bytes are and the image
 * has a place without further eviction. Where that cannot be, none. */
void space_clear(struct space *s, uint32_t image, uint64_t bytes, int64_t idle_ns);
/* Background work of one tick. Call it only while nothing runs. */
void space_idle(struct space *s, uint32_t low_percent, uint32_t high_percent);
void space_update_metrics(struct space *s);

#endif
