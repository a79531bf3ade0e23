/* homes.h - carries out on which executors versions live (decide/placement.h): loads them there,
 * and unloads them where they live no more.
 *
 * A version is looked at when something has happened to it (it is new, somebody asks for it, a home
 * is gone or has failed) and once a second. A home that fails for good is none any more; after
 * HOMES_MAX_FAILED executors that failed for another reason than memory no other one is tried, but
 * for those that connect later, and when somebody asks (models_load_again()).
 *
 * What an executor says that it holds, when it connects, counts as decided: a new leader asks them
 * first, and for HOMES_ASK_NS gives no new home to a version that was READY, unless somebody waits
 * for it.
 */
#ifndef SH_SCHEDULER_MODELS_HOMES_H
#define SH_SCHEDULER_MODELS_HOMES_H

#include "common/msg.h"
#include "common/units.h"

#include <stdbool.h>
#include <stdint.h>

#define HOMES_MAX_FAILED 3u
#define HOMES_ASK_NS SH_S(1)
#define HOMES_FIRST_LOAD_NS SH_S(1) /* of a load, until one was seen */

struct exec;
struct model;
struct run;
struct sched;

void homes_begin(struct sched *s); /* it leads */
/* Decides where m lives, and carries it out. */
void homes_look(struct sched *s, struct model *m);
bool homes_has(const struct model *m, const struct exec *e); /* m lives on e, or is to */
/* Its phase on e is another one, or e says that it is there. */
void homes_tell(struct sched *s, struct model *m, struct exec *e);
void homes_leave(struct sched *s, struct model *m, const struct exec *e);
void homes_leave_all(struct sched *s, struct model *m);
/* e, where m finds no room in host memory, need not be its home: it goes to another one. False:
 * there is none. */
bool homes_elsewhere(struct sched *s, struct model *m, struct exec *e);
/* Whether e is up, its memory or its speed is another one. */
void homes_exec_changed(struct sched *s, struct exec *e);
void homes_exec_synced(struct sched *s, struct exec *e); /* it is up, and has said what it holds */
void homes_exec_away(struct sched *s, struct exec *e);   /* what lived there alone moves */
void homes_exec_forget(struct sched *s, struct exec *e); /* another one takes its slot */
/* Compares what e measured with what others did. */
void homes_measured(struct sched *s, struct model *m, struct exec *e, const struct msg_profile *p);
void homes_second(struct sched *s); /* which jobs use; gauges */

/* Address of another executor that e can reach and that has m's image in host memory, "": none.
 * BORROWED until the executor is gone. */
const char *homes_source(const struct sched *s, const struct model *m, const struct exec *e);

/* Somebody asks for it: executors load it first, and bring it back if it was put aside. */
void homes_want(struct sched *s, struct model *m);
/* For a job of e: it stays there, or comes back when it has left. */
void homes_want_on(struct sched *s, struct model *m, struct exec *e);
void homes_asked(struct model *m, uint32_t samples, int64_t now_ns); /* demand */
void homes_ran(const struct run *run, int64_t device_ns);

#endif
