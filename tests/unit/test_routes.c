/* test_routes.c - the route table, and the description that is made from it.
 *
 * Without it a route could be missing from /openapi.json (or the reverse), a status, a role or the
 * form of a name could be described otherwise than it is, a change could ignore If-Match, and a
 * pattern could swallow the fixed path beside it.
 */
/* uses: libapi.a */
/* link: -lmicrohttpd -lpq -lz */
#include "api/cache/auth.h"
#include "api/files/job_folder.h"
#include "api/openapi.h"
#include "api/request/contract.h"
#include "api/request/noun.h"
#include "api/routes.h"
#include "api/spec/alias.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

#include <ctype.h>
#include <regex.h>

static int find(const char *method, const char *url, const struct api_route **out,
                const char **params, char allow[static 64], struct sh_err *err)
{
    static struct uri u; /* params point into it */
    int rc = uri_parse(url, &u, err);

    return rc ? rc : route_find(method, &u, out, params, allow, err);
}

static json_t *document(void)
{
    struct sh_err err = {0};
    json_t *doc = NULL;

    assert_ok_err(openapi_build(&doc, &err), &err);
    return doc;
}

static void every_route_is_described(void **state)
{
    json_t *doc = document(), *paths = json_object_get(doc, "paths");

    (void)state;
    for (size_t i = 0; i < API_N_ROUTES; i++) {
        const struct api_route *r = &API_ROUTES[i];
        char method[16] = "";
        json_t *op;

        for (size_t k = 0; r->method[k]; k++)
            method[k] = (char)tolower((unsigned char)r->method[k]);
        op = json_object_get(json_object_get(paths, r->path), method);
        if (!op)
            fail_msg("%s %s is not in the description", r->method, r->path);
        assert_non_null(json_object_get(op, "summary"));
        assert_non_null(r->fn);
    }
    json_decref(doc);
}

static void everything_described_is_routed(void **state)
{
    json_t *doc = document(), *item, *op;
    const char *path, *method;
    size_t n = 0;

    (void)state;
    json_object_foreach(json_object_get(doc, "paths"), path, item)
    {
        json_object_foreach(item, method, op)
        {
            bool found = false;

            for (size_t i = 0; i < API_N_ROUTES; i++)
                found |= strcmp(API_ROUTES[i].path, path) == 0 &&
                         strcasecmp(API_ROUTES[i].method, method) == 0;
            if (!found)
                fail_msg("%s %s is described and not routed", method, path);
            n++;
        }
    }
    assert_int_equal(n, API_N_ROUTES); /* no route twice */
    json_decref(doc);
}

static bool leads_somewhere(const json_t *doc, const char *ref)
{
    char path[128], *rest = path;
    const json_t *at = doc;

    assert_true(strncmp(ref, "#/", 2) == 0 && strlen(ref) < sizeof(path));
    sh_strlcpy(path, ref + 2, sizeof(path));
    for (char *step = strtok_r(path, "/", &rest); step; step = strtok_r(NULL, "/", &rest))
        at = json_object_get(at, step);
    return at != NULL;
}

static void check_refs(const json_t *doc, const json_t *j)
{
    const char *key;
    json_t *v;
    size_t i;

    if (json_is_array(j))
        json_array_foreach((json_t *)j, i, v) check_refs(doc, v);
    json_object_foreach((json_t *)j, key, v)
    {
        if (strcmp(key, "$ref") == 0 && json_is_string(v) &&
            !leads_somewhere(doc, json_string_value(v)))
            fail_msg("there is no %s", json_string_value(v));
        check_refs(doc, v);
    }
}

static void every_reference_leads_somewhere(void **state)
{
    json_t *doc = document();

    (void)state;
    check_refs(doc, doc);
    json_decref(doc);
}

/* get or post, as the description has them; *out: BORROWED from doc. */
static json_t *operation(const json_t *doc, const struct api_route *r)
{
    char method[16] = "";

    for (size_t k = 0; r->method[k]; k++)
        method[k] = (char)tolower((unsigned char)r->method[k]);
    return json_object_get(json_object_get(json_object_get(doc, "paths"), r->path), method);
}

