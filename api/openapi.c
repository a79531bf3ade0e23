/* openapi.c - see openapi.h. */
#include "api/openapi.h"

#include "api/api.h"
#include "api/handlers.h"
#include "api/routes.h"
#include "common/mem.h"

#include <ctype.h>
#include <stdlib.h>

static int add_schema(json_t *schemas, const struct api_schema *s, struct sh_err *err)
{
    char *text = NULL;
    json_error_t e;
    json_t *j = NULL;
    int rc = sh_strdup(s->json, &text, err);

    if (rc)
        return rc;
    for (char *p = text; *p; p++)
        if (*p == '\'')
            *p = '"';
    j = json_loads(text, 0, &e);
    if (!j)
        rc = SH_FAIL(err, SH_E_BUG, "schema \"%s\" is wrong: %s", s->name, e.text);
    else if (json_object_set_new(schemas, s->name, j))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the description");
    free(text);
    return rc;
}

static json_t *ref(const char *name)
{
    char path[96];

    snprintf(path, sizeof(path), "#/components/schemas/%s", name);
    return json_pack("{s:s}", "$ref", path);
}

/* "[x]": a page of x. */
static json_t *schema_of(const char *name)
{
    char inner[64];
    size_t len = strlen(name);

    if (name[0] != '[')
        return ref(name);
    sh_strlcpy(inner, name + 1, SH_MIN(sizeof(inner), len - 1));
    return json_pack("{s:s, s:{s:{s:s, s:o}, s:{s:s}}}", "type", "object", "properties", "items",
                     "type", "array", "items", ref(inner), "next_cursor", "type", "string");
}

static json_t *media(const struct api_route *r, const char *schema)
{
    const char *type =
        strcmp(schema, "Binary") == 0 ? "application/octet-stream" : "application/json";
    json_t *body = strcmp(schema, "Binary") == 0 ? json_object()
                                                 : json_pack("{s:o}", "schema", schema_of(schema));
    json_t *j = json_pack("{s:o}", type, body);

    if (j && r->body == BODY_INFER)
        json_object_set_new(j, "application/octet-stream", json_object());
    return j;
}

static json_t *parameter(const char *name, const char *in, const char *type, const char *text)
{
    return json_pack("{s:s, s:s, s:b, s:{s:s}, s:s}", "name", name, "in", in, "required",
                     strcmp(in, "path") == 0, "schema", "type", type, "description", text);
}

static void add_path_parameters(const struct api_route *r, json_t *list)
{
    char name[64];

    for (const char *p = strchr(r->path, '{'); p; p = strchr(p + 1, '{')) {
        bool number;

        sh_strlcpy(name, p + 1, SH_MIN(sizeof(name), strcspn(p, "}")));
        number = strcmp(name, "version") == 0 || strcmp(name, "job") == 0;
        json_array_append_new(list, parameter(name, "path", number ? "integer" : "string", ""));
    }
}

static json_t *parameters_of(const struct api_route *r)
{
    json_t *list = json_array();

    add_path_parameters(r, list);
    if ((r->flags & (ROUTE_TENANT | ROUTE_V2)) && r->access != ACCESS_PUBLIC)
        json_array_append_new(
            list, parameter("tenant", "query", "string", "whose things; needed with an admin key"));
    if (r->flags & ROUTE_LIST) {
        json_array_append_new(list, parameter("limit", "query", "integer",
                                              "at most so many; 100 if absent, never above 1000"));
        json_array_append_new(
            list, parameter("cursor", "query", "string", "next_cursor of the page before"));
    }
    if (r->flags & ROUTE_RANGE) {
        json_array_append_new(list,
                              parameter("offset", "query", "integer", "leave out so many; 0"));
        json_array_append_new(list,
                              parameter("limit", "query", "integer",
                                        "at most so many; 10000 if absent, never above 100000"));
    }
    for (const struct api_param *p = r->query; p && p->name; p++)
        json_array_append_new(list, parameter(p->name, "query", p->type, p->text));
    if (r->flags & ROUTE_ETAG)
        json_array_append_new(list, parameter("If-Match", "header", "string",
                                              "the ETag that was read; 412 if it is not current"));
    if (r->flags & ROUTE_FILE) {
        json_array_append_new(list, parameter("Range", "header", "string",
                                              "bytes=from-to: this part of the file, with 206"));
        json_array_append_new(
            list, parameter("If-Range", "header", "string", "the ETag that the part has to be of"));
        json_array_append_new(list, parameter("If-None-Match", "header", "string",
                                              "304 if the ETag is one of these"));
    }
    if (r->fn == jobs_events)
        json_array_append_new(list, parameter("Last-Event-ID", "header", "integer",
                                              "of a stream: only what came after this event"));
    if (r->fn == jobs_create)
        json_array_append_new(list, parameter("Idempotency-Key", "header", "string",
                                              "repeating it within a day gives the first "
                                              "answer again; 422 with another body, 409 "
                                              "while the first request is carried out"));
    if (r->body == BODY_MODEL || r->body == BODY_DATASET)
        json_array_append_new(
            list, parameter("Content-Digest", "header", "string", "sha-256=:base64: of the file"));
    return list;
}

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
    out[n] = '\0';
}

