/* test_http_thread.c - the turn of an HTTP thread: what its requests have for the link is told
 * once, at its end, and it is woken once for those that were resumed.
 *
 * Without it: each of several requests that came together would wake the link by itself, a request
 * could wait for the link's wake-up until another one comes, or while another one takes long, and a
 * thread that sleeps could miss that its requests were resumed. */
/* uses: libapi.a */
/* link: -lmicrohttpd -lpq -lz */
#include "api/api.h"
#include "api/http/http_int.h"
#include "common/clock.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST 8u /* requests of one turn that wait for its end */
#define N 3u
#define WAIT_MS 20000

static unsigned n_turns;

static void count_turn(struct api *a)
{
    (void)a;
    n_turns++;
}

static const struct api_steps COUNTS = {.turn = count_turn};

static struct {
    struct http h;
    struct http_door door;
    struct http_thread t;
} T;

static int set_up(void **state)
{
    (void)state;
    memset(&T, 0, sizeof(T));
    T.h = (struct http){.steps = &COUNTS};
    T.door = (struct http_door){.http = &T.h};
    http_thread_init(&T.t, &T.door, 10);
    n_turns = 0;
    return 0;
}

static void what_was_deferred_is_told_once(void **state)
{
    (void)state;
    http_thread_settle(&T.t);
    assert_int_equal(n_turns, 0); /* there is nothing to tell */
    for (unsigned i = 0; i < N; i++)
        assert_true(http_thread_defers(&T.t));
    assert_int_equal(n_turns, 0);
    http_thread_settle(&T.t);
    assert_int_equal(n_turns, 1);
    http_thread_settle(&T.t);
    assert_int_equal(n_turns, 1);
}

static void not_too_many_wait_for_the_last_of_them(void **state)
{
    (void)state;
    for (unsigned i = 0; i < MOST; i++)
        assert_true(http_thread_defers(&T.t));
    assert_int_equal(n_turns, 0);
    assert_true(http_thread_defers(&T.t));
    assert_int_equal(n_turns, 1); /* and that one waits */
    for (unsigned i = 1; i < MOST; i++)
        http_thread_defers(&T.t);
    assert_int_equal(n_turns, 1);
    http_thread_settle(&T.t);
    assert_int_equal(n_turns, 2);
}

static void nobody_waits_for_a_handshake(void **state)
{
    (void)state;
    T.h.tls = (struct tls *)&T; /* not touched */
    assert_false(http_thread_defers(&T.t));
    http_thread_settle(&T.t);
    assert_int_equal(n_turns, 0);
}

static void a_thread_that_sleeps_is_woken_once(void **state)
{
    (void)state;
    assert_false(http_thread_resumed(&T.t)); /* it does not sleep */
    atomic_store(&T.t.rests, true);
    assert_true(http_thread_resumed(&T.t));
    assert_false(http_thread_resumed(&T.t)); /* the first has done it */
    atomic_store(&T.t.rests, true);
    http_thread_called(&T.t, false); /* it is at work: a turn comes before it sleeps */
    assert_false(http_thread_resumed(&T.t));
    assert_true(T.t.was_called);
    assert_int_equal(T.t.awake_until_ns, 0);
}

static void a_thread_stays_awake_for_what_is_near_if_it_may(void **state)
{
    (void)state;
    sh_clock_fake(1000, 0);
    http_thread_called(&T.t, true);
    assert_int_equal(T.t.awake_until_ns, 0); /* it never polls */
    T.h.busy_ns = 500;
    http_thread_called(&T.t, false);
    assert_int_equal(T.t.awake_until_ns, 0);
    http_thread_called(&T.t, true);
    assert_int_equal(T.t.awake_until_ns, 1500);
    sh_clock_real();
}

/* ------------------------------------------------------------------ a server with one thread */

static struct {
    struct api a;
    struct api_conf conf;
    struct http *http;
    pthread_mutex_t lock; /* of what follows: the HTTP thread's and ours */
    pthread_cond_t changed;
    bool is_held, goes_on;
    struct api_req *sleeps[N];
    unsigned n_sleep, n_turns, n_deferred, n_in_the_way; /* the last: waited for what took long */
} S;

static const char *path_of(const struct api_req *q)
{
    return q->uri.n_segments > 0 ? q->uri.segments[0] : "";
}

