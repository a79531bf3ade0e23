/* test_http_conn.c - open connections: limits of time for each phase, of number for a key and an
 * address; who goes when there are too many.
 *
 * Without it a byte now and then would keep a connection and what it holds for ever, connections
 * without a key would keep others out, or a client that does nothing wrong would be cut off.
 */
/* uses: libapi.a */
/* link: -lmicrohttpd -lpq -lz -Wl,--wrap=recv */
#include "api/http/http_int.h"
#include "api/options.h"
#include "common/clock.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#define SECOND INT64_C(1000000000)

static struct http_conns *drained; /* is its lock free while what comes is thrown away? */
static int n_free, n_held;

ssize_t __real_recv(int fd, void *p, size_t n, int flags);
ssize_t __wrap_recv(int fd, void *p, size_t n, int flags);

ssize_t __wrap_recv(int fd, void *p, size_t n, int flags)
{
    if (drained && (flags & MSG_TRUNC)) {
        if (pthread_mutex_trylock(&drained->peers->lock) == 0) {
            pthread_mutex_unlock(&drained->peers->lock);
            n_free++;
        } else {
            n_held++;
        }
    }
    return __real_recv(fd, p, n, flags);
}

static const struct api_conf CONF = {
    .header_timeout_s = 10, .upload_grace_s = 2, .upload_min_rate = 100};

struct world {
    struct peers p;
    struct http_conns s;
    struct http_thread t;
    struct http_conn *c;
    int ours, theirs;
};

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    int fds[2];

    assert_non_null(w);
    sh_clock_fake(1000 * SECOND, 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    w->ours = fds[0];
    w->theirs = fds[1];
    peers_init(&w->p);
    conns_init(&w->s, &w->p);
    peer_room_init(&w->t.room, 1000, M_shunt_http_evicted_connections_total);
    w->c = conns_open(&w->s, &w->t, w->ours, NULL);
    assert_non_null(w->c);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;

    conns_close(&w->s, w->c);
    conns_fini(&w->s);
    peers_fini(&w->p);
    close(w->ours);
    if (w->theirs >= 0)
        close(w->theirs);
    free(w);
    sh_clock_real();
    return 0;
}

/* Sweeps, and looks at the other end. */
static bool is_cut(struct world *w)
{
    char byte;

    conns_sweep(&w->s, &CONF);
    return recv(w->theirs, &byte, 1, MSG_DONTWAIT) == 0;
}

static void headers_have_a_time_in_all(void **state)
{
    struct world *w = *state;

    sh_clock_advance(9 * SECOND);
    assert_false(is_cut(w));
    sh_clock_advance(2 * SECOND);
    assert_true(is_cut(w));
}

static void a_body_has_a_rate_after_a_while(void **state)
{
    struct world *w = *state;

    conns_phase(&w->s, w->c, CONN_BODY, 0);
    sh_clock_advance(SECOND);
    assert_false(is_cut(w)); /* nothing yet, and that is all right */
    conns_phase(&w->s, w->c, CONN_BODY, 500);
    sh_clock_advance(5 * SECOND);
    assert_false(is_cut(w)); /* 500 bytes in 6 - 2 s */
    sh_clock_advance(2 * SECOND);
    assert_true(is_cut(w)); /* 500 in 8 - 2 s */
}

static void a_body_that_waits_for_us_is_not_slow(void **state)
{
    struct world *w = *state;

    conns_phase(&w->s, w->c, CONN_BODY, 0);
    sh_clock_advance(SECOND);
    conns_phase(&w->s, w->c, CONN_WORK, 0);
    sh_clock_advance(100 * SECOND);
    assert_false(is_cut(w));
    conns_phase(&w->s, w->c, CONN_BODY, 50);
    sh_clock_advance(SECOND);
    assert_false(is_cut(w));
    sh_clock_advance(2 * SECOND);
    assert_true(is_cut(w)); /* 4 s of its own, 50 bytes */
}

