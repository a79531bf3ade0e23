/* wire_listen.c - peers that connect to us.
 *
 * With keys, a peer waits here until it has shown that it knows one. A stranger can open
 * connections as fast as he likes, but each lives five seconds at most (wire.c), there are at most
 * MAX_SHAKING, and a new one replaces the oldest. So he cannot keep out peers that know the key,
 * since they need only one exchange; and he never takes a place that the rest of the program
 * counts.
 */
#include "common/log.h"
#include "common/mem.h"
#include "common/units.h"
#include "common/wire_int.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_SHAKING 64
#define ACCEPTS_PER_EVENT 64
#define PAUSE_NS SH_MS(100)

struct shaking {
    struct shaking *next;
    struct sh_listen *listen;
    struct sh_wire *wire;
};

struct sh_listen {
    struct sh_loop *loop;
    struct sh_listen_handler h;
    int fd;
    struct sh_io *io;
    struct sh_timer *pause; /* no descriptor is left for a peer: it has to wait */
    int64_t warned_ns;
    uint64_t n_warned;
    struct shaking *oldest, **newest;
    size_t n_shaking;
};

/* Unlinks and frees; the wire goes its own way. */
static void forget_shaking(struct shaking *p)
{
    struct sh_listen *s = p->listen;
    struct shaking **at = &s->oldest;

    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    if (s->newest == &p->next)
        s->newest = at;
    s->n_shaking--;
    free(p);
}

/* The reason is counted and logged where the handshake failed. */
static void on_close(struct sh_wire *w, const struct sh_err *why, void *arg)
{
    (void)why, (void)arg;
    forget_shaking(sh_wire__owner(w));
}

static void hand_over_wire(struct sh_listen *s, struct sh_wire *w)
{
    struct sh_wire_handler h = {0};

    sh_wire__set_owner(w, NULL, NULL);
    if (s->h.on_peer(w, &h, s->h.arg))
        sh_wire__adopt(w, &h);
    else
        sh_wire_close(w);
}

static void on_opened(void *arg)
{
    struct shaking *p = arg;
    struct sh_listen *s = p->listen;
    struct sh_wire *w = p->wire;

    forget_shaking(p);
    hand_over_wire(s, w);
}

static void drop_oldest(struct sh_listen *s)
{
    struct sh_wire *w = s->oldest->wire;

    forget_shaking(s->oldest);
    sh_wire_close(w);
}

static void make_shaking_room(struct sh_listen *s)
{
    struct sh_err why = {0};

    if (s->n_shaking < MAX_SHAKING)
        return;
    SH_FAIL(&why, SH_E_QUEUEFULL, "%d handshakes are not over: the oldest goes", MAX_SHAKING);
    sh_wire__give_up(s->oldest->wire, "too_many", &why);
    drop_oldest(s);
}

static void begin_handshake(struct sh_listen *s, struct sh_wire *w)
{
    struct shaking *p = malloc(sizeof(*p));

    if (!p || sh_wire__secure(w, s->h.keys, false, on_opened, NULL)) {
        free(p);
        sh_wire_close(w);
        return;
    }
    make_shaking_room(s);
    *p = (struct shaking){.listen = s, .wire = w};
    sh_wire__set_owner(w, p, NULL);
    *s->newest = p;
    s->newest = &p->next;
    s->n_shaking++;
}

static void on_pause_over(struct sh_loop *l, void *arg)
{
    struct sh_listen *s = arg;

    (void)l;
    sh_io_set(s->io, SH_IO_READ, NULL);
}

/* A peer that cannot be taken stays announced: the loop would ask for it again and again. */
static void wait_for_room(struct sh_listen *s, int cause)
{
    if (cause != EMFILE && cause != ENFILE && cause != ENOBUFS && cause != ENOMEM)
        return;
    if (sh_log_ratelimit(&s->warned_ns, &s->n_warned, 5000)) {
        SH_WARN(
            "listen.full",
            "errno=%d left_out=%llu msg=\"no descriptor or memory for another connection; raise "
            "the limit of open files\"",
            cause, (unsigned long long)s->n_warned);
        s->n_warned = 0;
    }
    sh_io_set(s->io, 0, NULL);
    sh_timer_set(s->pause, PAUSE_NS);
}

static void on_accept(struct sh_loop *l, int fd, unsigned events, void *arg)
{
    static const struct sh_wire_handler NOBODY = {.on_close = on_close};
    struct sh_listen *s = arg;

    (void)events;
    for (int i = 0; i < ACCEPTS_PER_EVENT; i++) {
        int conn = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        struct sh_wire *w;

        if (conn < 0) {
            wait_for_room(s, errno);
            return;
        }
        if (sh_wire_new(l, conn, &NOBODY, &w, NULL))
            close(conn);
        else if (sh_wire__keys_on(s->h.keys) && !sh_wire_is_local(w))
            begin_handshake(s, w);
        else
            hand_over_wire(s, w);
    }
}

int sh_listen_new(struct sh_loop *l, const char *addr, const struct sh_listen_handler *h,
                  struct sh_listen **out, struct sh_err *err)
{
    struct sh_listen *s = calloc(1, sizeof(*s));
    struct sh_wire__target t;
    int rc;

    *out = NULL;
    if (!s)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a port");
    s->loop = l;
    s->h = *h;
    s->fd = -1;
    s->newest = &s->oldest;
    rc = sh_wire__parse(addr, &t, err);
    if (!rc)
        rc = sh_wire__keys_allow(h->keys, &t, err);
    if (!rc)
        rc = sh_wire_listen(addr, &s->fd, err);
    if (!rc)
        rc = sh_timer_add(l, -1, 0, on_pause_over, s, &s->pause, err);
    if (!rc)
        rc = sh_io_add(l, s->fd, SH_IO_READ, on_accept, s, &s->io, err);
    if (rc) {
        sh_listen_free(s);
        return rc;
    }
    *out = s;
    return SH_OK;
}

void sh_listen_free(struct sh_listen *s)
{
    if (!s)
        return;
    while (s->oldest)
        drop_oldest(s);
    sh_io_del(s->io);
    sh_timer_del(s->pause);
    if (s->fd >= 0)
        close(s->fd);
    free(s);
}