static int to_route(struct api_req *q, struct sh_err *err)
{
    static const struct api_route ROUTE = {.method = "GET",
                                           .path = "/",
                                           .access = ACCESS_PUBLIC,
                                           .body = BODY_NONE,
                                           .flags = ROUTE_HERE,
                                           .status = 204};

    (void)err;
    q->route = &ROUTE;
    return SH_OK;
}

static int agree(struct api_req *q, struct sh_err *err)
{
    (void)q, (void)err;
    return SH_OK;
}

/* The thread stands until the test lets it go on; what comes meanwhile is of its next turn. */
static int hold(void)
{
    pthread_mutex_lock(&S.lock);
    S.is_held = true;
    pthread_cond_broadcast(&S.changed);
    while (!S.goes_on)
        pthread_cond_wait(&S.changed, &S.lock);
    S.is_held = S.goes_on = false;
    pthread_mutex_unlock(&S.lock);
    return SH_OK;
}

/* Once: it is called again when it was woken. */
static int fall_asleep(struct api_req *q)
{
    for (unsigned i = 0; i < S.n_sleep; i++)
        if (S.sleeps[i] == q)
            return SH_OK;
    S.sleeps[S.n_sleep++] = q;
    pthread_cond_broadcast(&S.changed);
    return API_WAIT;
}

static int handle(struct api_req *q, struct sh_err *err)
{
    const bool is_long = strcmp(path_of(q), "long") == 0;
    const bool defers = strcmp(path_of(q), "defer") == 0 && q->front->defers(q);
    int rc = SH_OK;

    (void)err;
    if (strcmp(path_of(q), "hold") == 0)
        return hold();
    if (is_long)
        q->front->catch_up(q);
    pthread_mutex_lock(&S.lock);
    if (is_long)
        S.n_in_the_way += S.n_deferred;
    else if (defers)
        S.n_deferred++;
    else if (strcmp(path_of(q), "sleep") == 0)
        rc = fall_asleep(q);
    pthread_mutex_unlock(&S.lock);
    return rc;
}

static void on_turn(struct api *a)
{
    pthread_mutex_lock(&S.lock);
    S.n_turns += a == &S.a;
    S.n_deferred = 0;
    pthread_mutex_unlock(&S.lock);
}

static bool has_no_key(const struct api_req *q)
{
    (void)q;
    return false;
}

static void ignore_rc(struct api_req *q, int rc)
{
    (void)q, (void)rc;
}

static void ignore(struct api_req *q)
{
    (void)q;
}

static const struct api_steps STEPS = {.route = to_route,
                                       .auth = agree,
                                       .begin = agree,
                                       .handle = handle,
                                       .has_key = has_no_key,
                                       .settle = ignore_rc,
                                       .close = ignore,
                                       .turn = on_turn};

static int start(void **state)
{
    static char at[] = "127.0.0.1:0", none[] = "";
    struct sh_err err = {0};

    (void)state;
    memset(&S, 0, sizeof(S));
    pthread_mutex_init(&S.lock, NULL);
    pthread_cond_init(&S.changed, NULL);
    S.conf = (struct api_conf){.listen = at,
                               .cors_origins = none,
                               .threads = 1,
                               .max_connections = 100,
                               .idle_timeout_s = 60};
    S.a.conf = &S.conf;
    peers_init(&S.a.peers);
    if (http_start(&S.a, &STEPS, NULL, &S.http, &err))
        fail_msg("%s", err.msg);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    http_stop(S.http);
    peers_fini(&S.a.peers);
    pthread_cond_destroy(&S.changed);
    pthread_mutex_destroy(&S.lock);
    return 0;
}

static void ask(int fd, const char *path)
{
    char text[128];
    const int n = snprintf(text, sizeof(text), "GET /%s HTTP/1.1\r\nHost: a\r\n\r\n", path);

    assert_int_equal(send(fd, text, (size_t)n, MSG_NOSIGNAL), n);
}

static void is_answered(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char text[1024];
    ssize_t n;

    assert_int_equal(poll(&p, 1, WAIT_MS), 1);
    n = recv(fd, text, sizeof(text) - 1, 0);
    assert_true(n > 0);
    text[n] = '\0';
    assert_non_null(strstr(text, " 204 "));
    assert_non_null(strstr(text, "\r\n\r\n"));
}

