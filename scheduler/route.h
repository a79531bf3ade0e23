/* route.h - the calls from a lower room to a higher one (rooms.txt): sessions know no APIs,
 * executors or models; models know no jobs or requests. One table, in route.c. */
#ifndef SH_SCHEDULER_ROUTE_H
#define SH_SCHEDULER_ROUTE_H

#include "common/msg.h"

#include <stdbool.h>

struct exec;
struct model;
struct sched;
struct session;
struct shape;

struct sched_route {
    void (*poll)(struct sched *s); /* look at the database soon */
    void (*stand_down)(struct sched *s, const char *why);
    /* sessions: a peer's first message, our WELCOME sent, later messages, its end */
    int (*on_hello)(struct sched *s, struct session *x, const struct sh_msg *m, struct sh_err *err);
    void (*on_welcomed)(struct sched *s, struct session *x);
    void (*on_msg)(struct sched *s, struct session *x, const struct sh_msg *m);
    void (*on_close)(struct sched *s, struct session *x, const char *why);
    /* models: a version can be served, or no longer; its requests must end */
    void (*on_model)(struct sched *s, int64_t version_id, bool ready);
    void (*on_model_away)(struct sched *s, struct model *m, int rc, const char *why);
    void (*on_shape_away)(struct sched *s, const struct shape *h);
    /* not READY on e any more, the version or, if h is not NULL, that shape of it */
    void (*on_unready)(struct sched *s, struct exec *e, const struct model *m,
                       const struct shape *h);
};
extern const struct sched_route SCHED_ROUTE;

#endif
