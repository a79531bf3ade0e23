/* req.h - one HTTP request as a handler sees it, and what a handler answers.
 *
 *   headers -> auth -> begin (files and inference only) -> body -> route's handler -> reply
 *
 * Each arrow is a call of type api_fn. It runs on an HTTP thread first (q->db is NULL, must not
 * block) and may answer API_AGAIN: it is then called again on a pool thread with q->db set, while
 * the connection is suspended. A handler that never wants the HTTP thread has a route without
 * ROUTE_HERE and is called on the pool at once.
 *
 * Whatever it returns, http_reply.c makes the HTTP response: nobody else knows statuses, problem
 * documents or the HTTP library.
 */
#ifndef SH_API_REQUEST_REQ_H
#define SH_API_REQUEST_REQ_H

#include "api/request/uri.h"
#include "common/db.h"
#include "common/json.h"

#include <sys/uio.h>

struct api;
struct api_route;
struct explain;
struct infer;
struct upload;

enum {
    API_AGAIN = 1, /* call me again on a pool thread */
    API_WAIT = 2,  /* the connection sleeps; http_wake() will call me again */
};

enum api_role { /* bits, for sets */
                ROLE_ADMIN = 1,
                ROLE_TENANT_ADMIN = 2,
                ROLE_SUBMIT = 4,
                ROLE_INFER = 8,
                ROLE_READ = 16,
                ROLE_EXECUTOR = 32, /* an executor that does not share the state folder */
};

struct api_who { /* whose key it is; filled by auth.c */
    char key_id[16];
    int64_t tenant_id; /* 0 for an admin or an executor */
    char tenant[64];
    unsigned role;              /* enum api_role */
    double requests_per_second; /* of the tenant's quota; 0 = no limit */
    int64_t burst;              /* 0 = as many as a second allows */
    bool suspended;
};

struct api_headers { /* BORROWED for the request; NULL if absent */
    const char *authorization, *if_match, *idempotency_key, *content_digest, *content_type;
    const char *content_encoding, *infer_header_len, *request_id, *accept, *last_event_id;
    const char *accept_encoding, *origin;
    const char *range, *if_range, *if_none_match, *content_range; /* of files */
};

struct api_file { /* a reply that is a file, or a range of it */
    bool is_set;
    int fd;               /* OWNED while is_set */
    uint64_t from, bytes; /* [from, from + bytes) */
    const char *type;     /* static; NULL: any bytes */
    char disposition[96]; /* "": to be shown, not saved */
};

/* A reply whose body comes as time goes by. read: up to max bytes; 0: nothing now, the connection
 * sleeps until http_wake(), which must come exactly once for each 0 and may come before read has
 * returned; below 0: the end. close: called once, when the connection has no more use for it. */
struct api_stream {
    ssize_t (*read)(void *owner, char *buf, size_t max);
    void (*close)(void *owner);
    void *owner;
};

struct api_reply {
    int status;              /* 0: 200, or what the failure's code says */
    json_t *body;            /* OWNED */
    json_t *problem;         /* OWNED: further members of a problem document, such as "nodes" */
    struct sh_faults faults; /* list OWNED: "errors" of a problem document */
    const char *text, *text_type; /* BORROWED for ever: instead of body */
    size_t text_n;
    bool is_packed;         /* text is, by gzip */
    bool varies;            /* with Accept-Encoding */
    int64_t row_version;    /* > 0: the ETag */
    int64_t retry_after_ms; /* 0: a default where the code is worth a retry; API_NO_RETRY */
    bool replayed;          /* the first answer to an Idempotency-Key, once more */
    const char *secret;     /* static: member of body that is shown this once, or NULL */
    char location[320];
    char allow[64];
    struct api_file file;
    char etag[72], content_range[80]; /* of a file; "" = none */
    char rate[48], rate_policy[48];   /* header fields; empty: no such limit here */
    char timing[224];                 /* Server-Timing, of inference */
    /* Raw reply: a head, then parts of the slab. Freed with release(owner). */
    char *head; /* OWNED, free() */
    size_t head_len;
    bool binary;         /* Inference-Header-Content-Length is head_len */
    struct iovec *parts; /* OWNED, free() */
    size_t n_parts;
    void (*release)(void *owner);
    void *owner;
    struct api_stream stream; /* read NULL: none. text/event-stream */
};

#define API_MAX_PARAMS 3
#define API_NO_RETRY (-1) /* of retry_after_ms: asking again does not help */

struct api_req {
    struct api *api;
    const struct api_route *route;
    struct db *db; /* BORROWED; NULL on an HTTP thread */
    struct uri uri;
    const char *params[API_MAX_PARAMS]; /* path parameters in the pattern's order */
    struct api_headers h;
    char method[16];
    char request_id[72];
    struct api_who who;
    char tenant[64];   /* whose things it is about: the key's tenant, or ?tenant= of an admin */
    int64_t tenant_id; /* its number; set on pool threads (ROUTE_TENANT, ROUTE_OWNER); 0: none */
    uint64_t content_length;
    bool has_length;   /* else chunked, or no body */
    bool is_packed;    /* the body has a Content-Encoding; content_length is of that until then */
    bool takes_admins; /* it came where admin keys are taken: --admin-listen */
    bool dry_run;      /* what the handler changes in the database is undone */
    const char *body;  /* BORROWED; NULL unless the route's body is JSON */
    size_t body_len;
    json_t *json;            /* OWNED by the request: the parsed body; NULL if it was empty */
    struct infer *infer;     /* OWNED by the request */
    struct upload *upload;   /* OWNED by the request */
    struct explain *explain; /* OWNED by the request */
    struct api_reply reply;
    int64_t start_ns;
    int64_t wait_until_ns; /* of a handler that waits (waiters.h); 0 at its first call */
};

typedef int api_fn(struct api_req *q, struct sh_err *err);

/* If-Match as a row version: NULL without one (or "*"). The text is BORROWED from buf. */
int req_if_match(const struct api_req *q, char buf[static 24], const char **out,
                 struct sh_err *err);
/* Idempotency-Key, its quotes optional; key is "" without one. Pool threads only: it hashes the
 * body. */
struct req_idem {
    int64_t scope; /* whose key it is: a tenant, 0: the platform's */
    char key[256];
    char fingerprint[65]; /* SHA-256 of method, path, tenant and the body's meaning, hex */
};
int req_idem(const struct api_req *q, struct req_idem *out, struct sh_err *err);
/* Sets body (TAKES j, even on failure), ETag from its row_version, Location unless it is NULL. */
int req_reply(struct api_req *q, json_t *j, const char *location, struct sh_err *err);
/* limit and cursor of a list. cursor: the last id of the page before, as text; NULL at first. */
#define REQ_LIST_TEXT 640
struct req_page {
    int64_t limit;
    char limit_text[24], after[24];
    const char *cursor;        /* NULL or after */
    const uint8_t *cursor_key; /* for the cursor of the next page: cursor.h */
    char list[REQ_LIST_TEXT];
};
int req_page(const struct api_req *q, struct req_page *out, struct sh_err *err);
void req_reply_free(struct api_reply *r);

/* X-Request-ID: the client's, or one of ours. */
int req_make_id(struct api_req *q, struct sh_err *err);
/* Largest body this request may have, bytes. Its route is known. */
uint64_t req_max_body(const struct api_req *q);

#endif
