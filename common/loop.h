/* loop.h - a small event loop: descriptors, timers, children, a hook before sleeping.
 *
 * A loop belongs to one thread; other threads may only call sh_loop_wake() and sh_loop_stop().
 * Callbacks may add and remove anything, including themselves. What is removed is freed at the end
 * of the turn and gets no more events.
 */
#ifndef SH_COMMON_LOOP_H
#define SH_COMMON_LOOP_H

#include "common/err.h"

#include <stdint.h>
#include <sys/types.h>

struct sh_loop;
struct sh_io;
struct sh_timer;

enum { SH_IO_READ = 1, SH_IO_WRITE = 2, SH_IO_HUP = 4 };

typedef void sh_io_fn(struct sh_loop *l, int fd, unsigned events, void *arg);
typedef void sh_timer_fn(struct sh_loop *l, void *arg);
typedef void sh_child_fn(struct sh_loop *l, pid_t pid, int wait_status, void *arg);
typedef void sh_hook_fn(struct sh_loop *l, void *arg);

int sh_loop_new(struct sh_loop **out, struct sh_err *err); /* OWNED, sh_loop_free() */
void sh_loop_free(struct sh_loop *l);

/* Watches fd (BORROWED; close it after sh_io_del). *out: OWNED, sh_io_del(). */
int sh_io_add(struct sh_loop *l, int fd, unsigned events, sh_io_fn *fn, void *arg,
              struct sh_io **out, struct sh_err *err);
int sh_io_set(struct sh_io *io, unsigned events, struct sh_err *err);
void sh_io_del(struct sh_io *io); /* NULL is allowed */

/* Fires once after delay_ns; if period_ns > 0, then periodically. *out: OWNED, sh_timer_del(). */
int sh_timer_add(struct sh_loop *l, int64_t delay_ns, int64_t period_ns, sh_timer_fn *fn, void *arg,
                 struct sh_timer **out, struct sh_err *err);
void sh_timer_set(struct sh_timer *t, int64_t delay_ns); /* (re)arms; < 0 disarms */
void sh_timer_del(struct sh_timer *t);                   /* NULL is allowed */

/* Calls fn once when the child ends (pidfd), and reaps it. */
int sh_loop_child(struct sh_loop *l, pid_t pid, sh_child_fn *fn, void *arg, struct sh_err *err);

/* Blocks TERM, INT and HUP in this process and delivers them as calls. Once in a process, before
 * any thread starts. fn_hup may be NULL. TERM and INT stop the loop unless fn_term is given. */
int sh_loop_signals(struct sh_loop *l, sh_hook_fn *fn_term, sh_hook_fn *fn_hup, void *arg,
                    struct sh_err *err);

/* For ns after each sh_loop_stay_awake() the loop polls instead of sleeping, because waking up is
 * slow, above all on virtual machines. Takes a core meanwhile. 0: off. */
void sh_loop_busy_poll(struct sh_loop *l, int64_t ns);
void sh_loop_stay_awake(struct sh_loop *l); /* on the loop's thread: more will come soon */
void sh_loop_before_sleep(struct sh_loop *l, sh_hook_fn *fn, void *arg);
/* From any thread: soon runs the function set by sh_loop_on_wake, on the loop's thread. Never lost;
 * several wake-ups may become one. */
void sh_loop_wake(struct sh_loop *l);
void sh_loop_on_wake(struct sh_loop *l, sh_hook_fn *fn, void *arg);

int sh_loop_run(struct sh_loop *l, struct sh_err *err); /* until sh_loop_stop() */
/* One turn: sleeps at most max_wait_ns and handles what is ready. For tests and tools. */
int sh_loop_once(struct sh_loop *l, int64_t max_wait_ns, struct sh_err *err);
void sh_loop_stop(struct sh_loop *l);

#endif
