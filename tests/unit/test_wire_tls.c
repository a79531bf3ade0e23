/* test_wire_tls.c - without it, somebody without our key could become a peer, read what two of ours
 * say, or hold the places of those who have the key; and a handshake, a record or a frame that comes
 * in pieces could lose bytes. */
#include "common/metrics.h"
#include "common/wire_keys.h"
#include "tests/unit/wire_test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <gnutls/gnutls.h>

#define KEY_A "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define KEY_B "Lc0cgcLfQ9aYuvmDsyAMeVEFd0jyuV4oKXqPZbg2bUc=" /* base64 */
#define N_IDLE 80

struct side {
    char path[128];
    struct sh_wire_key_conf conf;
    struct sh_wire_keys *keys;
};

static struct {
    struct world *w;
    struct side server, client;
    struct sh_listen *listen;
    int port, n_peers;
    bool refuses;
} T;

/* ---------------------------------------------------------------- fixture */

static void write_keys(const struct side *s, const char *text)
{
    sh_test_write_file(s->path, text, strlen(text));
}

static void open_keys(struct side *s, const char *name, const char *text)
{
    snprintf(s->path, sizeof(s->path), "%s/%s", T.w->dir, name);
    if (text)
        write_keys(s, text);
    s->conf = (struct sh_wire_key_conf){.key_file = text ? s->path : NULL};
    assert_ok(sh_wire_keys_open(&s->conf, (const char *const[]){NULL}, &s->keys, NULL));
}

static bool on_peer(struct sh_wire *w, struct sh_wire_handler *h, void *arg)
{
    (void)arg;
    T.n_peers++;
    T.w->b.w = w;
    *h = (struct sh_wire_handler){.on_msg = on_msg, .on_close = on_close, .arg = &T.w->b};
    return !T.refuses;
}

static int set_up_tls(void **state)
{
    memset(&T, 0, sizeof(T));
    set_up(state);
    T.w = *state;
    sh_metrics_reset();
    return 0;
}

static int tear_down_tls(void **state)
{
    sh_clock_real();
    sh_link_free(T.w->a.link);
    T.w->a.link = NULL;
    sh_wire_close(T.w->b.w);
    T.w->b.w = NULL;
    sh_listen_free(T.listen);
    sh_wire_keys_free(T.server.keys);
    sh_wire_keys_free(T.client.keys);
    return tear_down(state);
}

static int free_port(void)
{
    int fd, port;

    assert_ok(sh_wire_listen("tcp:127.0.0.1:0", &fd, NULL));
    port = sh_wire_port(fd);
    close(fd);
    return port;
}

static void start_listening(const char *keys)
{
    struct sh_listen_handler h = {.on_peer = on_peer};
    char addr[64];

    open_keys(&T.server, "server", keys);
    h.keys = T.server.keys;
    T.port = free_port();
    snprintf(addr, sizeof(addr), "tcp:127.0.0.1:%d", T.port);
    assert_ok(sh_listen_new(T.w->loop, addr, &h, &T.listen, NULL));
}

static void start_link(const char *keys, int port)
{
    struct sh_link_handler h = {
        .on_up = on_up, .on_msg = on_msg, .on_down = on_close, .arg = &T.w->a};
    char addr[64];

    if (!T.client.keys)
        open_keys(&T.client, "client", keys);
    h.keys = T.client.keys;
    snprintf(addr, sizeof(addr), "tcp:127.0.0.1:%d", port);
    assert_ok(sh_link_new(T.w->loop, addr, &h, &T.w->a.link, NULL));
}

static void connect_with(const char *server, const char *client)
{
    start_listening(server);
    start_link(client, T.port);
    UNTIL(T.w, T.w->a.n_up == 1 && T.n_peers == 1);
}

/* How often handshakes ended like this. */
static int noted(const char *side, const char *result)
{
    char series[128];
    struct sh_buf b;
    const char *at;
    int n = 0;

    sh_buf_init(&b, 1 << 20);
    assert_ok(sh_metrics_render('s', &b, NULL));
    snprintf(series, sizeof(series), "\nshunt_link_handshakes_total{side=\"%s\",result=\"%s\"} ",
             side, result);
    at = strstr(b.data, series);
    if (at)
        n = (int)strtol(at + strlen(series), NULL, 10);
    sh_buf_fini(&b);
    return n;
}

static int connect_raw(int port)
{
    struct sockaddr_in sa = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    return fd;
}