static void the_next_body_on_a_connection_begins_anew(void **state)
{
    struct world *w = *state;

    for (int i = 0; i < 5; i++) {
        conns_phase(&w->s, w->c, CONN_BODY, 10);
        sh_clock_advance(SECOND);
        conns_phase(&w->s, w->c, CONN_WORK, 10);
        conns_phase(&w->s, w->c, CONN_REPLY, 10);
        conns_phase(&w->s, w->c, CONN_HEAD, 0);
        assert_false(is_cut(w));
    }
}

static void a_reply_must_be_taken(void **state)
{
    struct world *w = *state;

    conns_phase(&w->s, w->c, CONN_REPLY, 1000);
    sh_clock_advance(11 * SECOND);
    assert_false(is_cut(w));
    sh_clock_advance(2 * SECOND);
    assert_true(is_cut(w));
}

static void a_client_that_left_is_noticed_in_the_second_sweep(void **state)
{
    struct world *w = *state;
    char byte;

    conns_phase(&w->s, w->c, CONN_BODY, 0);
    assert_int_equal(send(w->theirs, "x", 1, 0), 1);
    assert_int_equal(shutdown(w->theirs, SHUT_WR), 0);
    conns_sweep(&w->s, &CONF); /* a byte is still there: the library will take it */
    conns_sweep(&w->s, &CONF);
    assert_int_equal(recv(w->ours, &byte, 1, MSG_DONTWAIT), 1);
    assert_false(is_cut(w)); /* the library may be about to notice by itself */
    assert_true(is_cut(w));
}

static int claim(struct world *w, struct http_conn *c, const char *key, int64_t max,
                 struct sh_err *err)
{
    struct api_who who = {.role = ROLE_INFER};

    sh_strlcpy(who.key_id, key, sizeof(who.key_id));
    return peers_claim(&w->p, &c->peer, &who, max, err);
}

static void a_key_has_so_many_connections(void **state)
{
    struct world *w = *state;
    struct http_conn *more[3];
    struct sh_err err = {0};

    for (int i = 0; i < 3; i++) {
        more[i] = conns_open(&w->s, &w->t, 900 + i, NULL);
        assert_non_null(more[i]);
    }
    assert_ok(claim(w, w->c, "aaaaaaaaaaaa", 2, &err));
    assert_ok(claim(w, w->c, "aaaaaaaaaaaa", 2, &err)); /* its own, again */
    assert_ok(claim(w, more[0], "aaaaaaaaaaaa", 2, &err));
    assert_fails(claim(w, more[1], "aaaaaaaaaaaa", 2, &err), SH_E_QUOTA, &err,
                 "2 open connections");
    assert_ok(claim(w, more[1], "bbbbbbbbbbbb", 2, &err));
    assert_ok(claim(w, more[0], "bbbbbbbbbbbb", 2, &err)); /* leaves a place */
    assert_ok(claim(w, more[2], "aaaaaaaaaaaa", 2, &err));
    conns_close(&w->s, more[2]);
    assert_ok(claim(w, more[0], "aaaaaaaaaaaa", 2, &err));
    for (int i = 0; i < 2; i++)
        conns_close(&w->s, more[i]);
    assert_ok(claim(w, w->c, "cccccccccccc", 0, &err)); /* no limit: not counted */
}

static void a_refused_key_is_that_of_a_stranger(void **state)
{
    static const char OURS[] = "Bearer shunt_aaaaaaaaaaaa_x",
                      OTHER[] = "Bearer shunt_bbbbbbbbbbbb_x";
    struct world *w = *state;
    struct sh_err err = {0};

    assert_false(peers_refuse(&w->p, &w->c->peer, OURS)); /* it was one */
    assert_ok(claim(w, w->c, "aaaaaaaaaaaa", 2, &err));
    assert_false(peers_refuse(&w->p, &w->c->peer, NULL)); /* of another client behind a proxy */
    assert_false(peers_refuse(&w->p, &w->c->peer, OTHER));
    assert_true(w->c->peer.is_known);
    assert_true(peers_refuse(&w->p, &w->c->peer, OURS));
    assert_false(w->c->peer.is_known);
    assert_null(w->c->peer.key);
    assert_ptr_equal(TAILQ_FIRST(&w->t.room.lists[PEER_STRANGER]), &w->c->peer);
    assert_ok(claim(w, w->c, "bbbbbbbbbbbb", 0, &err)); /* no limit, and yet a key */
    assert_true(peers_refuse(&w->p, &w->c->peer, OTHER));
}

