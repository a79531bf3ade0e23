/* scenario_world.c - the world alone: processes that count at each other over links while they are
 * killed, paused and cut off. Finds faults of the simulator: messages that come out of order, twice
 * or from the dead; links that never come back; clocks that run backwards. */
#include "common/clock.h"
#include "common/mem.h"
#include "common/spawn.h"
#include "common/units.h"
#include "common/wire.h"
#include "tests/sim/scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define N_SERVERS 3u
#define N_CLIENTS 6u
#define TALK_NS SH_MS(7)
#define SILENCE_MS 2000
#define BACK_NS SH_S(10) /* from the healing on */

struct server {
    struct sim_proc *proc;
    char name[8], addr[32];
    int64_t clock_ns;
};

struct client {
    struct sim_proc *proc;
    char name[8];
    struct sh_link *link;
    struct sh_wire *wire; /* that it was told of; NULL: none is up */
    uint64_t next, heard; /* of this connection: sent, and answered */
    int64_t answered_ns;
};

static struct server servers[N_SERVERS];
static struct client clients[N_CLIENTS];
static bool is_healed;

/* ------------------------------------------------------------------ servers */

struct peer {
    struct server *server;
    uint64_t last;
};

static void on_question(struct sh_wire *w, const struct sh_msg *m, int *fds, size_t n_fds,
                        void *arg)
{
    struct peer *p = arg;
    struct sh_msg a = {.type = MSG_PONG, .u.pong.cookie = m->u.ping.cookie};

    (void)fds, (void)n_fds;
    SIM_CHECK("order", m->u.ping.cookie == p->last + 1 || m->u.ping.cookie > UINT32_MAX,
              "%llu comes behind %llu", (unsigned long long)m->u.ping.cookie,
              (unsigned long long)p->last);
    SIM_CHECK("clock", sh_clock_ns() >= p->server->clock_ns, "the clock of %s ran backwards",
              p->server->name);
    p->server->clock_ns = sh_clock_ns();
    if (m->u.ping.cookie <= UINT32_MAX)
        p->last++;
    sh_wire_send(w, &a, NULL);
}

static void on_peer_gone(struct sh_wire *w, const struct sh_err *why, void *arg)
{
    (void)w, (void)why;
    free(arg);
}

static bool on_peer(struct sh_wire *w, struct sh_wire_handler *h, void *arg)
{
    struct peer *p = calloc(1, sizeof(*p));

    (void)w;
    p->server = arg;
    *h = (struct sh_wire_handler){.on_msg = on_question, .on_close = on_peer_gone, .arg = p};
    return true;
}

static void server_main(void *arg)
{
    struct server *s = arg;
    const struct sh_listen_handler h = {.on_peer = on_peer, .arg = s};
    struct sh_listen *listen;
    struct sh_loop *l;

    s->clock_ns = 0;
    if (sh_loop_new(&l, NULL) || sh_listen_new(l, s->addr, &h, &listen, NULL))
        sim_broken("world", "%s cannot listen", s->name);
}

/* ------------------------------------------------------------------ clients */

static void on_up(struct sh_wire *w, void *arg)
{
    struct client *c = arg;

    SIM_CHECK("links", !c->wire, "%s has two connections over one link", c->name);
    c->wire = w;
    c->next = c->heard = 0;
}

static void on_answer(struct sh_wire *w, const struct sh_msg *m, int *fds, size_t n_fds, void *arg)
{
    struct client *c = arg;

    (void)fds, (void)n_fds;
    SIM_CHECK("links", w == c->wire, "%s is answered over a connection that is over", c->name);
    SIM_CHECK("answers", m->u.pong.cookie == ++c->heard && c->heard <= c->next,
              "answer %llu to question %llu of %llu", (unsigned long long)m->u.pong.cookie,
              (unsigned long long)c->heard, (unsigned long long)c->next);
    c->answered_ns = sim_now();
}

static void on_down(struct sh_wire *w, const struct sh_err *why, void *arg)
{
    struct client *c = arg;

    (void)why;
    SIM_CHECK("links", w == c->wire, "%s hears of the end of a connection that it never had",
              c->name);
    c->wire = NULL;
}

static void on_talk(struct sh_loop *l, void *arg)
{
    struct client *c = arg;
    struct sh_wire *w = sh_link_wire(c->link);
    struct sh_msg m = {.type = MSG_PING};

    (void)l;
    if (!w)
        return;
    m.u.ping.cookie = c->next + 1;
    if (!sh_wire_send(w, &m, NULL))
        c->next++;
}

