/* grpc.h - the inference protocol over gRPC (--grpc-listen). Only grpc*.c know the HTTP/2 library.
 *
 * --threads threads of its own, each with a loop and the connections that it has accepted; they
 * share nothing but the listening socket and the count of connections (request/peers.h). They never
 * block: what may block runs on a pool thread or waits for the link, as with HTTP.
 *
 * A call is translated to the request over HTTP that it is (methods.h), and goes through the same
 * steps (request/front.h): so authentication, limits, admission, answers and their reasons are the
 * same.
 */
#ifndef SH_API_GRPC_GRPC_H
#define SH_API_GRPC_GRPC_H

#include "api/request/front.h"

struct grpc;
struct tls;

/* KEEPS a, steps and tls (NULL: no TLS). *out: OWNED, grpc_stop(); NULL if it is off. */
int grpc_start(struct api *a, const struct api_steps *steps, struct tls *tls, struct grpc **out,
               struct sh_err *err);
/* NULL is allowed in all of these. */
int grpc_port(const struct grpc *g);
/* Accepts no new connections and no new calls; those that have begun go on. */
void grpc_quiesce(struct grpc *g);
/* Number of calls between the first byte of a message and the last of its answer. */
int grpc_active(const struct grpc *g);
/* All waiting calls must have been woken before. */
void grpc_stop(struct grpc *g);

#endif
