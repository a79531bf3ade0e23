/* http_conn.c - open connections: who is too slow, who has left, how many a key or an address has.
 *
 * The library's time-out only asks whether any byte has moved. A byte now and then would keep a
 * connection, and what it holds, for as long as the client likes: so every phase has a limit of its
 * own here.
 *
 *   HEAD   waits for a request       header-timeout-s in all
 *   BODY   sends one                 upload-min-rate on average, after upload-grace-s
 *   WORK   waits for us              none: infer-timeout-ms, or the database's
 *   REPLY  takes the reply           as BODY
 */
#include "api/api.h"
#include "api/http_int.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define NS_PER_S INT64_C(1000000000)
#define SWEEP_AT_ONCE 64u /* connections, with the lock held */
#define IDLE_EVERY 5u     /* sweeps: most connections are idle, and each costs a system call */

struct conn_key { /* a key, or an address, with open connections; gone with the last */
    struct conn_key *next;
    char id[64]; /* an address has a blank in it */
    int64_t n;
};

static struct conn_key **key_at(struct http_conns *s, const char *id)
{
    uint64_t h = 0;
    struct conn_key **p;

    for (const char *c = id; *c; c++)
        h = h * 31 + (unsigned char)*c;
    p = &s->keys[h % CONN_KEY_BUCKETS];
    while (*p && strcmp((*p)->id, id) != 0)
        p = &(*p)->next;
    return p;
}

/* lock is held, as below. */
static void drop_key(struct http_conns *s, struct conn_key **key)
{
    struct conn_key **p, *k = *key;

    *key = NULL;
    if (!k || --k->n > 0)
        return;
    p = key_at(s, k->id);
    *p = k->next;
    free(k);
}

/* Fails: SH_E_QUOTA, SH_E_NOMEM. */
static int take_key(struct http_conns *s, const char *id, int64_t max, struct conn_key **out)
{
    struct conn_key **p = key_at(s, id), *k = *p;

    if (k && k->n >= max)
        return SH_E_QUOTA;
    if (!k) {
        *p = k = calloc(1, sizeof(*k));
        if (!k)
            return SH_E_NOMEM;
        sh_strlcpy(k->id, id, sizeof(k->id));
    }
    k->n++;
    *out = k;
    return SH_OK;
}

void conns_init(struct http_conns *s)
{
    pthread_mutex_init(&s->lock, NULL);
}

void conns_fini(struct http_conns *s)
{
    pthread_mutex_destroy(&s->lock);
    free(s->by_fd);
}

static bool make_room(struct http_conns *s, size_t fd)
{
    size_t n = SH_MAX(s->n_slots, 64u);
    struct http_conn **more;

    while (n <= fd)
        n *= 2;
    if (n == s->n_slots)
        return true;
    more = realloc(s->by_fd, n * sizeof(struct http_conn *));
    if (!more)
        return false;
    memset(more + s->n_slots, 0, (n - s->n_slots) * sizeof(struct http_conn *));
    s->by_fd = more;
    s->n_slots = n;
    return true;
}

bool conns_admit(struct http_conns *s, bool is_admin, const struct sockaddr *from, int64_t max,
                 struct conn_key **out)
{
    char text[INET6_ADDRSTRLEN], id[64];
    const void *raw = from->sa_family == AF_INET
                          ? (const void *)&((const struct sockaddr_in *)from)->sin_addr
                          : &((const struct sockaddr_in6 *)from)->sin6_addr;
    int rc;

    *out = NULL;
    if (max == 0 || (from->sa_family != AF_INET && from->sa_family != AF_INET6) ||
        !inet_ntop(from->sa_family, raw, text, sizeof(text)))
        return true;
    snprintf(id, sizeof(id), "%s %s", is_admin ? "admin" : "front", text);
    pthread_mutex_lock(&s->lock);
    rc = take_key(s, id, max, out);
    pthread_mutex_unlock(&s->lock);
    return rc == SH_OK;
}

void conns_leave(struct http_conns *s, struct conn_key *ip)
{
    if (!ip)
        return;
    pthread_mutex_lock(&s->lock);
    drop_key(s, &ip);
    pthread_mutex_unlock(&s->lock);
}

struct http_conn *conns_open(struct http_conns *s, int fd, struct conn_key *ip)
{
    struct http_conn *c = calloc(1, sizeof(*c));
    bool ok = c;

    pthread_mutex_lock(&s->lock);
    ok = ok && make_room(s, (size_t)fd);
    if (ok) {
        *c = (struct http_conn){.fd = fd, .since_ns = sh_clock_ns(), .ip = ip};
        s->by_fd[fd] = c;
        s->n++;
    } else {
        drop_key(s, &ip);
    }
    pthread_mutex_unlock(&s->lock);
    if (!ok) {
        free(c);
        return NULL;
    }
    return c;
}

