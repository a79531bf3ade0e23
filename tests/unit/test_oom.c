/* test_oom.c - fails the 1st, 2nd, ... allocation of a call until it succeeds. Without it: a daemon
 * that holds other people's work could crash or leak when memory is short. Under a sanitizer a leak
 * on any path is fatal. */
/* uses: libmodel.a */
/* link: -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc */
#include "common/buf.h"
#include "common/conf.h"
#include "common/hash.h"
#include "common/json.h"
#include "common/mem.h"
#include "common/safetensors.h"
#include "common/spawn.h"
#include "runtime/model/graph.h"
#include "tests/unit/oom.h"
#include "tests/unit/sh_test.h"

#define ALLOCATIONS_MAX 500

/* Calls `step` with n allocations granted, n = 0, 1, ..., until it succeeds. A failure must say
 * NOMEM; `step` checks that it left nothing behind. Returns how many failures there were.
 *
 * jansson's parser takes some failed allocations for a wrong text; with `parses` that passes. */
static int walk(int (*step)(struct sh_err *err), bool parses)
{
    int n, rc = SH_E_NOMEM;

    for (n = 0; rc != SH_OK; n++) {
        struct sh_err err = {0};

        assert_true(n < ALLOCATIONS_MAX); /* it must succeed some day */
        calls_left = n;
        rc = step(&err);
        calls_left = -1;
        if (rc == SH_E_INVALID && parses)
            assert_fails(rc, SH_E_INVALID, &err, "the JSON text is wrong");
        else if (rc != SH_OK)
            assert_fails(rc, SH_E_NOMEM, &err, "allocate");
    }
    return n - 1;
}

/* cmocka allocates too, so the faults are off while something is checked inside of a step. */
static void check(bool good, const char *what)
{
    int saved = calls_left;

    calls_left = -1;
    if (!good)
        fail_msg("%s", what);
    calls_left = saved;
}

static int step_strings(struct sh_err *err)
{
    char *a = NULL, *b = NULL;
    int rc = sh_strdup("text", &a, err);

    if (!rc)
        rc = sh_asprintf(err, &b, "%d", 5);
    check(rc == SH_OK || !b, "no string after a failure");
    free(a);
    free(b);
    return rc;
}

static int step_buf(struct sh_err *err)
{
    struct sh_buf b;
    int rc;

    sh_buf_init(&b, 100000);
    rc = sh_buf_puts(&b, "abc", err);
    for (int i = 0; !rc && i < 200; i++) {
        size_t len = b.len;

        rc = sh_buf_printf(&b, err, "%0100d", i);
        check(rc == SH_OK || (b.len == len && strlen(b.data) == len), "unchanged after a failure");
    }
    sh_buf_fini(&b);
    return rc;
}

static int step_json(struct sh_err *err)
{
    static const char TEXT[] = "{\"a\":[1,2.5,\"x\",{\"b\":null}],\"c\":\"yy\"}";
    json_t *j = NULL;
    char *s = NULL;
    int rc = sh_json_parse(TEXT, sizeof(TEXT) - 1, 1000, &j, err);

    check(rc == SH_OK || !j, "no document after a failure");
    if (!rc)
        rc = sh_json_dump(j, &s, err);
    free(s);
    json_decref(j);
    return rc;
}

static int step_safetensors(struct sh_err *err)
{
    static const uint8_t DATA[4] = {1, 2, 3, 4};
    static const char *const META[] = {"k", "v", NULL};
    const struct sh_st_tensor t[2] = {
        {.name = "a", .dtype = SH_U8, .rank = 1, .dims = {4}, .data = DATA, .bytes = 4},
        {.name = "b", .dtype = SH_F32, .rank = 1, .dims = {1}, .data = DATA, .bytes = 4}};
    struct sh_st *s = NULL;
    static char file[4096];
    size_t head = 0, bytes = 0;
    void *p = NULL;
    int rc = sh_st_head(t, 2, META, &p, &head, &bytes, err);

    check(rc == SH_OK || !p, "no bytes after a failure");
    if (!rc) {
        memcpy(file, p, head);
        rc = sh_st_open_mem(file, bytes, &s, err);
    }
    check(rc == SH_OK || !s, "no reader after a failure");
    sh_st_close(s);
    free(p);
    return rc;
}

static int step_hash(struct sh_err *err)
{
    struct sh_sha256 *h = NULL;
    int rc = sh_sha256_new(&h, err);

    check(rc == SH_OK || !h, "no digest after a failure");
    sh_sha256_free(h);
    return rc;
}

