/* residency_int.h - between residency.c (who has which blocks) and replacement.c (who goes). */
#ifndef SH_EXECUTOR_MEMORY_RESIDENCY_INT_H
#define SH_EXECUTOR_MEMORY_RESIDENCY_INT_H

#include "executor/memory/residency.h"

struct image {
    struct residency_image conf;
    bool is_used, use, is_candidate, in_ring, is_sticky, is_costly, is_packed, is_short;
    bool is_unfilled;          /* when the last pin goes: what is then cut is not its own */
    bool is_active;            /* second chance: not on the list of those that go first */
    uint32_t backed_by, backs; /* RESIDENCY_NO_IMAGE: by none, none */
    double worth;
    uint32_t floor; /* so many blocks are kept by its tenant's min: as of the last search */
    uint32_t first, held, pins, count;
    uint32_t prev, next;   /* ring */
    uint32_t newer, older; /* by last use, of equal ones the lower number is newer; none: `ends` */
    int64_t last_use_ns;
    uint64_t last_run; /* number of the last run that used it; 0: none did */
};

/* Of its range when it gets one. */
static inline uint32_t residency__range(const struct image *im)
{
    return im->is_short && im->conf.short_blocks ? im->conf.short_blocks : im->conf.n_blocks;
}

static inline uint32_t residency__needs(const struct image *im)
{
    const uint32_t unpacked = im->conf.unpacked_blocks;

    if (im->conf.short_blocks && !im->is_short)
        return im->conf.n_blocks;
    return im->is_packed || !unpacked || im->held < unpacked ? residency__range(im) : unpacked;
}

struct tenant {
    struct residency_quota quota;
    /* As of the last search, and only while it holds something here: */
    uint32_t ranges, images;  /* blocks */
    uint32_t kept;            /* of its images, by its min */
    bool is_counted, is_over; /* over: it holds more than its share */
};

struct residency {
    struct arena *arena;
    struct tenant *tenants; /* OWNED, by tag: up to the largest that had a quota or an image */
    size_t n_tenants, cap_tenants;
    bool has_quotas, yields;
    struct residency_conf conf;
    uint32_t hand, n_ring;
    uint32_t active, max_active; /* second chance: blocks of active images */
    struct residency_counts counts;
    uint64_t n_runs;   /* residency_distance() */
    uint32_t n_images; /* slots in use or free below this */
    uint32_t ends;     /* as many as there may be. No image: before the newest, behind the oldest */
    struct image *images; /* OWNED, [ends + 1] */
};

/* The ring: images that hold blocks. replacement__insert() puts one where the hand comes last. */
void replacement__insert(struct residency *r, uint32_t id);
void replacement__remove(struct residency *r, uint32_t id);
/* The image is used: it holds blocks, or will in a moment. */
void replacement__use(struct residency *r, uint32_t id);
/* Looks at the image *at and moves on to the next one. True: it has become a candidate.
 * only_over: of tenants that hold more than their share. */
bool replacement__step(struct residency *r, uint32_t *at, uint32_t spare, bool only_over);

/* It may not give way: it is pinned, sticky or spared, or stands behind an image that is, which is
 * not whole and unpacked without it. */
bool replacement__stays(const struct residency *r, uint32_t id, uint32_t spare);
/* What it stands behind can go instead, which costs less and is larger. */
bool replacement__has_front(const struct residency *r, uint32_t id, uint32_t spare);
/* By what is kept of each tenant: of images, or of copies behind a whole one (behind). */
void replacement__set_floors(struct residency *r, bool behind);
bool replacement__is_backed(const struct residency *r, const struct image *im);
/* The next image that goes before others because it is backed, and has become a candidate: the
 * least recently used first. *at: RESIDENCY_NO_IMAGE at first. False: there is none any more. */
bool replacement__backed_first(struct residency *r, uint32_t *at, uint32_t spare, bool only_over);

/* The list by last use. */
void replacement__order_insert(struct residency *r, uint32_t id);
void replacement__order_remove(struct residency *r, uint32_t id);
/* n_used: images there are. Fails: SH_E_BUG. */
int replacement__check_order(const struct residency *r, uint32_t n_used, struct sh_err *err);

#endif
