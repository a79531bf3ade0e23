/* openapi.c - see openapi.h. It treats all routes alike: what an operation accepts and answers
 * follows from its row of the route table, through contract.c and schemas.c. */
#include "api/openapi.h"

#include "api/api.h"
#include "api/cache/auth.h"
#include "api/handlers.h"
#include "api/http/constant.h"
#include "api/request/contract.h"
#include "api/routes.h"
#include "common/mem.h"

#include <ctype.h>
#include <stdlib.h>

struct doc {                             /* the document in the making */
    json_t *schemas, *responses, *paths; /* OWNED */
    bool no_memory;                      /* a value could not be made or kept */
};

/* TAKES value; NULL is a value that could not be made. */
static void put_doc_member(struct doc *d, json_t *to, const char *key, json_t *value)
{
    if (json_object_set_new(to, key, value))
        d->no_memory = true;
}

static void add_element(struct doc *d, json_t *to, json_t *value)
{
    if (json_array_append_new(to, value))
        d->no_memory = true;
}

/* ---------------------------------------------------------------- schemas */

static bool is_required(const json_t *schema, const char *name)
{
    json_t *entry;
    size_t i;

    json_array_foreach(json_object_get(schema, "required"), i, entry)
    {
        if (strcmp(json_string_value(entry), name) == 0)
            return true;
    }
    return false;
}

/* A JSON text of ours holds no NUL. */
static void forbid_nul(struct doc *d, json_t *schema)
{
    const char *type = json_string_value(json_object_get(schema, "type"));

    if (type && strcmp(type, "string") == 0 && !json_object_get(schema, "pattern") &&
        !json_object_get(schema, "format"))
        put_doc_member(d, schema, "pattern", json_string("^[^\\x00]*$"));
}

/* sh_json_read() takes null for absent. */
static void allow_null(struct doc *d, json_t *schema)
{
    json_t *type = json_object_get(schema, "type"), *choices = json_object_get(schema, "enum");

    if (json_is_string(type))
        put_doc_member(d, schema, "type", json_pack("[O, s]", type, "null"));
    if (choices)
        add_element(d, choices, json_null());
}

/* In bodies null stands for absent fields, and no text has a NUL. */
static void complete_schema(struct doc *d, json_t *schema, bool is_body)
{
    static const char *const BELOW[] = {"items", "additionalProperties"};
    const char *key;
    json_t *inner;
    size_t i;

    is_body |= json_is_false(json_object_get(schema, "additionalProperties"));
    if (is_body)
        forbid_nul(d, schema);
    json_object_foreach(json_object_get(schema, "properties"), key, inner)
    {
        bool optional = is_body && !is_required(schema, key);

        complete_schema(d, inner, is_body);
        if (optional && json_object_get(schema, "additionalProperties"))
            allow_null(d, inner);
    }
    for (i = 0; i < SH_ARRAY_LEN(BELOW); i++)
        if (json_is_object(json_object_get(schema, BELOW[i])))
            complete_schema(d, json_object_get(schema, BELOW[i]), is_body);
    json_array_foreach(json_object_get(schema, "oneOf"), i, inner)
        complete_schema(d, inner, is_body);
}

static void add_schemas(struct doc *d)
{
    for (size_t i = 0; i < API_N_SCHEMAS; i++) {
        const struct api_schema *s = &API_SCHEMAS[i];
        json_t *schema = schema_build(&s->schema);

        complete_schema(d, schema, false);
        if (s->example)
            put_doc_member(d, schema, "examples",
                           json_pack("[o]", json_loads(s->example, 0, NULL)));
        put_doc_member(d, d->schemas, s->name, schema);
    }
}

static json_t *ref_to(const char *kind, const char *name)
{
    char path[128];

    snprintf(path, sizeof(path), "#/components/%s/%s", kind, name);
    return json_pack("{s:s}", "$ref", path);
}

