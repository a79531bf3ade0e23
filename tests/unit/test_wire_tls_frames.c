/* test_wire_tls_frames.c - without it, a frame over TLS could be cut, swapped or lost when a record
 * or the socket takes only part of it; and a key could not be replaced while all runs. */
#include "tests/unit/tls_test.h"

/* As GnuTLS does by itself after so many records. */
static void a_peer_may_change_its_keys(void **state)
{
    struct world *w = *state;
    struct by_hand c;
    unsigned char back[3 * 16];

    start_listening(KEY_A);
    hand_open(&c);
    UNTIL(w, T.n_peers == 1);
    w->b.on_msg = DO_ECHO;
    hand_ping(&c, 1);
    assert_int_equal(gnutls_session_key_update(c.s, 0), 0);
    hand_ping(&c, 2);
    UNTIL(w, w->b.n_msgs == 2);
    assert_int_equal(gnutls_session_key_update(c.s, GNUTLS_KU_PEER), 0); /* and asks for ours */
    hand_ping(&c, 3);
    hand_read(&c, back, sizeof(back));
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(back[16 * i + 8], i + 1);
    hand_close(&c);
    UNTIL(w, w->b.n_closed == 1);
}

/* ---------------------------------------------------------------- frames */

static void large_frames_survive_partial_records(void **state)
{
    static unsigned char buf[5000000];
    struct world *w = *state;

    connect_with(KEY_A, KEY_A);
    for (uint64_t i = 1; i <= 8; i++) {
        struct sh_msg m = chunk(i, buf, i % 2 ? sizeof(buf) : 16384 * i - 40 + i);

        assert_ok(sh_wire_send(sh_link_wire(w->a.link), &m, NULL));
        assert_ok(sh_wire_send(w->b.w, &m, NULL));
    }
    UNTIL(w, w->b.n_msgs == 8 && w->a.n_msgs == 8);
    assert_false(w->b.out_of_order || w->a.out_of_order);
    assert_int_equal(w->b.bytes, w->a.bytes);
    assert_true(w->b.bytes > 4 * sizeof(buf));
}

/* All of it is encrypted at once, and nothing follows that would push the rest out. */
static void what_the_socket_does_not_take_follows_by_itself(void **state)
{
    static unsigned char buf[250000];
    struct world *w = *state;
    struct sh_msg m = chunk(1, buf, sizeof(buf));

    connect_with(KEY_A, KEY_A);
    assert_ok(sh_wire_send(w->b.w, &m, NULL));
    UNTIL(w, w->a.n_msgs == 1);
    assert_int_equal(w->a.bytes, sizeof(buf));
}

static void many_small_frames_keep_their_order(void **state)
{
    static unsigned char buf[300000];
    struct world *w = *state;
    struct sh_wire *a;
    struct sh_msg m;

    connect_with(KEY_A, KEY_A);
    a = sh_link_wire(w->a.link);
    for (uint64_t i = 1; i <= 20000; i++) {
        if (i % 500 == 100)
            sh_wire_cork(a);
        m = i % 5000 == 0 ? chunk(i, buf, sizeof(buf)) : ping(i);
        assert_ok(sh_wire_send(a, &m, NULL));
        if (i % 500 == 400)
            sh_wire_uncork(a);
        if (i % 1000 == 0)
            assert_ok(sh_loop_once(w->loop, 0, NULL));
    }
    UNTIL(w, w->b.n_msgs == 20000);
    assert_false(w->b.out_of_order);
}

static void a_peer_that_does_not_read_is_closed(void **state)
{
    static unsigned char buf[4000000];
    struct world *w = *state;
    struct line l = {.piece = 65536, .damage_at = -1};
    struct sh_err err = {0};
    int rc = SH_OK;

    line_open(&l, KEY_A, KEY_A);
    CARRY(&l, w->a.n_up == 1 && T.n_peers == 1);
    for (uint64_t i = 1; !rc && i < 100; i++) {
        struct sh_msg m = chunk(i, buf, sizeof(buf));

        rc = sh_wire_send(sh_link_wire(w->a.link), &m, &err);
    }
    assert_fails(rc, SH_E_UNAVAILABLE, &err, "does not read");
    UNTIL(w, w->a.n_closed == 1);
    line_close(&l);
}

static void finish(struct world *w, size_t bytes)
{
    static unsigned char buf[1500000];
    struct sh_msg m = chunk(1, buf, bytes);

    connect_with(KEY_A, KEY_A);
    assert_ok(sh_wire_send(w->b.w, &m, NULL));
    sh_wire_finish(w->b.w);
    UNTIL(w, w->a.n_closed == 1 && w->b.n_closed == 1);
    assert_int_equal(w->a.bytes, bytes);
    assert_int_equal(w->b.why.rc, SH_E_CANCELLED);
}

