/* peers.h - who has how many connections open, over all front ends (http/, grpc/) together.
 *
 * A peer is a client's address, of connections on which no key was seen (strangers), or a key, of
 * connections whose last request had it. One whose key is refused is a stranger again. Beyond its
 * limit an address loses its oldest stranger; a key's request is refused.
 *
 * Each connection also belongs to a room: those of a thread or a server, which has a maximum of its
 * own. Its lists say who goes first when there are too many. A connection is cut by any thread:
 * its socket is shut down, and the thread that it belongs to sees its end and closes it.
 */
#ifndef SH_API_REQUEST_PEERS_H
#define SH_API_REQUEST_PEERS_H

#include "api/request/req.h"
#include "common/metrics.h"

#include <netinet/in.h>
#include <pthread.h>
#include <sys/queue.h>

#define PEER_BUCKETS 1024u

/* Who goes first. WAITS: it has requests, and all of them wait for their client. BUSY: never. */
enum peer_turn { PEER_STRANGER, PEER_IDLE, PEER_WAITS, PEER_BUSY };

struct peer; /* an address or a key with open connections; gone with the last */
TAILQ_HEAD(peer_list, peer_conn);

struct peers {
    pthread_mutex_t lock; /* protects all of this, rooms and their lists; nobody blocks under it */
    struct peer *table[PEER_BUCKETS];
};

struct peer_room {
    unsigned n, n_cut, max;            /* n_cut: of n, about to be closed */
    struct peer_list lists[PEER_BUSY]; /* each starts with the one to go first */
    enum sh_metric evicted;
};

struct peer_conn { /* in the front end's own struct; under the lock, but see is_known */
    int fd;
    bool is_known;          /* a request on it had a valid key; only its own thread sets it ... */
    char key_id[16];        /* ... and this, the id of the last one; "": none */
    bool is_cut;            /* shut down by us; on no list */
    enum peer_turn turn;    /* once it is known; until then it is a stranger */
    int64_t since_ns;       /* when its turn became this */
    struct peer *key, *ip;  /* NULL: none, or no limit */
    struct peer_list *list; /* that by_age links it into; NULL: none */
    struct peer_room *room;
    TAILQ_ENTRY(peer_conn) by_age, by_ip; /* by_ip: while it is not known and has an ip */
};

void peers_init(struct peers *s);
void peers_fini(struct peers *s); /* all connections are closed */
void peer_room_init(struct peer_room *r, unsigned max, enum sh_metric evicted);

/* Counts a connection for its client's address, which may have at most max strangers at one door
 * (0: no limit); beyond that its oldest is cut, by peer_open() or peers_refuse(). False: no memory.
 * *out: OWNED, peer_open() or peers_leave(); may be NULL. */
bool peers_admit(struct peers *s, bool is_admin, const struct sockaddr *from, int64_t max,
                 struct peer **out);
void peers_leave(struct peers *s, struct peer *ip); /* NULL is allowed */
/* From now on c's requests have this key, which may have max connections (0: no limit; an admin's
 * may have any number). Fails: SH_E_QUOTA, SH_E_NOMEM. */
int peers_claim(struct peers *s, struct peer_conn *c, const struct api_who *who, int64_t max,
                struct sh_err *err);
/* A request's key was refused (header: Authorization, may be NULL). True: it is the one that c is
 * known by, and c is a stranger from now on. Other clients may share the connection (a proxy). */
bool peers_refuse(struct peers *s, struct peer_conn *c, const char *header);

/* The lock is held in what follows. */
void peers_drop(struct peers *s, struct peer **p); /* NULL is allowed; sets it to NULL */
const char *peer_name(const struct peer *p);       /* "" for NULL */
/* A stranger, the youngest of its room. c is zeroed, except fd, ip (TAKES it) and room. */
void peer_open(struct peer_conn *c);
void peer_close(struct peers *s, struct peer_conn *c); /* its socket is still open */
/* PEER_IDLE and later ones. It is the youngest of its list, even if that stays the same. */
void peer_turn(struct peer_conn *c, enum peer_turn turn);
void peer_cut(struct peer_conn *c);
bool peer_has_room(const struct peer_room *r);
/* Cuts the connection that goes first, unless it is `newest`, or IDLE for less than spare_ns.
 * False: there is none. */
bool peer_make_room(struct peer_room *r, const struct peer_conn *newest, int64_t spare_ns);

#endif
