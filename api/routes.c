/* routes.c - see routes.h. */
#include "api/routes.h"

#include "api/handlers.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>

#define KIB 1024
#define T ROUTE_TENANT
#define QUEUES "/api/v1/queues"
#define TENANTS "/api/v1/tenants"
#define TENANT TENANTS "/{tenant}"
#define KEYS TENANT "/keys"
#define MODELS "/api/v1/models"
#define MODEL MODELS "/{model}"
#define VERSIONS MODEL "/versions"
#define VERSION VERSIONS "/{version}"
#define ALIASES MODEL "/aliases"
#define ALIAS ALIASES "/{alias}"
#define DATASETS "/api/v1/datasets"
#define DATASET DATASETS "/{dataset}"
#define JOBS "/api/v1/jobs"
#define JOB JOBS "/{job}"
#define ARRAYS "/api/v1/job-arrays"
#define ARRAY ARRAYS "/{array}"
#define V2 ROUTE_V2 | ROUTE_HERE
#define DOCS_FILE "a page of the documentation, or a file that one loads"
#define PROBE V2 | ROUTE_PROBE
#define V2M "/v2/models/{model}"
#define V2V V2M "/versions/{choice}"

const struct api_route API_ROUTES[] = {
#define ROUTE(handler, ...) {.fn = handler, __VA_ARGS__},
#include "api/routes.def"
#undef ROUTE
};
const size_t API_N_ROUTES = SH_ARRAY_LEN(API_ROUTES);

unsigned access_roles(enum api_access a)
{
    static const unsigned ROLES[API_N_ACCESS] = {
        [ACCESS_PUBLIC] = 0,
        [ACCESS_ANY] = ROLE_ADMIN | ROLE_TENANT_ADMIN | ROLE_SUBMIT | ROLE_INFER | ROLE_READ,
        [ACCESS_READ] = ROLE_ADMIN | ROLE_TENANT_ADMIN | ROLE_SUBMIT | ROLE_READ,
        [ACCESS_INFER] = ROLE_ADMIN | ROLE_TENANT_ADMIN | ROLE_SUBMIT | ROLE_INFER,
        [ACCESS_SUBMIT] = ROLE_ADMIN | ROLE_TENANT_ADMIN | ROLE_SUBMIT,
        [ACCESS_MANAGE] = ROLE_ADMIN | ROLE_TENANT_ADMIN,
        [ACCESS_PLATFORM] = ROLE_ADMIN,
        [ACCESS_EXECUTOR] = ROLE_EXECUTOR,
    };

    return ROLES[a];
}

const char *access_text(enum api_access a)
{
    static const char *const TEXT[API_N_ACCESS] = {
        [ACCESS_PUBLIC] = "no key",
        [ACCESS_ANY] = "any key",
        [ACCESS_READ] = "a key of role admin, tenant-admin, submit or read",
        [ACCESS_INFER] = "a key of role admin, tenant-admin, submit or infer",
        [ACCESS_SUBMIT] = "a key of role admin, tenant-admin or submit",
        [ACCESS_MANAGE] = "a key of role admin or tenant-admin",
        [ACCESS_PLATFORM] = "an admin key",
        [ACCESS_EXECUTOR] = "the key of the executors",
    };

    return TEXT[a];
}

static bool matches_uri(const char *pattern, const struct uri *u, const char **params)
{
    size_t seg = 0, n_params = 0;

    for (const char *p = pattern; *p; seg++) {
        const char *have = seg < u->n_segments ? u->segments[seg] : NULL;

        if (!have)
            return false;
        if (*++p == '{') { /* p stood on the slash before the segment */
            if (!have[0] || n_params == API_MAX_PARAMS)
                return false;
            params[n_params++] = have;
            p += strcspn(p, "/");
            continue;
        }
        while (*p && *p != '/' && *p == *have)
            p++, have++;
        if (*have || (*p && *p != '/'))
            return false;
    }
    for (; n_params < API_MAX_PARAMS; n_params++)
        params[n_params] = NULL;
    return seg == u->n_segments;
}

static void allow_add(char allow[static 64], const char *method)
{
    size_t n = strlen(allow);

    if (strstr(allow, method))
        return;
    snprintf(allow + n, 64 - n, "%s%s%s", n ? ", " : "", method,
             strcmp(method, "GET") == 0 ? ", HEAD" : "");
}

int route_find(const char *method, const struct uri *u, const struct api_route **out,
               const char **params, char allow[static 64], struct sh_err *err)
{
    const char *want = strcmp(method, "HEAD") == 0 ? "GET" : method;
    const char *tried[API_MAX_PARAMS];
    const char first = u->n_segments ? u->segments[0][0] : '\0';
    const struct api_route *other = NULL;

    /* Few get as far as matches_uri(). No path begins with a {}. */
    allow[0] = '\0';
    for (size_t i = 0; i < API_N_ROUTES; i++) {
        const struct api_route *r = &API_ROUTES[i];

        if (r->path[1] != first || strcmp(r->method, want) != 0 || !matches_uri(r->path, u, tried))
            continue;
        *out = r;
        memcpy(params, tried, sizeof(tried));
        return SH_OK;
    }
    for (size_t i = 0; i < API_N_ROUTES; i++) {
        if (!matches_uri(API_ROUTES[i].path, u, tried))
            continue;
        other = &API_ROUTES[i];
        allow_add(allow, other->method);
    }
    if (!other)
        return SH_FAIL(err, SH_E_NOTFOUND,
                       "there is nothing at this URL; see /openapi.json, or /console in a browser");
    allow_add(allow, "OPTIONS");
    return SH_FAIL(err, SH_E_METHOD, "%s is not allowed here; allowed: %s", method, allow);
}
