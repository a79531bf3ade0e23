/* sessions.h - connections: listening, the first message, keep-alive, end.
 *
 * A peer says API_HELLO or EXEC_HELLO within SESSION_HELLO_NS and gets WELCOME with our epoch. One
 * that says nothing for SESSION_PING_NS gets a PING; one that says nothing for SESSION_DEAD_NS is
 * closed. A session lives until its wire is gone, also while that writes out its last messages.
 */
#ifndef SH_SCHEDULER_PEERS_SESSIONS_H
#define SH_SCHEDULER_PEERS_SESSIONS_H

#include "common/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SESSION_HELLO_NS INT64_C(5000000000)
#define SESSION_PING_NS INT64_C(2000000000)
#define SESSION_DEAD_NS INT64_C(10000000000)
#define SESSION_MAX_LISTEN 8

struct sched;
struct api;
struct exec;

struct session {
    struct sched *sched;  /* BORROWED */
    struct sh_wire *wire; /* freed by itself after on_close */
    uint64_t serial;      /* grows: tells two connections of one peer apart */
    struct api *api;      /* of these two, the one that said hello */
    struct exec *exec;
    bool ending; /* sh_wire_finish() was called */
    bool broken; /* a message was lost; sessions_sweep() ends it */
    int64_t opened_ns, heard_ns, pinged_ns;
    size_t index;
};

struct sessions {
    struct session **items; /* OWNED */
    size_t n, cap;
    uint64_t last_serial;
    struct sh_listen *listen[SESSION_MAX_LISTEN]; /* OWNED */
    size_t n_listen;
    bool any_broken;
    int64_t warned_ns;
    uint64_t warned_left;
};

/* Opens what is not open yet of the addresses in the configuration. Fails as sh_wire_listen(); then
 * call again later: a former leader may still hold the address. */
int sessions_listen(struct sched *s, struct sh_err *err);
/* Stops listening and ends every session; what is queued is still written. */
void sessions_end_all(struct sched *s, const char *why);
void sessions_fini(struct sched *s);
void sessions_second(struct sched *s); /* once a second: keep-alive */

void sessions_sweep(struct sched *s); /* once a turn of the loop */
/* What a pass has to say to a peer goes out together when it has ended. */
void sessions_cork(struct sched *s);
void sessions_uncork(struct sched *s);

void session_end(struct session *x, const char *why); /* its parts are told at once */
/* Never calls back: after a failure the session is ended by the next sessions_sweep(). NULL is
 * allowed and does nothing. */
void session_send(struct session *x, const struct sh_msg *m);
/* INFER_REFUSED, to an API. */
void session_refuse(struct session *x, uint64_t rid, int rc, int64_t retry_after_ms,
                    int64_t predicted_ms, const char *msg);

#endif