static const struct api_route *route(const char *method, const char *path)
{
    for (size_t i = 0; i < API_N_ROUTES; i++)
        if (strcmp(API_ROUTES[i].method, method) == 0 && strcmp(API_ROUTES[i].path, path) == 0)
            return &API_ROUTES[i];
    fail_msg("there is no route %s %s", method, path);
    return NULL;
}

static void the_statuses_described_are_those_that_a_reply_is_judged_by(void **state)
{
    json_t *doc = document();

    (void)state;
    for (size_t i = 0; i < API_N_ROUTES; i++) {
        const struct api_route *r = &API_ROUTES[i];
        const json_t *responses = json_object_get(operation(doc, r), "responses");

        for (int status = 200; status < 600; status++) {
            char key[8];

            snprintf(key, sizeof(key), "%d", status);
            if (route_answers(r, status) != (json_object_get(responses, key) != NULL))
                fail_msg("%s %s: %d", r->method, r->path, status);
        }
        assert_null(json_object_get(responses, "default"));
    }
    json_decref(doc);
}

static void statuses_follow_from_what_a_route_is(void **state)
{
    static const struct {
        const char *method, *path;
        int yes[12], no[8];
    } CASES[] = {
        {"GET", "/healthz", {200, 400, 500}, {401, 403, 404, 409, 412, 429}},
        {"GET", "/v2/health/ready", {200, 503}, {401, 403, 404}},
        {"GET", "/api/v1/models", {200, 400, 401, 403, 503, 504}, {201, 409, 412, 413, 415, 507}},
        {"POST", "/api/v1/models", {201, 200, 401, 403, 409, 413, 415, 422, 429, 507}, {411, 412}},
        {"PUT", "/api/v1/models/{model}/slo", {200, 404, 412, 415}, {201, 411}},
        {"DELETE", "/api/v1/models/{model}", {204, 404, 409, 412}, {200, 413, 415, 422}},
        {"POST", "/api/v1/models/{model}/load", {202, 200, 404, 409}, {201, 412}},
        {"GET", "/api/v1/jobs/{job}/events", {200, 204, 404}, {201, 409}},
        {"GET", "/api/v1/jobs/{job}/losses", {200, 404}, {204, 501}},
        {"GET", "/api/v1/jobs/{job}/log", {200, 206, 404, 416}, {204, 501}},
        {"POST", "/v2/cudasharedmemory/region/{region}/register", {501, 400}, {409, 412}},
        {"POST", "/v2/models/{model}/infer", {200, 404, 409, 411, 413, 422, 429, 503, 504}, {412}},
    };

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        const struct api_route *r = route(CASES[i].method, CASES[i].path);

        for (size_t k = 0; CASES[i].yes[k]; k++)
            if (!route_answers(r, CASES[i].yes[k]))
                fail_msg("%s %s cannot answer %d", r->method, r->path, CASES[i].yes[k]);
        for (size_t k = 0; CASES[i].no[k]; k++)
            if (route_answers(r, CASES[i].no[k]))
                fail_msg("%s %s can answer %d", r->method, r->path, CASES[i].no[k]);
    }
}

/* Every status that a code of err.h can become is some route's answer, or of no route at all. */
static void every_code_has_its_status(void **state)
{
    (void)state;
    for (int rc = -1; strcmp(sh_rc_name(rc), "?") != 0; rc--) {
        bool found = rc == SH_E_METHOD || rc == SH_E_CANCELLED; /* of a path; nobody is there */

        for (size_t i = 0; i < API_N_ANSWERS; i++)
            found |= API_ANSWERS[i].status == sh_rc_http(rc);
        if (!found)
            fail_msg("%s is %d, which no route answers", sh_rc_name(rc), sh_rc_http(rc));
    }
}

static void roles_are_described_as_they_are_checked(void **state)
{
    json_t *doc = document();

    (void)state;
    for (size_t i = 0; i < API_N_ROUTES; i++) {
        const struct api_route *r = &API_ROUTES[i];
        const json_t *security = json_object_get(operation(doc, r), "security");
        size_t n = 0;

        for (unsigned role = 1; auth_role_name(role); role <<= 1)
            n += r->access != ACCESS_PUBLIC && (access_roles(r->access) & role);
        assert_int_equal(json_array_size(security), n);
    }
    json_decref(doc);
}

