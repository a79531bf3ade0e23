/* lease_watch.h - are we alone in not reaching the database? Pure: times are arguments.
 *
 * A leader that cannot renew its lease goes on if the database is unreachable for everybody, since
 * nobody can take the lease then (leader.h). If others reach the database, somebody may take the
 * lease when it ends, and we must have stopped by then. We learn this from an API's word that the
 * database has just committed something of its own. The word counts only a moment (a sixth of the
 * lease, at most half a second) after the first renewal that has not succeeded; an earlier one may
 * predate the failure. On a word that counts we try again at once. We give up the lease when that
 * has brought nothing for a moment either, and five sixths of the lease have passed, by our own
 * clock since the start of the last good renewal: the database counts from later.
 */
#ifndef SH_SCHEDULER_DECIDE_LEASE_WATCH_H
#define SH_SCHEDULER_DECIDE_LEASE_WATCH_H

#include <stdbool.h>
#include <stdint.h>

struct lease_watch {  /* all zero: not leading */
    int64_t good_ns;  /* start of the last renewal that succeeded */
    int64_t tried_ns; /* start of the first one since; 0: none */
    int64_t word_ns;  /* an API's first word that counts; 0: none */
};

void lease_watch_on_try(struct lease_watch *w, int64_t now_ns);
/* A renewal, or the taking of the lease, begun at begun_ns has succeeded. */
void lease_watch_on_success(struct lease_watch *w, int64_t begun_ns);
/* True: this word counts; try again at once. */
bool lease_watch_on_word(struct lease_watch *w, int64_t ttl_ns, int64_t now_ns);
bool lease_watch_is_lost(const struct lease_watch *w, int64_t ttl_ns, int64_t now_ns);

#endif
