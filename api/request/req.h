/* req.h - one request as a handler sees it, and the handler's reply.
 *
 *   headers -> auth -> begin (files and inference only) -> body -> route's handler -> reply
 *
 * Each arrow is a call of type api_fn. It first runs on a thread of the front end (q->db is NULL,
 * must not block) and may return API_AGAIN; it is then called again on a pool thread with q->db
 * set, while the connection is suspended. A handler whose route lacks ROUTE_HERE is called on the
 * pool at once.
 *
 * http_reply.c turns the result into the HTTP response: nothing else knows statuses, problem
 * documents or the HTTP library.
 */
#ifndef SH_API_REQUEST_REQ_H
#define SH_API_REQUEST_REQ_H

#include "api/request/uri.h"
#include "common/db.h"
#include "common/json.h"

#include <sys/uio.h>

struct api;
struct api_front;
struct api_route;
struct explain;
struct infer;
struct upload;

enum {
    API_AGAIN = 1, /* call me again on a pool thread */
    API_WAIT = 2,  /* the connection sleeps; req_wake() will call me again */
};

enum api_role { /* bits, for sets */
                ROLE_ADMIN = 1,
                ROLE_TENANT_ADMIN = 2,
                ROLE_SUBMIT = 4,
                ROLE_INFER = 8,
                ROLE_READ = 16,
                ROLE_EXECUTOR = 32, /* an executor without access to the state folder */
};

struct api_who { /* whose key it is; filled by auth.c */
    char key_id[16];
    int64_t tenant_id; /* 0 for an admin or an executor */
    char tenant[64];
    unsigned role;              /* enum api_role */
    double requests_per_second; /* the tenant's quota; 0: no limit */
    int64_t burst;              /* 0: as many as in one second */
    bool suspended;
};

struct api_headers { /* BORROWED for the request; NULL if absent */
    const char *authorization, *if_match, *idempotency_key, *content_digest, *content_type;
    const char *content_encoding, *infer_header_len, *request_id, *traceparent, *accept;
    const char *session; /* Shunt-Session: for an alias's choice of a version */
    const char *last_event_id;
    const char *accept_encoding, *origin;
    const char *range, *if_range, *if_none_match, *content_range; /* for files */
};

struct api_file { /* a file, or a range of it, as reply */
    bool is_set;
    int fd;                /* OWNED while is_set */
    uint64_t from, bytes;  /* [from, from + bytes) */
    const char *type;      /* static; NULL: application/octet-stream */
    char disposition[160]; /* "": shown, not saved */
};

/* A reply whose body comes over time. read: returns up to max bytes; 0: nothing yet, the connection
 * sleeps until req_wake(), which must come exactly once for each 0, perhaps before read has
 * returned; < 0: the end. close: called once, when the connection no longer needs it. */
struct api_stream {
    ssize_t (*read)(void *owner, char *buf, size_t max);
    void (*close)(void *owner);
    void *owner;
};

#define API_TIMING 224 /* seven names and times, the longest of 17 bytes */

struct api_reply {
    int status;                   /* 0: 200, or the status of the failure's code */
    json_t *body;                 /* OWNED */
    json_t *problem;              /* OWNED: more members of a problem document, such as "nodes" */
    struct sh_faults faults;      /* list OWNED: "errors" of a problem document */
    const char *text, *text_type; /* BORROWED for good: used instead of body */
    size_t text_n;
    const char *policy;     /* static: what a browser may load for it; NULL: it is no page */
    bool is_packed;         /* text is gzipped */
    bool varies;            /* depends on Accept-Encoding */
    int64_t row_version;    /* > 0: the ETag */
    int64_t retry_after_ms; /* 0: a default if the code allows a retry; API_NO_RETRY */
    bool replayed;          /* the first answer to an Idempotency-Key, repeated */
    const char *secret;     /* static: the member of body shown only this once; NULL: none */
    char location[320];
    char allow[64];
    struct api_file file;
    char etag[72], content_range[80]; /* for a file; "": none */
    char rate[48], rate_policy[48];   /* header fields; "": no such limit */
    char timing[API_TIMING];          /* Server-Timing, for inference */
    /* Raw reply: a head, then parts of the slab. release(owner) frees them. */
    char *head; /* OWNED, free() */
    size_t head_len;
    bool binary;         /* Inference-Header-Content-Length is head_len */
    struct iovec *parts; /* OWNED, free() */
    size_t n_parts;
    void (*release)(void *owner);
    void *owner;
    struct api_stream stream; /* read NULL: none. text/event-stream */
};

#define API_MAX_PARAMS 4
#define API_NO_RETRY (-1) /* for retry_after_ms: a retry does not help */

/* A W3C traceparent: whose trace a request is part of. */
struct api_trace {
    char id[33];     /* 32 hexadecimal digits; "": it is of none */
    uint64_t parent; /* the client's span; 0: none */
    bool is_sampled; /* the client's spans are kept, so ours should be */
};

struct api_req {
    struct api *api;
    const struct api_front *front; /* that it came through */
    const struct api_route *route;
    struct db *db; /* BORROWED; NULL on an HTTP thread */
    struct uri uri;
    const char *params[API_MAX_PARAMS]; /* path parameters in the pattern's order */
    struct api_headers h;
    char method[16];
    char request_id[72]; /* the client's, or of its trace, or made */
    struct api_who who;
    char tenant[64];   /* the tenant concerned: the key's, or an admin's ?tenant= */
    int64_t tenant_id; /* its id; set on pool threads (ROUTE_TENANT, ROUTE_OWNER); 0: none */
    uint64_t content_length;
    bool has_length;   /* false: chunked, or no body */
    bool is_packed;    /* the body is still packed (Content-Encoding), as is content_length */
    bool takes_admins; /* admin keys are accepted here: --admin-listen */
    bool dry_run;      /* the handler's changes in the database are undone */
    const char *body;  /* BORROWED; NULL unless the route's body is JSON */
    size_t body_len;
    json_t *json;            /* OWNED by the request: the parsed body; NULL if it was empty */
    struct infer *infer;     /* OWNED by the request */
    struct upload *upload;   /* OWNED by the request */
    struct explain *explain; /* OWNED by the request */
    struct api_reply reply;
    int64_t start_ns;
    int64_t wait_until_ns; /* for a handler that waits (waiters.h); 0 at the first call */
};

typedef int api_fn(struct api_req *q, struct sh_err *err);

/* If-Match as a row version; NULL: none (or "*"). *out: BORROWED from buf. */
int req_if_match(const struct api_req *q, char buf[static 24], const char **out,
                 struct sh_err *err);
/* Idempotency-Key, quotes optional; key "": none. Pool threads only, since it hashes the body. */
struct req_idem {
    int64_t scope; /* its owner: a tenant; 0: the platform */
    char key[256];
    char fingerprint[65]; /* SHA-256 of method, path, tenant and the body's meaning, hex */
};
int req_idem(const struct api_req *q, struct req_idem *out, struct sh_err *err);
/* Sets body (TAKES j, even on failure), ETag from its row_version, and Location if not NULL. */
int req_reply(struct api_req *q, json_t *j, const char *location, struct sh_err *err);
/* limit and cursor of a list. cursor: last id of the previous page, as text; NULL: first page. */
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

/* Sets X-Request-ID: the client's, or one of ours. */
void req_read_trace(const char *traceparent, struct api_trace *out); /* NULL: there is none */
int req_make_id(struct api_req *q, struct sh_err *err);
/* Largest body that this request may have, bytes. Its route must be set. */
uint64_t req_max_body(const struct api_req *q);

#endif
