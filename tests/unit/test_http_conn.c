/* test_http_conn.c - open connections: limits of time for each phase, of number for a key
 * and an address.
 *
 * Without it a byte now and then would keep a connection and what it holds for ever, or a client
 * that does nothing wrong would be cut off.
 */
/* uses: libapi.a */
/* link: -lmicrohttpd -lpq */
#include "api/http_int.h"
#include "api/options.h"
#include "common/clock.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#define SECOND INT64_C(1000000000)

static const struct api_conf CONF = {
    .header_timeout_s = 10, .upload_grace_s = 2, .upload_min_rate = 100};

struct world {
    struct http_conns s;
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
    conns_init(&w->s);
    w->c = conns_open(&w->s, w->ours, NULL);
    assert_non_null(w->c);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;

    conns_close(&w->s, w->c);
    conns_fini(&w->s);
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

static void a_key_has_so_many_connections(void **state)
{
    struct world *w = *state;
    struct http_conn *more[3];
    struct sh_err err = {0};

    for (int i = 0; i < 3; i++) {
        more[i] = conns_open(&w->s, 900 + i, NULL);
        assert_non_null(more[i]);
    }
    assert_ok(conns_claim(&w->s, w->c, "aaaaaaaaaaaa", 2, &err));
    assert_ok(conns_claim(&w->s, w->c, "aaaaaaaaaaaa", 2, &err)); /* its own, again */
    assert_ok(conns_claim(&w->s, more[0], "aaaaaaaaaaaa", 2, &err));
    assert_fails(conns_claim(&w->s, more[1], "aaaaaaaaaaaa", 2, &err), SH_E_QUOTA, &err,
                 "2 open connections");
    assert_ok(conns_claim(&w->s, more[1], "bbbbbbbbbbbb", 2, &err));
    assert_ok(conns_claim(&w->s, more[0], "bbbbbbbbbbbb", 2, &err)); /* leaves a place */
    assert_ok(conns_claim(&w->s, more[2], "aaaaaaaaaaaa", 2, &err));
    conns_close(&w->s, more[2]);
    assert_ok(conns_claim(&w->s, more[0], "aaaaaaaaaaaa", 2, &err));
    for (int i = 0; i < 2; i++)
        conns_close(&w->s, more[i]);
    assert_ok(conns_claim(&w->s, w->c, "cccccccccccc", 0, &err)); /* no limit: not counted */
    assert_ok(conns_claim(&w->s, NULL, "cccccccccccc", 1, &err)); /* no memory for it: let in */
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

static void an_address_has_so_many_connections(void **state)
{
    struct world *w = *state;
    struct sockaddr_storage a;
    struct conn_key *ip[4];
    struct http_conn *c;
    struct sh_err err = {0};

    assert_true(conns_admit(&w->s, false, address(&a, "10.0.0.1"), 2, &ip[0]));
    assert_true(conns_admit(&w->s, false, address(&a, "10.0.0.1"), 2, &ip[1]));
    assert_false(conns_admit(&w->s, false, address(&a, "10.0.0.1"), 2, &ip[2]));
    assert_null(ip[2]);
    /* Another address, another kind of address, another door. */
    assert_true(conns_admit(&w->s, false, address(&a, "10.0.0.2"), 2, &ip[2]));
    conns_leave(&w->s, ip[2]);
    assert_true(conns_admit(&w->s, false, address(&a, "::ffff:10.0.0.1"), 2, &ip[2]));
    conns_leave(&w->s, ip[2]);
    assert_true(conns_admit(&w->s, true, address(&a, "10.0.0.1"), 2, &ip[2]));
    conns_leave(&w->s, ip[2]);
    /* Its place is free when the connection is closed, and when it never came to be. */
    c = conns_open(&w->s, 900, ip[0]);
    assert_non_null(c);
    assert_ok(conns_claim(&w->s, c, "aaaaaaaaaaaa", 1, &err)); /* that count is another one */
    assert_false(conns_admit(&w->s, false, address(&a, "10.0.0.1"), 2, &ip[2]));
    conns_close(&w->s, c);
    assert_true(conns_admit(&w->s, false, address(&a, "10.0.0.1"), 2, &ip[2]));
    assert_false(conns_admit(&w->s, false, address(&a, "10.0.0.1"), 2, &ip[3]));
    conns_leave(&w->s, ip[1]);
    conns_leave(&w->s, ip[2]);
    for (int i = 0; i < 4; i++) { /* no limit: not counted */
        assert_true(conns_admit(&w->s, false, address(&a, "10.0.0.1"), 0, &ip[i]));
        assert_null(ip[i]);
        conns_leave(&w->s, ip[i]);
    }
    a.ss_family = AF_UNIX; /* has no address */
    assert_true(conns_admit(&w->s, false, (struct sockaddr *)&a, 1, &ip[0]));
    assert_null(ip[0]);
}

static void many_are_swept(void **state)
{
    struct world *w = *state;
    struct http_conn *c[500];

    for (int i = 0; i < 500; i++) {
        c[i] = conns_open(&w->s, 20000 + i, NULL); /* no such descriptor: shutdown() fails */
        assert_non_null(c[i]);
        conns_phase(&w->s, c[i], CONN_REPLY, 0);
    }
    sh_clock_advance(3 * SECOND);
    assert_false(is_cut(w));
    for (int i = 0; i < 500; i++) {
        assert_int_equal(c[i]->phase, CONN_WORK); /* was cut, once */
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
        cmocka_unit_test_setup_teardown(an_address_has_so_many_connections, set_up, tear_down),
        cmocka_unit_test_setup_teardown(many_are_swept, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