static void client_main(void *arg)
{
    struct client *c = arg;
    const struct sh_link_handler h = {
        .on_up = on_up, .on_msg = on_answer, .on_down = on_down, .arg = c};
    const struct server *first = &servers[(c - clients) % N_SERVERS];
    const struct server *second = &servers[(c - clients + 1) % N_SERVERS];
    char addrs[128];
    struct sh_timer *t;
    struct sh_loop *l;

    c->wire = NULL;
    if (c - clients < N_CLIENTS / 2) /* these know of one server alone */
        snprintf(addrs, sizeof(addrs), "%s", second->addr);
    else
        snprintf(addrs, sizeof(addrs), "%s,%s", first->addr, second->addr);
    if (sh_loop_new(&l, NULL) || sh_link_new(l, addrs, &h, &c->link, NULL) ||
        sh_timer_add(l, TALK_NS, TALK_NS, on_talk, c, &t, NULL))
        sim_broken("world", "%s cannot begin", c->name);
}

/* ------------------------------------------------------------------ faults */

static void restart(void *arg, uint64_t i)
{
    struct sim_proc *p = i < N_SERVERS ? servers[i].proc : clients[i - N_SERVERS].proc;

    (void)arg;
    if (sim_proc_is_alive(p))
        return;
    if (i < N_SERVERS)
        sim_proc_start(p, NULL, server_main, &servers[i]);
    else
        sim_proc_start(p, NULL, client_main, &clients[i - N_SERVERS]);
}

static size_t whom(const uint64_t r[static 3])
{
    return r[0] % (N_SERVERS + N_CLIENTS);
}

static struct sim_proc *proc_of(size_t i)
{
    return i < N_SERVERS ? servers[i].proc : clients[i - N_SERVERS].proc;
}

static void hit_kill(const uint64_t r[static 3])
{
    sim_proc_kill(proc_of(whom(r)), 9);
    sim_world_after(SH_MS(r[1] % 500), restart, NULL, whom(r));
}

static void hit_pause(const uint64_t r[static 3])
{
    sim_proc_pause_for(proc_of(whom(r)), SH_MS(r[1] % 3000));
}

static void hit_cut(const uint64_t r[static 3])
{
    sim_net_cut(r[0] % N_SERVERS, r[1] % N_SERVERS);
}

static void hit_block(const uint64_t r[static 3])
{
    sim_net_block(r[0] % N_SERVERS, r[1] % N_SERVERS, SH_MS(r[2] % 6000));
}

static void hit_slow(const uint64_t r[static 3])
{
    sim_net_slow(r[0] % N_SERVERS, r[1] % N_SERVERS, SH_MS(r[2] % 100), SH_S(1));
}

/* ------------------------------------------------------------------ the scenario */

static void setup(void)
{
    for (unsigned i = 0; i < N_SERVERS; i++) {
        snprintf(servers[i].name, sizeof(servers[i].name), "s%u", i);
        snprintf(servers[i].addr, sizeof(servers[i].addr), "tcp:s%u:1", i);
        sim_host_clock(i, SH_S(sim_below(100)), (int64_t)sim_below(5000), sim_between(-100, 100));
        servers[i].proc = sim_proc_new(servers[i].name, i);
        restart(NULL, i);
    }
    for (unsigned i = 0; i < N_CLIENTS; i++) {
        snprintf(clients[i].name, sizeof(clients[i].name), "c%u", i);
        clients[i].proc = sim_proc_new(clients[i].name, i % N_SERVERS);
        restart(NULL, N_SERVERS + i);
    }
}

static void heal(void)
{
    is_healed = true;
    for (unsigned i = 0; i < N_SERVERS + N_CLIENTS; i++) {
        sim_proc_resume(proc_of(i));
        restart(NULL, i);
    }
}

static void finish(void)
{
    for (unsigned i = 0; i < N_CLIENTS; i++)
        SIM_CHECK("back", sim_now() - clients[i].answered_ns < SH_S(1),
                  "%s has heard nothing since %.3f s", clients[i].name,
                  (double)clients[i].answered_ns / 1e9);
}

static const struct sim_fault_kind KINDS[] = {
    {"kill", 4, hit_kill},   {"pause", 3, hit_pause}, {"cut", 3, hit_cut},
    {"block", 2, hit_block}, {"slow", 2, hit_slow},
};

const struct sim_scenario SIM_WORLD = {
    .name = "world",
    .setup = setup,
    .heal = heal,
    .finish = finish,
    .kinds = KINDS,
    .n_kinds = SH_ARRAY_LEN(KINDS),
    .n_faults = 60,
    .calm_ns = SH_S(1),
    .faults_ns = SH_S(20),
    .end_ns = SH_S(20) + BACK_NS,
};
