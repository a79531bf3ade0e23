/* residency.h - what stays in device memory: images as resident prefixes, and ranges for the rest.
 *
 * An image has one contiguous range of blocks, of which a prefix is held: the head of a model hides
 * the copy of its tail, so tails are evicted first. Weights are clean, so evicting is bookkeeping.
 *
 *   held = 0            nothing is on the device; the image has no place
 *   0 < held < blocks   the head is there; the blocks behind it may belong to others
 *   held = blocks       all of it is there, or on its way. Only then may it be pinned.
 *
 * Victims are chosen by a policy; by clock (N-th chance) where nothing else is asked for. The hand
 * moves only when room is missing, clears a use bit, and makes an unused, unpinned image a
 * candidate; then the cheapest window of free blocks and candidates' tails is taken. keep_blocks
 * says which head of an image is worth keeping: what lies behind it arrives in time whenever it is
 * copied (`stall = 0`), so it goes first.
 *
 * Quotas of tenants. Of what has a tenant's tag, images and ranges together: `min` is not taken by
 * others, the images that were used last are kept for it; `max` is never exceeded, older images of
 * the tenant go first; and while there are quotas, images of tenants that hold more than their
 * share (min, and of what no min takes a part by `share`) go before those of others. Whoever finds
 * no room but in what is kept may ask for all of it (residency_yield), as with sticky images.
 *
 * Pure: no device, no clock (times are arguments). Not thread-safe.
 */
#ifndef SH_EXECUTOR_MEMORY_RESIDENCY_H
#define SH_EXECUTOR_MEMORY_RESIDENCY_H

#include "executor/memory/arena.h"

#define RESIDENCY_MAX_IMAGES 896u

struct residency;

struct residency_image {
    uint32_t n_blocks, keep_blocks;
    uint32_t tag; /* tenant, see arena.h; a small number: tables go up to the largest */
};

struct residency_place {
    struct arena_range range; /* of the whole image */
    uint32_t had_blocks;      /* its head of so many blocks is already on the device ... */
    uint32_t had_first;       /* ... at this block; move it if that is not range.first */
    uint32_t evicted_blocks;  /* taken from other images */
};

#define RESIDENCY_NO_IMAGE UINT32_MAX
#define RESIDENCY_NO_MAX UINT32_MAX

struct residency_quota { /* without one: {0, RESIDENCY_NO_MAX, 1} */
    uint32_t min_blocks, max_blocks;
    double share;
};

struct residency_need {
    uint32_t n_blocks, tag;
    enum arena_kind kind;
    uint32_t spare; /* image that must not be evicted for it; RESIDENCY_NO_IMAGE */
};

enum residency_policy {
    RESIDENCY_CLOCK,
    RESIDENCY_LRU,
    RESIDENCY_FIFO,
    RESIDENCY_SECOND_CHANCE, /* FIFO; what leaves it goes first, but a use takes it back */
    RESIDENCY_NONE,          /* one image at a time, as PipeSwitch (OSDI'20) was published */
    RESIDENCY_N_POLICIES
};

struct residency_conf {
    enum residency_policy policy;
    uint32_t n_chance;   /* clock: an image is passed so often with its use bit clear; 0 = 1 */
    double second_share; /* second chance: of the blocks, those of images that go first; 0 to 1 */
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

/* Fails: SH_E_TOOBIG when there are too many images, or when this one can never fit; SH_E_NOMEM. */
int residency_add(struct residency *r, const struct residency_image *im, uint32_t *id_out,
                  struct sh_err *err);
void residency_remove(struct residency *r, uint32_t id); /* gives its blocks back; unpinned */
void residency_pin(struct residency *r, uint32_t id);    /* counts */
void residency_unpin(struct residency *r, uint32_t id);
uint32_t residency_pins(const struct residency *r, uint32_t id);
/* A sticky image is no victim of the clock, whatever part of it is held; unlike a pinned one it
 * need not be whole, and residency_truncate() still cuts it. */
void residency_stick(struct residency *r, uint32_t id, bool is_sticky);
bool residency_is_sticky(const struct residency *r, uint32_t id);
int residency_set_quota(struct residency *r, uint32_t tag, const struct residency_quota *q,
                        struct sh_err *err); /* SH_E_NOMEM, SH_E_TOOBIG: the tag */
void residency_clear_quotas(struct residency *r);
struct residency_quota residency_quota(const struct residency *r, uint32_t tag);
uint32_t residency_used(const struct residency *r, uint32_t tag); /* blocks: images and ranges */
/* True: what is kept by a `min` may be taken until residency_yield(r, false). False: nothing was
 * kept. */
bool residency_yield(struct residency *r, bool yields);
void residency_touch(struct residency *r, uint32_t id, int64_t now_ns); /* a use */
uint32_t residency_held(const struct residency *r, uint32_t id);
uint32_t residency_tag(const struct residency *r, uint32_t id);

/* Gives the image its whole range, evicting others as needed if may_evict. Fails: SH_E_DEVMEM; then
 * nothing has changed but use bits, and older images of the same tenant if it has a max. */
int residency_place(struct residency *r, uint32_t id, bool may_evict, struct residency_place *out,
                    struct sh_err *err);
/* Cuts the held prefix to at most `blocks`. */
void residency_truncate(struct residency *r, uint32_t id, uint32_t blocks);
/* The same down to nothing for an image that never arrived: its blocks still hold what others left
 * there, so they are ARENA_FOREIGN. */
void residency_forget(struct residency *r, uint32_t id);

/* A range for a workspace or training state; *evicted_out: blocks taken from images. Prefers blocks
 * that are clean or have the same tag. Fails: SH_E_DEVMEM. */
int residency_alloc(struct residency *r, const struct residency_need *need, struct arena_range *out,
                    uint32_t *evicted_out, struct sh_err *err);
void residency_release(struct residency *r, struct arena_range *range, uint32_t tag);

/* Background: evicts tails of images that were not used for min_idle_ns, until want_free blocks are
 * free or nothing suitable is left. Returns the blocks evicted. */
uint32_t residency_trim(struct residency *r, uint32_t want_free, int64_t now_ns,
                        int64_t min_idle_ns);

/* Every rule above, for tests and debugging: SH_E_BUG with the first that is broken. */
int residency_check(const struct residency *r, struct sh_err *err);

#endif
