/* sessions.h - connections: listening, the first message, keep-alive, end.
 *
 * A peer sends API_HELLO or EXEC_HELLO within SESSION_HELLO_NS and gets WELCOME with our epoch. One
 * that is silent for SESSION_PING_NS gets a PING; one that is silent for SESSION_DEAD_NS is closed.
 * A session lives until its wire is gone, which includes the time in which that writes its last
 * messages.
 */
#ifndef SH_SCHEDULER_PEERS_SESSIONS_H
#define SH_SCHEDULER_PEERS_SESSIONS_H

#include "common/units.h"
#include "common/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SESSION_HELLO_NS SH_S(5)
#define SESSION_PING_NS SH_S(2)
#define SESSION_DEAD_NS SH_S(10)
#define SESSION_MAX_LISTEN 8

struct sched;
struct api;
struct exec;

struct session {
    struct sched *sched;  /* BORROWED */
    struct sh_wire *wire; /* frees itself after on_close */
    uint64_t serial;      /* increases: tells two connections of one peer apart */
    struct api *api;      /* one of these two, after its hello */
    struct exec *exec;
    bool ending; /* sh_wire_finish() was called */
    int64_t opened_ns, heard_ns, pinged_ns;
    size_t index;
    struct session *next_corked, **corked_at; /* sessions.corked; corked_at NULL: not in it */
};

struct sessions {
    struct session **items; /* OWNED */
    size_t n, cap;
    uint64_t last_serial;
    struct sh_listen *listen[SESSION_MAX_LISTEN]; /* OWNED */
    size_t n_listen;
    bool corks;                /* between sessions_cork() and sessions_uncork() */
    struct session *corked[2]; /* lists of executors and of others: sent something since */
    int64_t warned_ns;
    uint64_t warned_left;
};

/* Opens the configured addresses that are not open yet. Fails as sh_wire_listen(); then call again
 * later, since a former leader may still hold the address. */
int sessions_listen(struct sched *s, struct sh_err *err);
/* Stops listening and ends every session; queued messages are still written. */
void sessions_end_all(struct sched *s, const char *why);
void sessions_fini(struct sched *s);
void sessions_second(struct sched *s); /* once a second: keep-alive */

/* Between the two, messages to a peer are held back and then go out together; to executors first: a
 * request waits for its run, and nobody for the word of where it is placed. */
void sessions_cork(struct sched *s);
void sessions_uncork(struct sched *s);

void session_end(struct session *x, const char *why); /* tells the other parts at once */
/* Never calls back: a failure ends the connection, which tells of it from the loop. NULL is allowed
 * and does nothing. */
void session_send(struct session *x, const struct sh_msg *m);
/* Sends INFER_REFUSED to an API. */
void session_refuse(struct session *x, uint64_t rid, int rc, int64_t retry_after_ms,
                    int64_t predicted_ms, const char *msg);

#endif
