/* test_bodies.c - the body that is described is the body that is read: every handler of a JSON body
 * is called with the example of its description, and each table of fields that it hands to
 * sh_json_read() is compared with the schema.
 *
 * Without it a field, a bound or a "required" of the description could be another one than that of
 * the code, and nobody would know before a client does.
 */
/* uses: libapi.a */
/* link: -lmicrohttpd -lpq -lz -Wl,--wrap=sh_json_read -Wl,--wrap=db_exec -Wl,--wrap=db_tx */
/* link: -Wl,--wrap=db_tx_alone -Wl,--wrap=db_tx_around */
#include "api/api.h"
#include "api/cache/live.h"
#include "api/openapi.h"
#include "api/routes.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

int __real_sh_json_read(const json_t *obj, const char *what, const struct sh_json_field *f,
                        size_t n, struct sh_err *err);
int __wrap_sh_json_read(const json_t *obj, const char *what, const struct sh_json_field *f,
                        size_t n, struct sh_err *err);
int __wrap_db_exec(struct db *db, const struct db_stmt *s, const char *const *params,
                   struct db_res **out, struct sh_err *err);
int __wrap_db_tx(struct db *db, const char *name, db_tx_fn *fn, const void *arg,
                 struct sh_err *err);
int __wrap_db_tx_alone(struct db *db, const char *name, db_tx_fn *fn, const void *arg,
                       struct sh_err *err);
int __wrap_db_tx_around(struct db *db, const char *name, db_tx_fn *fn, const void *arg,
                        struct sh_err *err);

static const struct api_route *the_route;
static const json_t *the_schemas, *the_schema; /* all of them; of its body */
static size_t n_compared;

/* Handlers end where the database begins. */
int __wrap_db_exec(struct db *db, const struct db_stmt *s, const char *const *params,
                   struct db_res **out, struct sh_err *err)
{
    (void)db;
    (void)s;
    (void)params;
    if (out)
        *out = NULL;
    return SH_FAIL(err, SH_E_DBDOWN, "there is no database");
}

int __wrap_db_tx(struct db *db, const char *name, db_tx_fn *fn, const void *arg, struct sh_err *err)
{
    (void)db;
    (void)name;
    (void)fn;
    (void)arg;
    return SH_FAIL(err, SH_E_DBDOWN, "there is no database");
}

int __wrap_db_tx_alone(struct db *db, const char *name, db_tx_fn *fn, const void *arg,
                       struct sh_err *err)
{
    return __wrap_db_tx(db, name, fn, arg, err);
}

int __wrap_db_tx_around(struct db *db, const char *name, db_tx_fn *fn, const void *arg,
                        struct sh_err *err)
{
    return __wrap_db_tx(db, name, fn, arg, err);
}

static void differs(const char *what, const char *field, const char *how)
{
    fail_msg("%s %s: \"%s%s%s\": %s", the_route->method, the_route->path, what, what[0] ? "." : "",
             field, how);
}

/* The alternative of a oneOf that has the field, else the schema itself. */
static const json_t *with_field(const json_t *schema, const char *field)
{
    json_t *one;
    size_t i;

    json_array_foreach(json_object_get(schema, "oneOf"), i, one)
    {
        if (json_object_get(json_object_get(one, "properties"), field) &&
            json_object_get(one, "additionalProperties"))
            return one;
    }
    return schema;
}

/* what: "", or a path of names with dots. */
static const json_t *below(const json_t *schema, const char *what)
{
    char path[128], *rest = path;

    assert_true(strlen(what) < sizeof(path));
    sh_strlcpy(path, what, sizeof(path));
    for (char *step = strtok_r(path, ".", &rest); step; step = strtok_r(NULL, ".", &rest)) {
        size_t len = strlen(step);
        bool list = len > 2 && strcmp(step + len - 2, "[]") == 0;

        if (list)
            step[len - 2] = '\0';
        schema = json_object_get(json_object_get(with_field(schema, step), "properties"), step);
        if (list)
            schema = json_object_get(schema, "items");
    }
    return schema;
}

/* A body may hold another that has a schema of its own: a job, or a list of them. */
static const json_t *in_part(const char *what, const json_t *otherwise)
{
    static const char START[] = "#/components/schemas/";
    const char *name;
    json_t *property;

    json_object_foreach(json_object_get(the_schema, "properties"), name, property)
    {
        const json_t *items = json_object_get(property, "items");
        const json_t *ref = json_object_get(items ? items : property, "$ref");

        if (ref)
            return below(json_object_get(the_schemas, json_string_value(ref) + strlen(START)),
                         what);
    }
    return otherwise;
}

static bool has_type(const json_t *schema, const char *name)
{
    const json_t *type = json_object_get(schema, "type"), *one;
    size_t i;

    if (json_object_get(schema, "$ref")) /* only objects have a schema of their own */
        return strcmp(name, "object") == 0;
    if (json_is_string(type))
        return strcmp(json_string_value(type), name) == 0;
    json_array_foreach((json_t *)type, i, one)
    {
        if (strcmp(json_string_value(one), name) == 0)
            return true;
    }
    return false;
}

static bool is_text(const json_t *schema)
{
    return has_type(schema, "string") || json_object_get(schema, "enum") ||
           json_object_get(schema, "const");
}

static void compare_bound(const char *what, const struct sh_json_field *f, const json_t *schema,
                          const char *name, double bound)
{
    const json_t *j = json_object_get(schema, name);

    if (!j || json_number_value(j) != bound)
        differs(what, f->name, name);
}

