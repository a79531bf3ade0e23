/* schema.c - see schema.h. */
#include "api/request/schema.h"

#include "common/mem.h"

#include <string.h>

struct making {  /* of one schema */
    json_t *out; /* OWNED */
    bool failed;
};

/* TAKES v. */
static void put_keyword(struct making *m, json_t *to, const char *name, json_t *v)
{
    m->failed |= json_object_set_new(to, name, v) != 0;
}

static void put_text(struct making *m, const char *name, const char *text)
{
    if (text)
        put_keyword(m, m->out, name, json_string(text));
}

static void add_item(struct making *m, json_t *to, json_t *v)
{
    m->failed |= json_array_append_new(to, v) != 0;
}

static json_t *words_of_list(struct making *m, const char *list)
{
    json_t *out = json_array();
    const char *one;
    size_t len;

    for (size_t i = 0; (one = sh_words_at(list, i, &len)) && len > 0; i++)
        add_item(m, out, json_stringn(one, len));
    return out;
}

static void put_type(struct making *m, const struct schema *s)
{
    static const char *const NAMES[] = {"string",  "integer", "number",
                                        "boolean", "object",  "array"};
    json_t *types = json_array();

    for (unsigned i = 0; i < SH_ARRAY_LEN(NAMES); i++)
        if (s->type >> i & 1)
            add_item(m, types, json_string(NAMES[i]));
    if (s->null && s->type)
        add_item(m, types, json_string("null"));
    if (json_array_size(types) == 1 && !s->stays)
        put_keyword(m, m->out, "type", json_incref(json_array_get(types, 0)));
    else if (json_array_size(types) > 0)
        put_keyword(m, m->out, "type", json_incref(types));
    json_decref(types);
}

static void put_schema_bounds(struct making *m, const struct schema *s)
{
    static const struct {
        unsigned type;
        const char *min, *max;
    } BOUNDS[] = {{SCHEMA_INTEGER | SCHEMA_NUMBER, "minimum", "maximum"},
                  {SCHEMA_STRING, "minLength", "maxLength"},
                  {SCHEMA_ARRAY, "minItems", "maxItems"},
                  {SCHEMA_OBJECT, "minProperties", "maxProperties"}};
    size_t i = 0;

    if (s->min == 0 && s->max == 0)
        return;
    while (i + 1 < SH_ARRAY_LEN(BOUNDS) &&
           (!(s->type & BOUNDS[i].type) || (i == 0 && s->by_length)))
        i++;
    if (isfinite(s->min) && (i <= 1 || s->min > 0))
        put_keyword(m, m->out, s->above ? "exclusiveMinimum" : BOUNDS[i].min,
                    sh_json_number(s->min));
    if (isfinite(s->max) && (i == 0 || s->max > 0))
        put_keyword(m, m->out, BOUNDS[i].max, sh_json_number(s->max));
}

/* {"required":[name]} for each, with its type: what is null is not there. */
static json_t *each_required(struct making *m, const char *names, bool typed)
{
    const json_t *members = json_object_get(m->out, "properties");
    json_t *out = json_array(), *list = words_of_list(m, names), *name, *one;
    size_t i;

    json_array_foreach(list, i, name)
    {
        const char *text = json_string_value(name);

        one = json_pack("{s:[O]}", "required", name);
        if (typed)
            put_keyword(m, one, "properties",
                        json_pack("{s:{s:O}}", text, "type",
                                  json_object_get(json_object_get(members, text), "type")));
        add_item(m, out, one);
    }
    json_decref(list);
    return out;
}

static bool is_field_of(const struct sh_fields *f, size_t i, unsigned name)
{
    return f->list[i].part == f->part && (!f->list[i].of || (f->list[i].of >> name & 1));
}

/* Members of the table, and those that stand beside it. */
static void put_fields(struct making *m, const struct schema *s, unsigned name, json_t *all,
                       json_t *needs)
{
    for (size_t i = 0; s->fields && i < s->fields->n; i++) {
        const struct sh_field *f = &s->fields->list[i];

        if (!is_field_of(s->fields, i, name))
            continue;
        put_keyword(m, all, f->name, sh_field_schema(f));
        if (f->required && needs)
            add_item(m, needs, json_string(f->name));
    }
    for (const struct schema_member *p = s->members; p && p->name; p++) {
        json_t *one = schema_build(&p->schema), *has = json_object_get(all, p->name);

        if (has && one)
            m->failed |= json_object_update(has, one) != 0;
        else if (!s->by_name)
            put_keyword(m, all, p->name, json_incref(one));
        json_decref(one);
        m->failed |= !one;
    }
}

static bool is_rare(const struct schema *s, const char *name)
{
    const struct schema_member *p = s->members;

    while (p && p->name && strcmp(p->name, name) != 0)
        p++;
    return p && p->name && p->schema.rare;
}

