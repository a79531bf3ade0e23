/* wire.h - frames between our processes, over TCP or Unix sockets; the latter carry descriptors. If
 * the process has a key, TCP is encrypted and the peer authenticated: wire_keys.h.
 *
 *   frame = u32 length of payload | u8 version | u8 n_fds | u16 type | payload   (little-endian)
 *
 * n_fds descriptors travel with the frame (Unix sockets only). The receiver counts them, so that
 * each message gets its own however the kernel splits the stream.
 *
 * An unknown version, an unknown type or a length above the connection's maximum closes the
 * connection with a reason: our own peer has a bug, or a stranger has connected.
 *
 * Messages (struct, encoder, decoder) come from common/msg.def; see msg.h. A wire belongs to the
 * loop's thread. Addresses: "unix:/path" or "tcp:host:port".
 */
#ifndef SH_COMMON_WIRE_H
#define SH_COMMON_WIRE_H

#include "common/buf.h"
#include "common/err.h"
#include "common/loop.h"
#include "common/msg.h"

/* test_msg.c says when to raise it. Not 18: the fifth byte of a TLS handshake was that. */
#define SH_WIRE_VERSION 28u
#define SH_WIRE_MAX_FRAME (8u << 20) /* payload chunks are at most 1 MiB; tables fit easily */
#define SH_WIRE_MAX_FDS 8

struct sh_wire;
struct sh_wire_keys;

/* m is BORROWED for the call (its views point into the receive buffer). fds[n_fds] are closed after
 * the call, except those that the callee takes and sets to -1. */
typedef void sh_wire_msg_fn(struct sh_wire *w, const struct sh_msg *m, int *fds, size_t n_fds,
                            void *arg);
/* Called once; the wire is freed when it returns. why is never NULL. */
typedef void sh_wire_close_fn(struct sh_wire *w, const struct sh_err *why, void *arg);

struct sh_wire_handler {
    sh_wire_msg_fn *on_msg;
    sh_wire_close_fn *on_close;
    void *arg;
    size_t max_queued_bytes; /* outgoing; 0: 64 MiB. A peer that does not read is closed. */
};

/* TAKES fd (a connected stream socket). *out: frees itself after on_close, or sh_wire_close(). */
int sh_wire_new(struct sh_loop *l, int fd, const struct sh_wire_handler *h, struct sh_wire **out,
                struct sh_err *err);
void sh_wire_close(struct sh_wire *w); /* no on_close call; NULL is allowed */
/* Closes after the queued messages are written (at most 1 s). No more on_msg; on_close is called
 * when the wire is gone (why->rc is SH_E_CANCELLED if all went well). */
void sh_wire_finish(struct sh_wire *w);

/* Queues one message; writes at once if the socket takes it. A message that fails is the end of the
 * connection, so that the peer gets all up to some message and none behind it. Never calls back:
 * on_close comes later, from the loop. fds need a Unix socket. Fails: SH_E_NOMEM, SH_E_IO,
 * SH_E_TOOBIG, SH_E_UNAVAILABLE (lost, or the peer does not read). */
int sh_wire_send(struct sh_wire *w, const struct sh_msg *m, struct sh_err *err);
/* Messages between the two go out together: one system call, and the peer wakes up once. Call both
 * in one function, or in one turn of the loop: nothing leaves before the second. */
void sh_wire_cork(struct sh_wire *w);
void sh_wire_uncork(struct sh_wire *w);
int sh_wire_send_fds(struct sh_wire *w, const struct sh_msg *m, const int *fds, size_t n_fds,
                     struct sh_err *err);       /* dups fds; the caller may close its own */
bool sh_wire_is_local(const struct sh_wire *w); /* Unix socket */

/* Accepts peers at an address. With keys, a TCP peer must prove within 5 s that it knows one, and
 * the program does not hear of it before; failures are counted and logged here. */
struct sh_listen_handler {
    /* A peer has connected: fills in h and keeps w. False closes it. Must not free the listener. */
    bool (*on_peer)(struct sh_wire *w, struct sh_wire_handler *h, void *arg);
    void *arg;
    struct sh_wire_keys *keys; /* BORROWED; NULL: none */
};
struct sh_listen;
/* *out: OWNED, sh_listen_free(). Fails as sh_wire_listen(); SH_E_INVALID: the address needs a
 * key. */