static int step_conf(struct sh_err *err)
{
    struct conf {
        char *a, *b;
        int64_t n;
    } c;
    static const struct sh_conf_opt OPTS[] = {
        SH_OPT_STR(struct conf, a, "aa", "one", 0, "a"),
        SH_OPT_STR(struct conf, b, "bb", "two", 0, "b"),
        SH_OPT_INT(struct conf, n, "nn", 1, 0, 9, 0, "n"),
    };
    static const struct sh_conf_table TABLE = {.program = "p",
                                               .purpose = "P.",
                                               .opts = OPTS,
                                               .n_opts = SH_ARRAY_LEN(OPTS),
                                               .struct_bytes = sizeof(struct conf)};
    char *argv[] = {(char *)"p", (char *)"--aa=x", NULL};
    enum sh_conf_action action;
    int rc = sh_conf_load(&TABLE, &c, 2, argv, NULL, NULL, &action, err);

    check(rc == SH_OK || (!c.a && !c.b), "no strings after a failure");
    sh_conf_free(&TABLE, &c);
    return rc;
}

static int step_spawn(struct sh_err *err)
{
    const char *argv[] = {"true", NULL};
    struct sh_spawn s = {.path = "true", .argv = argv, .stdout_fd = -1, .stderr_fd = -1};
    int fds = sh_test_open_fds(), status = 0, rc;
    char *out = NULL;
    size_t len = 0;

    rc = sh_spawn_run(&s, 20000, 100, &out, &len, &status, err);
    check(rc == SH_OK || !out, "no output after a failure");
    check(sh_test_open_fds() == fds, "no descriptor is left open");
    free(out);
    return rc;
}

static struct graph *model; /* of what is composed, folded and emitted */

static int step_shapes(struct sh_err *err)
{
    struct graph *at = NULL;
    int rc = graph_at_batch(model, 2, false, &at, err);

    check(rc == SH_OK || !at, "no graph after a failure");
    graph_free(at);
    return rc;
}

static void strings_survive_every_allocation_failure(void **state)
{
    (void)state;
    assert_int_equal(walk(step_strings, false), 2);
}

static void buffers_survive_every_allocation_failure(void **state)
{
    (void)state;
    assert_true(walk(step_buf, false) >= 3);
}

static void json_survives_every_allocation_failure(void **state)
{
    (void)state;
    assert_true(walk(step_json, true) >= 10);
}

static void safetensors_survive_every_allocation_failure(void **state)
{
    (void)state;
    assert_true(walk(step_safetensors, true) >= 20);
}

static void digests_survive_an_allocation_failure(void **state)
{
    (void)state;
    assert_int_equal(walk(step_hash, false), 1);
}

static void options_survive_every_allocation_failure(void **state)
{
    (void)state;
    assert_true(walk(step_conf, false) >= 5);
}

static void children_survive_every_allocation_failure(void **state)
{
    (void)state;
    assert_true(walk(step_spawn, false) >= 2);
}

static void shapes_survive_every_allocation_failure(void **state)
{
    static const char *const OPS[] = {"Mish", "Shape", "ConstantOfShape", "Max"};
    uint32_t x, v[SH_ARRAY_LEN(OPS)] = {0}, at;

    (void)state;
    assert_ok(graph_new(&model, NULL));
    assert_ok(graph_add_value(model, "x", SH_F32, 2, (int64_t[]){2, 3}, &x, NULL));
    assert_ok(graph_add_input(model, x, NULL));
    for (uint32_t i = 0; i < SH_ARRAY_LEN(OPS); i++) {
        const uint32_t in[] = {i == 0 || i == 3 ? x : v[i - 1], v[0], v[2]};

        assert_ok(graph_add_value(model, OPS[i], SH_F32, -1, NULL, &v[i], NULL));
        assert_ok(graph_add_node(model, OPS[i], OPS[i], in, i == 3 ? 3 : 1, &v[i], 1, &at, NULL));
    }
    assert_ok(graph_add_output(model, v[3], NULL));
    assert_true(walk(step_shapes, false) >= 30);
    graph_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_survive_every_allocation_failure),
        cmocka_unit_test(buffers_survive_every_allocation_failure),
        cmocka_unit_test(json_survives_every_allocation_failure),
        cmocka_unit_test(safetensors_survive_every_allocation_failure),
        cmocka_unit_test(digests_survive_an_allocation_failure),
        cmocka_unit_test(options_survive_every_allocation_failure),
        cmocka_unit_test(children_survive_every_allocation_failure),
        cmocka_unit_test(shapes_survive_every_allocation_failure),
    };

    /* jansson is a shared library, which --wrap does not reach */
    json_set_alloc_funcs(__wrap_malloc, free);
    return cmocka_run_group_tests_name("oom", tests, NULL, NULL);
}
