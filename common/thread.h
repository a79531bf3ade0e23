/* thread.h - what each of our threads needs: to take no signal, and to wait by a clock that nobody
 * sets. */
#ifndef SH_COMMON_THREAD_H
#define SH_COMMON_THREAD_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

/* Starts a thread that takes no signal: those of the process are for its loop. Returns 0 or an
 * errno. */
int sh_thread_start(pthread_t *out, void *(*main)(void *arg), void *arg);

/* A condition whose pthread_cond_timedwait() takes a time of CLOCK_MONOTONIC. */
void sh_cond_init(pthread_cond_t *cond);
/* That time, so many ns from now; also while tests have stopped sh_clock_ns(). */
struct timespec sh_cond_deadline(int64_t ns);

#endif
