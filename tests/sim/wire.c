/* wire.c - common/wire.h in virtual time: connections between simulated processes.
 *
 * Messages are encoded and decoded as they really are. They arrive in order, each after the latency
 * of the net between two hosts. A connection that is cut loses what is on its way; each of its ends
 * hears of it at a time of its own, so one may believe in it for a while longer. An address is a
 * name: any that two processes agree on. */
#include "common/wire.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/units.h"
#include "tests/sim/platform.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NEAR_MIN_NS SH_US(5)
#define NEAR_MAX_NS SH_US(30)
#define FAR_MIN_NS SH_US(40)
#define FAR_MAX_NS SH_US(400)
#define FAR_BYTE_NS 0.1 /* 10 GB/s */
#define RESET_MAX_NS SH_MS(50)
#define UNHEARD_MAX_NS SH_S(8)
#define DELAY_MIN_NS SH_MS(50)
#define DELAY_MAX_NS SH_MS(400)
#define STEADY_NS SH_S(1)
#define PINGS 5

struct sh_wire {
    struct sh_wire *next; /* of all */
    struct sim_proc *proc;
    uint64_t generation;
    struct sh_wire *peer; /* NULL: not there yet, or gone */
    struct sh_wire_handler h;
    bool is_local, is_dead, is_finishing, is_cut;
    bool has_met;                          /* the peer was there: what is sent without it is lost */
    int64_t last_ns;                       /* what was sent last arrives then */
    struct packet *backlog, **backlog_end; /* for a peer that is not there yet */
    struct sh_link *link;                  /* whose it is */
};

struct packet {
    struct packet *next;
    struct sh_wire *from, *to;
    uint16_t type;
    int fds[SH_WIRE_MAX_FDS];
    size_t n_fds, len;
    _Alignas(8) unsigned char data[];
};

struct sh_listen {
    struct sh_listen *next;
    struct sim_proc *proc;
    uint64_t generation;
    char *addr;
    struct sh_listen_handler h;
};

struct sh_link {
    struct sh_loop *loop;
    struct sim_proc *proc;
    uint64_t generation;
    char *addrs[SH_LINK_MAX_ADDRS];
    size_t n_addrs, at;
    struct sh_link_handler h;
    struct sh_timer *timer;
    struct sh_wire *wire;
    bool is_up, is_trying, is_free;
    uint64_t attempt;
    int64_t delay_ns, up_ns, heard_ns;
};

static struct sh_wire *wires;
static struct sh_listen *listens;
static struct net {
    int64_t until_ns; /* nothing gets through */
    int64_t slow_until_ns, slow_ns;
} net[SIM_MAX_HOSTS][SIM_MAX_HOSTS];

static int no_memory(struct sh_err *err)
{
    return SH_FAIL(err, SH_E_NOMEM, "could not allocate");
}

/* ------------------------------------------------------------------ the net */

static struct net *between(unsigned a, unsigned b)
{
    return a < b ? &net[a][b] : &net[b][a];
}

/* When something that is sent now arrives, at the earliest. */
static int64_t arrival(unsigned from, unsigned to, size_t bytes)
{
    const struct net *n = between(from, to);
    int64_t at = sim_now();

    at += from == to ? sim_between(NEAR_MIN_NS, NEAR_MAX_NS)
                     : sim_between(FAR_MIN_NS, FAR_MAX_NS) + (int64_t)(FAR_BYTE_NS * (double)bytes);
    if (sim_now() < n->slow_until_ns)
        at += sim_between(0, n->slow_ns);
    return SH_MAX(at, n->until_ns);
}

void sim_net_block(unsigned a, unsigned b, int64_t ns)
{
    struct net *n = between(a, b);

    sim_trace("net block %u-%u ms=%lld", a, b, (long long)(ns / 1000000));
    n->until_ns = SH_MAX(n->until_ns, sim_now() + ns);
}

void sim_net_slow(unsigned a, unsigned b, int64_t add_ns, int64_t for_ns)
{
    sim_trace("net slow %u-%u us=%lld", a, b, (long long)(add_ns / 1000));
    between(a, b)->slow_ns = add_ns;
    between(a, b)->slow_until_ns = sim_now() + for_ns;
}