/* "[x]": a page of x. */
static json_t *schema_of(const char *name)
{
    char inner[64];

    if (name[0] != '[')
        return ref_to("schemas", name);
    sh_strlcpy(inner, name + 1, SH_MIN(sizeof(inner), strlen(name) - 1));
    return json_pack("{s:s, s:[s], s:{s:{s:s, s:o}, s:{s:s, s:s}}}", "type", "object", "required",
                     "items", "properties", "items", "type", "array", "items",
                     ref_to("schemas", inner), "next_cursor", "type", "string", "description",
                     "cursor of the next page; absent on the last");
}

/* ---------------------------------------------------------------- headers */

enum header_of {
    OF_ALL,
    OF_CONTROL,
    OF_ROW,
    OF_CREATED,
    OF_BUSY,
    OF_KEYLESS,
    OF_INFER,
    OF_RATED,
    OF_REPLAY,
    OF_FILE,
    OF_TAGGED,
    OF_PART
};

static const struct {
    const char *name;
    struct schema schema;
    const char *text;
    enum header_of of;
    bool always;
} HEADERS[] = {
    {"X-Request-ID", S_STR(1, 64),
     "the id that the request sent, or the trace id of its traceparent, or a new one; the log and "
     "traces have it",
     OF_ALL, true},
    {"Cache-Control", {.only = "no-store"}, "answers must not be stored", OF_CONTROL, true},
    {"ETag", S_TEXT(.pattern = "^\"[1-9][0-9]*\"$"), "version of the resource, for If-Match",
     OF_ROW, true},
    {"Cache-Control",
     {.only = "private, no-cache"},
     "may be stored, and must be revalidated with its ETag",
     OF_TAGGED,
     true},
    {"ETag", S_TEXT(), "digest of the answer's body", OF_TAGGED, true},
    {"Accept-Ranges", {.only = "bytes"}, "Range is honoured", OF_FILE, true},
    {"Content-Range", S_TEXT(), "which bytes these are, of how many", OF_PART, true},
    {"Location", S_TEXT(.format = "uri-reference"),
     "path of the new resource, or of what was asked for", OF_CREATED, true},
    {"Idempotency-Replayed", {.only = "true"}, "this is a repeated answer", OF_REPLAY, false},
    {"Retry-After", S_INTS(1, INFINITY),
     "seconds to wait before a retry; absent if the model alone is too slow for the deadline",
     OF_BUSY, false},
    {"WWW-Authenticate", S_TEXT(), "how to send a key", OF_KEYLESS, true},
    {"Inference-Header-Content-Length", S_INTS(1, INFINITY),
     "bytes of the JSON part; binary tensors follow", OF_INFER, false},
    {"Server-Timing", S_TEXT(), "queue, copy, compute and total, in ms", OF_INFER, true},
    {"RateLimit-Policy", S_TEXT(),
     "requests and seconds that the quota allows, if it has requests_per_second", OF_RATED, false},
    {"RateLimit", S_TEXT(), "requests left, and the seconds until more are allowed", OF_RATED,
     false},
};

static bool has_row_version(const struct doc *d, const char *schema)
{
    const json_t *s = schema ? json_object_get(d->schemas, schema) : NULL;

    return json_object_get(json_object_get(s, "properties"), "row_version") != NULL;
}

struct reply { /* of which headers are asked for */
    int status;
    bool v2, fails, has_row, infers, replays, sends, tagged;
};

static bool has_header(const struct reply *r, enum header_of of)
{
    switch (of) {
    case OF_ALL:
        return true;
    case OF_CONTROL:
        return !r->v2 && !r->tagged;
    case OF_ROW:
        return r->has_row && !r->fails;
    case OF_CREATED:
        return r->status == 201 || r->status == 302;
    case OF_BUSY:
        return r->status == 429 || r->status == 503;
    case OF_KEYLESS:
        return r->status == 401;
    case OF_INFER:
        return r->infers && !r->fails;
    case OF_REPLAY:
        return r->replays;
    case OF_FILE:
        return r->sends;
    case OF_TAGGED:
        return r->tagged;
    case OF_PART:
        return r->sends && r->status == 206;
    case OF_RATED:
        return r->infers || (r->v2 && r->status == 429);
    }
    return false;
}

