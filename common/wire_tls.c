/* wire_tls.c - TLS 1.3 with a shared key between the buffers of a wire and its socket.
 *
 * GnuTLS never sees the socket: it takes ciphertext from `in` and leaves it in `out`. So one read
 * of the wire is one recv() of many records, one write is one send(), and the wire's loop stays as
 * it is. After each read all complete records are decrypted; only the beginning of a record waits
 * here, for the socket to complete it.
 *
 * Key exchange is ECDHE-PSK: somebody who learns the key later cannot read recorded traffic. The
 * key's identity says which of the two keys it is. An identity that the server does not know, or a
 * wrong proof, ends the handshake before anything that the client says is believed. There are no
 * tickets and no early data.
 *
 * All processes share one key, so a stranger in between could lead a connection to another of our
 * processes than the intended one. The first message tells roles apart: no two kinds of ports
 * accept the same one.
 */
#include "common/mem.h"
#include "common/wire_int.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>

#define PRIORITY                                                                         \
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+AES-128-GCM:+CHACHA20-POLY1305:-KX-ALL:" \
    "+ECDHE-PSK:-GROUP-ALL:+GROUP-X25519:+GROUP-SECP256R1"
#define FILL_SHAKE ((size_t)16 << 10)
#define FILL_MAX ((size_t)2 << 20)
#define OUT_MANY ((size_t)256 << 10) /* goes to the socket before more is encrypted */
#define OUT_MAX ((size_t)1 << 20)

struct sh_wire__tls {
    struct sh_wire_keys *keys;
    int fd;
    bool is_client, begun, over; /* over: the handshake has ended, and that is noted */
    bool id_seen, id_unknown;
    char peer[NI_MAXHOST + NI_MAXSERV + 4];
    gnutls_session_t session;
    gnutls_psk_client_credentials_t client;
    gnutls_psk_server_credentials_t server;
    unsigned char *in; /* OWNED */
    size_t in_off, in_len, in_cap;
    struct sh_buf out;
    size_t out_off;
    unsigned char plain[SH_WIRE__RECORD]; /* small frames of one record */
};

/* ---------------------------------------------------------------- the socket */

static ssize_t on_push(gnutls_transport_ptr_t arg, const void *p, size_t n)
{
    struct sh_wire__tls *t = arg;

    if (!sh_buf_append(&t->out, p, n, NULL))
        return (ssize_t)n;
    gnutls_transport_set_errno(t->session, ENOMEM);
    return -1;
}

static ssize_t on_pull(gnutls_transport_ptr_t arg, void *p, size_t n)
{
    struct sh_wire__tls *t = arg;
    size_t part = SH_MIN(n, t->in_len - t->in_off);

    if (part == 0) {
        gnutls_transport_set_errno(t->session, EAGAIN);
        return -1;
    }
    memcpy(p, t->in + t->in_off, part);
    t->in_off += part;
    return (ssize_t)part;
}