static json_t *responses_of(const struct api_route *r)
{
    char status[8];
    json_t *ok = json_pack("{s:s}", "description", "success");
    json_t *problem =
        json_pack("{s:s, s:{s:{s:o}}}", "description", "a failure", "content",
                  r->flags & ROUTE_V2 ? "application/json" : "application/problem+json", "schema",
                  ref("Problem"));

    snprintf(status, sizeof(status), "%d", r->status);
    if (r->response)
        json_object_set_new(ok, "content", media(r, r->response));
    if (r->fn == jobs_events) { /* also as a stream; 204: all of it was heard already */
        json_object_set_new(json_object_get(ok, "content"), "text/event-stream",
                            json_pack("{s:{s:s}}", "schema", "type", "string"));
        return json_pack("{s:o, s:{s:s}, s:o}", status, ok, "204", "description",
                         "nothing came after Last-Event-ID, and nothing will", "default", problem);
    }
    return json_pack("{s:o, s:o}", status, ok, "default", problem);
}

static json_t *operation_of(const struct api_route *r)
{
    char id[128];
    json_t *op;

    operation_id(r, id, sizeof(id));
    op = json_pack("{s:s, s:s, s:s, s:o, s:o}", "operationId", id, "summary", r->summary,
                   "description", access_text(r->access), "parameters", parameters_of(r),
                   "responses", responses_of(r));
    if (op && r->request)
        json_object_set_new(op, "requestBody",
                            json_pack("{s:b, s:o}", "required", !(r->flags & ROUTE_OPTIONAL),
                                      "content", media(r, r->request)));
    if (op && r->access == ACCESS_PUBLIC)
        json_object_set_new(op, "security", json_array());
    return op;
}

static int add_route(json_t *paths, const struct api_route *r, struct sh_err *err)
{
    json_t *item = json_object_get(paths, r->path);
    char method[16];
    size_t n = 0;

    if (!item) {
        item = json_object();
        if (json_object_set_new(paths, r->path, item))
            return SH_FAIL(err, SH_E_NOMEM, "could not allocate the description");
    }
    for (; r->method[n] && n + 1 < sizeof(method); n++)
        method[n] = (char)tolower((unsigned char)r->method[n]);
    method[n] = '\0';
    if (json_object_set_new(item, method, operation_of(r)))
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the description");
    return SH_OK;
}

int openapi_build(json_t **out, struct sh_err *err)
{
    json_t *schemas = json_object(), *paths = json_object();
    int rc = SH_OK;

    *out = NULL;
    for (size_t i = 0; !rc && i < API_N_SCHEMAS; i++)
        rc = add_schema(schemas, &API_SCHEMAS[i], err);
    for (size_t i = 0; !rc && i < API_N_ROUTES; i++)
        rc = add_route(paths, &API_ROUTES[i], err);
    if (!rc)
        *out =
            json_pack("{s:s, s:{s:s, s:s, s:s}, s:O, s:{s:O, s:{s:{s:s, s:s}}}, s:[{s:[]}]}",
                      "openapi", "3.1.0", "info", "title", "Shunt", "version", "1", "description",
                      "Multi-tenant GPU scheduler: inference protocol and control plane.", "paths",
                      paths, "components", "schemas", schemas, "securitySchemes", "key", "type",
                      "http", "scheme", "bearer", "security", "key");
    if (!rc && !*out)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the description");
    json_decref(schemas);
    json_decref(paths);
    return rc;
}

int openapi_get(struct api_req *q, struct sh_err *err)
{
    (void)err;
    q->reply.text = q->api->openapi;
    q->reply.text_type = "application/json";
    return SH_OK;
}

void openapi_print_docs(FILE *out)
{
    fprintf(out,
            "# REST API\n\nMade by `shunt-api --print-docs` from the route table "
            "(`api/routes.c`). `/openapi.json` has the schemas.\n\n"
            "Every request but those marked \"no key\" carries `Authorization: Bearer shunt_...`. "
            "The tenant is the key's; an admin key names one with `?tenant=`. Failures are "
            "`application/problem+json` (`application/json` below `/v2`) with `code`, `error` and "
            "`request_id`.\n\n| method | path | who | answer | what |\n| --- | --- | --- | --- | "
            "--- |\n");
    for (size_t i = 0; i < API_N_ROUTES; i++) {
        const struct api_route *r = &API_ROUTES[i];

        fprintf(out, "| %s | `%s` | %s | %d | %s |\n", r->method, r->path, access_text(r->access),
                r->status, r->summary);
    }
}
