/* field.c - see field.h. */
#include "common/field.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

static bool is_nullable(const struct sh_field *f)
{
    return strcmp(f->value, "null") == 0;
}

/* NULL: no memory. */
static json_t *number(const struct sh_field *f, double v)
{
    return f->type == SH_JSON_INT ? json_integer((json_int_t)v) : json_real(v);
}

static json_t *value_of(const struct sh_field *f)
{
    return is_nullable(f) ? json_null() : number(f, strtod(f->value, NULL));
}

int sh_fields_read(const json_t *obj, const char *what, const struct sh_field *f, size_t n,
                   json_t **out, struct sh_err *err)
{
    struct sh_json_field *read = calloc(n, sizeof(*read));
    union number {
        int64_t i;
        double f;
    } *numbers = calloc(n, sizeof(*numbers));
    int rc = SH_OK;

    *out = json_object();
    if (!read || !numbers || !*out)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu fields", n);
    for (size_t i = 0; !rc && i < n; i++)
        read[i] = (struct sh_json_field){.name = f[i].name,
                                         .type = f[i].type,
                                         .out = &numbers[i],
                                         .min = f[i].min,
                                         .max = f[i].max};
    if (!rc)
        rc = sh_json_read(obj, what, read, n, err);
    for (size_t i = 0; !rc && i < n; i++) {
        const json_t *given = json_object_get(obj, f[i].name);
        json_t *v =
            json_is_number(given) ? number(&f[i], json_number_value(given)) : value_of(&f[i]);

        if (json_object_set_new(*out, f[i].name, v))
            rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu fields", n);
    }
    free(read);
    free(numbers);
    if (rc) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}

json_t *sh_fields_schema(const struct sh_field *f, size_t n)
{
    json_t *all = json_object();

    for (size_t i = 0; all && i < n; i++) {
        const char *type = f[i].type == SH_JSON_INT ? "integer" : "number";
        json_t *types = is_nullable(&f[i]) ? json_pack("[s, s]", type, "null") : json_string(type);
        json_t *one =
            json_pack("{s:o, s:f, s:f, s:o, s:s}", "type", types, "minimum", f[i].min, "maximum",
                      f[i].max, "default", value_of(&f[i]), "description", f[i].text);

        if (json_object_set_new(all, f[i].name, one)) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
}
