/* wire_link.c - a client connection that reconnects by itself.
 *
 *   WAITING    the timer runs                        [retry_later]
 *   LOOKING_UP lookup and io are set                 [start]
 *   CONNECTING fd and io are set                     [try_next]
 *   SHAKING    wire is set, with keys                [connected]
 *   UP         wire and is_up are set                [up]
 *
 *   WAITING -> LOOKING_UP or CONNECTING -> SHAKING -> UP; from each of them back to WAITING.
 *
 * The delay grows with each round of failures through the addresses, and starts again at the
 * shortest only after a connection that lived for a while: a peer that accepts and closes at once
 * must not be asked 20 times a second.
 */
#include "common/clock.h"
#include "common/mem.h"
#include "common/units.h"
#include "common/wire_int.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DELAY_MIN_MS 50
#define DELAY_MAX_MS 400 /* 0.5 s with jitter */
#define CONNECT_NS SH_S(2)
#define LOOKUP_NS SH_S(15)
#define STEADY_NS SH_S(1)
#define PINGS 5 /* in the longest silence */

struct sh_link {
    struct sh_loop *loop;
    struct sh_wire__target targets[SH_LINK_MAX_ADDRS];
    size_t n_targets, target; /* target: the one that is tried */
    struct sh_link_handler h;
    struct sh_timer *timer;
    struct sh_wire__lookup *lookup;
    struct sh_wire__addrs addrs;
    size_t next_addr;
    int fd; /* being connected, or -1 */
    struct sh_io *io;
    struct sh_wire *wire;
    bool is_up; /* the wire is the user's too */
    int64_t delay_ms, up_since_ns, heard_ns;
    uint64_t random;
};

static uint64_t next_jitter(struct sh_link *k)
{
    k->random ^= k->random << 13;
    k->random ^= k->random >> 7;
    k->random ^= k->random << 17;
    return k->random;
}

static void stop_attempt(struct sh_link *k)
{
    sh_io_del(k->io);
    k->io = NULL;
    sh_wire__lookup_free(k->lookup);
    k->lookup = NULL;
    if (k->fd >= 0)
        close(k->fd);
    k->fd = -1;
}

static void retry_link_later(struct sh_link *k)
{
    int64_t jitter_ms = (int64_t)(next_jitter(k) % (uint64_t)(k->delay_ms / 4 + 1));

    stop_attempt(k);
    sh_timer_set(k->timer, SH_MS(k->delay_ms + jitter_ms));
    k->target = (k->target + 1) % k->n_targets;
    if (k->target == 0)
        k->delay_ms = SH_MIN(k->delay_ms * 2, DELAY_MAX_MS);
}

static void went_down(struct sh_link *k)
{
    k->wire = NULL;
    k->is_up = false;
    if (sh_clock_ns() - k->up_since_ns >= STEADY_NS)
        k->delay_ms = DELAY_MIN_MS;
    retry_link_later(k);
}

/* The handler may free the link. */
static void on_wire_msg(struct sh_wire *w, const struct sh_msg *m, int *fds, size_t n_fds,
                        void *arg)
{
    struct sh_link *k = sh_wire__owner(w);

    if (k->h.max_silence_ms > 0) {
        k->heard_ns = sh_clock_ns();
        if (m->type == MSG_PONG)
            return;
    }
    k->h.on_msg(w, m, fds, n_fds, arg);
}

static void listen_to_silence(struct sh_link *k)
{
    int64_t most_ns = SH_MS(k->h.max_silence_ms), silent_ns = sh_clock_ns() - k->heard_ns;
    struct sh_msg ping = {.type = MSG_PING, .u.ping.cookie = (uint64_t)k->heard_ns};
    struct sh_err why = {0};

    if (silent_ns >= most_ns) {
        SH_FAIL(&why, SH_E_TIMEOUT, "the peer said nothing for %lld ms",
                (long long)(silent_ns / SH_MS(1)));
        sh_wire__fail(k->wire, &why);
        return;
    }
    if (silent_ns >= most_ns / PINGS)
        sh_wire_send(k->wire, &ping, NULL); /* a failure is told by on_down */
    sh_timer_set(k->timer, most_ns / PINGS);
}

static void try_next(struct sh_link *k);

/* The link is in order before on_down runs, which may free it. */
static void on_wire_close(struct sh_wire *w, const struct sh_err *why, void *arg)
{
    struct sh_link *k = sh_wire__owner(w);
    sh_wire_close_fn *on_down = k->h.on_down;

    if (!k->is_up) { /* not our key: nobody has heard of it */
        k->wire = NULL;
        try_next(k);
        return;
    }
    went_down(k);
    if (on_down)
        on_down(w, why, arg);
}

static void on_wire_gone(void *owner)
{
    went_down(owner);
}

/* on_up may close the wire or free the link: nothing follows it. */
static void up(void *owner)
{
    struct sh_link *k = owner;

    k->is_up = true;
    k->up_since_ns = k->heard_ns = sh_clock_ns();
    sh_timer_set(k->timer, k->h.max_silence_ms > 0 ? SH_MS(k->h.max_silence_ms) / PINGS : -1);
    k->h.on_up(k->wire, k->h.arg);
}

