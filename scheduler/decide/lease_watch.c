/* lease_watch.c - see lease_watch.h. */
#include "scheduler/decide/lease_watch.h"

#include "common/mem.h"
#include "common/units.h"

static int64_t moment(int64_t ttl_ns)
{
    return SH_MIN(ttl_ns / 6, SH_MS(500));
}

void lease_watch_on_try(struct lease_watch *w, int64_t now_ns)
{
    if (!w->tried_ns)
        w->tried_ns = now_ns;
}

void lease_watch_on_success(struct lease_watch *w, int64_t begun_ns)
{
    *w = (struct lease_watch){.good_ns = begun_ns};
}

bool lease_watch_on_word(struct lease_watch *w, int64_t ttl_ns, int64_t now_ns)
{
    if (!w->tried_ns || w->word_ns || now_ns - w->tried_ns < moment(ttl_ns))
        return false;
    w->word_ns = now_ns;
    return true;
}

bool lease_watch_is_lost(const struct lease_watch *w, int64_t ttl_ns, int64_t now_ns)
{
    return w->good_ns && w->word_ns && now_ns - w->word_ns >= moment(ttl_ns) &&
           now_ns - w->good_ns >= ttl_ns / 6 * 5;
}