static void add_response_headers(struct doc *d, const struct reply *r, json_t *response)
{
    json_t *headers = json_object();

    for (size_t i = 0; i < SH_ARRAY_LEN(HEADERS); i++) {
        if (!has_header(r, HEADERS[i].of))
            continue;
        put_doc_member(d, headers, HEADERS[i].name,
                       json_pack("{s:s, s:b, s:o}", "description", HEADERS[i].text, "required",
                                 HEADERS[i].always, "schema", schema_build(&HEADERS[i].schema)));
    }
    put_doc_member(d, response, "headers", headers);
}

/* ---------------------------------------------------------------- failures */

/* Every code of err.h that has this status, and those that borrow it. */
static json_t *codes_of(struct doc *d, const struct answer *a)
{
    json_t *list = json_array();

    for (int rc = -1; strcmp(sh_rc_name(rc), "?") != 0; rc--)
        if (sh_rc_http(rc) == a->status)
            add_element(d, list, json_string(sh_rc_name(rc)));
    if (a->also)
        add_element(d, list, json_string(a->also));
    return list;
}

static json_t *problem_schema(struct doc *d, const struct answer *a)
{
    return json_pack("{s:[o, {s:{s:{s:i}, s:{s:o}}}]}", "allOf", ref_to("schemas", "Problem"),
                     "properties", "status", "const", a->status, "code", "enum", codes_of(d, a));
}

static void failure_name(const struct answer *a, bool v2, char *out, size_t size)
{
    snprintf(out, size, "%s%d", v2 ? "V2Problem" : "Problem", a->status);
}

static void add_failure(struct doc *d, const struct answer *a, bool v2)
{
    const struct reply reply = {.status = a->status, .v2 = v2, .fails = true};
    char name[32];
    json_t *r = json_pack("{s:s, s:{s:{s:o}}}", "description", a->text, "content",
                          v2 ? "application/json" : "application/problem+json", "schema",
                          problem_schema(d, a));

    failure_name(a, v2, name, sizeof(name));
    put_doc_member(d, d->responses, name, r);
    add_response_headers(d, &reply, r);
}

static void add_failures(struct doc *d)
{
    for (size_t i = 0; i < API_N_ANSWERS; i++) {
        add_failure(d, &API_ANSWERS[i], false);
        add_failure(d, &API_ANSWERS[i], true);
    }
}

/* ---------------------------------------------------------------- parameters */

static json_t *parameter(const char *name, const char *in, bool is_needed, json_t *schema,
                         const char *text)
{
    return json_pack("{s:s, s:s, s:b, s:o, s:s}", "name", name, "in", in, "required", is_needed,
                     "schema", schema, "description", text);
}

static void add_path_parameters(struct doc *d, const struct api_route *r, json_t *list)
{
    static const struct path_param UNKNOWN = {.text = "", .schema = S_TEXT()};

    for (const char *p = strchr(r->path, '{'); p; p = strchr(p + 1, '{')) {
        const struct path_param *param = &UNKNOWN;
        size_t len = strcspn(p + 1, "}");
        char name[64];

        sh_strlcpy(name, p + 1, SH_MIN(sizeof(name), len + 1));
        for (size_t i = 0; i < API_N_PATH_PARAMS; i++)
            if (strcmp(API_PATH_PARAMS[i].name, name) == 0)
                param = &API_PATH_PARAMS[i];
        add_element(d, list,
                    parameter(name, "path", true, schema_build(&param->schema), param->text));
    }
}