int sh_listen_new(struct sh_loop *l, const char *addr, const struct sh_listen_handler *h,
                  struct sh_listen **out, struct sh_err *err);
void sh_listen_free(struct sh_listen *s); /* its peers stay; NULL is allowed */

/* Listens on an address. On a Unix path it replaces a stale socket file, never a live one. */
int sh_wire_listen(const char *addr, int *fd_out, struct sh_err *err);
/* The address as others may use it: a relative path is resolved in the folder where this process
 * was started. *out: OWNED, free(). Fails: SH_E_INVALID. */
int sh_wire_absolute(const char *addr, char **out, struct sh_err *err);
/* Is this name or number (IPv6 without brackets) the loopback of this host? Looks nothing up. */
bool sh_wire_is_loopback(const char *host);
int sh_wire_port(int listen_fd); /* the port of a TCP socket; 0: none */

/* A client connection that reconnects by itself with back-off (50 ms to 0.5 s, with jitter). on_up
 * is called after each connect (with keys: after the handshake): send HELLO there. addrs: one
 * address, or several separated by commas, tried in turn (only the leader of a group listens).
 * Fails: SH_E_INVALID, also if an address needs a key. */
#define SH_LINK_MAX_ADDRS 8
struct sh_link;
typedef void sh_link_up_fn(struct sh_wire *w, void *arg);
struct sh_link_handler {
    sh_link_up_fn *on_up;
    sh_wire_msg_fn *on_msg;
    sh_wire_close_fn *on_down; /* the wire is gone after the call; the link tries again */
    void *arg;
    /* > 0: gives up a peer that is silent for so long, because its host may have vanished. It gets
     * PINGs before that, and must answer them; the link keeps the PONGs. */
    int64_t max_silence_ms;
    struct sh_wire_keys *keys; /* BORROWED; NULL: none */
};
int sh_link_new(struct sh_loop *l, const char *addrs, const struct sh_link_handler *h,
                struct sh_link **out, struct sh_err *err); /* OWNED, sh_link_free() */
void sh_link_free(struct sh_link *k);
struct sh_wire *sh_link_wire(struct sh_link *k); /* BORROWED; NULL while down */

/* Polls without sleeping, since a sleeper is woken late, until input has come or ns have passed. */
void sh_wire_busy_poll(int fd, int64_t ns);
bool sh_wire_has_input(int fd);                /* there is something to read, or the end */
bool sh_wire_has_input_within(int fd, int ms); /* the same; waits at most ms */
/* Blocking exchange, for workers without a loop: waits for the next frame. buf holds the bytes that
 * the views point into (initialise it with SH_WIRE_MAX_FRAME). fds: room for SH_WIRE_MAX_FDS, OWNED
 * by the caller after success; NULL (with n_fds NULL): none may come. Nobody else reads fd: what is
 * there of later frames is taken, too, for the next calls. *a: zeroed before the first. While
 * sh_wire_has_ahead(), there is something to read, whatever sh_wire_has_input() says. A frame must
 * be complete within 10 s of its first byte, and a peer must read within 30 s. Fails:
 * SH_E_UNAVAILABLE (end of the connection), SH_E_PROTO. */
#define SH_WIRE_AHEAD 4096u
struct sh_wire_ahead {
    size_t from, to; /* bytes that are left */
    int fds[2 * SH_WIRE_MAX_FDS];
    size_t n_fds;
    unsigned char bytes[SH_WIRE_AHEAD];
};
int sh_wire_read_ahead(int fd, struct sh_wire_ahead *a, struct sh_buf *buf, struct sh_msg *out,
                       int *fds, size_t *n_fds, struct sh_err *err);
bool sh_wire_has_ahead(const struct sh_wire_ahead *a);
int sh_wire_write_blocking(int fd, const struct sh_msg *m, const int *fds, size_t n_fds,
                           struct sh_err *err);

#endif
