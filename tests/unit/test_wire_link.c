/* test_wire_link.c - without it, a daemon could unlink the socket of a live one, or a link could
 * stay down for ever after a restart of its peer. */
#include "tests/unit/wire_test.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>

/* ---------------------------------------------------------------- addresses */

static void bad_addresses_are_refused_with_the_reason(void **state)
{
    static const struct {
        const char *addr, *text;
    } CASES[] = {{"", "must be"},
                 {"http://x", "must be"},
                 {"unix:", "no path"},
                 {"tcp:host", "no port"},
                 {"tcp:host:", "port"},
                 {"tcp:host:70000", "port"},
                 {"tcp:::1:80", "[host]:port"}};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        struct sh_err err = {0};
        int fd;

        assert_fails(sh_wire_listen(CASES[i].addr, &fd, &err), SH_E_INVALID, &err, CASES[i].text);
        assert_int_equal(fd, -1);
    }
}

static void a_relative_path_begins_where_the_process_does(void **state)
{
    char dir[] = "/tmp/shunt-wire-XXXXXX", want[64], *addr = NULL;
    struct stat st;
    int fd, home = open(".", O_RDONLY | O_DIRECTORY);

    (void)state;
    assert_true(home >= 0);
    assert_non_null(mkdtemp(dir));
    assert_int_equal(chdir(dir), 0);
    assert_ok(sh_wire_listen("unix:x.sock", &fd, NULL));
    assert_ok(sh_wire_absolute("unix:x.sock", &addr, NULL));
    assert_int_equal(fchdir(home), 0);
    snprintf(want, sizeof(want), "unix:%s/x.sock", dir);
    assert_string_equal(addr, want);
    assert_int_equal(stat(addr + 5, &st), 0);
    free(addr);
    assert_ok(sh_wire_absolute("tcp:localhost:1", &addr, NULL));
    assert_string_equal(addr, "tcp:localhost:1");
    free(addr);
    close(fd);
    close(home);
    snprintf(want, sizeof(want), "%s/x.sock.lock", dir);
    unlink(want);
    want[strlen(want) - 5] = '\0';
    unlink(want);
    assert_int_equal(rmdir(dir), 0);
}

static void a_path_that_is_too_long_is_refused(void **state)
{
    struct sh_err err = {0};
    char addr[300] = "unix:/";
    int fd;

    (void)state;
    memset(addr + 6, 'x', 200);
    assert_fails(sh_wire_listen(addr, &fd, &err), SH_E_INVALID, &err, "longer than 107");
}

static void check_lives(const char *path)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    sh_strlcpy(un.sun_path, path, sizeof(un.sun_path));
    assert_int_equal(connect(fd, (struct sockaddr *)&un, sizeof(un)), 0);
    close(fd);
}

static void a_stale_socket_is_replaced_and_a_live_one_is_not(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};
    struct stat st;
    int first, second;

    assert_ok(sh_wire_listen(w->addr, &first, NULL));
    assert_int_equal(stat(w->addr + 5, &st), 0);
    assert_int_equal(st.st_mode & 07, 0); /* closed to strangers */
    assert_fails(sh_wire_listen(w->addr, &second, &err), SH_E_CONFLICT, &err, "already listens");
    check_lives(w->addr + 5);
    close(first); /* as after kill -9: the file stays */
    assert_ok(sh_wire_listen(w->addr, &second, NULL));
    check_lives(w->addr + 5);
    close(second);
}

static void a_file_that_is_no_socket_is_never_removed(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};
    int fd;

    sh_test_write_file(w->addr + 5, "precious", 8);
    assert_fails(sh_wire_listen(w->addr, &fd, &err), SH_E_CONFLICT, &err, "not a socket");
    assert_int_equal(access(w->addr + 5, F_OK), 0);
}

/* Whatever cannot be asked whether it lives is left alone. */
static void a_socket_of_another_kind_is_never_removed(void **state)
{
    struct world *w = *state;
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct sh_err err = {0};
    int fd, other = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    sh_strlcpy(un.sun_path, w->addr + 5, sizeof(un.sun_path));
    assert_int_equal(bind(other, (struct sockaddr *)&un, sizeof(un)), 0);
    assert_fails(sh_wire_listen(w->addr, &fd, &err), SH_E_CONFLICT, &err, "not known");
    assert_int_equal(access(un.sun_path, F_OK), 0);
    close(other);
}

/* ---------------------------------------------------------------- links */

static void start_link(struct world *w, const char *addr)
{
    struct sh_link_handler h = {
        .on_up = on_up, .on_msg = on_msg, .on_down = on_close, .arg = &w->a};

    assert_ok(sh_link_new(w->loop, addr, &h, &w->a.link, NULL));
    assert_int_equal(w->a.n_up, 0); /* never from inside sh_link_new */
    assert_null(sh_link_wire(w->a.link));
}