static void add_options(struct doc *d, const struct api_route *r, json_t *list)
{
    for (size_t i = 0; i < API_N_OPTIONS; i++) {
        const struct option *o = &API_OPTIONS[i];

        if (o->taken_by(r))
            add_element(d, list,
                        parameter(o->name, o->in, o->is_needed, schema_build(&o->schema), o->text));
    }
}

/* ---------------------------------------------------------------- operations */

/* get /api/v1/models/{model} -> "get_models_model" */
static void operation_id(const struct api_route *r, char *out, size_t size)
{
    const char *p = strncmp(r->path, "/api/v1", 7) == 0 ? r->path + 7 : r->path;
    size_t n = 0;

    for (const char *m = r->method; *m && n + 1 < size; m++)
        out[n++] = (char)tolower((unsigned char)*m);
    for (; *p && n + 1 < size; p++)
        if (isalnum((unsigned char)*p))
            out[n++] = *p;
        else if (n > 0 && out[n - 1] != '_')
            out[n++] = '_';
    while (n > 0 && out[n - 1] == '_')
        n--;
    snprintf(out + n, size - n, "%s", p[-1] == '/' ? "_index" : "");
}

/* Tensors are JSON or binary, in requests and replies. Any bytes are a file. */
static json_t *content(struct doc *d, const struct api_route *r, const char *schema)
{
    static const char *const PAGES[] = {"text/html", "text/css", "text/javascript",
                                        "image/svg+xml"};
    static const char *const SITE[] = {"application/json", "image/png", "text/plain"};
    json_t *j = json_object();

    if (strcmp(schema, "Text") == 0)
        put_doc_member(d, j, "text/plain", json_pack("{s:o}", "schema", schema_of(schema)));
    else if (strcmp(schema, "Page") == 0 || strcmp(schema, "Site") == 0)
        for (size_t i = 0; i < SH_ARRAY_LEN(PAGES); i++)
            put_doc_member(d, j, PAGES[i], json_pack("{s:o}", "schema", schema_of("Page")));
    else if (strcmp(schema, "Binary") != 0)
        put_doc_member(d, j, "application/json", json_pack("{s:o}", "schema", schema_of(schema)));
    for (size_t i = 0; strcmp(schema, "Site") == 0 && i < SH_ARRAY_LEN(SITE); i++)
        put_doc_member(d, j, SITE[i], json_object());
    if (strcmp(schema, "Binary") == 0 || r->body == BODY_INFER)
        put_doc_member(d, j, "application/octet-stream", json_object());
    return j;
}

static json_t *request_body(struct doc *d, const struct api_route *r)
{
    json_t *c = content(d, r, r->request);

    if (strcmp(r->method, "PATCH") == 0)
        put_doc_member(d, c, "application/merge-patch+json",
                       json_pack("{s:o}", "schema", schema_of(r->request)));
    return json_pack("{s:b, s:o}", "required", !(r->flags & ROUTE_OPTIONAL), "content", c);
}

static void add_success(struct doc *d, const struct api_route *r, int status, const char *text,
                        json_t *responses)
{
    const struct reply reply = {.status = status,
                                .v2 = r->flags & ROUTE_V2,
                                .has_row = has_row_version(d, r->response),
                                .infers = r->body == BODY_INFER,
                                .replays = route_replays(r),
                                .sends = r->flags & ROUTE_FILE,
                                .tagged = r->flags & (ROUTE_FILE | ROUTE_CACHED)};
    json_t *success = json_pack("{s:s}", "description", text);
    char key[8];

    snprintf(key, sizeof(key), "%d", status);
    if (r->response)
        put_doc_member(d, success, "content", content(d, r, r->response));
    if (r->flags & (ROUTE_STREAM | ROUTE_WATCHED))
        put_doc_member(d, json_object_get(success, "content"), "text/event-stream",
                       json_pack("{s:{s:s}}", "schema", "type", "string"));
    put_doc_member(d, responses, key, success);
    add_response_headers(d, &reply, success);
}

