/* test_field.c - tables of fields: what is read, what holds otherwise, what is described. */
#include "common/field.h"
#include "common/mem.h"
#include "common/quota.h"
#include "tests/unit/sh_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct sh_field FIELDS[] = {
    {"slots", SH_JSON_INT, 0, 100, "7", "how many"},
    {"share", SH_JSON_F64, 0, 1, "null", "its part; null: all"},
};

static int read_text(const char *text, json_t **out, struct sh_err *err)
{
    json_t *j = json_loads(text, 0, NULL);
    int rc = sh_fields_read(j, "", FIELDS, SH_ARRAY_LEN(FIELDS), out, err);

    json_decref(j);
    return rc;
}

static void what_is_not_set_has_its_value(void **state)
{
    json_t *j;

    (void)state;
    assert_ok(read_text("{}", &j, NULL));
    assert_int_equal(json_integer_value(json_object_get(j, "slots")), 7);
    assert_true(json_is_null(json_object_get(j, "share")));
    json_decref(j);
    assert_ok(read_text("{\"slots\":null,\"share\":null}", &j, NULL));
    assert_int_equal(json_integer_value(json_object_get(j, "slots")), 7);
    json_decref(j);
}

static void what_is_set_is_kept(void **state)
{
    json_t *j;

    (void)state;
    assert_ok(read_text("{\"slots\":3.0,\"share\":1}", &j, NULL));
    assert_true(json_is_integer(json_object_get(j, "slots")));
    assert_int_equal(json_integer_value(json_object_get(j, "slots")), 3);
    assert_true(json_is_real(json_object_get(j, "share")));
    json_decref(j);
}

static void what_may_not_be_is_refused(void **state)
{
    static const char *const WRONG[] = {"{\"slots\":101}", "{\"slots\":1.5}", "{\"share\":\"a\"}",
                                        "{\"shares\":1}"};
    struct sh_err err = {0};
    json_t *j;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(WRONG); i++) {
        assert_int_equal(read_text(WRONG[i], &j, &err), SH_E_INVALID);
        assert_null(j);
    }
}

static void the_schema_says_the_same(void **state)
{
    json_t *slots = NULL, *share = NULL;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(FIELDS); i++) {
        if (strcmp(FIELDS[i].name, "slots") == 0)
            slots = sh_field_schema(&FIELDS[i]);
        else if (strcmp(FIELDS[i].name, "share") == 0)
            share = sh_field_schema(&FIELDS[i]);
    }
    assert_string_equal(json_string_value(json_object_get(slots, "type")), "integer");
    assert_int_equal(json_integer_value(json_object_get(slots, "default")), 7);
    assert_int_equal(json_array_size(json_object_get(share, "type")), 2);
    assert_true(json_number_value(json_object_get(share, "maximum")) == 1);
    json_decref(slots);
    json_decref(share);
}

/* A field of quota.def that cannot be what it is without being set would refuse every PUT. */
static void every_quota_field_may_be_what_it_is(void **state)
{
    json_t *none = json_object(), *j = NULL, *again = NULL, *set = json_object(), *v;
    const char *name;

    (void)state;
    assert_ok(sh_fields_read(none, "", SH_QUOTA_FIELDS, SH_N_QUOTA_FIELDS, &j, NULL));
    assert_int_equal(json_object_size(j), SH_N_QUOTA_FIELDS);
    json_object_foreach(j, name, v) if (!json_is_null(v)) json_object_set(set, name, v);
    assert_ok(sh_fields_read(set, "", SH_QUOTA_FIELDS, SH_N_QUOTA_FIELDS, &again, NULL));
    assert_true(json_equal(j, again));
    for (size_t i = 0; i < SH_N_QUOTA_FIELDS; i++)
        assert_true(strlen(SH_QUOTA_FIELDS[i].text) > 0);
    json_decref(none);
    json_decref(set);
    json_decref(j);
    json_decref(again);
}

/* ------------------------------------------------------------------ into a struct */

enum { OF_SHAPE, OF_OTHER };

struct shape {
    const char *name;
    int64_t sides;
    double size;
    bool is_full;
};

