/* lines.h - which of the waiting jobs the leader holds in memory: the first ones of each line.
 *
 * A line is the queued jobs that differ in nothing that could hold one back and not the other:
 * tenant, queue, model version, kind, array, and whether they can be preempted. So only the first
 * of a line can be next, and a window of its first jobs is enough to decide with, however many wait
 * behind: those of other lines are not pushed out by them. Not in its line, and always held, is a
 * job that failed and waits for its next attempt.
 *
 * Invariant: of a line that is not cut, all jobs are held; of one that is cut, exactly those up to
 * its edge. A look at the database reads on behind the edge when few are left (lines_is_low); what
 * arrives behind the edge is left there. Pure: neither clock nor database. Not thread-safe.
 */
#ifndef SH_SCHEDULER_DECIDE_LINES_H
#define SH_SCHEDULER_DECIDE_LINES_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINES_MAX 16384      /* more are taken up as others end, by turns of tenants */
#define LINES_MAX_HELD 16384 /* jobs of all lines together, when their windows are made */
#define LINES_MAX_WINDOW 128 /* jobs of one line */
#define LINES_MIN_WINDOW 1

struct line_key {
    int64_t tenant_id, queue_id, version_id, array_id /* 0: of none */;
    bool is_batch, preemptible;
};

struct line_place { /* in its line: priority, then time, then number */
    int32_t priority;
    int64_t queued_us, id;
};

struct line {
    struct line_key key;
    bool cut;
    struct line_place edge; /* of a line that is cut: the last one held */
    size_t n;               /* held; counted after each look */
    bool seen;              /* of a full look: it is in it */
};

struct lines {
    struct line **items; /* OWNED; sorted by key */
    size_t n, cap;
    bool crowded; /* the last full look did not take up all lines */
};

void lines_fini(struct lines *ls);
struct line *lines_find(const struct lines *ls, const struct line_key *key); /* NULL: unknown */
/* Finds it or makes one that is empty: cut before its first job if some may be there that no look
 * has taken up. Fails: SH_E_NOMEM, SH_E_TOOBIG. */
int lines_get(struct lines *ls, const struct line_key *key, struct line **out, struct sh_err *err);

int line_key_cmp(const struct line_key *a, const struct line_key *b);
int line_place_cmp(const struct line_place *a, const struct line_place *b); /* < 0: a goes first */
bool line_covers(const struct line *l, const struct line_place *p);         /* is it to be held? */
/* The database was read on behind the edge, up to `last` (NULL: nothing was there). */
void line_read_to(struct line *l, const struct line_place *last, bool more);
/* Sorts `places`, its n jobs, and keeps the first `keep`: the edge is the last of them. */
void line_shrink(struct line *l, struct line_place *places, size_t n, size_t keep);

/* How many jobs of each of n_lines lines are held. */
size_t lines_window(size_t n_lines);
bool lines_is_low(const struct lines *ls, const struct line *l);  /* time to read on */
bool lines_is_over(const struct lines *ls, const struct line *l); /* time to shrink */
/* Away with lines of which nothing is held and nothing is left. */
void lines_drop_empty(struct lines *ls);

#endif
