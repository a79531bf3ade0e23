/* residency.h - what stays in device memory: resident prefixes of images, and other ranges.
 *
 * An image has one contiguous range of blocks, of which a prefix is held. The head of a model hides
 * the copy of its tail, so tails are evicted first. Weights are clean, so eviction is bookkeeping.
 *
 *   held = 0            nothing is on the device; the image has no place
 *   0 < held < blocks   the head is there; the blocks behind it may belong to others
 *   held >= blocks      all of it is there, or on its way; only then may it be pinned
 *
 * A policy chooses victims; the default is an N-th chance clock. The hand moves only when room is
 * missing; it clears a use bit, or makes an unused, unpinned image a candidate. The cheapest window
 * of free blocks and candidates' tails is then taken. keep_blocks tells how long a head is worth
 * keeping: the blocks behind it arrive in time whenever they are copied (`stall = 0`), so they go
 * first. An image that is costly to bring back (from disk) is worth keeping as a whole, and the
 * hand passes it more often.
 *
 * A second image may hold the same as another one, packed (residency_back). What it stands behind
 * costs less to lose, so that goes before others: unless it was used so much later that, by its
 * worth, it is wanted again at a higher cost (replacement__backed_first). A packed one is of use
 * only as a whole, and leaves so. Where an image that has to stay is only there packed, so does
 * that; where it is unpacked, its copy goes as others do.
 *
 * Tenants have quotas, which cover images and ranges with the tenant's tag. Others cannot take
 * `min`: the most recently used images are kept for it, packed copies of what is there last. `max`
 * is never exceeded: the tenant's own older images go first, but not for a packed copy. While
 * quotas exist, images of tenants that hold more than their share (min, plus a part, weighted by
 * `share`, of what no min claims) go before others. If there is no room except in what is kept,
 * the caller may ask for all of it (residency_yield), as with sticky images.
 *
 * Pure: no device, no clock (times are arguments). Not thread-safe.
 */
#ifndef SH_EXECUTOR_MEMORY_RESIDENCY_H
#define SH_EXECUTOR_MEMORY_RESIDENCY_H

#include "common/units.h"
#include "executor/memory/arena.h"

#define RESIDENCY_IMAGES 1024u    /* if nothing else is said */
#define RESIDENCY_KEEP_NS SH_S(2) /* what PREPARE announced is pinned for so long */
#define RESIDENCY_RECENT_NS SH_S(600)
#define RESIDENCY_STALE_NS SH_S(60) /* unused for so long it leaves for a guess */

struct residency;

struct residency_image {
    uint32_t n_blocks, keep_blocks;
    uint32_t unpacked_blocks; /* it needs no more once nothing of it is packed; 0: n_blocks */
    uint32_t short_blocks;    /* it needs no more while it is short, packed or not; 0: n_blocks */
    uint32_t tag;             /* tenant (arena.h); keep it small, tables go up to the largest tag */
    bool is_whole;            /* a part of it is of no use */
};

struct residency_place {
    struct arena_range range; /* of the whole image */
    uint32_t had_blocks;      /* length of the head that is already on the device ... */
    uint32_t had_first;       /* ... and its first block; move it if this is not range.first */
    uint32_t evicted_blocks;  /* taken from other images */
};

#define RESIDENCY_NO_IMAGE UINT32_MAX
#define RESIDENCY_NO_MAX UINT32_MAX
#define RESIDENCY_NEVER UINT32_MAX

struct residency_quota { /* default: {0, RESIDENCY_NO_MAX, 1} */
    uint32_t min_blocks, max_blocks;
    double share;
};

struct residency_need {
    uint32_t n_blocks, tag;
    enum arena_kind kind;
    uint32_t spare;    /* image that must not be evicted for it, or RESIDENCY_NO_IMAGE */
    bool is_mixed;     /* others than `tag` use it as well: nothing may be left there by anybody */
    bool is_from_free; /* nothing is evicted for it */
};

enum residency_policy {
    RESIDENCY_CLOCK,
    RESIDENCY_LRU,
    RESIDENCY_FIFO,
    RESIDENCY_SECOND_CHANCE, /* FIFO; images that leave it go first, but a use takes them back */
    RESIDENCY_NONE, /* one image at a time, as PipeSwitch (OSDI'20) was published: no `min` holds */
    RESIDENCY_N_POLICIES
};

struct residency_conf {
    enum residency_policy policy;
    uint32_t max_images; /* at a time; 0: RESIDENCY_IMAGES. Each takes about 100 bytes */
    uint32_t n_chance;   /* clock: how often the hand passes an image with a clear use bit; 0: 1 */
    uint32_t n_costly;   /* the same of images that are costly to bring back; 0: n_chance */
    double second_share; /* second chance: share of the blocks for images that go first; 0 to 1 */
};

struct residency_counts { /* of residency_place() */
    uint64_t hits, hard;  /* the image was whole; something had to be copied */
    uint64_t soft;        /* second chance: it was whole, and one of those that go first */
};

int residency_policy(const char *name, enum residency_policy *out, struct sh_err *err);
int residency_new(uint32_t n_blocks, const struct residency_conf *conf, struct residency **out,
                  struct sh_err *err); /* OWNED, residency_free() */