static void every_operation_has_a_name_of_its_own(void **state)
{
    json_t *doc = document(), *names = json_object();

    (void)state;
    for (size_t i = 0; i < API_N_ROUTES; i++) {
        const json_t *id = json_object_get(operation(doc, &API_ROUTES[i]), "operationId");

        assert_true(json_is_string(id));
        json_object_set_new(names, json_string_value(id), json_true());
    }
    assert_int_equal(json_object_size(names), API_N_ROUTES);
    json_decref(names);
    json_decref(doc);
}

static void what_has_a_version_is_changed_by_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < API_N_ROUTES; i++) {
        const struct api_route *r = &API_ROUTES[i];
        bool changes = strcmp(r->method, "PUT") == 0 || strcmp(r->method, "PATCH") == 0 ||
                       strcmp(r->method, "DELETE") == 0;

        if (!changes || (r->flags & ROUTE_ETAG))
            continue;
        /* A key is revoked or not, a file is there or not; nothing else of it could have changed.
         */
        if (!strstr(r->path, "/keys/{key}") && !strstr(r->path, "/jobs/{job}/"))
            fail_msg("%s %s does not look at If-Match", r->method, r->path);
    }
}

static void names_are_described_as_they_are_checked(void **state)
{
    static const char *const NAMES[] = {"a",
                                        "A",
                                        "0",
                                        "-a",
                                        "_a",
                                        ".a",
                                        "a.b",
                                        "a_b",
                                        "a-",
                                        "a b",
                                        "",
                                        "a/b",
                                        "12",
                                        "1.0",
                                        "+1",
                                        "01",
                                        "\xc3\xa4",
                                        "a\n",
                                        "zzzz",
                                        "9",
                                        "2147483647",
                                        "losses.json",
                                        "log.txt",
                                        "log_txt",
                                        "ckpt-0.safetensors",
                                        "ckpt-07.safetensors",
                                        "ckpt-1234567890.safetensors",
                                        "ckpt-.safetensors",
                                        "ckpt-1-.safetensors",
                                        "ckpt-1-gpu0.safetensors",
                                        "ckpt-1--x.safetensors",
                                        "ckpt-1-a.b_c-d.safetensors",
                                        "ckpt-1-a b.safetensors",
                                        "ckpt-1gpu0.safetensors",
                                        "trained_onnx"};

    (void)state;
    for (size_t i = 0; i < API_N_PATH_PARAMS; i++) {
        json_t *schema = schema_build(&API_PATH_PARAMS[i].schema);
        int64_t step;
        regex_t re;

        assert_non_null(schema);
        for (size_t k = 0; json_object_get(schema, "pattern") && k < SH_ARRAY_LEN(NAMES); k++) {
            const char *pattern = json_string_value(json_object_get(schema, "pattern"));
            bool described, taken;

            assert_int_equal(regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB), 0);
            described = regexec(&re, NAMES[k], 0, NULL, 0) == 0;
            regfree(&re);
            if (strstr(pattern, "losses"))
                taken = job_folder_is_name(NAMES[k], &step);
            else if (strstr(pattern, "A-Z"))
                taken = noun_is_name(NAMES[k]);
            else if (strstr(pattern, "{12}") || strstr(pattern, "{64}") || strchr(pattern, '|'))
                continue;
            else if (strcmp(pattern, SH_ALIAS_PATTERN) == 0)
                taken = sh_alias_is_name(NAMES[k]);
            else
                taken = noun_is_tenant_name(NAMES[k]);
            if (described != taken)
                fail_msg("{%s}: \"%s\"", API_PATH_PARAMS[i].name, NAMES[k]);
        }
        json_decref(schema);
    }
}

