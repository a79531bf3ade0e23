/* tls_test.h - a port and a link with keys, a line between the two, and a client by hand; for
 * test_wire_tls*.c. */
#ifndef SH_TESTS_UNIT_TLS_TEST_H
#define SH_TESTS_UNIT_TLS_TEST_H

#include "common/hash.h"
#include "common/metrics.h"
#include "common/wire_keys.h"
#include "tests/unit/wire_test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <signal.h>

#define KEY_A "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define KEY_B "Lc0cgcLfQ9aYuvmDsyAMeVEFd0jyuV4oKXqPZbg2bUc=" /* base64 */

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

static inline void write_keys(const struct side *s, const char *text)
{
    sh_test_write_file(s->path, text, strlen(text));
}

static inline void open_keys(struct side *s, const char *name, const char *text)
{
    snprintf(s->path, sizeof(s->path), "%s/%s", T.w->dir, name);
    if (text)
        write_keys(s, text);
    s->conf = (struct sh_wire_key_conf){.key_file = text ? s->path : NULL};
    assert_ok(sh_wire_keys_open(&s->conf, (const char *const[]){NULL}, &s->keys, NULL));
}

static inline bool on_peer(struct sh_wire *w, struct sh_wire_handler *h, void *arg)
{
    (void)arg;
    T.n_peers++;
    T.w->b.w = w;
    *h = (struct sh_wire_handler){.on_msg = on_msg, .on_close = on_close, .arg = &T.w->b};
    return !T.refuses;
}

static inline int set_up_tls(void **state)
{
    memset(&T, 0, sizeof(T));
    set_up(state);
    T.w = *state;
    sh_metrics_reset();
    signal(SIGPIPE, SIG_IGN);
    return 0;
}

static inline int tear_down_tls(void **state)
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

static inline int free_port(void)
{
    int fd, port;

    assert_ok(sh_wire_listen("tcp:127.0.0.1:0", &fd, NULL));
    port = sh_wire_port(fd);
    close(fd);
    return port;
}

/* Peers that are accepted inherit it: the socket then takes less at once than is encrypted. */
static inline void shrink_buffers(void)
{
    static const int bytes = 100000;

    for (int fd = 3; fd < 64; fd++) {
        int listens = 0;
        socklen_t n = sizeof(listens);

        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n) == 0 && listens)
            setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    }
}

static inline void start_listening(const char *keys)
{
    struct sh_listen_handler h = {.on_peer = on_peer};
    char addr[64];

    open_keys(&T.server, "server", keys);
    h.keys = T.server.keys;
    T.port = free_port();
    snprintf(addr, sizeof(addr), "tcp:127.0.0.1:%d", T.port);
    assert_ok(sh_listen_new(T.w->loop, addr, &h, &T.listen, NULL));
}

static inline void start_link(const char *keys, int port)
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

static inline void connect_with(const char *server, const char *client)
{
    start_listening(server);
    shrink_buffers();
    start_link(client, T.port);
    UNTIL(T.w, T.w->a.n_up == 1 && T.n_peers == 1);
}

/* How often handshakes ended like this. */
static inline int noted(const char *side, const char *result)
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

static inline int connect_raw(int port)
{
    struct sockaddr_in sa = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    return fd;
}

static inline bool is_closed(int fd)
{
    char c[256];
    ssize_t n;

    while ((n = recv(fd, c, sizeof(c), MSG_DONTWAIT)) > 0)
        ;
    return n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

/* ---------------------------------------------------------------- a line between the two */

struct line {
    int listener, near, far; /* near: the link's side */
    size_t piece;            /* bytes a turn */
    int64_t damage_at;       /* this byte towards the server is changed; -1: none */
    int64_t there;           /* bytes that went */
};

static inline int move(struct line *l, int from, int to, bool is_there)
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

static inline void line_open(struct line *l, const char *server, const char *client)
{
    l->near = l->far = -1;
    start_listening(server);
    assert_ok(sh_wire_listen("tcp:127.0.0.1:0", &l->listener, NULL));
    start_link(client, sh_wire_port(l->listener));
    UNTIL(T.w, (l->near = accept4(l->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0);
    l->far = connect_raw(T.port);
}

static inline void line_close(struct line *l)
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

/* ---------------------------------------------------------------- a client by hand */

struct by_hand {
    gnutls_session_t s;
    gnutls_psk_client_credentials_t psk;
    int fd;
};

/* As wire_keys.c derives both from KEY_A: written down here, they cannot change unnoticed. */
static inline void hand_begin(struct by_hand *c, const char *kx)
{
    static const char ID[] = "shunt link identity 1", PSK[] = "shunt link key 1";
    uint8_t raw[32], digest[SH_SHA256_BYTES];
    char id[17], priority[80];
    gnutls_datum_t name = {(unsigned char *)id, 16}, key = {digest, sizeof(digest)};

    assert_ok(sh_unhex(KEY_A, raw, sizeof(raw), NULL));
    assert_ok(sh_hmac_sha256(raw, sizeof(raw), ID, sizeof(ID) - 1, digest, NULL));
    sh_hex(digest, 8, id);
    assert_ok(sh_hmac_sha256(raw, sizeof(raw), PSK, sizeof(PSK) - 1, digest, NULL));
    c->fd = connect_raw(T.port);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    gnutls_psk_allocate_client_credentials(&c->psk);
    gnutls_psk_set_client_credentials2(c->psk, &name, &key, GNUTLS_PSK_KEY_RAW);
    assert_int_equal(gnutls_init(&c->s, GNUTLS_CLIENT | GNUTLS_NONBLOCK), 0);
    snprintf(priority, sizeof(priority), "NORMAL:-VERS-ALL:+VERS-TLS1.3:-KX-ALL:%s", kx);
    assert_int_equal(gnutls_priority_set_direct(c->s, priority, NULL), 0);
    gnutls_credentials_set(c->s, GNUTLS_CRD_PSK, c->psk);
    gnutls_transport_set_int(c->s, c->fd);
}

static inline void hand_open(struct by_hand *c)
{
    hand_begin(c, "+ECDHE-PSK:+PSK");
    UNTIL(T.w, gnutls_handshake(c->s) == 0);
}

static inline void hand_close(struct by_hand *c)
{
    gnutls_deinit(c->s);
    gnutls_psk_free_client_credentials(c->psk);
    close(c->fd);
}

static inline void hand_ping(struct by_hand *c, unsigned char cookie)
{
    unsigned char frame[16] = {8, 0, 0, 0, SH_WIRE_VERSION, 0, MSG_PING, 0, cookie};

    assert_int_equal(gnutls_record_send(c->s, frame, sizeof(frame)), sizeof(frame));
}

static inline void hand_read(struct by_hand *c, void *p, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t r = -1;

        UNTIL(T.w, (r = gnutls_record_recv(c->s, (char *)p + done, n - done)) >= 0);
        assert_true(r > 0);
        done += (size_t)r;
    }
}

#endif
