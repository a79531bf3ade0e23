/* thread.c - see thread.h */
#include "common/thread.h"

#include "common/units.h"

#include <signal.h>

int sh_thread_start(pthread_t *out, void *(*main)(void *arg), void *arg)
{
    sigset_t all, old;
    int e;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    e = pthread_create(out, NULL, main, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return e;
}

void sh_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

struct timespec sh_cond_deadline(int64_t ns)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += (at.tv_nsec + ns) / SH_S(1);
    at.tv_nsec = (at.tv_nsec + ns) % SH_S(1);
    return at;
}