int residency_clone(const struct residency *r, struct residency **out, struct sh_err *err);
void residency_free(struct residency *r);
struct arena *residency_arena(struct residency *r); /* BORROWED */
struct residency_counts residency_counts(const struct residency *r);

/* Fails: SH_E_TOOBIG: too many images, or this one can never fit; SH_E_NOMEM. */
int residency_add(struct residency *r, const struct residency_image *im, uint32_t *id_out,
                  struct sh_err *err);
/* Gives its blocks back; it must not be pinned. */
void residency_remove(struct residency *r, uint32_t id);
void residency_pin(struct residency *r, uint32_t id);   /* nests */
void residency_unpin(struct residency *r, uint32_t id); /* the last one: without spare blocks */
uint32_t residency_pins(const struct residency *r, uint32_t id);
void residency_unpin_all(struct residency *r); /* of a clone: to ask what would be */
/* No policy chooses a sticky image, whatever part of it is held, nor the copy behind it which it
 * is to be unpacked from. Unlike a pinned image it need not be whole, and residency_truncate()
 * still cuts it. */
void residency_stick(struct residency *r, uint32_t id, bool is_sticky);
bool residency_is_sticky(const struct residency *r, uint32_t id);
/* A part of it lies there packed: it is of use only as a whole, and has not written all of its
 * blocks, so those that leave it become ARENA_FOREIGN. */
void residency_set_packed(struct residency *r, uint32_t id, bool is_packed);
/* As long as image `by` is whole, a byte of the image takes so much of the time to be there again
 * that a byte takes which comes over the link: worth, above 0 and below 1. by: RESIDENCY_NO_IMAGE:
 * none holds the same. */
void residency_back(struct residency *r, uint32_t id, uint32_t by, double worth);
/* Blocks that the images which were used of late need, and this one. */
uint64_t residency_demand(const struct residency *r, uint32_t id, int64_t now_ns);
/* Its last blocks are not wanted, though they may be there: one that is short needs only
 * short_blocks. An image that is pinned must not cease to be short unless it is whole. What becomes
 * short gives back what is behind, if it is not pinned; with the last pin at the latest. Of one
 * that is not short, unpacked_blocks says nothing. */
void residency_set_short(struct residency *r, uint32_t id, bool is_short);
/* Another range; it holds nothing. */
void residency_set_range(struct residency *r, uint32_t id, uint32_t n_blocks,
                         uint32_t short_blocks);
/* Whoever evicts it waits for more than a copy when it is wanted again. */
void residency_set_costly(struct residency *r, uint32_t id, bool is_costly);
int residency_set_quota(struct residency *r, uint32_t tag, const struct residency_quota *q,
                        struct sh_err *err); /* SH_E_NOMEM; SH_E_TOOBIG: the tag */
void residency_clear_quotas(struct residency *r);
struct residency_quota residency_quota(const struct residency *r, uint32_t tag);
uint32_t residency_used(const struct residency *r, uint32_t tag); /* blocks, in images and ranges */
/* Lets what a `min` keeps be taken until residency_yield(r, false). False: nothing changed, since
 * nothing was kept. */
bool residency_yield(struct residency *r, bool yields);
void residency_touch(struct residency *r, uint32_t id, int64_t now_ns); /* notes a use */
/* A run uses it. Returns the blocks of all images that runs used since its last one, itself
 * included (LRU's stack distance); RESIDENCY_NEVER: no run used it before. */
uint32_t residency_distance(struct residency *r, uint32_t id);
uint32_t residency_first(const struct residency *r,
                         uint32_t id); /* its first block; it holds some */
uint32_t residency_held(const struct residency *r, uint32_t id);
uint32_t residency_blocks(const struct residency *r, uint32_t id); /* that it needs as a whole */
uint32_t residency_tag(const struct residency *r, uint32_t id);

/* Gives the image its whole range, evicting others if may_evict. Fails: SH_E_DEVMEM, SH_E_NOMEM;
 * then only use bits have changed. */
int residency_place(struct residency *r, uint32_t id, bool may_evict, struct residency_place *out,
                    struct sh_err *err);
/* Cuts the held prefix to at most `blocks`. */
void residency_truncate(struct residency *r, uint32_t id, uint32_t blocks);
/* The same for an image of which no more arrived: the blocks behind still hold what others left
 * there, so they become ARENA_FOREIGN. */
void residency_forget(struct residency *r, uint32_t id, uint32_t blocks);

/* Takes a range for a workspace or training state. Prefers blocks that are clean or have the same
 * tag. *evicted_out: blocks taken from images. Fails as residency_place(). */
int residency_alloc(struct residency *r, const struct residency_need *need, struct arena_range *out,
                    uint32_t *evicted_out, struct sh_err *err);
void residency_release(struct residency *r, struct arena_range *range, uint32_t tag);

/* In the background: evicts tails of images not used for min_idle_ns, until want_free blocks are
 * free or no more qualify. Returns the number of blocks evicted. */
uint32_t residency_trim(struct residency *r, uint32_t want_free, int64_t now_ns,
                        int64_t min_idle_ns);

/* Checks every rule above, for tests and debugging. SH_E_BUG names the first that is broken. */
int residency_check(const struct residency *r, struct sh_err *err);

#endif