static int accept_when_ready(struct world *w, int listener)
{
    int fd = -1;

    UNTIL(w, (fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0);
    return fd;
}

static void a_link_comes_back_after_its_peer_was_away(void **state)
{
    struct world *w = *state;
    struct sh_msg m = ping(1);
    int listener, fd;

    start_link(w, w->addr); /* nobody listens yet */
    for (int i = 0; i < 5; i++)
        assert_ok(sh_loop_once(w->loop, TURN_NS, NULL));
    assert_ok(sh_wire_listen(w->addr, &listener, NULL));
    fd = accept_when_ready(w, listener);
    UNTIL(w, w->a.n_up == 1);
    assert_ok(sh_wire_send(sh_link_wire(w->a.link), &m, NULL));

    close(fd);
    close(listener); /* the peer restarts */
    UNTIL(w, w->a.n_closed == 1);
    assert_null(sh_link_wire(w->a.link));
    assert_ok(sh_wire_listen(w->addr, &listener, NULL));
    fd = accept_when_ready(w, listener);
    UNTIL(w, w->a.n_up == 2);
    assert_ok(sh_wire_write_blocking(fd, &m, NULL, 0, NULL));
    UNTIL(w, w->a.n_msgs == 1);
    close(fd);
    close(listener);
}

static void a_link_backs_off_from_a_peer_that_hangs_up_at_once(void **state)
{
    struct world *w = *state;
    int listener, n = 0;

    sh_clock_fake(MS, 0);
    assert_ok(sh_wire_listen(w->addr, &listener, NULL));
    start_link(w, w->addr);
    for (int ms = 0; ms < 10000; ms += 10) {
        int fd;

        assert_ok(sh_loop_once(w->loop, 0, NULL));
        fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        n += fd >= 0;
        if (fd >= 0)
            close(fd);
        assert_ok(sh_loop_once(w->loop, 0, NULL));
        sh_clock_advance(10 * MS);
    }
    /* 50 100 200 400 400 ... ms and up to a quarter more */
    assert_in_range(n, 20, 28);
    sh_clock_real();
    close(listener);
}

static void closing_a_links_wire_makes_it_try_again(void **state)
{
    struct world *w = *state;
    int listener, first, second;

    assert_ok(sh_wire_listen(w->addr, &listener, NULL));
    w->a.on_up = DO_CLOSE;
    start_link(w, w->addr);
    first = accept_when_ready(w, listener);
    second = accept_when_ready(w, listener);
    assert_true(w->a.n_up >= 2);
    assert_int_equal(w->a.n_closed, 0);
    close(first);
    close(second);
    close(listener);
}

static void a_link_tries_its_addresses_in_turn(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};
    char both[300], other[140];
    int first, second, fd;

    snprintf(other, sizeof(other), "unix:%s/other", w->dir);
    snprintf(both, sizeof(both), "%s,%s", w->addr, other);
    assert_ok(sh_wire_listen(other, &second, NULL)); /* the first does not listen */
    start_link(w, both);
    fd = accept_when_ready(w, second);
    UNTIL(w, w->a.n_up == 1);
    close(second);
    close(fd);
    UNTIL(w, w->a.n_closed == 1);
    assert_ok(sh_wire_listen(w->addr, &first, NULL));
    fd = accept_when_ready(w, first);
    UNTIL(w, w->a.n_up == 2);
    close(fd);
    close(first);

    assert_fails(sh_link_new(w->loop, "unix:/a,ftp:b", &(struct sh_link_handler){0},
                             &(struct sh_link *){NULL}, &err),
                 SH_E_INVALID, &err, "ftp:b");
    err = (struct sh_err){0};
    assert_fails(sh_link_new(w->loop,
                             "unix:/1,unix:/2,unix:/3,unix:/4,unix:/5,unix:/6,unix:/7,"
                             "unix:/8,unix:/9",
                             &(struct sh_link_handler){0}, &(struct sh_link *){NULL}, &err),
                 SH_E_TOOBIG, &err, "more than 8");
}

/* Its host may have lost power: no word comes, not even that of its kernel. */
static void a_link_gives_up_a_peer_that_says_nothing(void **state)
{
    struct world *w = *state;
    struct sh_link_handler h = {.on_up = on_up,
                                .on_msg = on_msg,
                                .on_down = on_close,
                                .arg = &w->a,
                                .max_silence_ms = 1000};
    struct sh_msg pong = {.type = MSG_PONG};
    char byte[1];
    int listener, fd;

    sh_clock_fake(1000 * MS, 0);
    assert_ok(sh_wire_listen(w->addr, &listener, NULL));
    assert_ok(sh_link_new(w->loop, w->addr, &h, &w->a.link, NULL));
    fd = accept_when_ready(w, listener);
    UNTIL(w, w->a.n_up == 1);
    for (int ms = 0; ms < 5000; ms += 100) { /* it answers each time */
        assert_ok(sh_wire_write_blocking(fd, &pong, NULL, 0, NULL));
        assert_ok(sh_loop_once(w->loop, 0, NULL));
        sh_clock_advance(100 * MS);
    }
    assert_int_equal(w->a.n_closed, 0);
    assert_int_equal(w->a.n_msgs, 0); /* PONGs stay in the link */
    for (int ms = 0; ms < 1500; ms += 100) {
        assert_ok(sh_loop_once(w->loop, 0, NULL));
        sh_clock_advance(100 * MS);
    }
    sh_clock_real();
    UNTIL(w, w->a.n_closed == 1);
    assert_int_equal(w->a.why.rc, SH_E_TIMEOUT);
    assert_non_null(strstr(w->a.why.msg, "said nothing"));
    assert_true(recv(fd, byte, sizeof(byte), 0) == 1); /* it was asked */
    close(fd);
    close(listener);
}