bool sim_net_is_well(unsigned a, unsigned b)
{
    const struct net *n = between(a, b);

    return sim_now() >= n->until_ns && sim_now() >= n->slow_until_ns;
}

/* A pair of sockets of a process and its child is no part of any net. */
static bool is_pair(const struct sh_wire *w, const struct sh_wire *peer)
{
    return !w->link && !peer->link;
}

/* When it arrives if it is sent behind all that w has sent. */
static int64_t behind(const struct sh_wire *w, const struct sh_wire *peer, size_t bytes)
{
    const int64_t at = is_pair(w, peer)
                           ? sim_now() + sim_between(NEAR_MIN_NS, NEAR_MAX_NS)
                           : arrival(sim_proc_host(w->proc), sim_proc_host(peer->proc), bytes);

    return SH_MAX(at, w->last_ns);
}

/* ------------------------------------------------------------------ ends of wires */

static void close_fds(struct packet *p)
{
    for (size_t i = 0; i < p->n_fds; i++)
        if (p->fds[i] >= 0)
            close(p->fds[i]);
    p->n_fds = 0;
}

static void went_down(struct sh_link *k);

static void on_break(void *arg, uint64_t n)
{
    struct sh_wire *w = arg;
    struct sh_link *k = w->link;
    struct sh_err why = {0};
    bool was_up;

    (void)n;
    if (w->is_dead)
        return;
    w->is_dead = true;
    SH_FAIL(&why, SH_E_UNAVAILABLE, "the peer closed the connection");
    if (!k) {
        w->h.on_close(w, &why, w->h.arg);
        return;
    }
    was_up = k->is_up;
    went_down(k);
    if (was_up && k->h.on_down)
        k->h.on_down(w, &why, k->h.arg);
}

/* Behind what it is still to get. */
static void break_later(struct sh_wire *w, int64_t at_ns)
{
    sim_after(w->proc, at_ns - sim_now(), on_break, w, 0);
}

static void break_now(struct sh_wire *w)
{
    if (!w->is_dead)
        break_later(w, sim_now());
}

/* This end is gone: the peer hears of it behind what was sent. */
static void let_go(struct sh_wire *w)
{
    struct sh_wire *peer = w->peer;

    w->is_dead = true;
    for (struct packet *p = w->backlog; p; p = p->next)
        close_fds(p);
    w->backlog = NULL;
    if (!peer)
        return;
    w->peer = peer->peer = NULL;
    if (!peer->is_dead && !w->is_cut)
        break_later(peer, behind(w, peer, 0));
}

static struct sh_wire *new_wire(struct sim_proc *p, bool is_local)
{
    struct sh_wire *w = calloc(1, sizeof(*w));

    if (!w)
        abort();
    w->proc = p;
    w->generation = sim_proc_generation(p);
    w->is_local = is_local;
    w->backlog_end = &w->backlog;
    w->next = wires;
    wires = w;
    return w;
}

static void send_off(struct sh_wire *w, struct packet *p);

static void join(struct sh_wire *a, struct sh_wire *b)
{
    a->peer = b;
    b->peer = a;
    a->has_met = b->has_met = true;
    for (struct packet *p = a->backlog, *next; p; p = next) {
        next = p->next;
        send_off(a, p);
    }
    a->backlog = NULL;
}

/* One end of a pair of sockets (loop.c). */
int sh_wire_new(struct sh_loop *l, int fd, const struct sh_wire_handler *h, struct sh_wire **out,
                struct sh_err *err)
{
    struct sh_wire **other, **own = sim__pair_end(fd, &other);

    (void)l;
    *out = NULL;
    if (!own)
        return SH_FAIL(err, SH_E_BUG, "descriptor %d is no end of a pair of sockets", fd);
    *out = *own = new_wire(sim_self(), true);
    (*own)->h = *h;
    if (*other)
        join(*other, *own);
    else if (sim__pair_is_orphan(fd))
        break_later(*own, sim_now());
    close(fd);
    return SH_OK;
}