#define AT(member) .offset = offsetof(struct shape, member)
#define SHAPES "circle,square,star"

static const struct sh_field SHAPE[] = {
    {"name", SH_JSON_STR, .part = OF_SHAPE, .words = SHAPES, .required = true, AT(name)},
    {"sides", SH_JSON_INT, 3, 100, "5", "of a star", .of = 1u << 2, AT(sides)},
    {"size", SH_JSON_F64, 0, 10, "2.5", "across", .above = true, AT(size)},
    {"is_full", SH_JSON_BOOL, 0, 0, "true", "or its line alone", AT(is_full)},
    {"sides", SH_JSON_INT, 0, 0, NULL, "of another object", .part = OF_OTHER, AT(sides)},
};
static const struct sh_fields OF = {SHAPE, SH_ARRAY_LEN(SHAPE), OF_SHAPE};

static int take(const char *text, struct shape *out, struct sh_err *err)
{
    json_t *j = json_loads(text, 0, NULL);
    unsigned kind = 0;
    int rc;

    *out = (struct shape){0};
    sh_fields_preset(&OF, out);
    rc = sh_fields_take(j, "shape", &OF, out, err);
    if (!rc)
        rc = sh_field_word("shape.name", out->name, SHAPES, &kind, err);
    if (!rc)
        rc = sh_fields_refuse(j, "shape", &OF, out->name, kind, err);
    out->name = NULL; /* it was the text's */
    json_decref(j);
    return rc;
}

static void an_object_is_taken_into_a_struct(void **state)
{
    struct sh_err err = {0};
    struct shape s;

    (void)state;
    assert_ok_err(take("{\"name\":\"star\"}", &s, &err), &err);
    assert_true(s.sides == 5 && s.size == 2.5 && s.is_full);
    assert_ok_err(take("{\"name\":\"star\",\"sides\":7,\"size\":10,\"is_full\":false}", &s, &err),
                  &err);
    assert_true(s.sides == 7 && s.size == 10 && !s.is_full);
}

static void what_does_not_belong_to_it_is_refused_by_name(void **state)
{
    static const struct {
        const char *text, *why;
    } WRONG[] = {
        {"{}", "\"shape.name\" is missing"},
        {"{\"name\":\"cube\"}", "must be one of: circle, square, star; it is \"cube\""},
        {"{\"name\":\"squ\"}", "must be one of"},
        {"{\"name\":\"square\",\"sides\":4}", "\"shape.sides\" does not belong to \"square\""},
        {"{\"name\":\"star\",\"sides\":2}", "\"shape.sides\" must be"},
        {"{\"name\":\"star\",\"size\":0}", "\"shape.size\" must be above 0"},
        {"{\"name\":\"star\",\"colour\":0}", "colour"},
    };

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(WRONG); i++) {
        struct sh_err err = {0};
        struct shape s;

        assert_fails(take(WRONG[i].text, &s, &err), SH_E_INVALID, &err, WRONG[i].why);
    }
}

static void words_are_counted_and_found(void **state)
{
    size_t len;

    (void)state;
    assert_int_equal(sh_words_count(SHAPES), 3);
    assert_true(sh_words_have(SHAPES, "circle") && sh_words_have(SHAPES, "star"));
    assert_false(sh_words_have(SHAPES, "cir") || sh_words_have(SHAPES, "circle,square") ||
                 sh_words_have(SHAPES, ""));
    assert_string_equal(sh_words_at(SHAPES, 2, &len), "star");
    assert_int_equal(len, 4);
    assert_null(sh_words_at(SHAPES, 3, &len));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_set_has_its_value),
        cmocka_unit_test(what_is_set_is_kept),
        cmocka_unit_test(what_may_not_be_is_refused),
        cmocka_unit_test(the_schema_says_the_same),
        cmocka_unit_test(every_quota_field_may_be_what_it_is),
        cmocka_unit_test(an_object_is_taken_into_a_struct),
        cmocka_unit_test(what_does_not_belong_to_it_is_refused_by_name),
        cmocka_unit_test(words_are_counted_and_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