static bool is_closed(int fd)
{
    char c[256];
    ssize_t n;

    while ((n = recv(fd, c, sizeof(c), MSG_DONTWAIT)) > 0)
        ;
    return n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
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

/* ---------------------------------------------------------------- a line between the two */

struct line {
    int listener, near, far; /* near: the link's side */
    size_t piece;            /* bytes a turn */
    int64_t damage_at;       /* this byte towards the server is changed; -1: none */
    int64_t there;           /* bytes that went */
};

static int move(struct line *l, int from, int to, bool is_there)
{
    unsigned char p[65536];
    ssize_t n = recv(from, p, SH_MIN(l->piece, sizeof(p)), MSG_DONTWAIT);

    if (n <= 0)
        return n == 0 ? -1 : 0;
    if (is_there) {
        if (l->damage_at >= l->there && l->damage_at < l->there + n)
            p[l->damage_at - l->there] ^= 1;
        l->there += n;
    }
    assert_int_equal(send(to, p, (size_t)n, MSG_NOSIGNAL), n);
    return 1;
}

static void line_open(struct line *l, const char *server, const char *client)
{
    l->near = l->far = -1;
    start_listening(server);
    assert_ok(sh_wire_listen("tcp:127.0.0.1:0", &l->listener, NULL));
    start_link(client, sh_wire_port(l->listener));
    UNTIL(T.w, (l->near = accept4(l->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0);
    l->far = connect_raw(T.port);
}

static void line_close(struct line *l)
{
    close(l->listener);
    close(l->near);
    close(l->far);
}

/* Carries until cond; or until one side hangs up. */
#define CARRY(l, cond)                                                                             \
    do {                                                                                           \
        for (int turns_ = 0; !(cond); turns_++) {                                                  \
            if (turns_ > 200000)                                                                   \
                fail_msg("never came true: %s", #cond);                                            \
            assert_ok(sh_loop_once(T.w->loop, 0, NULL));                                           \
            if (move(l, (l)->near, (l)->far, true) < 0 || move(l, (l)->far, (l)->near, false) < 0) \
                break;                                                                             \
        }                                                                                          \
    } while (0)

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

static uint32_t next_random(uint32_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 17;
    *x ^= *x << 5;
    return *x;
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
        size_t len = i % 3 == 0 ? next_random(&x) % sizeof(q) : n;

        memcpy(q, p, n);
        for (size_t k = 0; i % 3 == 0 && k < len; k++)
            q[k] = k < 3 && i % 2 ? p[k] : (unsigned char)next_random(&x);
        if (i % 3 == 1)
            q[next_random(&x) % n] ^= (unsigned char)(1 + next_random(&x) % 255);
        if (i % 3 == 2)
            memset(q + next_random(&x) % n, (int)next_random(&x), 1 + next_random(&x) % 8);
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

static void one_that_is_finished_says_all(void **state)
{
    static unsigned char buf[6000000];
    struct world *w = *state;
    struct sh_msg m = chunk(1, buf, sizeof(buf));

    connect_with(KEY_A, KEY_A);
    assert_ok(sh_wire_send(w->b.w, &m, NULL));
    sh_wire_finish(w->b.w);
    UNTIL(w, w->a.n_closed == 1 && w->b.n_closed == 1);
    assert_int_equal(w->a.bytes, sizeof(buf));
    assert_int_equal(w->b.why.rc, SH_E_CANCELLED);
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

/* ---------------------------------------------------------------- keys and addresses */

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

static void refuse_file(const char *text, mode_t mode, const char *why)
{
    struct sh_wire_key_conf conf = {.key_file = T.server.path};
    struct sh_wire_keys *k;
    struct sh_err err = {0};

    write_keys(&T.server, text);
    assert_int_equal(chmod(T.server.path, mode), 0);
    assert_fails(sh_wire_keys_open(&conf, (const char *const[]){NULL}, &k, &err), SH_E_INVALID,
                 &err, why);
    assert_has(err.msg, T.server.path);
    assert_has_not(err.msg, "001122");
    assert_null(k);
    unlink(T.server.path);
}

static void a_file_that_is_no_key_is_refused(void **state)
{
    struct sh_wire_key_conf conf = {.key_file = T.server.path};
    struct sh_wire_keys *k;
    struct sh_err err = {0};

    (void)state;
    snprintf(T.server.path, sizeof(T.server.path), "%s/k", T.w->dir);
    conf.key_file = T.server.path;
    assert_fails(sh_wire_keys_open(&conf, (const char *const[]){NULL}, &k, &err), SH_E_INVALID,
                 &err, "could not be opened");
    refuse_file("", 0600, "no key in it");
    refuse_file("# nothing\n\n", 0600, "openssl rand -hex 32");
    refuse_file("00112233445566778899aabbccddeeff00112233445566778899aabbccddee\n", 0600, "32 to");
    refuse_file("00112233445566778899aabbccddeeff00112233445566778899aabbccddeef\n", 0600, "32 to");
    refuse_file("hello\n", 0600, "32 to");
    refuse_file(KEY_A "\n" KEY_B "\n" KEY_A "\n", 0600, "more than 2 keys");
    refuse_file(KEY_A, 0604, "chmod 600");
    refuse_file(KEY_A, 0660, "chmod 600");
    refuse_file(KEY_A, 0644, "mode is 0644");
}

static void a_good_file_is_read(void **state)
{
    (void)state;
    open_keys(&T.server, "k", "  # leading blanks end a line\n" KEY_A "\r\n");
    assert_int_equal(chmod(T.server.path, 0640), 0);
    assert_ok(sh_wire_keys_open(&T.server.conf, (const char *const[]){NULL}, &T.client.keys, NULL));
}

static void other_hosts_need_a_key(void **state)
{
    static const char *const FREE[] = {
        "unix:/run/a",       "tcp:127.0.0.1:1",         "tcp:127.9.9.9:1",
        "tcp:[::1]:1",       "tcp:localhost:1",         "tcp:[::ffff:127.0.0.1]:1",
        "tcp:a.localhost:1", "unix:/a,tcp:127.0.0.1:2", ""};
    static const char *const NOT[] = {
        "tcp:10.0.0.1:1",          "tcp:*:1",           "tcp::1",
        "tcp:0.0.0.0:1",           "tcp:[::]:1",        "tcp:host.example:1",
        "tcp:localhost.example:1", "tcp:mylocalhost:1", "unix:/a,tcp:10.0.0.1:2",
        "tcp:[::ffff:10.0.0.1]:1"};
    struct sh_wire_key_conf none = {.key_file = NULL}, open = {.plaintext = true};
    struct sh_link_handler h = {.on_up = on_up};
    struct sh_wire_keys *k = NULL;
    struct sh_link *link;
    struct sh_listen *port;
    struct sh_err err;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(FREE); i++) {
        assert_ok(sh_wire_keys_open(&none, (const char *const[]){FREE[i], NULL}, &k, NULL));
        sh_wire_keys_free(k);
    }
    open_keys(&T.server, "k", KEY_A);
    for (size_t i = 0; i < SH_ARRAY_LEN(NOT); i++) {
        err = (struct sh_err){0};
        assert_fails(
            sh_wire_keys_open(&none, (const char *const[]){"unix:/a", NOT[i], NULL}, &k, &err),
            SH_E_INVALID, &err, "--link-key-file");
        assert_ok(sh_wire_keys_open(&open, (const char *const[]){NOT[i], NULL}, &k, NULL));
        sh_wire_keys_free(k);
        assert_ok(sh_wire_keys_open(&T.server.conf, (const char *const[]){NOT[i], NULL}, &k, NULL));
        sh_wire_keys_free(k);
    }
    /* An address that is heard of later, and a port, are held to the same. */
    err = (struct sh_err){0};
    assert_fails(sh_link_new(T.w->loop, "tcp:10.0.0.1:7", &h, &link, &err), SH_E_INVALID, &err,
                 "--link-key-file");
    err = (struct sh_err){0};
    assert_fails(sh_listen_new(T.w->loop, "tcp:0.0.0.0:0",
                               &(struct sh_listen_handler){.on_peer = on_peer}, &port, &err),
                 SH_E_INVALID, &err, "tcp:0.0.0.0:0");
    open.key_file = T.server.path;
    err = (struct sh_err){0};
    assert_fails(sh_wire_keys_open(&open, (const char *const[]){NULL}, &k, &err), SH_E_INVALID,
                 &err, "contradict");
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up_tls, tear_down_tls)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(those_with_the_key_talk_both_ways),
        TEST(nobody_on_the_line_can_read_or_change_what_is_said),
        TEST(another_key_is_refused),
        TEST(the_name_of_a_key_is_not_enough),
        TEST(what_was_recorded_is_of_no_use),
        TEST(a_peer_without_a_key_is_refused),
        TEST(a_port_without_a_key_refuses_one_with),
        TEST(an_answer_that_is_not_encrypted_is_refused),
        TEST(tls_without_our_key_is_refused),
        TEST(a_peer_that_the_program_refuses_is_closed),
        TEST(a_handshake_may_come_byte_by_byte),
        TEST(one_that_is_cut_off_is_closed_at_once),
        TEST(one_that_stops_is_closed_in_time),
        TEST(strangers_cannot_take_all_places),
        TEST(a_port_may_close_while_handshakes_are_not_over),
        TEST(noise_before_the_end_of_a_handshake_does_nothing),
        TEST(a_changed_byte_ends_a_handshake),
        TEST(large_frames_survive_partial_records),
        TEST(many_small_frames_keep_their_order),
        TEST(a_peer_that_does_not_read_is_closed),
        TEST(one_that_is_finished_says_all),
        TEST(descriptors_stay_on_this_host),
        TEST(what_is_said_in_the_callbacks_of_the_opening_arrives),
        TEST(a_unix_socket_needs_no_key),
        TEST(a_key_is_replaced_without_a_restart),
        TEST(a_changed_file_that_is_broken_changes_nothing),
        TEST(a_file_that_is_no_key_is_refused),
        TEST(a_good_file_is_read),
        TEST(other_hosts_need_a_key),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