void sh_wire_close(struct sh_wire *w)
{
    struct sh_link *k;

    if (!w || w->is_dead)
        return;
    k = w->link;
    let_go(w);
    if (k)
        went_down(k);
}

/* The peer's end closes this one. */
void sh_wire_finish(struct sh_wire *w)
{
    struct sh_wire *peer = w->peer;

    w->is_finishing = true;
    if (peer && !peer->is_dead && !w->is_cut)
        break_later(peer, behind(w, peer, 0));
    break_later(w, sim_now() + SH_MS(2));
}

void sim__wires_died(struct sim_proc *p, uint64_t generation)
{
    struct sh_wire *w, **at;

    for (at = &wires; (w = *at);) {
        if (w->proc == p && w->generation == generation && !w->is_dead)
            let_go(w);
        if (w->is_dead)
            *at = w->next;
        else
            at = &w->next;
    }
    for (struct sh_listen **s = &listens; *s;) {
        if ((*s)->proc == p)
            *s = (*s)->next;
        else
            s = &(*s)->next;
    }
    sim__pairs_died(p, break_now);
}

/* ------------------------------------------------------------------ messages */

static void note_packet(const struct packet *p)
{
    const int64_t what[] = {sim_now(), sim_proc_pid(p->from->proc), sim_proc_pid(p->to->proc),
                            p->type};

    sim_note(what, sizeof(what));
    sim_note(p->data, p->len);
    sim_show("%s from %s, %zu bytes", sh_msg_name(p->type), sim_proc_name(p->from->proc), p->len);
}

static void on_packet(void *arg, uint64_t n)
{
    struct packet *p = arg;
    struct sh_wire *w = p->to;
    struct sh_err err = {0};
    struct sh_msg m;

    (void)n;
    if (w->is_dead || w->is_finishing || w->is_cut)
        goto out;
    if (sh_msg_decode(p->type, p->data, p->len, &m, &err))
        sim_broken("wire", "%s cannot be decoded: %s", sh_msg_name(p->type), err.msg);
    note_packet(p);
    if (w->link) {
        w->link->heard_ns = sim_now();
        if (p->type == MSG_PONG && w->link->h.max_silence_ms > 0)
            goto out;
        w->link->h.on_msg(w, &m, p->fds, p->n_fds, w->link->h.arg);
    } else {
        w->h.on_msg(w, &m, p->fds, p->n_fds, w->h.arg);
    }
out:
    close_fds(p);
    free(p);
}

static void send_off(struct sh_wire *w, struct packet *p)
{
    struct sh_wire *peer = w->peer;

    if (w->is_cut || !peer || peer->is_dead) {
        close_fds(p);
        free(p);
        return;
    }
    p->to = peer;
    w->last_ns = behind(w, peer, p->len);
    sim_after(peer->proc, w->last_ns - sim_now(), on_packet, p, 0);
}

int sh_wire_send_fds(struct sh_wire *w, const struct sh_msg *m, const int *fds, size_t n_fds,
                     struct sh_err *err)
{
    struct sh_buf b;
    struct packet *p = NULL;
    int rc;

    if (w->is_dead || w->is_finishing)
        return SH_FAIL(err, SH_E_UNAVAILABLE, "the connection to the peer is closed");
    if (n_fds > SH_WIRE_MAX_FDS || (n_fds > 0 && !w->is_local))
        return SH_FAIL(err, SH_E_BUG, "these descriptors cannot be sent");
    sh_buf_init(&b, SH_WIRE_MAX_FRAME);
    rc = sh_msg_encode(m, &b, err);
    if (!rc && !(p = calloc(1, sizeof(*p) + b.len)))
        rc = no_memory(err);
    if (!rc) {
        p->from = w;
        p->type = (uint16_t)m->type;
        p->len = b.len;
        memcpy(p->data, b.data, b.len);
        for (; p->n_fds < n_fds; p->n_fds++)
            p->fds[p->n_fds] = fcntl(fds[p->n_fds], F_DUPFD_CLOEXEC, 0);
        if (w->has_met || w->is_cut) {
            send_off(w, p);
        } else {
            *w->backlog_end = p;
            w->backlog_end = &p->next;
        }
    }
    sh_buf_fini(&b);
    return rc;
}