static struct sockaddr *address(struct sockaddr_storage *out, const char *text)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;

    memset(out, 0, sizeof(*out));
    out->ss_family = strchr(text, ':') ? AF_INET6 : AF_INET;
    v4->sin_port = 1; /* as v6->sin6_port: does not count */
    if (out->ss_family == AF_INET)
        assert_int_equal(inet_pton(AF_INET, text, &v4->sin_addr), 1);
    else
        assert_int_equal(inet_pton(AF_INET6, text, &v6->sin6_addr), 1);
    return (struct sockaddr *)out;
}

static struct http_conn *from(struct world *w, const char *text, int fd)
{
    struct sockaddr_storage a;
    struct peer *ip;
    struct http_conn *c;

    assert_true(peers_admit(&w->p, false, address(&a, text), 2, &ip));
    c = conns_open(&w->s, &w->t, fd, ip);
    assert_non_null(c);
    return c;
}

static void an_address_has_so_many_without_a_key(void **state)
{
    struct world *w = *state;
    struct http_conn *c[8];
    struct sh_err err = {0};

    for (int i = 0; i < 3; i++) /* whoever has a key does not count */
        c[i] = from(w, "10.0.0.1", 20000 + i);
    assert_true(c[0]->peer.is_cut);
    conns_close(&w->s, c[0]);
    assert_ok(claim(w, c[1], "aaaaaaaaaaaa", 0, &err));
    c[3] = from(w, "10.0.0.1", 20003);
    assert_false(c[1]->peer.is_cut || c[2]->peer.is_cut);
    /* The one that did nothing for longest goes, in whatever it is. */
    conns_phase(&w->s, c[2], CONN_BODY, 0);
    c[4] = from(w, "10.0.0.1", 20004);
    assert_true(c[3]->peer.is_cut && !c[2]->peer.is_cut);
    /* Other addresses are other counts; of IPv6 a host has a whole net. */
    c[5] = from(w, "::ffff:10.0.0.1", 20005);
    c[6] = from(w, "2001:db8::1", 20006);
    c[7] = from(w, "2001:db8::2:1", 20007);
    assert_false(c[2]->peer.is_cut || c[4]->peer.is_cut || c[5]->peer.is_cut || c[6]->peer.is_cut);
    c[0] = from(w, "2001:db8::ffff:ffff:1", 20000);
    assert_true(c[6]->peer.is_cut && !c[5]->peer.is_cut && !c[7]->peer.is_cut);
    for (int i = 0; i < 8; i++)
        conns_close(&w->s, c[i]);
}

/* Threads accept at a time: all are admitted before any of them is open. */
static void an_address_keeps_to_that_when_many_are_admitted_first(void **state)
{
    struct world *w = *state;
    struct sockaddr_storage a;
    struct http_conn *c[6];
    struct peer *ip[6];
    int n_cut = 0;

    for (int i = 0; i < 6; i++)
        assert_true(peers_admit(&w->p, false, address(&a, "10.0.0.1"), 2, &ip[i]));
    for (int i = 0; i < 6; i++)
        c[i] = conns_open(&w->s, &w->t, 20000 + i, ip[i]);
    for (int i = 0; i < 6; i++)
        n_cut += c[i]->peer.is_cut;
    assert_int_equal(n_cut, 4);
    assert_false(c[4]->peer.is_cut || c[5]->peer.is_cut);
    for (int i = 0; i < 6; i++)
        conns_close(&w->s, c[i]);
}

