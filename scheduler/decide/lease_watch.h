/* lease_watch.h - are we the only ones who do not reach the database? Pure: times are arguments.
 *
 * A leader that cannot renew its lease goes on while the database is away for all: nobody can take
 * the lease then (leader.h). If others do reach it, somebody may take it when it ends, and we must
 * have stopped by then. The word of an API that the database has just taken a commit of its own
 * tells the two apart. It counts from a moment (a sixth of the lease, at most half a second) after
 * the first renewal that has not succeeded: sooner it may be older than that. Whoever hears it
 * tries again at once. The lease is given up when that has brought nothing for a moment either and
 * five sixths of the lease are over, by our own clock and from when the last good renewal was
 * begun: the database counts from later.
 */
#ifndef SH_SCHEDULER_DECIDE_LEASE_WATCH_H
#define SH_SCHEDULER_DECIDE_LEASE_WATCH_H

#include <stdbool.h>
#include <stdint.h>

struct lease_watch {  /* all zero: not leading */
    int64_t good_ns;  /* when the last renewal that succeeded was begun */
    int64_t tried_ns; /* the first one begun since; 0: none */
    int64_t word_ns;  /* first word of an API that counts; 0: none */
};

void lease_watch_on_try(struct lease_watch *w, int64_t now_ns);
/* A try that was begun at begun_ns has succeeded; for the lease itself too. */
void lease_watch_on_success(struct lease_watch *w, int64_t begun_ns);
/* True: this word is news; try again at once. */
bool lease_watch_on_word(struct lease_watch *w, int64_t ttl_ns, int64_t now_ns);
bool lease_watch_is_lost(const struct lease_watch *w, int64_t ttl_ns, int64_t now_ns);

#endif
