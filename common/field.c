/* field.c - see field.h. */
#include "common/field.h"

#include "common/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_nullable(const struct sh_field *f)
{
    return f->value && strcmp(f->value, "null") == 0;
}

static bool is_number_field(const struct sh_field *f)
{
    return f->type == SH_JSON_INT || f->type == SH_JSON_F64;
}

/* NULL: no memory. */
static json_t *number_in_type(const struct sh_field *f, double v)
{
    return f->type == SH_JSON_INT ? json_integer((json_int_t)v) : json_real(v);
}

static json_t *number_of_value(const struct sh_field *f)
{
    if (is_nullable(f))
        return json_null();
    if (f->type == SH_JSON_BOOL)
        return json_boolean(strcmp(f->value, "true") == 0);
    return is_number_field(f) ? number_in_type(f, strtod(f->value, NULL)) : json_string(f->value);
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
        json_t *v = json_is_number(given) ? number_in_type(&f[i], json_number_value(given))
                                          : number_of_value(&f[i]);

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

/* ------------------------------------------------------------------ into a struct */

void sh_fields_preset(const struct sh_fields *f, void *base)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct sh_field *one = &f->list[i];
        void *at = (char *)base + one->offset;

        if (one->part != f->part || !one->value || one->required)
            continue;
        if (one->type == SH_JSON_INT)
            *(int64_t *)at = strtoll(one->value, NULL, 10);
        else if (one->type == SH_JSON_F64)
            *(double *)at = strtod(one->value, NULL);
        else if (one->type == SH_JSON_BOOL)
            *(bool *)at = strcmp(one->value, "true") == 0;
        else if (one->type == SH_JSON_STR)
            *(const char **)at = one->value;
    }
}

/* Of those that are there: sh_json_read() has looked at the rest. */
static int check_above(const json_t *obj, const char *what, const struct sh_fields *f,
                       struct sh_err *err)
{
    int rc = SH_OK;

    for (size_t i = 0; i < f->n; i++) {
        const struct sh_field *one = &f->list[i];
        const json_t *v;
        char path[128];
        int no;

        if (one->part != f->part || !one->above)
            continue;
        v = json_object_get(obj, one->name);
        if (!json_is_number(v) || json_number_value(v) != one->min)
            continue;
        snprintf(path, sizeof(path), "%s%s%s", what, what[0] ? "." : "", one->name);
        no = sh_json_fail(err, path, "\"%s\" must be above %g", path, one->min);
        rc = rc ? rc : no;
    }
    return rc;
}

int sh_fields_take(const json_t *obj, const char *what, const struct sh_fields *f, void *base,
                   struct sh_err *err)
{
    struct sh_json_field read[SH_JSON_MAX_FIELDS];
    size_t n = 0;
    int rc, above;

    for (size_t i = 0; i < f->n; i++) {
        const struct sh_field *one = &f->list[i];

        if (one->part != f->part)
            continue;
        if (n == SH_JSON_MAX_FIELDS)
            return SH_FAIL(err, SH_E_BUG, "\"%s\" has more than %d fields", what,
                           SH_JSON_MAX_FIELDS);
        read[n++] = (struct sh_json_field){.name = one->name,
                                           .type = one->type,
                                           .out = (char *)base + one->offset,
                                           .required = one->required && !one->of,
                                           .min = one->min,
                                           .max = one->max,
                                           .in_bytes = one->in_bytes};
    }
    rc = sh_json_read(obj, what, read, n, err);
    above = check_above(obj, what, f, err);
    return rc ? rc : above;
}

int sh_fields_refuse(const json_t *obj, const char *what, const struct sh_fields *f,
                     const char *name, unsigned chosen, struct sh_err *err)
{
    int rc = SH_OK;

    for (size_t i = 0; i < f->n; i++) {
        const struct sh_field *one = &f->list[i];
        int no;

        if (one->part != f->part || !one->of || (one->of >> chosen & 1) ||
            !json_object_get(obj, one->name))
            continue;
        no = sh_json_fail(err, what, "\"%s.%s\" does not belong to \"%s\"", what, one->name, name);
        rc = rc ? rc : no;
    }
    return rc;
}

/* ------------------------------------------------------------------ words */

const char *sh_words_at(const char *words, size_t i, size_t *len)
{
    for (; i > 0 && words; i--) {
        words = strchr(words, ',');
        words = words ? words + 1 : NULL;
    }
    *len = words ? strcspn(words, ",") : 0;
    return words;
}

size_t sh_words_count(const char *words)
{
    size_t n = 0, len;

    while (sh_words_at(words, n, &len))
        n++;
    return n;
}

bool sh_words_have(const char *words, const char *word)
{
    const char *one;
    size_t len;

    for (size_t i = 0; (one = sh_words_at(words, i, &len)); i++)
        if (strlen(word) == len && memcmp(one, word, len) == 0)
            return true;
    return false;
}

int sh_field_word(const char *path, const char *word, const char *words, unsigned *out,
                  struct sh_err *err)
{
    char known[192] = "";
    size_t at = 0, len;
    const char *one;