static void addresses_are_counted_for_as_long_as_they_have_any(void **state)
{
    struct world *w = *state;
    struct sockaddr_storage a;
    struct peer *ip[2];

    assert_true(peers_admit(&w->p, false, address(&a, "10.0.0.1"), 2, &ip[0]));
    assert_true(peers_admit(&w->p, true, address(&a, "10.0.0.1"), 2, &ip[1])); /* another door */
    assert_ptr_not_equal(ip[0], ip[1]);
    peers_leave(&w->p, ip[0]); /* the connection never came to be */
    peers_leave(&w->p, ip[1]);
    assert_true(peers_admit(&w->p, false, address(&a, "10.0.0.1"), 0, &ip[0]));
    assert_null(ip[0]);
    peers_leave(&w->p, ip[0]);
    a.ss_family = AF_UNIX; /* has no address */
    assert_true(peers_admit(&w->p, false, (struct sockaddr *)&a, 1, &ip[0]));
    assert_null(ip[0]);
    for (size_t i = 0; i < PEER_BUCKETS; i++)
        assert_null(w->p.table[i]);
}

static void a_full_thread_keeps_a_place_free(void **state)
{
    struct world *w = *state;
    struct http_conn *c[4];
    struct sh_err err = {0};

    w->t.room.max = 4; /* w->c has one */
    assert_ok(claim(w, w->c, "aaaaaaaaaaaa", 0, &err));
    for (int i = 0; i < 3; i++)
        c[i] = conns_open(&w->s, &w->t, 20000 + i, NULL);
    assert_true(c[0]->peer.is_cut && !c[1]->peer.is_cut && !w->c->peer.is_cut);
    conns_make_room(&w->s, &w->t); /* that one is on its way out: it counts no more */
    assert_false(c[1]->peer.is_cut);
    conns_close(&w->s, c[0]);
    conns_phase(&w->s, c[1], CONN_REPLY, 10);
    c[3] = conns_open(&w->s, &w->t, 20003, NULL);
    assert_true(c[2]->peer.is_cut && !c[1]->peer.is_cut);
    conns_close(&w->s, c[2]);
    /* All have a key: who is busy stays, and so does who was a moment ago. */
    assert_ok(claim(w, c[1], "bbbbbbbbbbbb", 0, &err));
    assert_ok(claim(w, c[3], "bbbbbbbbbbbb", 0, &err));
    conns_phase(&w->s, w->c, CONN_WORK, 0);
    conns_phase(&w->s, c[3], CONN_WORK, 0);
    conns_phase(&w->s, c[3], CONN_HEAD, 0);
    c[0] = conns_open(&w->s, &w->t, 20000, NULL);
    assert_ok(claim(w, c[0], "bbbbbbbbbbbb", 0, &err));
    conns_make_room(&w->s, &w->t);
    assert_false(w->c->peer.is_cut || c[0]->peer.is_cut || c[1]->peer.is_cut || c[3]->peer.is_cut);
    sh_clock_advance(2 * SECOND);
    conns_make_room(&w->s, &w->t);
    assert_true(c[3]->peer.is_cut && !c[0]->peer.is_cut && !c[1]->peer.is_cut &&
                !w->c->peer.is_cut);
    conns_close(&w->s, c[0]);
    conns_close(&w->s, c[1]);
    conns_close(&w->s, c[3]);
    assert_int_equal(w->t.room.n, 1);
    assert_int_equal(w->t.room.n_cut, 0);
}

/* Of TCP, of which bytes can be thrown away unread. */
static void connect_pair(int fds[2])
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(a);
    int listener = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(bind(listener, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&a, &len), 0);
    fds[1] = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fds[1], (struct sockaddr *)&a, sizeof(a)), 0);
    fds[0] = accept(listener, NULL, NULL);
    assert_true(fds[0] >= 0);
    close(listener);
}