int sh_wire_send(struct sh_wire *w, const struct sh_msg *m, struct sh_err *err)
{
    return sh_wire_send_fds(w, m, NULL, 0, err);
}

void sh_wire_cork(struct sh_wire *w)
{
    (void)w;
}

void sh_wire_uncork(struct sh_wire *w)
{
    (void)w;
}

bool sh_wire_is_local(const struct sh_wire *w)
{
    return w->is_local;
}

/* ------------------------------------------------------------------ cuts */

static void cut(struct sh_wire *w)
{
    struct sh_wire *peer = w->peer;
    bool is_quiet = sim_chance(0.3); /* this end hears of it late, or by silence alone */

    w->is_cut = peer->is_cut = true;
    break_later(w, sim_now() + sim_between(0, is_quiet ? UNHEARD_MAX_NS : RESET_MAX_NS));
    break_later(peer, sim_now() + sim_between(0, RESET_MAX_NS));
}

bool sim_wire_is_cut(const struct sh_wire *w)
{
    return w->is_cut;
}

void sim_net_cut(unsigned a, unsigned b)
{
    sim_trace("net cut %u-%u", a, b);
    for (struct sh_wire *w = wires; w; w = w->next)
        if (!w->is_dead && !w->is_cut && w->peer && !w->peer->is_dead &&
            sim_proc_host(w->proc) == a && sim_proc_host(w->peer->proc) == b &&
            !is_pair(w, w->peer))
            cut(w);
}

/* ------------------------------------------------------------------ listeners */

int sh_listen_new(struct sh_loop *l, const char *addr, const struct sh_listen_handler *h,
                  struct sh_listen **out, struct sh_err *err)
{
    struct sh_listen *s;

    (void)l;
    *out = NULL;
    for (s = listens; s; s = s->next)
        if (strcmp(s->addr, addr) == 0)
            return SH_FAIL(err, SH_E_CONFLICT, "somebody listens on %s already", addr);
    s = calloc(1, sizeof(*s));
    if (!s || !(s->addr = strdup(addr)))
        return no_memory(err);
    s->proc = sim_self();
    s->generation = sim_proc_generation(s->proc);
    s->h = *h;
    s->next = listens;
    *out = listens = s;
    return SH_OK;
}

void sh_listen_free(struct sh_listen *s)
{
    for (struct sh_listen **at = &listens; s && *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            return;
        }
}

/* ------------------------------------------------------------------ links */

static void arm_link(struct sh_link *k, int64_t ns)
{
    sh_timer_set(k->timer, ns);
}

static void retry_later(struct sh_link *k)
{
    k->is_trying = false;
    arm_link(k, k->delay_ns + sim_between(0, k->delay_ns / 4));
    k->at = (k->at + 1) % k->n_addrs;
    if (k->at == 0)
        k->delay_ns = SH_MIN(2 * k->delay_ns, DELAY_MAX_NS);
}

static void went_down(struct sh_link *k)
{
    k->wire = NULL;
    k->is_up = false;
    if (sim_now() - k->up_ns >= STEADY_NS)
        k->delay_ns = DELAY_MIN_NS;
    retry_later(k);
}

static void on_up(void *arg, uint64_t n)
{
    struct sh_link *k = arg;

    if (k->is_free || k->attempt != n || !k->wire)
        return;
    if (k->wire->is_dead || k->wire->is_cut || !k->wire->peer) {
        sh_wire_close(k->wire);
        return;
    }
    k->is_trying = false;
    k->is_up = true;
    k->up_ns = k->heard_ns = sim_now();
    arm_link(k, k->h.max_silence_ms > 0 ? SH_MS(k->h.max_silence_ms) / PINGS : -1);
    k->h.on_up(k->wire, k->h.arg);
}

struct knock {
    struct sh_link *link;
    uint64_t attempt, generation;
    struct sh_listen *listen;
};