static void parameters_come_in_the_order_of_the_pattern(void **state)
{
    const struct api_route *r = NULL;
    const char *params[API_MAX_PARAMS];
    struct sh_err err = {0};
    char allow[64];

    (void)state;
    assert_ok_err(find("PUT", "/api/v1/models/m.1/versions/7/artifact", &r, params, allow, &err),
                  &err);
    assert_string_equal(r->path, "/api/v1/models/{model}/versions/{version}/artifact");
    assert_string_equal(params[0], "m.1");
    assert_string_equal(params[1], "7");
    assert_null(params[2]);
}

static void a_fixed_path_hides_the_pattern_beside_it(void **state)
{
    const struct api_route *r = NULL;
    const char *params[API_MAX_PARAMS];
    struct sh_err err = {0};
    char allow[64];

    (void)state;
    assert_ok_err(find("GET", "/v2/models/stats", &r, params, allow, &err), &err);
    assert_string_equal(r->path, "/v2/models/stats");
    assert_ok_err(find("GET", "/v2/models/statsx", &r, params, allow, &err), &err);
    assert_string_equal(r->path, "/v2/models/{model}");
    assert_null(params[1]);
}

/* Segment by segment, with copies: slower than the real one, and plainer. */
static bool fits(const char *pattern, const char *url)
{
    char a[256], b[256], *p = a, *u = b;

    sh_strlcpy(a, pattern + 1, sizeof(a));
    sh_strlcpy(b, url + 1, sizeof(b));
    while (p && u) {
        const char *want = strsep(&p, "/"), *have = strsep(&u, "/");

        if (want[0] == '{' ? !have[0] : strcmp(want, have) != 0)
            return false;
    }
    return !p && !u;
}

static void check_url(const char *url)
{
    for (size_t i = 0; i < API_N_ROUTES; i++) {
        const char *method = API_ROUTES[i].method, *params[API_MAX_PARAMS];
        const struct api_route *got = NULL, *want = NULL;
        struct sh_err err = {0};
        char allow[64];

        for (size_t k = 0; k < API_N_ROUTES && !want; k++)
            if (strcmp(API_ROUTES[k].method, method) == 0 && fits(API_ROUTES[k].path, url))
                want = &API_ROUTES[k];
        find(method, url, &got, params, allow, &err);
        if (got != want)
            fail_msg("%s %s is %s, not %s", method, url, got ? got->path : "nothing",
                     want ? want->path : "nothing");
    }
}

/* The pattern as a URL, but for what is changed in segment `at` (-1: in none). */
static void check_change(const char *pattern, int at, int how)
{
    static const char *const VALUE[] = {"7", "models", "stat", "statsx", "{model}"};
    char copy[256], url[512] = "", *rest = copy;
    int n = 0;

    sh_strlcpy(copy, pattern + 1, sizeof(copy));
    while (rest) {
        const char *seg = strsep(&rest, "/");
        size_t len = strlen(url);
        bool is_at = n++ == at, is_param = seg[0] == '{';

        if (is_at && how == 0)
            snprintf(url + len, sizeof(url) - len, "/"); /* empty */
        else if (is_at && how == 1)
            snprintf(url + len, sizeof(url) - len, "/%.*s", (int)strlen(seg) - 1, seg);
        else if (is_at && how == 2)
            snprintf(url + len, sizeof(url) - len, "/%sx", seg);
        else if (is_at && how == 3)
            snprintf(url + len, sizeof(url) - len, "/%s/%s", seg, seg);
        else if (is_at && how == 9)
            snprintf(url + len, sizeof(url) - len, "/%.*s/", (int)strlen(seg) - 1, seg);
        else if (!is_at || how < 9)
            snprintf(url + len, sizeof(url) - len, "/%s",
                     is_param ? VALUE[is_at ? how - 4 : 0] : seg);
    }
    check_url(url[0] ? url : "/");
}

static void a_path_that_is_nearly_a_pattern_is_none(void **state)
{
    (void)state;
    for (size_t i = 0; i < API_N_ROUTES; i++) {
        const char *path = API_ROUTES[i].path;
        int n = 0;

        for (const char *c = path; *c; c++)
            n += *c == '/';
        check_change(path, -1, 0);
        for (int at = 0; at < n; at++)
            for (int how = 0; how <= 10; how++)
                check_change(path, at, how); /* 10: without this segment */
    }
    check_url("/");
    check_url("//");
    check_url("/v2/");
    check_url("/v2/models/a/");
}