static void a_socket_stays_until_its_client_has_read(void **state)
{
    struct world *w = *state;
    struct http_conn *c;
    char text[5];
    int fds[2];

    connect_pair(fds);
    c = conns_open(&w->s, &w->t, fds[0], NULL);
    assert_int_equal(send(fds[0], "reply", 5, 0), 5);
    assert_int_equal(send(fds[1], "request", 7, 0), 7); /* unread: a close would be a reset */
    conns_linger(&w->s, c);
    conns_close(&w->s, c);
    close(fds[0]);
    assert_int_equal(w->s.n_linger, 1);
    assert_int_equal(send(fds[1], "more", 4, MSG_NOSIGNAL), 4); /* taken, and thrown away */
    conns_sweep(&w->s, &CONF);
    assert_int_equal(w->s.n_linger, 1);
    assert_int_equal(recv(fds[1], text, 5, 0), 5);
    assert_int_equal(recv(fds[1], text, 5, 0), 0);
    close(fds[1]);
    for (int i = 0; i < 1000 && w->s.n_linger > 0; i++) { /* the end is on its way */
        conns_sweep(&w->s, &CONF);
        poll(NULL, 0, 1);
    }
    assert_int_equal(w->s.n_linger, 0);
}

static void sockets_that_stay_have_a_number_and_a_time(void **state)
{
    struct world *w = *state;
    int theirs[CONN_MAX_LINGER + 3], fds[2];

    for (size_t i = 0; i < SH_ARRAY_LEN(theirs); i++) {
        struct http_conn *c;

        connect_pair(fds);
        theirs[i] = fds[1];
        c = conns_open(&w->s, &w->t, fds[0], NULL);
        conns_linger(&w->s, c);
        conns_close(&w->s, c);
        close(fds[0]);
    }
    assert_int_equal(w->s.n_linger, CONN_MAX_LINGER);
    conns_sweep(&w->s, &CONF);
    assert_int_equal(w->s.n_linger, CONN_MAX_LINGER);
    sh_clock_advance(31 * SECOND);
    conns_sweep(&w->s, &CONF);
    assert_int_equal(w->s.n_linger, 0);
    for (size_t i = 0; i < SH_ARRAY_LEN(theirs); i++)
        close(theirs[i]);
}

/* Who sends fast enough must not keep all others out. */
static void nobody_waits_while_what_comes_is_thrown_away(void **state)
{
    struct world *w = *state;
    struct http_conn *c;
    int fds[2];

    connect_pair(fds);
    c = conns_open(&w->s, &w->t, fds[0], NULL);
    conns_linger(&w->s, c);
    conns_close(&w->s, c);
    close(fds[0]);
    assert_int_equal(send(fds[1], "more", 4, MSG_NOSIGNAL), 4);
    drained = &w->s;
    n_free = n_held = 0;
    conns_sweep(&w->s, &CONF);
    drained = NULL;
    assert_true(n_free > 0);
    assert_int_equal(n_held, 0);
    assert_int_equal(w->s.n_linger, 1);
    close(fds[1]);
}

static void many_are_swept(void **state)
{
    struct world *w = *state;
    struct http_conn *c[500];

    for (int i = 0; i < 500; i++) {
        c[i] = conns_open(&w->s, &w->t, 20000 + i, NULL); /* no such descriptor: shutdown() fails */
        assert_non_null(c[i]);
        conns_phase(&w->s, c[i], CONN_REPLY, 0);
    }
    sh_clock_advance(3 * SECOND);
    assert_false(is_cut(w));
    for (int i = 0; i < 500; i++) {
        assert_true(c[i]->peer.is_cut);
        conns_close(&w->s, c[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(headers_have_a_time_in_all, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_body_has_a_rate_after_a_while, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_body_that_waits_for_us_is_not_slow, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_next_body_on_a_connection_begins_anew, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_reply_must_be_taken, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_client_that_left_is_noticed_in_the_second_sweep, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_key_has_so_many_connections, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_refused_key_is_that_of_a_stranger, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_address_has_so_many_without_a_key, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_address_keeps_to_that_when_many_are_admitted_first,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(addresses_are_counted_for_as_long_as_they_have_any, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_full_thread_keeps_a_place_free, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_socket_stays_until_its_client_has_read, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(sockets_that_stay_have_a_number_and_a_time, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(nobody_waits_while_what_comes_is_thrown_away, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(many_are_swept, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
