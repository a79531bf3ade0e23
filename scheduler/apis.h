/* apis.h - the connected APIs: one session each, and the requests that came through it. */
#ifndef SH_SCHEDULER_APIS_H
#define SH_SCHEDULER_APIS_H

#include "common/idmap.h"
#include "common/msg.h"

struct sched;
struct session;

struct api { /* lives as long as its session has it */
    struct session *session;
    uint64_t id;
    char name[64];
    struct idmap requests; /* rid -> struct request, BORROWED */
};

int apis_on_hello(struct sched *s, struct session *x, const struct msg_api_hello *m,
                  struct sh_err *err);
void apis_on_msg(struct sched *s, struct api *a, const struct sh_msg *m);
void apis_on_close(struct sched *s, struct api *a, const char *why); /* frees a */

#endif