int sh_wire__tls_fill(struct sh_wire__tls *t, size_t n, size_t *got, bool *eof, struct sh_err *err)
{
    ssize_t came;
    int rc;

    *got = 0;
    *eof = false;
    if (t->in_off > 0) {
        memmove(t->in, t->in + t->in_off, t->in_len - t->in_off);
        t->in_len -= t->in_off;
        t->in_off = 0;
    }
    rc = sh_grow(&t->in, &t->in_cap, t->in_len + n, 1, FILL_MAX, "encrypted bytes", err);
    if (rc)
        return rc;
    do
        came = recv(t->fd, t->in + t->in_len, n, MSG_DONTWAIT);
    while (came < 0 && errno == EINTR);
    if (came < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return SH_OK;
    if (came < 0)
        return SH_FAIL_ERRNO(err, SH_E_UNAVAILABLE, "the connection to the peer is lost");
    *got = (size_t)came;
    *eof = came == 0;
    t->in_len += *got;
    return SH_OK;
}

static int flush_out(struct sh_wire__tls *t, struct sh_err *err)
{
    while (sh_wire__tls_pending(t)) {
        ssize_t n = send(t->fd, t->out.data + t->out_off, t->out.len - t->out_off,
                         MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return SH_OK;
        if (n < 0)
            return SH_FAIL_ERRNO(err, SH_E_UNAVAILABLE, "the connection to the peer is lost");
        t->out_off += (size_t)n;
    }
    sh_buf_reset(&t->out);
    t->out_off = 0;
    return SH_OK;
}

bool sh_wire__tls_pending(const struct sh_wire__tls *t)
{
    return t->out_off < t->out.len;
}

/* ---------------------------------------------------------------- start and end */

static int fail_gnutls(struct sh_err *err, int e, const char *msg)
{
    int rc = SH_FAIL(err, e == GNUTLS_E_MEMORY_ERROR ? SH_E_NOMEM : SH_E_PROTO, "%s", msg);

    sh_err_detail(err, "gnutls: %s", gnutls_strerror(e));
    return rc;
}

/* Server: which key does the client name? */
static int on_identity(gnutls_session_t session, const gnutls_datum_t *id, gnutls_datum_t *out)
{
    struct sh_wire__tls *t = gnutls_session_get_ptr(session);
    size_t n;
    const struct sh_wire__key *keys = sh_wire__keys(t->keys, &n);

    t->id_seen = true;
    for (size_t i = 0; i < n; i++) {
        if (id->size != strlen(keys[i].id) || memcmp(id->data, keys[i].id, id->size) != 0)
            continue;
        out->data = gnutls_malloc(SH_WIRE__PSK_BYTES);
        if (!out->data)
            return -1;
        memcpy(out->data, keys[i].psk, SH_WIRE__PSK_BYTES);
        out->size = SH_WIRE__PSK_BYTES;
        return 0;
    }
    t->id_unknown = true;
    return -1;
}

static int set_client_key(struct sh_wire__tls *t)
{
    size_t n;
    const struct sh_wire__key *key = sh_wire__keys(t->keys, &n);
    gnutls_datum_t id = {(unsigned char *)(uintptr_t)key->id, (unsigned)strlen(key->id)};
    gnutls_datum_t psk = {(unsigned char *)(uintptr_t)key->psk, SH_WIRE__PSK_BYTES};
    int e = gnutls_psk_allocate_client_credentials(&t->client);

    if (e >= 0)
        e = gnutls_psk_set_client_credentials2(t->client, &id, &psk, GNUTLS_PSK_KEY_RAW);
    return e < 0 ? e : gnutls_credentials_set(t->session, GNUTLS_CRD_PSK, t->client);
}

static int set_server_keys(struct sh_wire__tls *t)
{
    int e = gnutls_psk_allocate_server_credentials(&t->server);

    if (e < 0)
        return e;
    gnutls_psk_set_server_credentials_function2(t->server, on_identity);
    return gnutls_credentials_set(t->session, GNUTLS_CRD_PSK, t->server);
}

static void name_peer(struct sh_wire__tls *t)
{
    struct sockaddr_storage sa = {0};
    socklen_t n = sizeof(sa);
    char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "?";

    if (getpeername(t->fd, (struct sockaddr *)&sa, &n) == 0)
        getnameinfo((struct sockaddr *)&sa, n, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(t->peer, sizeof(t->peer), strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
}

int sh_wire__tls_new(struct sh_wire_keys *keys, int fd, bool is_client, struct sh_wire__tls **out,
                     struct sh_err *err)
{
    struct sh_wire__tls *t = calloc(1, sizeof(*t));
    unsigned flags = GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL | GNUTLS_NO_TICKETS | GNUTLS_KEY_SHARE_TOP;
    int e;

    *out = NULL;
    if (!t)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a TLS session");
    t->keys = keys;
    t->fd = fd;
    t->is_client = is_client;
    sh_buf_init(&t->out, OUT_MAX);
    name_peer(t);
    e = gnutls_init(&t->session, flags | (is_client ? GNUTLS_CLIENT : GNUTLS_SERVER));
    if (e >= 0)
        e = gnutls_priority_set_direct(t->session, PRIORITY, NULL);
    if (e >= 0)
        e = is_client ? set_client_key(t) : set_server_keys(t);
    if (e < 0) {
        sh_wire__tls_free(t);
        return fail_gnutls(err, e, "could not start a TLS session");
    }
    gnutls_session_set_ptr(t->session, t);
    gnutls_transport_set_ptr(t->session, t);
    gnutls_transport_set_push_function(t->session, on_push);
    gnutls_transport_set_pull_function(t->session, on_pull);
    *out = t;
    return SH_OK;
}

void sh_wire__tls_free(struct sh_wire__tls *t)
{
    if (!t)
        return;
    if (t->session)
        gnutls_deinit(t->session);
    if (t->client)
        gnutls_psk_free_client_credentials(t->client);
    if (t->server)
        gnutls_psk_free_server_credentials(t->server);
    free(t->in);
    sh_buf_fini(&t->out);
    gnutls_memset(t->plain, 0, sizeof(t->plain));
    free(t);
}

/* ---------------------------------------------------------------- handshake */

void sh_wire__tls_give_up(struct sh_wire__tls *t, const char *result, const struct sh_err *why)
{
    if (!t->over)
        sh_wire__keys_note(t->keys, t->is_client, result, t->peer, why);
    t->over = true;
}

/* What a server tells a client that it refuses; GnuTLS knows no better than "internal error" for an
 * identity that nobody has. */
static void say_tls_why(struct sh_wire__tls *t, int e)
{
    if (gnutls_protocol_get_version(t->session) == GNUTLS_VERSION_UNKNOWN)
        return; /* it would look into a version that is not there */
    if (t->id_unknown)
        gnutls_alert_send(t->session, GNUTLS_AL_FATAL, GNUTLS_A_UNKNOWN_PSK_IDENTITY);
    else
        gnutls_alert_send_appropriate(t->session, e);
    flush_out(t, NULL);
}

static int refuse_handshake(struct sh_wire__tls *t, int e, struct sh_err *err)
{
    const char *result = "protocol", *msg = "the handshake with the peer failed";
    struct sh_err why = {0};

    if (e == GNUTLS_E_FATAL_ALERT_RECEIVED) {
        result = t->is_client ? "refused" : "protocol";
        msg = t->is_client ? "the peer does not accept the key of --link-key-file; is its file the "
                             "same?"
                           : "the peer gave the handshake up";
    } else if (t->id_seen && (t->id_unknown || e == GNUTLS_E_RECEIVED_ILLEGAL_PARAMETER ||
                              e == GNUTLS_E_DECRYPTION_FAILED)) {
        result = "wrong_key";
        msg = "the peer has another key than --link-key-file";
    } else if (e == GNUTLS_E_INSUFFICIENT_CREDENTIALS || e == GNUTLS_E_NO_CIPHER_SUITES) {
        result = "no_key";
        msg = "the peer speaks TLS and shows no key of ours";
    }
    fail_gnutls(&why, e, msg);
    if (e == GNUTLS_E_FATAL_ALERT_RECEIVED)
        sh_err_detail(&why, "%s", gnutls_alert_get_name(gnutls_alert_get(t->session)));
    else
        say_tls_why(t, e);
    sh_wire__tls_give_up(t, result, &why);
    return sh_err_copy(err, &why);
}

/* Only for a clear message: GnuTLS would refuse it too. */
static bool is_plaintext(const struct sh_wire__tls *t)
{
    const unsigned char *p = t->in + t->in_off;
    size_t n = t->in_len - t->in_off;

    return n > 0 && (p[0] < 20 || p[0] > 23 || (n > 1 && p[1] != 3));
}

static int step_handshake(struct sh_wire__tls *t, bool *done, struct sh_err *err)
{
    size_t before;
    int e;

    do {
        before = t->in_off;
        e = gnutls_handshake(t->session);
    } while (e < 0 && !gnutls_error_is_fatal(e) &&
             (e == GNUTLS_E_INTERRUPTED || t->in_off != before));
    if (e < 0 && gnutls_error_is_fatal(e))
        return refuse_handshake(t, e, err);
    *done = e >= 0;
    return flush_out(t, err);
}

int sh_wire__tls_shake(struct sh_wire__tls *t, bool *done, struct sh_err *err)
{
    struct sh_err why = {0};
    size_t got;
    bool eof;
    int rc = flush_out(t, &why);

    *done = false;
    if (!rc)
        rc = sh_wire__tls_fill(t, FILL_SHAKE, &got, &eof, &why);
    if (!rc && eof)
        rc =
            SH_FAIL(&why, SH_E_UNAVAILABLE, "the peer closed the connection during the handshake%s",
                    t->is_client ? "; has it a --link-key-file?" : "");
    if (!rc && !t->begun && is_plaintext(t)) {
        rc = SH_FAIL(&why, SH_E_PROTO, "the peer does not encrypt; has it a --link-key-file?");
        sh_wire__tls_give_up(t, "plaintext", &why);
    }
    t->begun = t->begun || t->in_len > 0;
    if (!rc)
        rc = step_handshake(t, done, &why);
    if (rc)
        sh_wire__tls_give_up(t, rc == SH_E_UNAVAILABLE ? "closed" : "protocol", &why);
    else if (*done)
        sh_wire__tls_give_up(t, "ok", NULL);
    return rc ? sh_err_copy(err, &why) : SH_OK;
}

/* ---------------------------------------------------------------- records */

/* A record that is not data, such as a change of keys, is no reason to stop. */
int sh_wire__tls_read(struct sh_wire__tls *t, void *p, size_t n, size_t *got, struct sh_err *err)
{
    size_t before;
    ssize_t r;

    *got = 0;
    do {
        before = t->in_off;
        r = gnutls_record_recv(t->session, p, n);
    } while (r == GNUTLS_E_INTERRUPTED || (r == GNUTLS_E_AGAIN && t->in_off != before));
    if (r == GNUTLS_E_AGAIN)
        return SH_OK;
    if (r == 0)
        return SH_FAIL(err, SH_E_UNAVAILABLE, "the peer closed the connection");
    if (r < 0)
        return fail_gnutls(err, (int)r, "what the peer sent cannot be decrypted");
    *got = (size_t)r;
    return SH_OK;
}

/* The next record's bytes: in place if one piece fills it, gathered otherwise. */
static size_t gather_output(struct sh_wire__tls *t, const struct iovec *iov, size_t n_iov,
                            size_t *at, size_t *off, const void **p)
{
    size_t n = 0;

    *p = t->plain;
    while (*at < n_iov && n < SH_WIRE__RECORD) {
        size_t left = iov[*at].iov_len - *off, part = SH_MIN(left, SH_WIRE__RECORD - n);
        const char *from = (const char *)iov[*at].iov_base + *off;

        if (n == 0 && (part == SH_WIRE__RECORD || *at + 1 == n_iov))
            *p = from;
        else
            memcpy(t->plain + n, from, part);
        n += part;
        *off += part;
        if (*off == iov[*at].iov_len) {
            *off = 0;
            (*at)++;
        }
    }
    return n;
}

int sh_wire__tls_write(struct sh_wire__tls *t, const struct iovec *iov, size_t n_iov, size_t *taken,
                       struct sh_err *err)
{
    size_t at = 0, off = 0;
    int rc = flush_out(t, err);

    *taken = 0;
    while (!rc && !sh_wire__tls_pending(t) && at < n_iov) {
        while (at < n_iov && t->out.len < OUT_MANY) {
            const void *p;
            size_t n = gather_output(t, iov, n_iov, &at, &off, &p);
            ssize_t r = gnutls_record_send(t->session, p, n);

            if (r != (ssize_t)n)
                return fail_gnutls(err, (int)r, "could not encrypt for the peer");
            *taken += n;
        }
        rc = flush_out(t, err);
    }
    return rc;
}