/* Each is known to the thread, and has nothing to say. */
static void connect_all(int *fds, size_t n)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr = {htonl(INADDR_LOOPBACK)},
                            .sin_port = htons((uint16_t)http_port(S.http))};

    for (size_t i = 0; i < n; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(connect(fds[i], (struct sockaddr *)&a, sizeof(a)), 0);
        ask(fds[i], "hello");
        is_answered(fds[i]);
    }
}

static void close_all(const int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        close(fds[i]);
}

static unsigned count(const unsigned *n)
{
    unsigned now;

    pthread_mutex_lock(&S.lock);
    now = *n;
    pthread_mutex_unlock(&S.lock);
    return now;
}

static void wait_for(const bool *what)
{
    pthread_mutex_lock(&S.lock);
    while (!*what)
        pthread_cond_wait(&S.changed, &S.lock);
    pthread_mutex_unlock(&S.lock);
}

/* Of connections 1 to n - 1, in one turn: each sends its path. */
static void ask_in_one_turn(const int *fds, const char *const *paths, size_t n)
{
    ask(fds[0], "hold");
    wait_for(&S.is_held);
    for (size_t i = 1; i < n; i++)
        ask(fds[i], paths[i - 1]);
    pthread_mutex_lock(&S.lock);
    S.goes_on = true;
    pthread_cond_broadcast(&S.changed);
    pthread_mutex_unlock(&S.lock);
    for (size_t i = 0; i < n; i++)
        is_answered(fds[i]);
    ask(fds[0], "hello"); /* in a later turn: that one has ended */
    is_answered(fds[0]);
}

static void requests_that_came_together_are_passed_on_together(void **state)
{
    static const char *const PATHS[] = {"defer", "defer", "defer"};
    int fds[N + 1];

    (void)state;
    connect_all(fds, SH_ARRAY_LEN(fds));
    assert_int_equal(count(&S.n_turns), 0);
    ask_in_one_turn(fds, PATHS, SH_ARRAY_LEN(fds));
    assert_int_equal(count(&S.n_turns), 1);
    assert_int_equal(count(&S.n_deferred), 0);
    close_all(fds, SH_ARRAY_LEN(fds));
}

/* In whichever order the library takes them. */
static void nobody_waits_for_what_takes_long(void **state)
{
    static const char *const PATHS[] = {"long", "defer", "long"};
    int fds[N + 1];

    (void)state;
    connect_all(fds, SH_ARRAY_LEN(fds));
    ask_in_one_turn(fds, PATHS, SH_ARRAY_LEN(fds));
    assert_int_equal(count(&S.n_turns), 1);
    assert_int_equal(count(&S.n_in_the_way), 0);
    close_all(fds, SH_ARRAY_LEN(fds));
}

/* Of those that are resumed together the first tells which thread to wake, and that is enough. */
static void requests_that_sleep_are_woken_together(void **state)
{
    int fds[N];
    void *thread = NULL;

    (void)state;
    connect_all(fds, N);
    for (unsigned i = 0; i < N; i++)
        ask(fds[i], "sleep");
    pthread_mutex_lock(&S.lock);
    while (S.n_sleep < N)
        pthread_cond_wait(&S.changed, &S.lock);
    pthread_mutex_unlock(&S.lock);
    for (unsigned i = 0; i < N; i++) {
        void *t = S.sleeps[i]->front->resume(S.sleeps[i]);

        thread = t ? t : thread;
    }
    if (thread) /* else it was not asleep yet, and has seen them by itself */
        HTTP_FRONT.rouse(thread);
    for (unsigned i = 0; i < N; i++)
        is_answered(fds[i]);
    close_all(fds, N);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup(f, set_up)
#define SERVED(f) cmocka_unit_test_setup_teardown(f, start, stop)
    const struct CMUnitTest tests[] = {
        TEST(what_was_deferred_is_told_once),
        TEST(not_too_many_wait_for_the_last_of_them),
        TEST(nobody_waits_for_a_handshake),
        TEST(a_thread_that_sleeps_is_woken_once),
        TEST(a_thread_stays_awake_for_what_is_near_if_it_may),
        SERVED(requests_that_came_together_are_passed_on_together),
        SERVED(nobody_waits_for_what_takes_long),
        SERVED(requests_that_sleep_are_woken_together),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