/* A probe says no with the body of success; a failure is possible all the same. */
static void add_probe(struct doc *d, const struct api_route *r, json_t *responses)
{
    const struct reply reply = {.status = 503, .v2 = true, .fails = true};
    json_t *no = json_pack("{s:s, s:{s:{s:{s:[o, o]}}}}", "description", "no, or unknown",
                           "content", "application/json", "schema", "anyOf",
                           ref_to("schemas", r->response), ref_to("schemas", "Problem"));

    put_doc_member(d, responses, "503", no);
    add_response_headers(d, &reply, no);
}

static void add_responses(struct doc *d, const struct api_route *r, json_t *responses)
{
    const char *text = r->status == 201   ? "created"
                       : r->status == 202 ? "accepted"
                       : r->status == 302 ? "it is there"
                                          : "done";

    add_success(d, r, r->status, text, responses);
    if (r->status == 201)
        add_success(d, r, 200,
                    "with dry_run, what would be created; for a repeated request, what was created",
                    responses);
    if (r->status == 202 && route_takes_dry_run(r))
        add_success(d, r, 200, "with dry_run, what would be accepted", responses);
    if (r->flags & ROUTE_STREAM)
        put_doc_member(
            d, responses, "204",
            json_pack("{s:s}", "description",
                      "there are no events after Last-Event-ID, and there will be none"));
    if (r->flags & ROUTE_FILE)
        add_success(d, r, 206, "the part that Range names", responses);
    if (r->flags & (ROUTE_FILE | ROUTE_CACHED))
        put_doc_member(d, responses, "304",
                       json_pack("{s:s}", "description", "the client's copy is current"));
    for (size_t i = 0; i < API_N_ANSWERS; i++) {
        char key[8], name[32];

        if (!route_fails_with(r, &API_ANSWERS[i]))
            continue;
        snprintf(key, sizeof(key), "%d", API_ANSWERS[i].status);
        failure_name(&API_ANSWERS[i], r->flags & ROUTE_V2, name, sizeof(name));
        put_doc_member(d, responses, key, ref_to("responses", name));
    }
    if (r->flags & ROUTE_PROBE)
        add_probe(d, r, responses);
}

/* One alternative a role. */
static json_t *security(struct doc *d, const struct api_route *r)
{
    json_t *list = json_array();

    for (unsigned role = 1; r->access != ACCESS_PUBLIC && auth_role_name(role); role <<= 1)
        if (access_roles(r->access) & role)
            add_element(d, list, json_pack("{s:[s]}", "key", auth_role_name(role)));
    return list;
}

/* The first noun of the path groups operations in tools that show them. */
static json_t *route_tag(const struct api_route *r)
{
    const char *p = strncmp(r->path, "/api/v1/", 8) == 0 ? r->path + 8 : r->path + 1;

    return json_stringn(p, strcspn(p, "/"));
}

static void add_route(struct doc *d, const struct api_route *r)
{
    json_t *item = json_object_get(d->paths, r->path), *op, *params, *responses;
    char id[128], method[16];
    size_t n = 0;

    if (!item) {
        item = json_object();
        put_doc_member(d, d->paths, r->path, item);
    }
    operation_id(r, id, sizeof(id));
    params = json_array();
    responses = json_object();
    op = json_pack("{s:s, s:s, s:s, s:[o], s:o, s:o, s:o}", "operationId", id, "summary",
                   r->summary, "description", access_text(r->access), "tags", route_tag(r),
                   "parameters", params, "responses", responses, "security", security(d, r));
    for (; r->method[n] && n + 1 < sizeof(method); n++)
        method[n] = (char)tolower((unsigned char)r->method[n]);
    method[n] = '\0';
    put_doc_member(d, item, method, op);
    add_path_parameters(d, r, params);
    add_options(d, r, params);
    add_responses(d, r, responses);
    if (r->request)
        put_doc_member(d, op, "requestBody", request_body(d, r));
}