void conns_close(struct http_conns *s, struct http_conn *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&s->lock);
    s->by_fd[c->fd] = NULL;
    s->n--;
    drop_key(s, &c->key);
    drop_key(s, &c->ip);
    pthread_mutex_unlock(&s->lock);
    free(c);
}

int conns_claim(struct http_conns *s, struct http_conn *c, const char *key_id, int64_t max,
                struct sh_err *err)
{
    int rc;

    if (!c || max == 0 || (c->key && strcmp(c->key->id, key_id) == 0))
        return SH_OK; /* the key of a connection changes only by its own thread */
    pthread_mutex_lock(&s->lock);
    drop_key(s, &c->key);
    rc = take_key(s, key_id, max, &c->key);
    pthread_mutex_unlock(&s->lock);
    if (rc == SH_E_QUOTA)
        return SH_FAIL(err, rc,
                       "key %s has %" PRId64 " open connections, the most allowed "
                       "(max-connections-per-key); close some, or use them again",
                       key_id, max);
    return rc ? SH_FAIL(err, rc, "could not allocate a key's connections") : SH_OK;
}

void conns_phase(struct http_conns *s, struct http_conn *c, enum conn_phase phase, uint64_t bytes)
{
    if (!c)
        return;
    pthread_mutex_lock(&s->lock);
    if (c->phase != phase) {
        int64_t now = sh_clock_ns();

        /* A body that we let wait goes on where it was. */
        if (phase == CONN_WORK)
            c->body_ns = c->phase == CONN_BODY ? now - c->since_ns : 0;
        c->since_ns = phase == CONN_BODY ? now - c->body_ns : now;
        if (phase == CONN_HEAD)
            c->body_ns = 0;
        c->phase = phase;
    }
    c->bytes = bytes;
    c->saw_end = false;
    pthread_mutex_unlock(&s->lock);
}

/* The library is told once of data and of the end behind it. When it takes the data and leaves the
 * end for later, no later comes: a client that left in the middle of its body would keep its memory
 * and its place until the idle time-out. */
static bool has_ended(const struct http_conn *c)
{
    char byte;

    return recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static bool is_slow(const struct http_conn *c, const struct api_conf *conf, int64_t now)
{
    int64_t ns = now - c->since_ns - SH_CONF_NOW(conf->upload_grace_s) * NS_PER_S;
    double owed = (double)SH_CONF_NOW(conf->upload_min_rate) * ((double)ns / 1e9);

    /* Of a reply we only know that some of it is still to go. */
    return ns > 0 && (c->phase == CONN_BODY ? (double)c->bytes < owed : owed > (double)c->bytes);
}

/* lock is held. */
static void sweep_one(struct http_conn *c, const struct api_conf *conf, int64_t now, bool idle_too)
{
    bool slow = false, end = false;

    if (c->phase == CONN_HEAD)
        slow = now - c->since_ns > SH_CONF_NOW(conf->header_timeout_s) * NS_PER_S;
    else if (c->phase != CONN_WORK)
        slow = is_slow(c, conf, now);
    if (c->phase == CONN_BODY || (c->phase == CONN_HEAD && idle_too)) {
        end = has_ended(c);
        slow |= end && c->saw_end;
        c->saw_end = end;
    }
    if (!slow)
        return;
    if (c->phase != CONN_HEAD && !end)
        SH_WARN("http.slow", "phase=%s bytes=%" PRIu64 " key=%s",
                c->phase == CONN_BODY ? "body" : "reply", c->bytes, c->key ? c->key->id : "");
    shutdown(c->fd, SHUT_RDWR); /* the library sees the end and closes it */
    c->phase = CONN_WORK;       /* said once */
}

void conns_sweep(struct http_conns *s, const struct api_conf *conf)
{
    int64_t now = sh_clock_ns();
    bool idle_too = s->n_sweeps++ % IDLE_EVERY == 0;
    size_t n_slots, n, at = 0;

    do {
        pthread_mutex_lock(&s->lock);
        n_slots = s->n_slots;
        n = s->n;
        for (size_t end = SH_MIN(at + SWEEP_AT_ONCE, n_slots); at < end; at++)
            if (s->by_fd[at])
                sweep_one(s->by_fd[at], conf, now, idle_too);
        pthread_mutex_unlock(&s->lock);
    } while (at < n_slots);
    sh_metric_set(M_shunt_http_connections, NULL, (double)n);
}
