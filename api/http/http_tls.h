/* http_tls.h - the certificate of HTTPS, and its change while we run.
 *
 * Both files are looked at every second; when they have changed and then held still for a second,
 * or at SIGHUP, they are read. If they are a pair, new connections get them; those that are open
 * keep what they have. If not, or if one cannot be read, the old pair stays and an error is logged.
 * The thread of tls_tick() owns it; handshakes are on HTTP threads.
 */
#ifndef SH_API_HTTP_HTTP_TLS_H
#define SH_API_HTTP_HTTP_TLS_H

#include "api/options.h"

struct MHD_Connection;
struct MHD_OptionItem;
struct tls;

/* *out: OWNED, tls_free(); NULL if the options name no certificate. KEEPS conf. */
int tls_start(const struct api_conf *conf, struct tls **out, struct sh_err *err);
void tls_free(struct tls *t); /* after every server that uses it; NULL is allowed */
/* For a server that shall use it; and for each of its connections when it begins. */
#define TLS_N_OPTIONS 2 /* of *out */
void tls_options(const struct tls *t, struct MHD_OptionItem *out);
void tls_attach(struct tls *t, struct MHD_Connection *conn); /* t: NULL is allowed */
/* On the connection's own thread: the last that is sent on it. */
void tls_send_last(struct MHD_Connection *conn, const char *text, size_t n);
/* --tls-min-version; what they are is known here alone. Fails: SH_E_INVALID. */
int tls_version_check(const char *name, struct sh_err *err);
void tls_tick(struct tls *t);   /* a few times a second; NULL is allowed */
void tls_reload(struct tls *t); /* at once; NULL is allowed */

#endif