static void one_that_is_finished_says_all_that_waits(void **state)
{
    finish(*state, 1500000);
}

static void one_that_is_finished_says_all_that_is_encrypted(void **state)
{
    finish(*state, 250000);
}

static void descriptors_stay_on_this_host(void **state)
{
    struct world *w = *state;
    struct sh_msg m = ping(1);
    struct sh_err err = {0};

    connect_with(KEY_A, KEY_A);
    assert_fails(sh_wire_send_fds(sh_link_wire(w->a.link), &m, (int[]){0}, 1, &err), SH_E_BUG, &err,
                 "Unix socket");
    assert_false(sh_wire_is_local(w->b.w));
}

static void what_is_said_in_the_callbacks_of_the_opening_arrives(void **state)
{
    struct world *w = *state;

    w->a.on_up = DO_ECHO; /* at once */
    w->b.on_msg = DO_FINISH;
    connect_with(KEY_A, KEY_A);
    UNTIL(w, w->b.n_closed == 1);
    assert_int_equal(w->b.n_msgs, 1);
    w->a.on_up = DO_FREE_LINK;
    UNTIL(w, w->a.link == NULL);
}

static void a_unix_socket_needs_no_key(void **state)
{
    struct world *w = *state;
    struct sh_listen_handler h = {.on_peer = on_peer};
    struct sh_link_handler lh = {
        .on_up = on_up, .on_msg = on_msg, .on_down = on_close, .arg = &w->a};

    open_keys(&T.server, "server", KEY_A);
    h.keys = T.server.keys;
    assert_ok(sh_listen_new(w->loop, w->addr, &h, &T.listen, NULL));
    assert_ok(sh_link_new(w->loop, w->addr, &lh, &w->a.link, NULL));
    UNTIL(w, w->a.n_up == 1 && T.n_peers == 1);
    assert_int_equal(noted("server", "ok"), 0);
}

/* ---------------------------------------------------------------- another key */

static void a_key_is_replaced_without_a_restart(void **state)
{
    struct world *w = *state;
    struct sh_msg m = ping(1);

    connect_with(KEY_A, KEY_A);
    write_keys(&T.server, KEY_A "\n" KEY_B "\n");                   /* first: accepted everywhere */
    write_keys(&T.client, "# new\n" KEY_B "\n\n" KEY_A " # old\n"); /* then used */
    assert_ok(sh_wire_send(sh_link_wire(w->a.link), &m, NULL));
    UNTIL(w, w->b.n_msgs == 1); /* what is open stays */
    sh_wire_close(sh_link_wire(w->a.link));
    UNTIL(w, w->a.n_up == 2 && T.n_peers == 2);
    write_keys(&T.server, KEY_B "\n"); /* then alone */
    sh_wire_close(sh_link_wire(w->a.link));
    UNTIL(w, w->a.n_up == 3 && T.n_peers == 3);
    assert_int_equal(noted("server", "wrong_key"), 0);
    write_keys(&T.client, KEY_A); /* the old one is over */
    sh_wire_close(sh_link_wire(w->a.link));
    UNTIL(w, noted("server", "wrong_key") > 0);
    assert_int_equal(T.n_peers, 3);
}

static void a_changed_file_that_is_broken_changes_nothing(void **state)
{
    struct world *w = *state;

    connect_with(KEY_A, KEY_A);
    write_keys(&T.server, "00112233\n");
    assert_int_equal(unlink(T.client.path), 0);
    sh_wire_close(sh_link_wire(w->a.link));
    UNTIL(w, w->a.n_up == 2 && T.n_peers == 2);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up_tls, tear_down_tls)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_peer_may_change_its_keys),
        TEST(large_frames_survive_partial_records),
        TEST(what_the_socket_does_not_take_follows_by_itself),
        TEST(many_small_frames_keep_their_order),
        TEST(a_peer_that_does_not_read_is_closed),
        TEST(one_that_is_finished_says_all_that_waits),
        TEST(one_that_is_finished_says_all_that_is_encrypted),
        TEST(descriptors_stay_on_this_host),
        TEST(what_is_said_in_the_callbacks_of_the_opening_arrives),
        TEST(a_unix_socket_needs_no_key),
        TEST(a_key_is_replaced_without_a_restart),
        TEST(a_changed_file_that_is_broken_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
