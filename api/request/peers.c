/* peers.c - see peers.h. */
#include "api/request/peers.h"

#include "common/clock.h"
#include "common/mem.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

struct peer {
    struct peer *next;
    char id[64];                           /* an address has a blank in it */
    int64_t n, n_strangers, max_strangers; /* of an address: at the door that it came to last */
    struct peer_list strangers;            /* of an address, by_ip */
};

static struct peer **peer_at(struct peers *s, const char *id)
{
    uint64_t h = 0;
    struct peer **p;

    for (const char *c = id; *c; c++)
        h = h * 31 + (unsigned char)*c;
    p = &s->table[h % PEER_BUCKETS];
    while (*p && strcmp((*p)->id, id) != 0)
        p = &(*p)->next;
    return p;
}

void peers_drop(struct peers *s, struct peer **peer)
{
    struct peer **p, *k = *peer;

    *peer = NULL;
    if (!k || --k->n > 0)
        return;
    p = peer_at(s, k->id);
    *p = k->next;
    free(k);
}

/* max: 0 = no limit. Fails: SH_E_QUOTA, SH_E_NOMEM. */
static int take_peer(struct peers *s, const char *id, int64_t max, struct peer **out)
{
    struct peer **p = peer_at(s, id), *k = *p;

    if (k && max > 0 && k->n >= max)
        return SH_E_QUOTA;
    if (!k) {
        *p = k = calloc(1, sizeof(*k));
        if (!k)
            return SH_E_NOMEM;
        sh_strlcpy(k->id, id, sizeof(k->id));
        TAILQ_INIT(&k->strangers);
    }
    k->n++;
    *out = k;
    return SH_OK;
}

const char *peer_name(const struct peer *p)
{
    return p ? p->id : "";
}

/* ---------------------------------------------------------------- who goes first */

static void unlist(struct peer_conn *c)
{
    if (!c->list)
        return;
    if (c->ip && !c->is_known) {
        TAILQ_REMOVE(&c->ip->strangers, c, by_ip);
        c->ip->n_strangers--;
    }
    TAILQ_REMOVE(c->list, c, by_age);
    c->list = NULL;
}

void peer_cut(struct peer_conn *c)
{
    unlist(c);
    c->is_cut = true;
    c->room->n_cut++;
    shutdown(c->fd, SHUT_RDWR);
}

static void cut_for(struct peer_conn *c, const char *reason)
{
    peer_cut(c);
    sh_metric_add(c->room->evicted, SH_LABELS(reason), 1);
}

/* As the youngest. Counted here and not when it was admitted: threads admit at a time. */
static void enlist(struct peer_conn *c)
{
    if (c->is_cut || (c->is_known && c->turn == PEER_BUSY))
        return;
    c->list = &c->room->lists[c->is_known ? c->turn : PEER_STRANGER];
    TAILQ_INSERT_TAIL(c->list, c, by_age);
    if (!c->ip || c->is_known)
        return;
    TAILQ_INSERT_TAIL(&c->ip->strangers, c, by_ip);
    if (++c->ip->n_strangers > c->ip->max_strangers)
        cut_for(TAILQ_FIRST(&c->ip->strangers), "address");
}

void peer_turn(struct peer_conn *c, enum peer_turn turn)
{
    unlist(c);
    c->turn = turn;
    c->since_ns = sh_clock_ns();
    enlist(c);
}

bool peer_has_room(const struct peer_room *r)
{
    return r->n - r->n_cut < r->max;
}

bool peer_make_room(struct peer_room *r, const struct peer_conn *newest, int64_t spare_ns)
{
    for (unsigned i = 0; i < PEER_BUSY; i++) {
        struct peer_conn *c = TAILQ_FIRST(&r->lists[i]);

        if (!c || c == newest)
            continue;
        if (i == PEER_IDLE && spare_ns > 0 && sh_clock_ns() - c->since_ns < spare_ns)
            continue;
        cut_for(c, "full");
        return true;
    }
    return false;
}

/* ---------------------------------------------------------------- life */

void peers_init(struct peers *s)
{
    *s = (struct peers){.table = {NULL}};
    pthread_mutex_init(&s->lock, NULL);
}

