/* route.h - what a route is: a row of the one table of URLs (routes.def). */
#ifndef SH_API_REQUEST_ROUTE_H
#define SH_API_REQUEST_ROUTE_H

#include "api/request/req.h"

enum api_access {
    ACCESS_PUBLIC,   /* no key */
    ACCESS_ANY,      /* every key */
    ACCESS_READ,     /* every key but role infer */
    ACCESS_INFER,    /* every key but role read */
    ACCESS_SUBMIT,   /* admin, tenant-admin, submit */
    ACCESS_MANAGE,   /* admin, tenant-admin */
    ACCESS_PLATFORM, /* admin */
    ACCESS_EXECUTOR, /* executor alone */
    API_N_ACCESS
};

/* BODY_MODEL and what follows are files: they go to disk as they come (upload.h). */
enum api_body { BODY_NONE, BODY_JSON, BODY_INFER, BODY_MODEL, BODY_DATASET, BODY_FILE };

enum {
    ROUTE_HERE = 1,   /* may run on the HTTP thread */
    ROUTE_TENANT = 2, /* about things of one tenant: q->tenant_id is set */
    ROUTE_LIST = 4,   /* takes limit and cursor */
    ROUTE_V2 = 8,     /* inference protocol: errors as application/json, unknown queries ignored */
    ROUTE_OPTIONAL = 16,  /* the body may be empty */
    ROUTE_ETAG = 32,      /* If-Match is honoured */
    ROUTE_RANGE = 64,     /* takes offset and limit */
    ROUTE_PROBE = 128,    /* 503 with the body of success means "no" */
    ROUTE_STREAM = 256,   /* text/event-stream if Accept asks for it; 204: nothing more will come */
    ROUTE_OWNER = 512,    /* of one tenant; an admin key that names none: of none, or of all */
    ROUTE_FILE = 1024,    /* answers a file: Range, If-Range, If-None-Match are honoured */
    ROUTE_BULK = 2048,    /* may read a whole file: on the pool of uploads */
    ROUTE_KEEPS = 4096,   /* keeps its answers for Idempotency-Key by itself: submit.h */
    ROUTE_CACHED = 8192,  /* answers a text that stays the same: If-None-Match is honoured */
    ROUTE_STATED = 16384, /* beside what every change may meet: 409, the state of a thing */
    ROUTE_OFFERED = 32768, /* 501: this server may not offer it */
};

enum { /* bits, for sets: query parameters that a few routes take, as contract.c lists them */
       QUERY_USAGE = 1,
       QUERY_AUDIT = 2,
       QUERY_JOBS = 4,
       QUERY_EVENTS = 8,
       QUERY_WINDOW = 16,
       QUERY_ATTEMPT = 32, /* which executor sends the file, and of which attempt */
};

struct api_route {
    const char *method, *path; /* {name} stands for one segment */
    enum api_access access;
    enum api_body body;
    unsigned flags;
    unsigned query;   /* QUERY_* */
    int64_t max_body; /* bytes of a JSON body; other kinds have their option */
    api_fn *fn;
    int status; /* of success */
    const char *summary;
    const char *request, *response; /* names of schemas; NULL = none; "[x]" = list of x */
};

#endif