static void head_is_get_and_a_wrong_method_names_the_right_ones(void **state)
{
    const struct api_route *r = NULL;
    const char *params[API_MAX_PARAMS];
    struct sh_err err = {0};
    char allow[64];

    (void)state;
    assert_ok_err(find("HEAD", "/api/v1/jobs/3", &r, params, allow, &err), &err);
    assert_string_equal(r->method, "GET");
    assert_fails(find("DELETE", "/api/v1/models", &r, params, allow, &err), SH_E_METHOD, &err,
                 "DELETE");
    assert_string_equal(allow, "GET, HEAD, POST, OPTIONS");
}

static void a_url_is_split_before_it_is_decoded(void **state)
{
    static const char *const BAD[] = {"/a%2Fb",   "/a%2fb",   "/a%00",    "/a%",        "/a%4",
                                      "/a%zz",    "relative", "/a?x=%00", "/a?x=1&x=2", "/a%FF",
                                      "/a?x=%C3", "/a\xff",   "/a?%80=1"};
    struct sh_err err = {0};
    struct uri u;

    (void)state;
    assert_ok_err(uri_parse("/%C3%A4", &u, &err), &err);
    assert_string_equal(u.segments[0], "\xc3\xa4");
    assert_ok_err(uri_parse("/a%20b/c%2Bd?x=1+2&y=%26&z", &u, &err), &err);
    assert_int_equal(u.n_segments, 2);
    assert_string_equal(u.segments[0], "a b");
    assert_string_equal(u.segments[1], "c+d");
    assert_string_equal(uri_query(&u, "x"), "1 2");
    assert_string_equal(uri_query(&u, "y"), "&");
    assert_string_equal(uri_query(&u, "z"), "");
    assert_null(uri_query(&u, "q"));
    for (size_t i = 0; i < SH_ARRAY_LEN(BAD); i++) {
        err = (struct sh_err){0};
        if (uri_parse(BAD[i], &u, &err) != SH_E_INVALID)
            fail_msg("\"%s\" was taken", BAD[i]);
    }
}

static void an_endless_url_is_refused(void **state)
{
    char url[URI_MAX_BYTES + 10];
    struct sh_err err = {0};
    struct uri u;

    (void)state;
    memset(url, 'a', sizeof(url));
    url[0] = '/';
    url[sizeof(url) - 1] = '\0';
    assert_fails(uri_parse(url, &u, &err), SH_E_TOOBIG, &err, "at most");
    err = (struct sh_err){0};
    assert_fails(uri_parse("/a/a/a/a/a/a/a/a/a/a/a/a/a/a", &u, &err), SH_E_NOTFOUND, &err,
                 "segments");
    err = (struct sh_err){0};
    assert_fails(uri_parse("/?a&b&c&d&e&f&g&h&i&j&k&l&m&n&o&p&q", &u, &err), SH_E_INVALID, &err,
                 "16 query");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_route_is_described),
        cmocka_unit_test(everything_described_is_routed),
        cmocka_unit_test(every_reference_leads_somewhere),
        cmocka_unit_test(the_statuses_described_are_those_that_a_reply_is_judged_by),
        cmocka_unit_test(statuses_follow_from_what_a_route_is),
        cmocka_unit_test(every_code_has_its_status),
        cmocka_unit_test(roles_are_described_as_they_are_checked),
        cmocka_unit_test(every_operation_has_a_name_of_its_own),
        cmocka_unit_test(what_has_a_version_is_changed_by_it),
        cmocka_unit_test(names_are_described_as_they_are_checked),
        cmocka_unit_test(parameters_come_in_the_order_of_the_pattern),
        cmocka_unit_test(a_fixed_path_hides_the_pattern_beside_it),
        cmocka_unit_test(a_path_that_is_nearly_a_pattern_is_none),
        cmocka_unit_test(head_is_get_and_a_wrong_method_names_the_right_ones),
        cmocka_unit_test(a_url_is_split_before_it_is_decoded),
        cmocka_unit_test(an_endless_url_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
