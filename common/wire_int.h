/* wire_int.h - shared by the wire*.c files, for nobody else. */
#ifndef SH_COMMON_WIRE_INT_H
#define SH_COMMON_WIRE_INT_H

#include "common/wire.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

#define SH_WIRE__HEADER 8u
#define SH_WIRE__MAX_ADDRS 8
#define SH_WIRE__RECORD 16384u /* bytes that one TLS record holds */

/* A parsed "unix:/path" or "tcp:host:port". */
struct sh_wire__target {
    bool is_unix;
    char host[256]; /* "": any address; a path if is_unix */
    char port[8];
};

struct sh_wire__addr {
    struct sockaddr_storage sa;
    socklen_t len;
};

struct sh_wire__addrs {
    struct sh_wire__addr list[SH_WIRE__MAX_ADDRS];
    size_t n;
};

struct sh_wire__header {
    uint32_t len;
    uint16_t type;
    uint8_t n_fds;
};

/* Room for descriptors in a sendmsg or recvmsg. */
union sh_wire__control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(SH_WIRE_MAX_FDS * sizeof(int))];
};

/* wire_frame.c */

/* Clears out, then writes header and payload. */
int sh_wire__encode(struct sh_buf *out, const struct sh_msg *m, size_t n_fds, struct sh_err *err);
/* Checks version, type, length and n_fds. p holds SH_WIRE__HEADER bytes. */
int sh_wire__header(const unsigned char *p, struct sh_wire__header *out, struct sh_err *err);
/* Attaches fds to an outgoing mh; c must live as long as mh. */
void sh_wire__attach(struct msghdr *mh, union sh_wire__control *c, const int *fds, size_t n_fds);
/* Appends the descriptors that came with mh to fds[*n_fds] (room: max). On failure those that did
 * not fit are closed; those in fds stay the caller's. */
int sh_wire__detach(struct msghdr *mh, int *fds, size_t *n_fds, size_t max, struct sh_err *err);
void sh_wire__close_fds(int *fds, size_t *n_fds);

/* wire.c */

/* sh_wire_close() calls gone(owner), since it does not call on_close. */
void sh_wire__set_owner(struct sh_wire *w, void *owner, void (*gone)(void *owner));
void *sh_wire__owner(const struct sh_wire *w);
/* Ends a connection: on_close comes later, from the loop. */
void sh_wire__fail(struct sh_wire *w, const struct sh_err *why);
void sh_wire__adopt(struct sh_wire *w, const struct sh_wire_handler *h);
/* Call it first. Nothing is delivered or sent before the peer has shown that it knows a key; then
 * opened(owner) is called once, from the loop. On failure on_close is called. */
int sh_wire__secure(struct sh_wire *w, struct sh_wire_keys *keys, bool is_client,
                    void (*opened)(void *owner), struct sh_err *err);

/* Notes that the owner gives up the handshake; close the wire after it. */
void sh_wire__give_up(struct sh_wire *w, const char *result, const struct sh_err *why);

/* wire_keys.c */

#define SH_WIRE__PSK_BYTES 32
struct sh_wire__key {
    char id[17]; /* sent in clear */
    uint8_t psk[SH_WIRE__PSK_BYTES];
};
/* Rereads the file if it has changed. NULL: no keys. */
const struct sh_wire__key *sh_wire__keys(struct sh_wire_keys *k, size_t *n);
bool sh_wire__keys_on(const struct sh_wire_keys *k);
/* Fails: SH_E_INVALID: there is no key, and other hosts can reach the address. */
int sh_wire__keys_allow(const struct sh_wire_keys *k, const struct sh_wire__target *t,
                        struct sh_err *err);
/* Counts a finished handshake; logs a failure, at a bounded rate. */
void sh_wire__keys_note(struct sh_wire_keys *k, bool is_client, const char *result,
                        const char *peer, const struct sh_err *why);

/* wire_tls.c: TLS between the buffers of a wire and its socket. Never blocks. */

struct sh_wire__tls;
/* fd: BORROWED, connected, non-blocking. *out: OWNED, sh_wire__tls_free(). */
int sh_wire__tls_new(struct sh_wire_keys *keys, int fd, bool is_client, struct sh_wire__tls **out,
                     struct sh_err *err);
void sh_wire__tls_free(struct sh_wire__tls *t);
/* One step of the handshake. *done: the peer knows a key. Notes a failure (sh_wire__keys_note). */
int sh_wire__tls_shake(struct sh_wire__tls *t, bool *done, struct sh_err *err);
/* Notes that the handshake is given up. */
void sh_wire__tls_give_up(struct sh_wire__tls *t, const char *result, const struct sh_err *why);
/* Takes at most n bytes from the socket, for sh_wire__tls_read(). *got: so many came. *eof: the
 * stream has ended (err->rc stays SH_OK). Fails: SH_E_UNAVAILABLE. */
int sh_wire__tls_fill(struct sh_wire__tls *t, size_t n, size_t *got, bool *eof, struct sh_err *err);
/* *got 0: everything taken has been read. */
int sh_wire__tls_read(struct sh_wire__tls *t, void *p, size_t n, size_t *got, struct sh_err *err);
/* *taken: bytes encrypted and under way; 0: the socket takes nothing now. */
int sh_wire__tls_write(struct sh_wire__tls *t, const struct iovec *iov, size_t n_iov, size_t *taken,
                       struct sh_err *err);
bool sh_wire__tls_pending(const struct sh_wire__tls *t); /* bytes that the socket did not take */

/* wire_addr.c */

int sh_wire__parse(const char *addr, struct sh_wire__target *out, struct sh_err *err);
/* Resolves paths and numeric hosts. *out->n 0: the name needs a lookup. */
int sh_wire__resolve_now(const struct sh_wire__target *t, struct sh_wire__addrs *out,
                         struct sh_err *err);
/* A lookup blocks for seconds if a name server is away, so it runs on its own thread. The
 * descriptor becomes readable when the result can be taken. */
struct sh_wire__lookup;
int sh_wire__lookup_start(const struct sh_wire__target *t, struct sh_wire__lookup **out,
                          struct sh_err *err); /* OWNED, sh_wire__lookup_free(), at any time */
int sh_wire__lookup_fd(const struct sh_wire__lookup *k);
int sh_wire__lookup_take(struct sh_wire__lookup *k, struct sh_wire__addrs *out, struct sh_err *err);
void sh_wire__lookup_free(struct sh_wire__lookup *k);

/* Starts a non-blocking connect. *pending: wait until writable, then call
 * sh_wire__connect_end(). */
int sh_wire__connect_start(const struct sh_wire__addr *a, int *fd_out, bool *pending,
                           struct sh_err *err);
int sh_wire__connect_end(int fd, struct sh_err *err);

#endif
