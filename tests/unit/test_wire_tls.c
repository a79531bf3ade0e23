/* test_wire_tls.c - without it, somebody without our key could become a peer, read what two of ours
 * say, or hold the places of those who have the key. */
/* link: -Wl,--wrap=recv */
#include "tests/unit/tls_test.h"

#define N_IDLE 80

static int n_reads; /* calls of recv() */

ssize_t __real_recv(int fd, void *p, size_t n, int flags);
ssize_t __wrap_recv(int fd, void *p, size_t n, int flags);

ssize_t __wrap_recv(int fd, void *p, size_t n, int flags)
{
    n_reads++;
    return __real_recv(fd, p, n, flags);
}

/* What a client of ours says first. */
static size_t first_words(const char *keys, unsigned char *p, size_t size)
{
    int listener, fd = -1, n = 0;

    assert_ok(sh_wire_listen("tcp:127.0.0.1:0", &listener, NULL));
    start_link(keys, sh_wire_port(listener));
    UNTIL(T.w, (fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0);
    UNTIL(T.w, (n = (int)recv(fd, p, size, MSG_DONTWAIT)) > 0);
    sh_link_free(T.w->a.link);
    T.w->a.link = NULL;
    close(fd);
    close(listener);
    return (size_t)n;
}

/* ---------------------------------------------------------------- who is let in */

static void those_with_the_key_talk_both_ways(void **state)
{
    struct world *w = *state;
    struct sh_msg m;

    connect_with(KEY_A "\n", KEY_A);
    w->b.on_msg = DO_ECHO;
    for (uint64_t i = 1; i <= 500; i++) {
        m = ping(i);
        assert_ok(sh_wire_send(sh_link_wire(w->a.link), &m, NULL));
    }
    UNTIL(w, w->a.n_msgs == 500);
    assert_int_equal(w->b.n_msgs, 500);
    assert_false(w->a.out_of_order || w->b.out_of_order);
    assert_int_equal(noted("server", "ok"), 1);
    assert_int_equal(noted("client", "ok"), 1);
}

/* As without encryption. What else comes, such as a new session's ticket, comes before. */
static void a_message_that_comes_alone_costs_one_read(void **state)
{
    struct world *w = *state;
    struct sh_msg m;

    connect_with(KEY_A "\n", KEY_A);
    for (uint64_t i = 1; i <= 20; i++) {
        n_reads = i == 11 ? 0 : n_reads;
        m = ping(i);
        assert_ok(sh_wire_send(sh_link_wire(w->a.link), &m, NULL));
        UNTIL(w, w->b.n_msgs == (int)i);
    }
    assert_int_equal(n_reads, 10);
}

static void nobody_on_the_line_can_read_or_change_what_is_said(void **state)
{
    static const char SECRET[] = "this is what a tenant sent";
    struct world *w = *state;
    struct line l = {.piece = 65536, .damage_at = -1};
    struct sh_msg m = {.type = MSG_DATA_CHUNK, .u.data_chunk.bytes = {SECRET, sizeof(SECRET)}};
    unsigned char seen[4096];
    ssize_t n = 0;

    line_open(&l, KEY_A, KEY_A);
    CARRY(&l, w->a.n_up == 1 && T.n_peers == 1);
    assert_ok(sh_wire_send(sh_link_wire(w->a.link), &m, NULL));
    UNTIL(w, (n = recv(l.near, seen, sizeof(seen), MSG_DONTWAIT)) > (ssize_t)sizeof(SECRET));
    assert_null(memmem(seen, (size_t)n, SECRET, sizeof(SECRET)));
    seen[20] ^= 1;
    assert_int_equal(send(l.far, seen, (size_t)n, 0), n);
    UNTIL(w, w->b.n_closed == 1);
    assert_int_equal(w->b.n_msgs, 0);
    assert_has(w->b.why.msg, "cannot be decrypted");
    line_close(&l);
}

static void another_key_is_refused(void **state)
{
    struct world *w = *state;

    start_listening(KEY_A);
    start_link(KEY_B, T.port);
    UNTIL(w, noted("client", "refused") >= 2); /* it tries again */
    assert_true(noted("server", "wrong_key") >= 2);
    assert_int_equal(w->a.n_up, 0);
    assert_int_equal(w->a.n_closed, 0);
    assert_int_equal(T.n_peers, 0);
    assert_null(sh_link_wire(w->a.link));
}

/* It knows the name of a key, which travels in clear, but not the key. */
static void the_name_of_a_key_is_not_enough(void **state)
{
    unsigned char p[4096];
    size_t n = first_words(KEY_A, p, sizeof(p));
    int fd;

    start_listening(KEY_A);
    fd = connect_raw(T.port);
    p[n - 1] ^= 1; /* the proof is the last of it */
    assert_int_equal(write(fd, p, n), (ssize_t)n);
    UNTIL(T.w, noted("server", "wrong_key") == 1);
    UNTIL(T.w, is_closed(fd));
    assert_int_equal(T.n_peers, 0);
    close(fd);
    (void)state;
}

/* Recorded and sent once more: the server's part is new, so the rest cannot be answered. */
static void what_was_recorded_is_of_no_use(void **state)
{
    unsigned char p[4096];
    size_t n = first_words(KEY_A, p, sizeof(p));
    int fd;

    sh_clock_fake(1000 * MS, 0);
    start_listening(KEY_A);
    fd = connect_raw(T.port);
    assert_int_equal(write(fd, p, n), (ssize_t)n);
    for (int i = 0; i < 70; i++) {
        assert_ok(sh_loop_once(T.w->loop, MS, NULL));
        sh_clock_advance(100 * MS);
    }
    assert_int_equal(noted("server", "timeout"), 1);
    assert_int_equal(T.n_peers, 0);
    close(fd);
    (void)state;
}

static void a_peer_without_a_key_is_refused(void **state)
{
    struct world *w = *state;
    struct sh_msg m = ping(1);

    start_listening(KEY_A);
    w->a.on_up = DO_NOTHING;
    start_link(NULL, T.port);
    UNTIL(w, w->a.n_up == 1);
    assert_ok(sh_wire_send(sh_link_wire(w->a.link), &m, NULL));
    UNTIL(w, w->a.n_closed == 1);
    assert_int_equal(noted("server", "plaintext"), 1);
    assert_int_equal(T.n_peers, 0);
}

static void a_port_without_a_key_refuses_one_with(void **state)
{
    struct world *w = *state;

    start_listening(NULL);
    start_link(KEY_A, T.port);
    UNTIL(w, w->b.n_closed >= 1);
    assert_has(w->b.why.msg, "speaks TLS");
    UNTIL(w, noted("client", "closed") >= 1);
    assert_int_equal(w->a.n_up, 0);
    assert_int_equal(w->b.n_msgs, 0);
}

static void an_answer_that_is_not_encrypted_is_refused(void **state)
{
    struct world *w = *state;
    struct sh_msg m = ping(1);
    int listener, fd = -1;

    assert_ok(sh_wire_listen("tcp:127.0.0.1:0", &listener, NULL));
    start_link(KEY_A, sh_wire_port(listener));
    UNTIL(w, (fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0);
    assert_ok(sh_wire_write_blocking(fd, &m, NULL, 0, NULL));
    UNTIL(w, noted("client", "plaintext") == 1);
    assert_int_equal(w->a.n_up + w->a.n_msgs, 0);
    close(fd);
    close(listener);
}

static ssize_t push_to_fd(gnutls_transport_ptr_t p, const void *d, size_t n)
{
    return write((int)(intptr_t)p, d, n);
}

static void tls_without_our_key_is_refused(void **state)
{
    gnutls_certificate_credentials_t none;
    gnutls_session_t s;
    int fd;

    start_listening(KEY_A);
    fd = connect_raw(T.port);
    gnutls_certificate_allocate_credentials(&none);
    assert_int_equal(gnutls_init(&s, GNUTLS_CLIENT | GNUTLS_NONBLOCK), 0);
    gnutls_set_default_priority(s);
    gnutls_credentials_set(s, GNUTLS_CRD_CERTIFICATE, none);
    gnutls_transport_set_int(s, fd);
    gnutls_transport_set_ptr(s, (gnutls_transport_ptr_t)(intptr_t)fd);
    gnutls_transport_set_push_function(s, push_to_fd);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    assert_int_equal(gnutls_handshake(s), GNUTLS_E_AGAIN);
    UNTIL(T.w, noted("server", "no_key") == 1);
    assert_int_equal(T.n_peers, 0);
    gnutls_deinit(s);
    gnutls_certificate_free_credentials(none);
    close(fd);
    (void)state;
}

/* Without it who learns the key later could read what he recorded. */
static void a_key_exchange_is_always_part_of_it(void **state)
{
    struct by_hand c;

    start_listening(KEY_A);
    hand_open(&c); /* prefers what the server does; it would go without too */
    assert_int_equal(gnutls_kx_get(c.s), GNUTLS_KX_ECDHE_PSK);
    assert_int_equal(gnutls_protocol_get_version(c.s), GNUTLS_TLS1_3);
    hand_close(&c);
    hand_begin(&c, "+PSK"); /* only without */
    UNTIL(T.w, gnutls_handshake(c.s) == GNUTLS_E_FATAL_ALERT_RECEIVED);
    assert_int_equal(T.n_peers, 1);
    hand_close(&c);
    (void)state;
}

static void a_peer_that_the_program_refuses_is_closed(void **state)
{
    struct world *w = *state;

    start_listening(KEY_A);
    T.refuses = true;
    start_link(KEY_A, T.port);
    UNTIL(w, w->a.n_closed == 1);
    w->b.w = NULL;
}

/* ---------------------------------------------------------------- handshakes that do not end */

static void a_handshake_may_come_byte_by_byte(void **state)
{
    struct world *w = *state;
    struct line l = {.piece = 1, .damage_at = -1};
    struct sh_msg m = ping(1);

    line_open(&l, KEY_A, KEY_A);
    CARRY(&l, w->a.n_up == 1 && T.n_peers == 1);
    assert_ok(sh_wire_send(sh_link_wire(w->a.link), &m, NULL));
    CARRY(&l, w->b.n_msgs == 1);
    assert_int_equal(w->b.n_msgs, 1);
    line_close(&l);
}

static void one_that_is_cut_off_is_closed_at_once(void **state)
{
    unsigned char p[4096];
    size_t n = first_words(KEY_A, p, sizeof(p));
    int tries = 0;

    start_listening(KEY_A);
    for (size_t i = 0; i <= n; i += 7, tries++) {
        int fd = connect_raw(T.port);

        assert_int_equal(write(fd, p, i), (ssize_t)i);
        close(fd);
        UNTIL(T.w, noted("server", "closed") == tries + 1);
    }
    assert_int_equal(T.n_peers, 0);
    (void)state;
}

static void one_that_stops_is_closed_in_time(void **state)
{
    unsigned char p[4096];
    size_t n = first_words(KEY_A, p, sizeof(p));
    int silent, half, slow, sent = 0;

    sh_clock_fake(1000 * MS, 0);
    start_listening(KEY_A);
    silent = connect_raw(T.port);
    half = connect_raw(T.port);
    slow = connect_raw(T.port);
    assert_int_equal(write(half, p, n / 2), (ssize_t)(n / 2));
    for (int i = 0; i < 49; i++) { /* one byte each 100 ms holds it no longer */
        sent += write(slow, p + i, 1) == 1;
        assert_ok(sh_loop_once(T.w->loop, MS, NULL));
        sh_clock_advance(100 * MS);
    }
    assert_int_equal(sent, 49);
    assert_int_equal(noted("server", "timeout"), 0);
    for (int i = 0; i < 10; i++) {
        assert_ok(sh_loop_once(T.w->loop, MS, NULL));
        sh_clock_advance(100 * MS);
    }
    assert_int_equal(noted("server", "timeout"), 3);
    assert_true(is_closed(silent) && is_closed(half) && is_closed(slow));
    assert_int_equal(T.n_peers, 0);
    close(silent);
    close(half);
    close(slow);
    (void)state;
}

static void strangers_cannot_take_all_places(void **state)
{
    struct world *w = *state;
    int fds[N_IDLE];

    start_listening(KEY_A);
    for (int i = 0; i < N_IDLE; i++) {
        fds[i] = connect_raw(T.port);
        assert_ok(sh_loop_once(w->loop, 0, NULL));
    }
    UNTIL(w, noted("server", "too_many") == N_IDLE - 64);
    assert_true(is_closed(fds[0]) && !is_closed(fds[N_IDLE - 1]));
    start_link(KEY_A, T.port);
    UNTIL(w, w->a.n_up == 1 && T.n_peers == 1);
    for (int i = 0; i < N_IDLE; i++)
        close(fds[i]);
}

/* A client that says one thing and goes: the end of its handshake, its message and the end of the
 * connection lie in the socket together. */
static void a_last_word_may_come_with_the_handshake(void **state)
{
    struct world *w = *state;
    struct by_hand c;

    start_listening(KEY_A);
    hand_open(&c);
    hand_ping(&c, 1);
    assert_int_equal(shutdown(c.fd, SHUT_WR), 0);
    UNTIL(w, w->b.n_closed == 1);
    assert_int_equal(w->b.n_msgs, 1);
    assert_has(w->b.why.msg, "the peer closed the connection");
    hand_close(&c);
}

static void a_port_may_close_while_handshakes_are_not_over(void **state)
{
    int fd;

    start_listening(KEY_A);
    fd = connect_raw(T.port);
    for (int i = 0; i < 5; i++)
        assert_ok(sh_loop_once(T.w->loop, MS, NULL));
    sh_listen_free(T.listen);
    T.listen = NULL;
    UNTIL(T.w, is_closed(fd));
    close(fd);
    (void)state;
}

/* Noise, and a true beginning with a byte of it changed: nobody becomes a peer, nothing breaks. */
static void noise_before_the_end_of_a_handshake_does_nothing(void **state)
{
    unsigned char p[4096], q[4096];
    size_t n = first_words(KEY_A, p, sizeof(p));
    uint32_t x = 20161;

    start_listening(KEY_A);
    for (int i = 0; i < 600; i++) {
        int fd = connect_raw(T.port);
        size_t len = i % 3 == 0 ? sh_test_random(&x) % sizeof(q) : n;

        memcpy(q, p, n);
        for (size_t k = 0; i % 3 == 0 && k < len; k++)
            q[k] = k < 3 && i % 2 ? p[k] : (unsigned char)sh_test_random(&x);
        if (i % 3 == 1)
            q[sh_test_random(&x) % n] ^= (unsigned char)(1 + sh_test_random(&x) % 255);
        if (i % 3 == 2)
            memset(q + sh_test_random(&x) % n, (int)sh_test_random(&x), 1 + sh_test_random(&x) % 8);
        assert_true(write(fd, q, len) >= 0);
        for (int k = 0; k < 3; k++)
            assert_ok(sh_loop_once(T.w->loop, 0, NULL));
        (void)!write(fd, p, n);
        close(fd);
        for (int k = 0; k < 3; k++)
            assert_ok(sh_loop_once(T.w->loop, 0, NULL));
    }
    assert_int_equal(T.n_peers, 0);
    start_link(KEY_A, T.port);
    UNTIL(T.w, T.w->a.n_up == 1 && T.n_peers == 1);
    (void)state;
}

/* Each byte of the client's part of a true handshake, one after the other. */
static void a_changed_byte_ends_a_handshake(void **state)
{
    struct world *w = *state;

    for (int64_t at = 0; at < 300; at += 11) {
        struct line l = {.piece = 65536, .damage_at = at};

        line_open(&l, KEY_A, KEY_A);
        CARRY(&l, T.n_peers > 0);
        assert_int_equal(T.n_peers, 0);
        line_close(&l);
        sh_link_free(w->a.link);
        w->a.link = NULL;
        sh_listen_free(T.listen);
        sh_wire_keys_free(T.server.keys);
        T.listen = NULL;
        T.server.keys = NULL;
    }
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up_tls, tear_down_tls)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(those_with_the_key_talk_both_ways),
        TEST(a_message_that_comes_alone_costs_one_read),
        TEST(nobody_on_the_line_can_read_or_change_what_is_said),
        TEST(another_key_is_refused),
        TEST(the_name_of_a_key_is_not_enough),
        TEST(what_was_recorded_is_of_no_use),
        TEST(a_peer_without_a_key_is_refused),
        TEST(a_port_without_a_key_refuses_one_with),
        TEST(an_answer_that_is_not_encrypted_is_refused),
        TEST(tls_without_our_key_is_refused),
        TEST(a_key_exchange_is_always_part_of_it),
        TEST(a_peer_that_the_program_refuses_is_closed),
        TEST(a_handshake_may_come_byte_by_byte),
        TEST(one_that_is_cut_off_is_closed_at_once),
        TEST(one_that_stops_is_closed_in_time),
        TEST(strangers_cannot_take_all_places),
        TEST(a_last_word_may_come_with_the_handshake),
        TEST(a_port_may_close_while_handshakes_are_not_over),
        TEST(noise_before_the_end_of_a_handshake_does_nothing),
        TEST(a_changed_byte_ends_a_handshake),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