static void a_link_may_be_freed_in_its_callbacks(void **state)
{
    struct world *w = *state;
    struct sh_msg m = ping(1);
    int listener, fd;

    assert_ok(sh_wire_listen(w->addr, &listener, NULL));
    w->a.on_up = DO_FREE_LINK;
    start_link(w, w->addr);
    fd = accept_when_ready(w, listener);
    UNTIL(w, w->a.link == NULL);
    close(fd);

    w->a.on_up = DO_NOTHING;
    w->a.on_msg = DO_FREE_LINK;
    w->a.n_up = 0;
    start_link(w, w->addr);
    fd = accept_when_ready(w, listener);
    assert_ok(sh_wire_write_blocking(fd, &m, NULL, 0, NULL));
    assert_ok(sh_wire_write_blocking(fd, &m, NULL, 0, NULL));
    UNTIL(w, w->a.link == NULL);
    assert_int_equal(w->a.n_msgs, 1);
    close(fd);
    close(listener);
}

static void check_link(struct world *w, const char *host)
{
    struct sh_msg m = ping(1);
    char addr[64];
    int listener, fd;

    assert_ok(sh_wire_listen("tcp:127.0.0.1:0", &listener, NULL));
    snprintf(addr, sizeof(addr), "tcp:%s:%d", host, sh_wire_port(listener));
    start_link(w, addr);
    fd = accept_when_ready(w, listener);
    UNTIL(w, w->a.n_up == 1);
    assert_false(sh_wire_is_local(sh_link_wire(w->a.link)));
    assert_int_equal(sh_wire_send_fds(sh_link_wire(w->a.link), &m, (int[]){0}, 1, NULL), SH_E_BUG);
    assert_ok(sh_wire_write_blocking(fd, &m, NULL, 0, NULL));
    UNTIL(w, w->a.n_msgs == 1);
    close(fd);
    close(listener);
}

static void a_link_finds_its_peer_by_number(void **state)
{
    check_link(*state, "127.0.0.1");
}

static void a_link_finds_its_peer_by_name(void **state)
{
    check_link(*state, "localhost");
}

static bool count_peer(struct sh_wire *w, struct sh_wire_handler *h, void *arg)
{
    (void)w, (void)h;
    ++*(int *)arg;
    return false; /* closed */
}

/* A peer for whom there is no descriptor stays announced: the loop must not run in circles. */
static void without_descriptors_a_peer_waits_and_is_taken_later(void **state)
{
    struct world *w = *state;
    int n = 0, turns = 0;
    struct sh_listen_handler h = {.on_peer = count_peer, .arg = &n};
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct rlimit was, tight;
    struct sh_listen *l = NULL;
    int64_t end;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), spare;

    assert_true(fd >= 0);
    assert_ok(sh_listen_new(w->loop, w->addr, &h, &l, NULL));
    sh_strlcpy(un.sun_path, w->addr + 5, sizeof(un.sun_path));
    assert_int_equal(connect(fd, (const struct sockaddr *)&un, sizeof(un)), 0);
    spare = dup(fd); /* the lowest that is free */
    assert_true(spare >= 0);
    close(spare);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    tight = (struct rlimit){.rlim_cur = (rlim_t)spare, .rlim_max = was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    for (end = sh_clock_ns() + 300 * MS; sh_clock_ns() < end; turns++)
        assert_ok(sh_loop_once(w->loop, 50 * MS, NULL));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_int_equal(n, 0);
    assert_true(turns < 50);
    UNTIL(w, n == 1);
    sh_listen_free(l);
    close(fd);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(bad_addresses_are_refused_with_the_reason),
        TEST(a_relative_path_begins_where_the_process_does),
        TEST(a_path_that_is_too_long_is_refused),
        TEST(a_stale_socket_is_replaced_and_a_live_one_is_not),
        TEST(a_file_that_is_no_socket_is_never_removed),
        TEST(a_socket_of_another_kind_is_never_removed),
        TEST(a_link_comes_back_after_its_peer_was_away),
        TEST(a_link_backs_off_from_a_peer_that_hangs_up_at_once),
        TEST(closing_a_links_wire_makes_it_try_again),
        TEST(a_link_tries_its_addresses_in_turn),
        TEST(a_link_gives_up_a_peer_that_says_nothing),
        TEST(a_link_may_be_freed_in_its_callbacks),
        TEST(without_descriptors_a_peer_waits_and_is_taken_later),
        TEST(a_link_finds_its_peer_by_number),
        TEST(a_link_finds_its_peer_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