static void put_members(struct making *m, const struct schema *s)
{
    json_t *all = json_object(), *needs = s->needs ? words_of_list(m, s->needs) : json_array(), *v;
    const char *name;

    put_fields(m, s, 0, all, s->needs ? needs : NULL);
    json_object_foreach(all, name, v)
    {
        if (!s->needs && !is_rare(s, name))
            add_item(m, needs, json_string(name));
    }
    if (json_object_size(all) > 0 || s->is_body)
        put_keyword(m, m->out, "properties", json_incref(all));
    if (json_array_size(needs) > 0)
        put_keyword(m, m->out, "required", json_incref(needs));
    json_decref(all);
    json_decref(needs);
}

/* Have two names the same fields? */
static bool are_forms_alike(const struct sh_fields *f, unsigned a, unsigned b)
{
    for (size_t i = 0; i < f->n; i++)
        if (is_field_of(f, i, a) != is_field_of(f, i, b))
            return false;
    return true;
}

/* {"const":"sgd"}, or {"enum":["adam","adamw"]} of names that are alike. NULL: it came before. */
static json_t *names_like(struct making *m, const struct schema *s, unsigned name)
{
    json_t *list = json_array(), *out;
    const char *one;
    size_t len;

    for (unsigned i = 0; (one = sh_words_at(s->by_name, i, &len)); i++) {
        if (!are_forms_alike(s->fields, name, i))
            continue;
        if (i < name) {
            json_decref(list);
            return NULL;
        }
        add_item(m, list, json_stringn(one, len));
    }
    out = json_array_size(list) == 1 ? json_pack("{s:O}", "const", json_array_get(list, 0))
                                     : json_pack("{s:O}", "enum", list);
    json_decref(list);
    return out;
}

static void add_named_fields(struct making *m, const struct schema *s, json_t *to)
{
    for (unsigned i = 0; i < sh_words_count(s->by_name); i++) {
        json_t *names = names_like(m, s, i), *all, *needs;

        if (!names)
            continue;
        all = json_object();
        needs = json_array();
        put_fields(m, s, i, all, needs);
        put_keyword(m, all, "name", names);
        add_item(m, to,
                 json_pack("{s:s, s:b, s:o, s:o}", "type", "object", "additionalProperties", 0,
                           "properties", all, "required", needs));
    }
}

static void put_object(struct making *m, const struct schema *s)
{
    put_members(m, s);
    if (s->is_body)
        put_keyword(m, m->out, "additionalProperties", json_false());
    if (s->values)
        put_keyword(m, m->out, "additionalProperties", schema_build(s->values));
    if (s->names)
        put_keyword(m, m->out, "propertyNames", json_pack("{s:s}", "pattern", s->names));
    if (s->names && s->max_name > 0)
        put_keyword(m, json_object_get(m->out, "propertyNames"), "maxLength",
                    sh_json_number(s->max_name));
    if (s->one_of)
        put_keyword(m, m->out, "oneOf", each_required(m, s->one_of, true));
    if (s->any_of)
        put_keyword(m, m->out, "anyOf", each_required(m, s->any_of, false));
    if (s->not_both)
        put_keyword(m, m->out, "not",
                    json_pack("{s:o}", "required", words_of_list(m, s->not_both)));
}

static void put_choices(struct making *m, const struct schema *s)
{
    json_t *list = json_array();

    if (s->by_name)
        add_named_fields(m, s, list);
    for (const struct schema *one = s->choices; one && !one->is_end; one++)
        if (one->by_name)
            add_named_fields(m, one, list);
        else
            add_item(m, list, schema_build(one));
    put_keyword(m, m->out, "oneOf", list);
}

static json_t *ref_schema(const char *name)
{
    char path[128];

    snprintf(path, sizeof(path), "#/components/schemas/%s", name);
    return json_pack("{s:s}", "$ref", path);
}

json_t *schema_build(const struct schema *s)
{
    struct making m = {.out = s->build ? s->build() : s->ref ? ref_schema(s->ref) : json_object()};

    m.failed = !m.out;
    put_type(&m, s);
    put_schema_bounds(&m, s);
    put_text(&m, "description", s->text);
    put_text(&m, "pattern", s->pattern);
    put_text(&m, "format", s->format);
    put_text(&m, "const", s->only);
    if (s->words)
        put_keyword(&m, m.out, "enum", words_of_list(&m, s->words));
    if (s->value)
        put_keyword(&m, m.out, "default", json_loads(s->value, JSON_DECODE_ANY, NULL));
    if (s->items)
        put_keyword(&m, m.out, "items", schema_build(s->items));
    if (s->unique)
        put_keyword(&m, m.out, "uniqueItems", json_true());
    if ((s->type & SCHEMA_OBJECT) && !s->by_name)
        put_object(&m, s);
    if (s->choices || s->by_name)
        put_choices(&m, s);
    if (!m.failed)
        return m.out;
    json_decref(m.out);
    return NULL;
}
