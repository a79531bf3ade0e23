/* watch.h - event streams: of one job, of all jobs, or of the answers to a GET. One thread polls
 * the database for all streams.
 *
 * A handler opens a stream (watch_open), and the connection reads it (struct api_stream in req.h).
 * In each round the thread asks for new events of all watched jobs, passes them to the streams, and
 * wakes the sleeping connections. A round costs one statement for the streams of single jobs and
 * one for those of all jobs, however many streams there are.
 *
 * The answers to a GET are looked at about once a second each, and sent when they differ (look.h).
 * All looks of a round together take little time, so that events of jobs are not late; with many
 * such streams each has its turn less often.
 *
 *   open --events--> ... --the job's last event--> ended --read to its end--> closed
 *   open --its client went away--> closed            open --the API stops--> ended
 *
 * A stream whose client reads slowly gets no more events until it has read those it has; nothing is
 * lost, because the database keeps them. After 15 s without an event a comment is sent, so that a
 * lost client is noticed. A stream also ends within seconds of its key. Thread-safe.
 */
#ifndef SH_API_JOBS_WATCH_H
#define SH_API_JOBS_WATCH_H

#include "api/request/req.h"

struct watch;

int watch_start(struct api *a, struct watch **out, struct sh_err *err); /* KEEPS a; watch_free() */
/* Ends every stream, which sends what it has and closes. Joins the thread. */
void watch_stop(struct watch *w);
void watch_free(struct watch *w); /* after the last stream; NULL is allowed */

/* Turns q->reply into a stream of the job's events after event `after`. is_final: no further events
 * will come. Fails: SH_E_QUOTA (the tenant's limit), SH_E_QUEUEFULL (the total). */
int watch_open(struct watch *w, struct api_req *q, int64_t job, int64_t after, bool is_final,
               struct sh_err *err);
/* The same for the events that f selects, after a place; live: see store_event_start(). It never
 * ends by itself. */
/* The same for a GET whose answer q->reply has: it is the first event, and each other answer is one
 * more. The stream ends when what it is about is gone. */
int watch_open_answers(struct watch *w, struct api_req *q, struct sh_err *err);
struct store_events;
struct store_place;
int watch_open_all(struct watch *w, struct api_req *q, const struct store_events *f,
                   const struct store_place *after, int64_t live, struct sh_err *err);

#endif
