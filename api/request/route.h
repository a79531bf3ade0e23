/* route.h - a route: a row of the table of URLs (routes.def). */
#ifndef SH_API_REQUEST_ROUTE_H
#define SH_API_REQUEST_ROUTE_H

#include "api/request/req.h"

enum api_access {
    ACCESS_PUBLIC,   /* no key */
    ACCESS_ANY,      /* every key */
    ACCESS_READ,     /* every key except role infer */
    ACCESS_INFER,    /* every key except role read */
    ACCESS_SUBMIT,   /* admin, tenant-admin, submit */
    ACCESS_MANAGE,   /* admin, tenant-admin */
    ACCESS_PLATFORM, /* admin */
    ACCESS_EXECUTOR, /* executor only */
    API_N_ACCESS
};

/* BODY_MODEL and later ones are files, streamed to disk (upload.h). */
enum api_body { BODY_NONE, BODY_JSON, BODY_INFER, BODY_MODEL, BODY_DATASET, BODY_FILE };

enum {
    ROUTE_HERE = 1,   /* may run on the HTTP thread */
    ROUTE_TENANT = 2, /* concerns one tenant: q->tenant_id is set */
    ROUTE_LIST = 4,   /* takes limit and cursor */
    /* inference protocol: errors as application/json, unknown query parameters are ignored */
    ROUTE_V2 = 8,
    ROUTE_OPTIONAL = 16, /* the body may be empty */
    ROUTE_ETAG = 32,     /* If-Match is honoured */
    ROUTE_RANGE = 64,    /* takes offset and limit */
    ROUTE_PROBE = 128,   /* 503 with the success body means "no" */
    /* text/event-stream if Accept asks for it; 204: no more events will come */
    ROUTE_STREAM = 256,
    /* text/event-stream if Accept asks for it: the answer, and each other one from then on */
    ROUTE_WATCHED = 65536,
    ROUTE_OWNER = 512,    /* concerns one tenant; an admin key that names none: no tenant, or all */
    ROUTE_FILE = 1024,    /* answers with a file: honours Range, If-Range, If-None-Match */
    ROUTE_BULK = 2048,    /* may read a whole file: runs on the upload pool */
    ROUTE_KEEPS = 4096,   /* keeps its own answers for Idempotency-Key (submit.h) */
    ROUTE_CACHED = 8192,  /* answers with a constant text: honours If-None-Match */
    ROUTE_STATED = 16384, /* may also answer 409 for the state of a thing */
    ROUTE_OFFERED = 32768, /* may answer 501: this server does not offer it */
};

enum { /* bits, for sets: query parameters of a few routes, listed in contract.c */
       QUERY_USAGE = 1,
       QUERY_AUDIT = 2,
       QUERY_JOBS = 4,
       QUERY_EVENTS = 8,
       QUERY_WINDOW = 16,
       QUERY_ATTEMPT = 32, /* the executor that sends the file, and its attempt */
};

struct api_route {
    const char *method, *path; /* {name} stands for one segment */
    enum api_access access;
    enum api_body body;
    unsigned flags;
    unsigned query;   /* QUERY_* */
    int64_t max_body; /* largest JSON body, bytes; other kinds have an option */
    api_fn *fn;
    int status; /* status of success */
    const char *summary;
    const char *request, *response; /* names of schemas; NULL: none; "[x]": list of x */
};

#endif