static void connected(struct sh_link *k)
{
    struct sh_wire_handler h = {.on_msg = on_wire_msg, .on_close = on_wire_close, .arg = k->h.arg};
    bool secure = !k->targets[k->target].is_unix && sh_wire__keys_on(k->h.keys);
    int fd = k->fd;

    k->fd = -1;
    stop_attempt(k);
    if (sh_wire_new(k->loop, fd, &h, &k->wire, NULL)) {
        close(fd);
        retry_link_later(k);
        return;
    }
    sh_wire__set_owner(k->wire, k, on_wire_gone);
    if (!secure) {
        up(k);
        return;
    }
    sh_timer_set(k->timer, -1); /* the wire has a limit of its own */
    if (sh_wire__secure(k->wire, k->h.keys, true, up, NULL))
        sh_wire_close(k->wire);
}

static void on_connected(struct sh_loop *l, int fd, unsigned events, void *arg)
{
    struct sh_link *k = arg;

    (void)l;
    (void)events;
    if (sh_wire__connect_end(fd, NULL))
        try_next(k);
    else
        connected(k);
}

static void try_next(struct sh_link *k)
{
    bool pending = false;

    stop_attempt(k);
    while (k->next_addr < k->addrs.n) {
        if (sh_wire__connect_start(&k->addrs.list[k->next_addr++], &k->fd, &pending, NULL))
            continue;
        if (!pending) {
            connected(k);
            return;
        }
        if (!sh_io_add(k->loop, k->fd, SH_IO_WRITE, on_connected, k, &k->io, NULL)) {
            sh_timer_set(k->timer, CONNECT_NS);
            return;
        }
        stop_attempt(k);
    }
    retry_link_later(k);
}

static void on_looked_up(struct sh_loop *l, int fd, unsigned events, void *arg)
{
    struct sh_link *k = arg;

    (void)l;
    (void)fd;
    (void)events;
    if (sh_wire__lookup_take(k->lookup, &k->addrs, NULL))
        retry_link_later(k);
    else
        try_next(k);
}

static void start_connecting(struct sh_link *k)
{
    int rc;

    k->next_addr = 0;
    rc = sh_wire__resolve_now(&k->targets[k->target], &k->addrs, NULL);
    if (!rc && k->addrs.n > 0) {
        try_next(k);
        return;
    }
    if (!rc)
        rc = sh_wire__lookup_start(&k->targets[k->target], &k->lookup, NULL);
    if (!rc)
        rc = sh_io_add(k->loop, sh_wire__lookup_fd(k->lookup), SH_IO_READ, on_looked_up, k, &k->io,
                       NULL);
    if (rc)
        retry_link_later(k);
    else
        sh_timer_set(k->timer, LOOKUP_NS);
}

static void on_timer(struct sh_loop *l, void *arg)
{
    struct sh_link *k = arg;

    (void)l;
    if (k->is_up)
        listen_to_silence(k);
    else if (k->lookup)
        retry_link_later(k);
    else if (k->io)
        try_next(k); /* this address does not answer */
    else
        start_connecting(k);
}

static int parse_list(struct sh_link *k, const char *addrs, struct sh_err *err)
{
    char *copy = NULL, *rest, *addr;
    int rc = sh_strdup(addrs ? addrs : "", &copy, err);

    for (rest = copy; !rc && (addr = strsep(&rest, ","));) {
        if (k->n_targets == SH_LINK_MAX_ADDRS)
            rc = SH_FAIL(err, SH_E_TOOBIG, "more than %d addresses in \"%.100s\"",
                         SH_LINK_MAX_ADDRS, addrs);
        else
            rc = sh_wire__parse(addr, &k->targets[k->n_targets++], err);
        if (!rc)
            rc = sh_wire__keys_allow(k->h.keys, &k->targets[k->n_targets - 1], err);
    }
    free(copy);
    return rc;
}

int sh_link_new(struct sh_loop *l, const char *addrs, const struct sh_link_handler *h,
                struct sh_link **out, struct sh_err *err)
{
    struct sh_link *k = NULL;
    int rc;

    *out = NULL;
    k = calloc(1, sizeof(*k));
    if (!k)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a link");
    k->loop = l;
    k->h = *h;
    k->fd = -1;
    k->delay_ms = DELAY_MIN_MS;
    k->random = ((uint64_t)sh_clock_ns() ^ (uint64_t)(uintptr_t)k ^ (uint64_t)getpid() << 40) | 1;
    rc = parse_list(k, addrs, err);
    if (!rc)
        rc = sh_timer_add(l, 0, 0, on_timer, k, &k->timer, err);
    if (rc) {
        sh_link_free(k);
        return rc;
    }
    *out = k;
    return SH_OK;
}

void sh_link_free(struct sh_link *k)
{
    if (!k)
        return;
    stop_attempt(k);
    if (k->wire) {
        sh_wire__set_owner(k->wire, NULL, NULL);
        sh_wire_close(k->wire);
    }
    sh_timer_del(k->timer);
    free(k);
}

struct sh_wire *sh_link_wire(struct sh_link *k)
{
    return k->is_up ? k->wire : NULL;
}