    for (unsigned i = 0; (one = sh_words_at(words, i, &len)); i++) {
        if (strlen(word) == len && memcmp(one, word, len) == 0) {
            *out = i;
            return SH_OK;
        }
        if (at < sizeof(known))
            at += (size_t)snprintf(known + at, sizeof(known) - at, "%s%.*s", i ? ", " : "",
                                   (int)len, one);
    }
    return sh_json_fail(err, path, "\"%s\" must be one of: %s; it is \"%.40s\"", path, known, word);
}

/* ------------------------------------------------------------------ descriptions */

static json_t *words_schema(const char *words)
{
    json_t *list = json_array();
    const char *one;
    size_t len;

    for (size_t i = 0; list && (one = sh_words_at(words, i, &len)); i++)
        if (json_array_append_new(list, json_stringn(one, len))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static const char *field_type_name(const struct sh_field *f)
{
    static const char *const NAMES[] = {
        [SH_JSON_STR] = "string",   [SH_JSON_INT] = "integer", [SH_JSON_F64] = "number",
        [SH_JSON_BOOL] = "boolean", [SH_JSON_OBJ] = "object",  [SH_JSON_ARR] = "array",
        [SH_JSON_ANY] = NULL};

    return NAMES[f->type];
}

static int set_json_member(json_t *to, const char *name, json_t *v)
{
    return json_object_set_new(to, name, v);
}

/* What a field's type calls its bounds. */
static int put_field_bounds(json_t *to, const struct sh_field *f)
{
    static const char *const LEAST[] = {
        [SH_JSON_STR] = "minLength", [SH_JSON_ARR] = "minItems", [SH_JSON_OBJ] = "minProperties"};
    static const char *const MOST[] = {
        [SH_JSON_STR] = "maxLength", [SH_JSON_ARR] = "maxItems", [SH_JSON_OBJ] = "maxProperties"};
    int no = 0;

    if ((f->min == 0 && f->max == 0) || f->words)
        return 0;
    if (is_number_field(f))
        return set_json_member(to, f->above ? "exclusiveMinimum" : "minimum",
                               sh_json_number(f->min)) |
               set_json_member(to, "maximum", sh_json_number(f->max));
    if (f->type != SH_JSON_STR && f->type != SH_JSON_ARR && f->type != SH_JSON_OBJ)
        return 0;
    if (f->min > 0 || f->type == SH_JSON_STR)
        no = set_json_member(to, LEAST[f->type], sh_json_number(f->min));
    return no | set_json_member(to, MOST[f->type], sh_json_number(f->max));
}

json_t *sh_field_schema(const struct sh_field *f)
{
    const char *type = field_type_name(f);
    json_t *one = json_object();
    int no = one ? 0 : -1;

    if (!no && f->words && f->type == SH_JSON_STR)
        no = set_json_member(one, "enum", words_schema(f->words));
    else if (!no && type)
        no = set_json_member(
            one, "type", is_nullable(f) ? json_pack("[s, s]", type, "null") : json_string(type));
    if (!no)
        no = put_field_bounds(one, f);
    if (!no && f->value && !f->required)
        no = set_json_member(one, "default", number_of_value(f));
    if (!no && f->text)
        no = set_json_member(one, "description", json_string(f->text));
    if (!no)
        return one;
    json_decref(one);
    return NULL;
}

/* "above 0, to 1e+09" */
static void field_range_text(const struct sh_field *f, char *out, size_t size)
{
    out[0] = '\0';
    if (is_number_field(f) && (f->min != 0 || f->max != 0))
        snprintf(out, size, "%s%.10g to %.10g", f->above ? "above " : "", f->min, f->max);
    else if (f->type == SH_JSON_STR && !f->words && f->max > 0)
        snprintf(out, size, "%g to %g %s", f->min, f->max, f->in_bytes ? "bytes" : "characters");
    else if (f->type == SH_JSON_ARR && f->max > 0)
        snprintf(out, size, "%g to %g of them", f->min, f->max);
    else if (f->type == SH_JSON_BOOL)
        snprintf(out, size, "true, false");
}

/* "`adam`, `adamw`" */
static void print_words(const char *words, unsigned of, FILE *out)
{
    const char *one;
    size_t len;

    for (unsigned i = 0, n = 0; (one = sh_words_at(words, i, &len)); i++)
        if (of >> i & 1)
            fprintf(out, "%s`%.*s`", n++ ? ", " : "", (int)len, one);
}

void sh_fields_print_docs(const struct sh_fields *f, const char *names, FILE *out)
{
    fprintf(out, "| field |%s default | range | what |\n| --- |%s --- | --- | --- |\n",
            names ? " of |" : "", names ? " --- |" : "");
    for (size_t i = 0; i < f->n; i++) {
        const struct sh_field *one = &f->list[i];
        const char *value = one->value && !one->required ? one->value : "";
        const char *tick = value[0] ? "`" : "";
        char range[64];

        if (one->part != f->part)
            continue;
        field_range_text(one, range, sizeof(range));
        fprintf(out, "| `%s` | ", one->name);
        if (names && one->of)
            print_words(names, one->of, out);
        fprintf(out, "%s%s%s%s%s | %s", names ? " | " : "", tick, value, tick,
                one->required ? "required" : "", range);
        if (one->words)
            print_words(one->words, ~0u, out);
        fprintf(out, " | %s |\n", one->text);
    }
}
