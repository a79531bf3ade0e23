/* held.c - see held.h. */
#include "cli/files/held.h"

#include <time.h>

static void both_signals(sigset_t *out)
{
    sigemptyset(out);
    sigaddset(out, SIGINT);
    sigaddset(out, SIGTERM);
}

void held_begin(struct held *h)
{
    sigset_t set;

    both_signals(&set);
    *h = (struct held){.is_on = false};
    h->is_on = sigprocmask(SIG_BLOCK, &set, &h->mask) == 0;
}

void held_end(struct held *h)
{
    if (h->is_on)
        sigprocmask(SIG_SETMASK, &h->mask, NULL);
    h->is_on = false;
}

bool held_came(struct held *h)
{
    const struct timespec now = {0};
    sigset_t set;

    both_signals(&set);
    if (h->is_on && sigtimedwait(&set, NULL, &now) > 0) {
        h->has_come = true;
        held_end(h);
    }
    return h->has_come;
}
