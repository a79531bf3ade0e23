/* err.h - one way to report failures, from a kernel launch to an HTTP reply.
 *
 * Every call that can fail returns SH_OK or a negative SH_E_* code, and takes a caller-owned
 * `struct sh_err *err` (may be NULL) as its last parameter. The FIRST failure recorded wins, so
 * that a cleanup path cannot hide the cause.
 *
 *   msg     may reach a tenant: a short lower-case sentence with the reason and, if there is one,
 *           the next step. No pointer, path, SQL or secret.
 *   detail  is for our log only.
 *
 * Codes are wire format: never renumber, only append. Clients see `name` as the reason code.
 */
#ifndef SH_COMMON_ERR_H
#define SH_COMMON_ERR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SH_RC_MAP(X)                                           \
    /* code name http retry text */                            \
    X(-1, INVALID, 400, 0, "invalid request")                  \
    X(-2, UNAUTHENTICATED, 401, 0, "missing or wrong API key") \
    X(-3, FORBIDDEN, 403, 0, "not allowed with this key")      \
    X(-4, NOTFOUND, 404, 0, "not found")                       \
    X(-5, CONFLICT, 409, 0, "state conflict")                  \
    X(-6, TOOBIG, 413, 0, "too large")                         \
    X(-7, UNSUPPORTED, 422, 0, "not supported")                \
    X(-8, QUOTA, 429, 1, "quota exhausted")                    \
    X(-9, CANCELLED, 499, 0, "cancelled")                      \
    X(-10, BUG, 500, 0, "internal error")                      \
    X(-11, IO, 500, 1, "input/output error")                   \
    X(-12, DEVLOST, 500, 1, "device context lost")             \
    X(-13, NOMEM, 503, 1, "out of memory")                     \
    X(-14, DEVMEM, 503, 1, "out of device memory")             \
    X(-15, DBSOFT, 503, 1, "database conflict")                \
    X(-16, DBDOWN, 503, 1, "database not reachable")           \
    X(-17, UNAVAILABLE, 503, 1, "temporarily unavailable")     \
    X(-18, QUEUEFULL, 503, 1, "queue full")                    \
    X(-19, SLO, 503, 1, "deadline cannot be met")              \
    X(-20, TIMEOUT, 504, 1, "timed out")                       \
    X(-21, DISKFULL, 507, 1, "no space left on device")        \
    X(-22, PROTO, 500, 0, "protocol error")                    \
    X(-23, NAN, 422, 0, "loss is not a number")                \
    X(-24, PRECONDITION, 412, 0, "precondition failed")        \
    X(-25, METHOD, 405, 0, "method not allowed")               \
    X(-26, MULTIGPU, 422, 0, "more GPUs than a job can have")

enum sh_rc {
    SH_OK = 0,
#define X(code, name, http, retry, text) SH_E_##name = (code),
    SH_RC_MAP(X)
#undef X
};

struct sh_faults; /* common/json.h */

struct sh_err {
    struct sh_faults *faults; /* BORROWED: collects every fault in a document, not only the first;
                               * NULL: nothing is collected */
    int rc;                   /* SH_OK until a failure is recorded */
    int native;               /* errno, dnnl_status_t, cudaError_t, ...; 0: none */
    int line;
    const char *file;
    char msg[512];    /* for the client */
    char detail[512]; /* for the log */
};

/* Records a failure and returns rc: `rc = SH_FAIL(err, SH_E_NOMEM, "could not ..."); goto out;` */
#define SH_FAIL(err, rc, ...) sh_err_set((err), (rc), __FILE__, __LINE__, __VA_ARGS__)

/* The same for a failed system call: keeps errno in `native` and its text in `detail`.
 * ENOSPC and EDQUOT become SH_E_DISKFULL, ENOMEM becomes SH_E_NOMEM, whatever rc says. */
#define SH_FAIL_ERRNO(err, rc, ...) sh_err_errno((err), (rc), __FILE__, __LINE__, __VA_ARGS__)

int sh_err_set(struct sh_err *err, int rc, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
int sh_err_errno(struct sh_err *err, int rc, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* Adds a detail to a recorded failure; does nothing if there is none. */
void sh_err_detail(struct sh_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Copies `from` into `to` unless `to` already holds a failure. Returns from->rc. */
int sh_err_copy(struct sh_err *to, const struct sh_err *from);

/* For what is looked at all the same after a failure (err->faults), of which the first counts. */
static inline int sh_rc_first(int first, int next)
{
    return first ? first : next;
}

const char *sh_rc_name(int rc);    /* BORROWED, static: "QUOTA"; "OK" for 0; "?" if unknown */
const char *sh_rc_text(int rc);    /* BORROWED, static */
int sh_rc_http(int rc);            /* 200 for SH_OK, 500 if unknown */
bool sh_rc_retry(int rc);          /* may a later try succeed? */
int sh_rc_parse(const char *name); /* inverse of sh_rc_name; SH_E_BUG if unknown */

#endif
