/* lines.h - which waiting jobs the leader holds in memory: the first ones of each line.
 *
 * A line is the queued jobs that are alike in everything that could hold one back but not another:
 * tenant, queue, model version, kind, array, and whether they can be preempted. So only the first
 * of a line can be next, and a window of its first jobs is enough to decide with, however many wait
 * behind them; lines do not crowd each other out. A job that failed and waits for its next attempt
 * is in no line, and always held.
 *
 * Levels. Jobs of a line go by the time at which they were queued, and one that takes much device
 * time by a later one (its handicap). What it takes in all is known of a job that has run, as its
 * steps are counted and measured; of others it is what they have had. So short jobs are not held up
 * by long ones of their tenant, and nobody starves: a job goes before all of its priority that came
 * later by more than its handicap. It is in the row of the job, since the lines are read in that
 * order.
 *
 * Invariant: if a line is not cut, all its jobs are held; if it is cut, exactly those up to its
 * edge. When few are left (lines_is_low), a look at the database reads on behind the edge; new jobs
 * behind the edge stay in the database. Pure: neither clock nor database. Not thread-safe.
 */
#ifndef SH_SCHEDULER_DECIDE_LINES_H
#define SH_SCHEDULER_DECIDE_LINES_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINES_MAX 16384      /* --max-lines, if it is not set */
#define LINES_MAX_WINDOW 128 /* jobs in one line */
#define LINES_MIN_WINDOW 1

struct line_key {
    int64_t tenant_id, queue_id, version_id, array_id /* 0: none */;
    uint32_t gpus;
    bool is_batch, preemptible;
};

struct line_place { /* place in a line: priority, then time with its handicap, then id */
    int32_t priority;
    int64_t line_us, id;
};

struct line {
    struct line_key key;
    bool cut;
    struct line_place edge; /* if cut: the last job held */
    size_t n;               /* jobs held; counted after each look */
    bool seen;              /* the full look in progress has found it */
};

struct lines {
    struct line **items; /* OWNED; sorted by key */
    size_t n, cap;
    size_t most;  /* further lines follow as others end, tenants taking turns. Set it first */
    bool crowded; /* the last full look could not take up all lines */
};

void lines_fini(struct lines *ls);                                           /* `most` stays */
struct line *lines_find(const struct lines *ls, const struct line_key *key); /* NULL: unknown */
/* Finds the line or adds an empty one: cut before its first job if there may be jobs that no look
 * has taken up. Fails: SH_E_NOMEM, SH_E_TOOBIG. */
int lines_get(struct lines *ls, const struct line_key *key, struct line **out, struct sh_err *err);

int line_key_cmp(const struct line_key *a, const struct line_key *b);
int line_place_cmp(const struct line_place *a, const struct line_place *b); /* < 0: a goes first */
/* Must this job be held?. */
bool line_covers(const struct line *l, const struct line_place *p);
/* The database was read behind the edge up to `last` (NULL: there was nothing). */
void line_read_to(struct line *l, const struct line_place *last, bool more);
/* Sorts `places`, its n jobs, and keeps the first `keep` > 0; the last of them becomes the edge. */
void line_shrink(struct line *l, struct line_place *places, size_t n, size_t keep);

/* The level of a job that takes, or has had, so much device time: 0 below first_ns, and one more
 * each time that it is four times as much, up to 7. first_ns 0: there are no levels. */
uint32_t lines_level(int64_t ns, int64_t first_ns);
int64_t lines_level_from_ns(uint32_t level, int64_t first_ns); /* INT64_MAX: no job has it */
/* A job that takes so much device time stands in its line as if it had been queued so much later:
 * 64 times that, and no more than from level 7 on; 0 for one of level 0. */
int64_t lines_handicap_us(int64_t takes_ns, int64_t first_ns);

/* Number of jobs to hold for each of n_lines lines, of which there are at most so many. */
size_t lines_window(size_t n_lines, size_t most);
bool lines_is_low(const struct lines *ls, const struct line *l);  /* time to read on */
bool lines_is_over(const struct lines *ls, const struct line *l); /* time to shrink */
/* Removes lines with no job held and none left. */
void lines_drop_empty(struct lines *ls);

#endif
