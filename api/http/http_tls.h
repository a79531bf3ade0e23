/* http_tls.h - the certificate of HTTPS, and its replacement while we run.
 *
 * Both files are checked every second. They are read when they have changed and then stayed the
 * same for a second, or at SIGHUP. If they match, new connections get them; open ones keep what
 * they have. If not, or if one cannot be read, the old pair stays and an error is logged. Belongs
 * to the thread of tls_tick(); handshakes are on HTTP threads.
 */
#ifndef SH_API_HTTP_HTTP_TLS_H
#define SH_API_HTTP_HTTP_TLS_H

#include "api/options.h"

struct MHD_Connection;
struct MHD_OptionItem;
struct gnutls_session_int;
struct tls;

/* *out: OWNED, tls_free(); NULL if the options name no certificate. KEEPS conf. */
int tls_start(const struct api_conf *conf, struct tls **out, struct sh_err *err);
void tls_free(struct tls *t); /* after every server that uses it; NULL is allowed */
/* For a server that uses it; tls_attach() for each of its connections when it begins. */
#define TLS_N_OPTIONS 2 /* of *out */
void tls_options(const struct tls *t, struct MHD_OptionItem *out);
void tls_attach(struct tls *t, struct MHD_Connection *conn); /* t: NULL is allowed */
/* On the connection's own thread: sends the last text on it. */
void tls_send_last(struct MHD_Connection *conn, const char *text, size_t n);
/* A session of HTTP/2 on a connected socket, for a server without the library. *out: OWNED,
 * gnutls_deinit(). */
int tls_session(struct tls *t, int fd, struct gnutls_session_int **out, struct sh_err *err);
/* Checks --tls-min-version; only this file knows the versions. Fails: SH_E_INVALID. */
int tls_version_check(const char *name, struct sh_err *err);
void tls_tick(struct tls *t);   /* a few times a second; NULL is allowed */
void tls_reload(struct tls *t); /* at once; NULL is allowed */

#endif
