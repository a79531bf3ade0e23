/* jobpool_int.h - shared by jobpool.c (what there is), jobpool_order.c (in which order),
 * jobpool_decide.c (what follows) and jobpool_gang.c (of jobs of several slots). */
#ifndef SH_SCHEDULER_DECIDE_JOBPOOL_INT_H
#define SH_SCHEDULER_DECIDE_JOBPOOL_INT_H

#include "scheduler/decide/jobpool.h"

static inline uint32_t jobpool__gpus(const struct jobpool_job *j)
{
    return j->f.is.gpus > 1 ? j->f.is.gpus : 1;
}

#define JOBPOOL_SLOT INT64_C(1000000) /* what is reserved is counted in millionths */

enum jobpool_when { JOBPOOL_NOW, JOBPOOL_LATER }; /* a job may give way */

enum jobpool_place {             /* of a job */
                     PLACE_NONE, /* it counts, and is in no tree */
                     PLACE_LINE,
                     PLACE_BACKOFF,
                     PLACE_RUNS,    /* it may give way ... */
                     PLACE_GUARDED, /* ... when its minimum run is over, or it may be suspended */
};

enum jobpool_taken { /* of a job in a line, by the present decision */
                     TAKEN_NOT,
                     TAKEN_LOOKED, /* it was looked at, and gets nothing */
                     TAKEN_COMING, /* it gets a slot that was being given up before */
                     TAKEN_VICTIM, /* somebody gives way for it */
};

struct jobpool_array {
    uint64_t id;
    uint32_t n_jobs;
    uint32_t n; /* of those that count */
    struct jobpool_group *groups;
};

struct jobpool_group { /* of a tenant: jobs that are alike */
    struct sh_tree_node by_key, by_head;
    struct jobpool_tenant *tenant;
    struct jobpool_array *array; /* NULL: none with a limit */
    uint32_t array_max;
    bool is_fixed;
    uint64_t need_bytes, version;
    uint32_t gpus;
    struct sh_tree line;
    size_t n_backoff;           /* jobs that will join it */
    struct jobpool_job *head;   /* the first that this decision has not taken; NULL */
    uint64_t least_need;        /* of those below it in by_head */
    uint32_t least_gpus;        /* the same */
    struct jobpool_job *passed; /* the head of one that was let by, until it is put back */
    struct jobpool_group *in_array, *next_touched, *next_passed;
    bool is_touched;
};

/* jobpool_order.c, and JOBPOOL_OFF: jobpool_gang.c. */
extern const struct sh_tree_kind JOBPOOL_LINE, JOBPOOL_TIMES, JOBPOOL_GROUPS, JOBPOOL_WANTS,
    JOBPOOL_SLOTS, JOBPOOL_FREE, JOBPOOL_NEXT, JOBPOOL_HEADS, JOBPOOL_GIVES[2], JOBPOOL_RUNS,
    JOBPOOL_OFF;

#define JOBPOOL_ORDER(a, b) (((a) > (b)) - ((a) < (b)))
#define JOBPOOL_JOB(node_) SH_TREE_OF(node_, struct jobpool_job, node)
#define JOBPOOL_GROUP(node_) SH_TREE_OF(node_, struct jobpool_group, by_head)

/* When it may start again, or may have to give way. */
int64_t jobpool__ends_ns(const struct jobpool_job *j);
/* Which of two jobs goes first, in a tenant; < 0: a. */
int jobpool__line_cmp(const struct jobpool_job *a, const struct jobpool_job *b);
/* Which goes first of all, and which gives way first. */
int jobpool__next_cmp(const struct jobpool_rank *a, const struct jobpool_rank *b);
int jobpool__way_cmp(const struct jobpool_rank *a, const struct jobpool_rank *b);
struct jobpool_rank jobpool__rank(const struct jobpool_job *j); /* as its tenant is now */
/* Would it be within its guarantee with each of so many slots more? */
bool jobpool__is_below(const struct jobpool_tenant *t, uint32_t gpus);
/* The slots of a tenant by its weight; -1 below its guarantee: it counts for less than any. */
double jobpool__load(const struct jobpool_tenant *t);
/* Does a running job give way to one that waits, of the same tenant? */
bool jobpool__own_claim(const struct jobpool_job *want, const struct jobpool_job *have);

/* What a tenant has, has changed: jobpool__sort() puts all of those where they belong. */
void jobpool__unsort(struct jobpool *q, struct jobpool_tenant *t);
void jobpool__sort(struct jobpool *q);
/* The same of a group, at once. */
void jobpool__sort_group(struct jobpool_group *g);
void jobpool__count_array(struct jobpool *q, struct jobpool_array *a, int change);
void jobpool__leave(struct jobpool *q, struct jobpool_job *j);
void jobpool__enter(struct jobpool *q, struct jobpool_job *j, struct jobpool_group *g);
/* Of n and those behind it in a line, the first that the present decision has not taken; NULL. */
struct jobpool_job *jobpool__untaken(struct sh_tree_node *n);
void jobpool__touch(struct jobpool *q, struct jobpool_group *g); /* jobpool_end() looks at it */
void jobpool__drop_empty(struct jobpool_group *g);
void jobpool__ripen(struct jobpool *q); /* what time has changed */
void jobpool__sort_slot(struct jobpool *q, struct jobpool_slot *x);
/* Does the tenant's quota allow one more job, of so many slots? A fixed one? */
bool jobpool__has_room(const struct jobpool_tenant *t, uint32_t gpus);
bool jobpool__has_fixed_room(const struct jobpool_tenant *t, uint32_t gpus);
/* Does it allow the first of these jobs (is_fixed: 0, 1)? If not, it holds back those behind it. */
bool jobpool__is_open(const struct jobpool_tenant *t, int is_fixed);

/* jobpool_decide.c. The job that gives way to `want`, now or later, and by what right; NULL: nobody
 * has to. */
struct jobpool_job *jobpool__claim(const struct jobpool *q, const struct jobpool_job *want,
                                   enum jobpool_when when, enum decide_reason *why);
void jobpool__take(struct jobpool *q, struct jobpool_job *j, enum jobpool_taken how);
bool jobpool__goes_before(const struct jobpool_job *a, const struct jobpool_job *b);
bool jobpool__fits(const struct jobpool *q, const struct jobpool_job *j,
                   const struct jobpool_slot *x);

/* jobpool_gang.c: jobs of several slots. Free ones where it can run, up to so many as it needs. */
uint32_t jobpool__n_free(const struct jobpool *q, const struct jobpool_job *j);
/* As many as it needs, as a list; NULL: there are not so many, or others are guaranteed them. */
struct jobpool_slot *jobpool__free_slots(const struct jobpool *q, const struct jobpool_job *j);
/* Does a job fill, that is: was it started before one of several slots that goes first? */
bool jobpool__any_fills(const struct jobpool *q);
/* Are there so many slots that are large enough, free or not? Of which others are not guaranteed
 * too many? */
bool jobpool__are_large(const struct jobpool *q, const struct jobpool_job *j);
bool jobpool__is_possible(const struct jobpool *q, const struct jobpool_job *j);
/* The free slots are kept for it from now on, as it goes before all others that wait. */
void jobpool__keep(struct jobpool *q, struct jobpool_job *j);
/* May a job behind it start? Then it is off in time, or what it takes is not needed. */
bool jobpool__may_fill(struct jobpool *q, const struct jobpool_job *j);
/* Slots that come are promised to it, and as many jobs give way as it needs besides. False: they
 * are too few, so nobody does. */
bool jobpool__claim_gang(struct jobpool *q, struct jobpool_job *j);

#endif