void peers_fini(struct peers *s)
{
    pthread_mutex_destroy(&s->lock);
}

void peer_room_init(struct peer_room *r, unsigned max, enum sh_metric evicted)
{
    *r = (struct peer_room){.max = max, .evicted = evicted};
    for (unsigned i = 0; i < PEER_BUSY; i++)
        TAILQ_INIT(&r->lists[i]);
}

/* Of IPv6 a host has a net of 2^64 addresses. "": it has none. */
static void name_address(const struct sockaddr *from, bool is_admin, char *out, size_t size)
{
    char text[INET6_ADDRSTRLEN];
    struct in6_addr a6;
    const void *raw = &a6;

    out[0] = '\0';
    if (from->sa_family == AF_INET) {
        raw = &((const struct sockaddr_in *)from)->sin_addr;
    } else if (from->sa_family == AF_INET6) {
        a6 = ((const struct sockaddr_in6 *)from)->sin6_addr;
        if (!IN6_IS_ADDR_V4MAPPED(&a6))
            memset(&a6.s6_addr[8], 0, 8);
    } else {
        return;
    }
    if (inet_ntop(from->sa_family, raw, text, sizeof(text)))
        snprintf(out, size, "%s %s", is_admin ? "admin" : "front", text);
}

bool peers_admit(struct peers *s, bool is_admin, const struct sockaddr *from, int64_t max,
                 struct peer **out)
{
    char id[64];
    int rc;

    *out = NULL;
    name_address(from, is_admin, id, sizeof(id));
    if (max == 0 || !id[0])
        return true;
    pthread_mutex_lock(&s->lock);
    rc = take_peer(s, id, 0, out);
    if (!rc)
        (*out)->max_strangers = max;
    pthread_mutex_unlock(&s->lock);
    return rc == SH_OK;
}

void peers_leave(struct peers *s, struct peer *ip)
{
    if (!ip)
        return;
    pthread_mutex_lock(&s->lock);
    peers_drop(s, &ip);
    pthread_mutex_unlock(&s->lock);
}

void peer_open(struct peer_conn *c)
{
    c->turn = PEER_IDLE;
    c->since_ns = sh_clock_ns();
    c->room->n++;
    enlist(c);
}

void peer_close(struct peers *s, struct peer_conn *c)
{
    unlist(c);
    c->room->n--;
    c->room->n_cut -= c->is_cut;
    peers_drop(s, &c->key);
    peers_drop(s, &c->ip);
}

int peers_claim(struct peers *s, struct peer_conn *c, const struct api_who *who, int64_t max,
                struct sh_err *err)
{
    int rc = SH_OK;

    if (who->role == ROLE_ADMIN) /* they must always get in */
        max = 0;
    /* The key of a connection changes only by its own thread. */
    if (c->is_known && (max == 0 || (c->key && strcmp(c->key->id, who->key_id) == 0))) {
        sh_strlcpy(c->key_id, who->key_id, sizeof(c->key_id));
        return SH_OK;
    }
    pthread_mutex_lock(&s->lock);
    peers_drop(s, &c->key);
    if (max > 0)
        rc = take_peer(s, who->key_id, max, &c->key);
    if (!rc && !c->is_known) {
        unlist(c);
        c->is_known = true;
        enlist(c);
    }
    pthread_mutex_unlock(&s->lock);
    if (!rc) /* of one that is over its quota the connection is not known */
        sh_strlcpy(c->key_id, who->key_id, sizeof(c->key_id));
    if (rc == SH_E_QUOTA)
        return SH_FAIL(err, rc,
                       "key %s has %" PRId64 " open connections, the most allowed "
                       "(max-connections-per-key); close some, or use them again",
                       who->key_id, max);
    return rc ? SH_FAIL(err, rc, "could not allocate a key's connections") : SH_OK;
}

bool peers_refuse(struct peers *s, struct peer_conn *c, const char *header)
{
    if (!c->is_known || !header || !strstr(header, c->key_id))
        return false;
    pthread_mutex_lock(&s->lock);
    unlist(c);
    peers_drop(s, &c->key);
    c->is_known = false;
    enlist(c);
    pthread_mutex_unlock(&s->lock);
    return true;
}