/* ---------------------------------------------------------------- the document */

static json_t *assemble(struct doc *d)
{
    json_t *info = json_pack("{s:s, s:s, s:s}", "title", "Shunt", "version", "1", "description",
                             "Multi-tenant GPU scheduler: inference protocol (/v2) and control "
                             "plane (/api/v1). HEAD works wherever GET does; OPTIONS lists the "
                             "methods of a path, and other methods get 405 with Allow.");
    json_t *key =
        json_pack("{s:s, s:s, s:s, s:s}", "type", "http", "scheme", "bearer", "bearerFormat",
                  "shunt_<id>_<secret>", "description", "An API key with one of the listed roles.");

    return json_pack("{s:s, s:o, s:[{s:s}], s:O, s:{s:O, s:O, s:{s:o}}}", "openapi", "3.1.0",
                     "info", info, "servers", "url", "/", "paths", d->paths, "components",
                     "schemas", d->schemas, "responses", d->responses, "securitySchemes", "key",
                     key);
}

int openapi_build(json_t **out, struct sh_err *err)
{
    struct doc d = {json_object(), json_object(), json_object(), false};
    int rc = SH_OK;

    add_schemas(&d);
    add_failures(&d);
    for (size_t i = 0; i < API_N_ROUTES; i++)
        add_route(&d, &API_ROUTES[i]);
    *out = assemble(&d);
    if (!*out || d.no_memory) {
        json_decref(*out);
        *out = NULL;
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the description");
    }
    json_decref(d.schemas);
    json_decref(d.responses);
    json_decref(d.paths);
    return rc;
}

struct openapi {
    char *text; /* OWNED */
    struct constant reply;
};

int openapi_new(struct openapi **out, struct sh_err *err)
{
    struct openapi *o = calloc(1, sizeof(*o));
    json_t *doc = NULL;
    int rc = o ? openapi_build(&doc, err) : SH_FAIL(err, SH_E_NOMEM, "could not allocate a text");

    *out = NULL;
    if (!rc)
        rc = sh_json_dump(doc, &o->text, err);
    json_decref(doc);
    if (!rc)
        rc = constant_init(&o->reply, o->text, strlen(o->text), "application/json", err);
    if (rc) {
        openapi_free(o);
        return rc;
    }
    *out = o;
    return SH_OK;
}

void openapi_free(struct openapi *o)
{
    if (!o)
        return;
    constant_fini(&o->reply);
    free(o->text);
    free(o);
}

int openapi_get(struct api_req *q, struct sh_err *err)
{
    (void)err;
    constant_reply(&q->api->openapi->reply, q);
    return SH_OK;
}

void openapi_print_docs(FILE *out)
{
    fprintf(out,
            "# REST API\n\nMade by `shunt-api --print-docs` from the route table "
            "(`api/routes.def`). `/openapi.json` has the schemas.\n\nEvery request except those "
            "marked \"no key\" carries `Authorization: Bearer shunt_...`. The key determines the "
            "tenant; an admin key names one with `?tenant=`. Failures are "
            "`application/problem+json` (`application/json` below `/v2`) with `code`, `error` and "
            "`request_id`. Requests that change something, except uploads, take `?dry_run=true`: "
            "everything is checked, nothing is stored, and the answer is 200 with the result that "
            "the change would have (204 for a DELETE). JSON and inference bodies may be compressed "
            "(`Content-Encoding: gzip` or `deflate`); lengths of their parts count uncompressed "
            "bytes.\n\n| method | path | who | answer | what |\n| --- | --- | --- | --- | --- |\n");
    for (size_t i = 0; i < API_N_ROUTES; i++) {
        const struct api_route *r = &API_ROUTES[i];

        fprintf(out, "| %s | `%s` | %s | %d | %s |\n", r->method, r->path, access_text(r->access),
                r->status, r->summary);
    }
}
