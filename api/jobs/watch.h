/* watch.h - event streams of one job or of all: one thread looks at the database for all streams.
 *
 * A stream is opened by a handler (watch_open) and read by the connection (struct api_stream in
 * req.h). The thread asks once a round for what is new of all jobs that are watched, hands each
 * stream its events, and wakes those connections that sleep. Nobody else waits: a round costs one
 * statement for those of jobs and one for those of all, however many streams there are.
 *
 *   open --events--> ... --the job's last event--> ended --read to its end--> closed
 *   open --its client went away--> closed            open --the API stops--> ended
 *
 * A stream whose client reads slowly gets no more events before it has read what there is; nothing
 * is lost, because the database has them. Every PING_S without an event a comment goes out: so a
 * client that is gone is noticed. A stream ends, too, within seconds of its key. Thread-safe.
 */
#ifndef SH_API_JOBS_WATCH_H
#define SH_API_JOBS_WATCH_H

#include "api/request/req.h"

struct watch;

int watch_start(struct api *a, struct watch **out, struct sh_err *err); /* KEEPS a; watch_free() */
/* Ends every stream: each sends what it has and closes. Joins the thread. */
void watch_stop(struct watch *w);
void watch_free(struct watch *w); /* when no stream is left; NULL is allowed */

/* q->reply becomes a stream of the job's events after event `after`. is_final: no more will come
 * after those that there are. Fails: SH_E_QUOTA (of the tenant), SH_E_QUEUEFULL (in all). */
int watch_open(struct watch *w, struct api_req *q, int64_t job, int64_t after, bool is_final,
               struct sh_err *err);
/* ... of the events that f wants, after a place; live: store_event_start(). It never ends by
 * itself. */
struct store_events;
struct store_place;
int watch_open_all(struct watch *w, struct api_req *q, const struct store_events *f,
                   const struct store_place *after, int64_t live, struct sh_err *err);

#endif
