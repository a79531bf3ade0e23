/* test_wire_tls_oom.c - without it, a process that is short of memory while a peer connects could
 * crash, leak (under a sanitizer that is fatal), or take a peer for one with the key. */
/* link: -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc -lgnutls */
#include "tests/unit/oom.h"
#include "tests/unit/tls_test.h"

#define MOST 60
#define TURNS 20

/* Of both sides, from the connection to the first frame; then there is memory again. */
static void a_link_comes_up_after_any_allocation_failed(void **state)
{
    struct world *w = *state;
    struct sh_msg m = ping(1);

    start_listening(KEY_A);
    for (int n = 0; n < MOST; n++) {
        int n_up = w->a.n_up, n_msgs = w->b.n_msgs;

        start_link(KEY_A, T.port);
        calls_left = n;
        for (int i = 0; i < TURNS; i++) {
            int rc = sh_loop_once(w->loop, 0, NULL), left = calls_left;

            calls_left = -1;
            assert_ok(rc);
            calls_left = left;
        }
        calls_left = -1;
        UNTIL(w, w->a.n_up > n_up && sh_link_wire(w->a.link));
        assert_ok(sh_wire_send(sh_link_wire(w->a.link), &m, NULL));
        UNTIL(w, w->b.n_msgs > n_msgs);
        sh_link_free(w->a.link);
        w->a.link = NULL;
        UNTIL(w, !w->b.w);
    }
    assert_true(noted("server", "ok") >= MOST);
}

static void keys_survive_every_allocation_failure(void **state)
{
    struct sh_wire_keys *k = NULL;
    int rc = SH_E_NOMEM, n = 0;

    (void)state;
    open_keys(&T.server, "k", KEY_B);
    for (; rc; n++) {
        struct sh_err err = {0};

        assert_true(n < MOST);
        calls_left = n;
        rc = sh_wire_keys_open(&T.server.conf, (const char *const[]){"tcp:a:1,tcp:b:2", NULL}, &k,
                               &err);
        calls_left = -1;
        assert_int_equal(rc, err.rc);
        assert_true(rc ? rc == SH_E_NOMEM && !k : k != NULL);
    }
    assert_true(n > 1);
    sh_wire_keys_free(k);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up_tls, tear_down_tls)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_link_comes_up_after_any_allocation_failed),
        TEST(keys_survive_every_allocation_failure),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
