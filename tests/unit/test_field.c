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
    json_t *j = sh_fields_schema(FIELDS, SH_ARRAY_LEN(FIELDS)), *slots, *share;

    (void)state;
    slots = json_object_get(j, "slots");
    share = json_object_get(j, "share");
    assert_string_equal(json_string_value(json_object_get(slots, "type")), "integer");
    assert_int_equal(json_integer_value(json_object_get(slots, "default")), 7);
    assert_int_equal(json_array_size(json_object_get(share, "type")), 2);
    assert_true(json_number_value(json_object_get(share, "maximum")) == 1);
    json_decref(j);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_set_has_its_value),
        cmocka_unit_test(what_is_set_is_kept),
        cmocka_unit_test(what_may_not_be_is_refused),
        cmocka_unit_test(the_schema_says_the_same),
        cmocka_unit_test(every_quota_field_may_be_what_it_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