static struct sh_listen *find_listen(const char *addr)
{
    for (struct sh_listen *s = listens; s; s = s->next)
        if (strcmp(s->addr, addr) == 0)
            return s;
    return NULL;
}

/* In the process that listens. */
static void on_knock(void *arg, uint64_t n)
{
    struct knock *kn = arg;
    struct sh_link *k = kn->link;
    struct sh_listen *s = find_listen(k->addrs[k->at]);
    struct sh_wire_handler h = {0};
    struct sh_wire *here, *there;

    (void)n;
    if (s != kn->listen || sim_proc_generation(k->proc) != kn->generation || k->is_free ||
        !k->is_trying || k->attempt != kn->attempt)
        return;
    SIM_CHECK("links", !k->wire, "a link to %s has two connections", s->addr);
    here = new_wire(s->proc, strncmp(s->addr, "unix:", 5) == 0);
    there = new_wire(k->proc, here->is_local);
    there->link = k;
    k->wire = there;
    here->last_ns = arrival(sim_proc_host(s->proc), sim_proc_host(k->proc), 0);
    join(here, there);
    sim_after(k->proc, here->last_ns - sim_now(), on_up, k, k->attempt);
    if (s->h.on_peer(here, &h, s->h.arg))
        here->h = h;
    else
        sh_wire_close(here);
}

static void listen_to_silence(struct sh_link *k)
{
    int64_t most_ns = SH_MS(k->h.max_silence_ms), silent_ns = sim_now() - k->heard_ns;
    struct sh_msg ping = {.type = MSG_PING, .u.ping.cookie = (uint64_t)k->heard_ns};

    if (silent_ns >= most_ns) {
        if (k->wire->peer && !k->wire->is_cut)
            let_go(k->wire);
        k->wire->is_dead = false;
        on_break(k->wire, 0);
        return;
    }
    if (silent_ns >= most_ns / PINGS)
        sh_wire_send(k->wire, &ping, NULL);
    arm_link(k, most_ns / PINGS);
}

static void on_link_timer(struct sh_loop *l, void *arg)
{
    struct sh_link *k = arg;
    struct sh_listen *s;
    struct knock *kn;

    (void)l;
    if (k->is_up) {
        listen_to_silence(k);
        return;
    }
    if (k->is_trying) { /* no answer */
        if (k->wire) {
            k->wire->link = NULL;
            let_go(k->wire);
            k->wire = NULL;
        }
        retry_later(k);
        return;
    }
    k->attempt++;
    s = find_listen(k->addrs[k->at]);
    if (!s) {
        retry_later(k);
        return;
    }
    kn = calloc(1, sizeof(*kn));
    if (!kn)
        abort();
    *kn = (struct knock){k, k->attempt, k->generation, s};
    k->is_trying = true;
    arm_link(k, SH_S(2));
    sim_after(s->proc, arrival(sim_proc_host(k->proc), sim_proc_host(s->proc), 0) - sim_now(),
              on_knock, kn, 0);
}

int sh_link_new(struct sh_loop *l, const char *addrs, const struct sh_link_handler *h,
                struct sh_link **out, struct sh_err *err)
{
    struct sh_link *k = calloc(1, sizeof(*k));
    char *copy = strdup(addrs ? addrs : ""), *rest = copy, *addr;

    *out = NULL;
    if (!k || !copy)
        return no_memory(err);
    while ((addr = strsep(&rest, ",")) && k->n_addrs < SH_LINK_MAX_ADDRS)
        k->addrs[k->n_addrs++] = addr;
    k->loop = l;
    k->proc = sim_self();
    k->generation = sim_proc_generation(k->proc);
    k->h = *h;
    k->delay_ns = DELAY_MIN_NS;
    *out = k;
    return sh_timer_add(l, 0, 0, on_link_timer, k, &k->timer, err);
}

void sh_link_free(struct sh_link *k)
{
    if (!k || k->is_free)
        return;
    k->is_free = true;
    if (k->wire) {
        k->wire->link = NULL;
        let_go(k->wire);
    }
    sh_timer_del(k->timer);
}

struct sh_wire *sh_link_wire(struct sh_link *k)
{
    return k->is_up ? k->wire : NULL;
}