static void compare_bounds(const char *what, const struct sh_json_field *f, const json_t *schema)
{
    bool limited = f->min != 0 || f->max != 0;

    switch (f->type) {
    case SH_JSON_INT:
    case SH_JSON_F64:
        if (limited)
            compare_bound(what, f, schema, "minimum", f->min);
        if (limited && f->max != 0)
            compare_bound(what, f, schema, "maximum", f->max);
        break;
    case SH_JSON_ARR:
        if (f->max > 0)
            compare_bound(what, f, schema, "maxItems", f->max);
        break;
    case SH_JSON_STR: /* else a list of words or a pattern says more, or the handler does */
        if (json_object_get(schema, "maxLength"))
            compare_bound(what, f, schema, "maxLength", f->max > 0 ? f->max : 4096);
        if (json_object_get(schema, "maxLength"))
            compare_bound(what, f, schema, "minLength", f->min);
        break;
    default:
        break;
    }
}

static void compare_field(const char *what, const struct sh_json_field *f, const json_t *object)
{
    static const char *const TYPE[] = {
        [SH_JSON_STR] = "string",   [SH_JSON_INT] = "integer", [SH_JSON_F64] = "number",
        [SH_JSON_BOOL] = "boolean", [SH_JSON_OBJ] = "object",  [SH_JSON_ARR] = "array",
    };
    const json_t *schema, *one;
    bool required = false;
    size_t i;

    object = with_field(object, f->name);
    schema = json_object_get(json_object_get(object, "properties"), f->name);
    if (!schema)
        differs(what, f->name, "not described");
    if (f->type != SH_JSON_ANY && !has_type(schema, TYPE[f->type]) &&
        !(f->type == SH_JSON_STR && is_text(schema)))
        differs(what, f->name, "of another type");
    json_array_foreach(json_object_get(object, "required"), i, one)
    {
        required |= strcmp(json_string_value(one), f->name) == 0;
    }
    if (required != f->required)
        differs(what, f->name, "required or not");
    compare_bounds(what, f, schema);
}

static void compare_names(const char *what, const json_t *object, const struct sh_json_field *f,
                          size_t n)
{
    const char *name;
    json_t *property, *one;
    size_t k;

    json_object_foreach(json_object_get(object, "properties"), name, property)
    {
        size_t i = 0;

        while (i < n && strcmp(f[i].name, name) != 0)
            i++;
        if (i == n)
            differs(what, name, "described, and not read");
    }
    json_array_foreach(json_object_get(object, "oneOf"), k, one) compare_names(what, one, f, n);
}

int __wrap_sh_json_read(const json_t *obj, const char *what, const struct sh_json_field *f,
                        size_t n, struct sh_err *err)
{
    const json_t *object = below(the_schema, what ? what : "");

    if (!object ||
        !json_object_get(json_object_get(with_field(object, f ? f->name : ""), "properties"),
                         f ? f->name : ""))
        object = in_part(what ? what : "", object);
    if (!object)
        differs(what, "", "not described");
    for (size_t i = 0; i < n; i++)
        compare_field(what, &f[i], object);
    compare_names(what, object, f, n);
    n_compared++;
    return __real_sh_json_read(obj, what, f, n, err);
}

static struct api api; /* nothing else of it is touched before the database is */

static void read_example(const json_t *schema)
{
    struct api_req q = {.api = &api, .route = the_route, .db = (struct db *)&api};
    struct sh_err err = {0};
    size_t before = n_compared;
    int rc;

    q.who.role = ROLE_ADMIN;
    for (size_t i = 0; i < API_MAX_PARAMS; i++)
        q.params[i] = strstr(the_route->path, "{key}")     ? "100000000000"
                      : strstr(the_route->path, "{alias}") ? "a"
                                                           : "1"; /* and names */
    assert_ok_err(uri_parse(the_route->path, &q.uri, &err), &err);
    q.json = json_deep_copy(json_array_get(json_object_get(schema, "examples"), 0));
    if (!q.json)
        q.json = json_object();
    rc = the_route->fn(&q, &err);
    if (n_compared == before)
        fail_msg("%s %s did not read its body", the_route->method, the_route->path);
    if (rc != SH_E_DBDOWN)
        fail_msg("%s %s refused the example: %s", the_route->method, the_route->path, err.msg);
    json_decref(q.json);
    req_reply_free(&q.reply);
}

static void what_is_described_is_what_is_read(void **state)
{
    static struct api_conf conf;
    struct sh_err err = {0};
    json_t *doc = NULL;

    (void)state;
    assert_ok_err(live_new(&API_CONF_TABLE, &conf, &api.live, &err), &err);
    assert_ok_err(openapi_build(&doc, &err), &err);
    for (size_t i = 0; i < API_N_ROUTES; i++) {
        const json_t *schemas = json_object_get(json_object_get(doc, "components"), "schemas");

        the_route = &API_ROUTES[i];
        if (the_route->body != BODY_JSON || (the_route->flags & ROUTE_V2))
            continue;
        the_schemas = schemas;
        the_schema = json_object_get(schemas, the_route->request);
        assert_non_null(the_schema);
        read_example(the_schema);
    }
    assert_in_range(n_compared, 10, 1000);
    json_decref(doc);
    live_free(api.live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_described_is_what_is_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
