/* http.h - the HTTP server. Only http*.c know libmicrohttpd.
 *
 * Its threads never block: work that may block runs on a pool thread or waits for the link, and the
 * connection is suspended meanwhile.
 */
#ifndef SH_API_HTTP_HTTP_H
#define SH_API_HTTP_HTTP_H

#include "api/request/front.h"

struct http;
struct tls;

/* KEEPS a, steps and tls (NULL: no TLS). *out: OWNED, http_stop(). */
int http_start(struct api *a, const struct api_steps *steps, struct tls *tls, struct http **out,
               struct sh_err *err);
int http_port(const struct http *h);
int http_admin_port(const struct http *h); /* 0: no --admin-listen */
/* Accepts no new connections; open ones go on. */
void http_quiesce(struct http *h);
/* Number of requests between headers and reply. */
int http_active(const struct http *h);
/* Closes connections of clients that are too slow or have left; call a few times a second. */
void http_sweep(struct http *h);
/* All suspended requests must have been woken before. */
void http_stop(struct http *h);

#endif
