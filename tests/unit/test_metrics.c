/* test_metrics.c - without it, counts could be lost between threads, a tenant could fill memory
 * with label values, or Prometheus could refuse the whole page for one bad line. */
/* link: -lmicrohttpd */
#include "common/mem.h"
#include "common/metrics.h"
#include "tests/unit/sh_test.h"

#include <math.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define MAX_BYTES (64u << 20) /* as the server */

static int tear_down(void **state)
{
    (void)state;
    sh_metrics_reset();
    return 0;
}

/* OWNED, free(). */
static char *page(char proc)
{
    struct sh_buf b;

    sh_buf_init(&b, MAX_BYTES);
    assert_ok(sh_buf_puts(&b, "", NULL));
    assert_ok(sh_metrics_render(proc, &b, NULL));
    return sh_buf_take(&b);
}

static void expect(char proc, const char *line)
{
    char *text = page(proc);

    assert_has(text, line);
    free(text);
}

static void expect_not(char proc, const char *part)
{
    char *text = page(proc);

    assert_has_not(text, part);
    free(text);
}

static void a_series_exists_from_its_first_use(void **state)
{
    (void)state;
    expect_not('a', "shunt_uploads_bytes_total");
    sh_metric_add(M_shunt_uploads_bytes_total, SH_LABELS("acme"), 5);
    sh_metric_add(M_shunt_uploads_bytes_total, SH_LABELS("acme"), 0.5);
    sh_metric_add(M_shunt_uploads_bytes_total, SH_LABELS("beta"), 0);
    expect('a', "# HELP shunt_uploads_bytes_total bytes of models and datasets received\n"
                "# TYPE shunt_uploads_bytes_total counter\n");
    expect('a', "\nshunt_uploads_bytes_total{tenant=\"acme\"} 5.5\n");
    expect('a', "\nshunt_uploads_bytes_total{tenant=\"beta\"} 0\n");
}

static void labels_keep_their_order_and_are_not_mixed_up(void **state)
{
    (void)state;
    sh_metric_add(M_shunt_requests_total, SH_LABELS("a", "bc", "ok"), 1);
    sh_metric_add(M_shunt_requests_total, SH_LABELS("ab", "c", "ok"), 2);
    expect('a', "shunt_requests_total{tenant=\"a\",model=\"bc\",outcome=\"ok\"} 1\n");
    expect('a', "shunt_requests_total{tenant=\"ab\",model=\"c\",outcome=\"ok\"} 2\n");
}

static void a_process_exports_only_its_own_metrics(void **state)
{
    (void)state;
    sh_metric_set(M_shunt_leader, NULL, 1);
    sh_metric_set(M_shunt_build_info, SH_LABELS("v1", "cpu"), 1);
    expect('s', "\nshunt_leader 1\n");
    expect_not('a', "shunt_leader");
    expect('a', "shunt_build_info");
    expect('e', "shunt_build_info");
}

static void label_values_are_escaped(void **state)
{
    (void)state;
    sh_metric_set(M_shunt_executors, SH_LABELS("a\"b\\c\nd"), 1);
    expect('s', "shunt_executors{state=\"a\\\"b\\\\c\\nd\"} 1\n");
}

static void a_value_that_is_too_long_ends_with_a_whole_character(void **state)
{
    char value[300], line[400];
    (void)state;

    for (size_t n = 254; n < 257; n++) { /* of the three bytes that follow, 2, 1 and 0 have room */
        memset(value, 'a', n);
        memcpy(value + n, "\xe2\x82\xac\xe2\x82\xac", 7);
        sh_metric_add(M_shunt_uploads_bytes_total, SH_LABELS(value), (double)n);
        snprintf(line, sizeof(line), "\nshunt_uploads_bytes_total{tenant=\"%.*s\"} %zu\n", (int)n,
                 value, n);
        expect('a', line);
    }
}

static void a_histogram_counts_upwards_and_ends_with_infinity(void **state)
{
    static const double VALUES[] = {0.0005, 0.0006, 3, 100};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(VALUES); i++)
        sh_metric_observe(M_shunt_http_request_duration_seconds, SH_LABELS("/v1/jobs"), VALUES[i]);
    expect('a', "_bucket{route=\"/v1/jobs\",le=\"0.0005\"} 1\n");
    expect('a', "_bucket{route=\"/v1/jobs\",le=\"0.001\"} 2\n");
    expect('a', "_bucket{route=\"/v1/jobs\",le=\"2\"} 2\n");
    expect('a', "_bucket{route=\"/v1/jobs\",le=\"10\"} 3\n");
    expect('a', "_bucket{route=\"/v1/jobs\",le=\"+Inf\"} 4\n");
    expect('a', "_count{route=\"/v1/jobs\"} 4\n");
    expect('a', "_sum{route=\"/v1/jobs\"} 103.0011\n");
}

static void the_table_can_name_its_own_buckets(void **state)
{
    (void)state;
    sh_metric_observe(M_shunt_batch_size, SH_LABELS("m"), 8);
    expect('s', "shunt_batch_size_bucket{model=\"m\",le=\"4\"} 0\n");
    expect('s', "shunt_batch_size_bucket{model=\"m\",le=\"8\"} 1\n");
    expect('s', "shunt_batch_size_bucket{model=\"m\",le=\"64\"} 1\n");
}

static void what_would_spoil_a_metric_is_ignored(void **state)
{
    (void)state;
    sh_metric_add(M_shunt_uploads_bytes_total, SH_LABELS("a"), 1);
    sh_metric_add(M_shunt_uploads_bytes_total, SH_LABELS("a"), -1);
    sh_metric_add(M_shunt_uploads_bytes_total, SH_LABELS("a"), (double)NAN);
    sh_metric_set(M_shunt_uploads_bytes_total, SH_LABELS("a"), 7); /* not a gauge */
    expect('a', "shunt_uploads_bytes_total{tenant=\"a\"} 1\n");
    sh_metric_observe(M_shunt_http_request_duration_seconds, SH_LABELS("r"), (double)NAN);
    expect_not('a', "NaN");
}

static void a_dropped_series_is_gone_and_may_come_back(void **state)
{
    (void)state;
    sh_metric_set(M_shunt_jobs, SH_LABELS("a", "RUNNING"), 3);
    sh_metric_drop(M_shunt_jobs, SH_LABELS("a", "RUNNING"));
    sh_metric_drop(M_shunt_jobs, SH_LABELS("a", "RUNNING"));
    sh_metric_drop(M_shunt_jobs, SH_LABELS("never", "seen"));
    expect_not('s', "shunt_jobs{");
    sh_metric_set(M_shunt_jobs, SH_LABELS("a", "RUNNING"), 4);
    expect('s', "shunt_jobs{tenant=\"a\",state=\"RUNNING\"} 4\n");
}

static void gauges_of_too_many_label_sets_are_refused_and_counted(void **state)
{
    char name[16];

    (void)state;
    for (int i = 0; i < SH_METRIC_MAX_SERIES + 7; i++) {
        snprintf(name, sizeof(name), "t%d", i);
        sh_metric_set(M_shunt_jobs, SH_LABELS(name, "RUNNING"), 1);
    }
    expect('s', "{tenant=\"t3999\",state=\"RUNNING\"} 1\n");
    expect_not('s', "{tenant=\"t4000\"");
    expect('s', "shunt_metric_series_dropped_total{metric=\"shunt_jobs\"} 7\n");
    sh_metric_drop(M_shunt_jobs, SH_LABELS("t0", "RUNNING")); /* so one has room */
    sh_metric_set(M_shunt_jobs, SH_LABELS("t4000", "RUNNING"), 2);
    expect('s', "{tenant=\"t4000\",state=\"RUNNING\"} 2\n");
}

/* Sum of all values of the lines that begin like this; *n: how many there are. */
static double sum_of(const char *text, const char *begin, size_t *n)
{
    double sum = 0;

    *n = 0;
    for (const char *p = text; (p = strstr(p, begin)) != NULL; p++) {
        if (p > text && p[-1] != '\n')
            continue;
        sum += strtod(strchr(p, ' ') + 1, NULL);
        (*n)++;
    }
    return sum;
}

static void a_thousand_models_of_a_hundred_tenants_have_names(void **state)
{
    char tenant[16], model[16], *text;
    size_t n;

    (void)state;
    for (int i = 0; i < 1000; i++) {
        snprintf(tenant, sizeof(tenant), "t%d", i % 100);
        snprintf(model, sizeof(model), "m%d", i);
        sh_metric_add(M_shunt_requests_total, SH_LABELS(tenant, model, "ok"), 1);
        sh_metric_add(M_shunt_requests_total, SH_LABELS(tenant, model, "SLO"), 1);
        sh_metric_add(M_shunt_requests_total, SH_LABELS(tenant, model, "QUEUEFULL"), 1);
        sh_metric_observe(M_shunt_request_duration_seconds, SH_LABELS(tenant, model), 0.1);
        sh_metric_set(M_shunt_request_queue_length, SH_LABELS(tenant, model), 1);
    }
    text = page('a');
    assert_true(sum_of(text, "shunt_requests_total{", &n) == 3000 && n == 3000);
    assert_true(sum_of(text, "shunt_request_duration_seconds_count{", &n) == 1000 && n == 1000);
    assert_has_not(text, "_other");
    assert_has_not(text, "\nshunt_metric_series_");
    assert_true(strlen(text) < (4u << 20));
    free(text);
    expect_not('s', "\nshunt_metric_series_");
}

/* Every tenant asks for every model: 100,000 pairs. */
static void what_has_no_series_left_counts_under_a_common_name(void **state)
{
    char tenant[16], model[16], *text;
    size_t n;

    (void)state;
    for (int i = 0; i < 100 * 1000; i++) {
        snprintf(tenant, sizeof(tenant), "t%d", i % 100);
        snprintf(model, sizeof(model), "m%d", i / 100);
        sh_metric_add(M_shunt_requests_total, SH_LABELS(tenant, model, "ok"), 1);
        sh_metric_observe(M_shunt_request_duration_seconds, SH_LABELS(tenant, model), 0.1);
    }
    text = page('a');
    assert_true(sum_of(text, "shunt_requests_total{", &n) == 100000 && n <= 6000);
    assert_true(sum_of(text, "shunt_requests_total{tenant=\"t7\",", &n) == 1000); /* still whole */
    assert_true(sum_of(text, "shunt_requests_total{tenant=\"t7\",model=\"_other\"", &n) == 960);
    assert_true(sum_of(text, "shunt_request_duration_seconds_count{", &n) == 100000 && n <= 1500);
    assert_true(sum_of(text, "shunt_metric_series_folded_total{", &n) == 96000 + 99000);
    assert_true(strlen(text) < (4u << 20));
    free(text);
}

static void even_tenants_may_be_too_many(void **state)
{
    char name[16], *text;
    size_t n;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        snprintf(name, sizeof(name), "t%d", i);
        sh_metric_add(M_shunt_requests_total, SH_LABELS(name, name, "ok"), 1);
        sh_metric_add(M_shunt_uploads_bytes_total, SH_LABELS(name), 1);
    }
    text = page('a');
    assert_true(sum_of(text, "shunt_requests_total{", &n) == 20000);
    assert_int_equal(n, SH_METRIC_MAX_SERIES * 5 / 4 + 1);
    assert_true(sum_of(text, "shunt_requests_total{tenant=\"_other\",model=\"_other\"", &n) ==
                15000);
    assert_true(sum_of(text, "shunt_uploads_bytes_total{", &n) == 20000);
    assert_int_equal(n, SH_METRIC_MAX_SERIES + 1);
    free(text);
}

static void a_counter_that_comes_back_begins_anew(void **state)
{
    (void)state;
    sh_metric_add(M_shunt_uploads_bytes_total, SH_LABELS("a"), 5);
    sh_metric_observe(M_shunt_batch_size, SH_LABELS("m"), 8);
    sh_metric_drop(M_shunt_uploads_bytes_total, SH_LABELS("a"));
    sh_metric_drop(M_shunt_batch_size, SH_LABELS("m"));
    sh_metric_add(M_shunt_uploads_bytes_total, SH_LABELS("a"), 2);
    sh_metric_observe(M_shunt_batch_size, SH_LABELS("m"), 1);
    expect('a', "shunt_uploads_bytes_total{tenant=\"a\"} 2\n");
    expect('s', "shunt_batch_size_count{model=\"m\"} 1\n");
    expect('s', "shunt_batch_size_sum{model=\"m\"} 1\n");
}

/* Without it a process that has seen many models come and go shows no new ones any more. */
static void names_may_come_and_go_for_ever(void **state)
{
    char name[16];

    (void)state;
    for (int i = 0; i < 5 * SH_METRIC_MAX_SERIES; i++) {
        snprintf(name, sizeof(name), "t%d", i);
        sh_metric_add(M_shunt_uploads_bytes_total, SH_LABELS(name), 1);
        if (i >= 10)
            snprintf(name, sizeof(name), "t%d", i - 10);
        sh_metric_drop(M_shunt_uploads_bytes_total, SH_LABELS(name));
    }
    expect('a', "{tenant=\"t19999\"} 1\n");
    expect_not('a', "shunt_metric_series_dropped_total{");
}

static void what_is_of_a_deleted_model_or_tenant_goes(void **state)
{
    (void)state;
    sh_metric_add(M_shunt_requests_total, SH_LABELS("a", "m", "ok"), 1);
    sh_metric_add(M_shunt_requests_total, SH_LABELS("a", "m", "TIMEOUT"), 1);
    sh_metric_add(M_shunt_requests_total, SH_LABELS("a", "other", "ok"), 1);
    sh_metric_add(M_shunt_requests_total, SH_LABELS("b", "m", "ok"), 1);
    sh_metric_add(M_shunt_uploads_bytes_total, SH_LABELS("a"), 1);
    sh_metric_observe(M_shunt_request_duration_seconds, SH_LABELS("a", "m"), 1);
    sh_metrics_forget("a", "m");
    expect_not('a', "tenant=\"a\",model=\"m\"");
    expect('a', "shunt_requests_total{tenant=\"a\",model=\"other\",outcome=\"ok\"} 1\n");
    expect('a', "shunt_requests_total{tenant=\"b\",model=\"m\",outcome=\"ok\"} 1\n");
    expect('a', "shunt_uploads_bytes_total{tenant=\"a\"} 1\n");
    sh_metric_observe(M_shunt_batch_size, SH_LABELS("m"), 1);
    sh_metrics_forget(NULL, "m");
    expect_not('a', "model=\"m\"");
    expect_not('s', "model=\"m\"");
    sh_metric_add(M_shunt_requests_total, SH_LABELS("b", "m", "ok"), 1);
    sh_metrics_forget("a", NULL);
    expect_not('a', "tenant=\"a\"");
    expect('a', "tenant=\"b\"");
}

/* ---------------------------------------------------------------- threads */

enum { N_THREADS = 4, N_ADDS = 20000, N_SHARED = 300000 };

static void *hammer(void *arg)
{
    char name[16];

    (void)arg;
    for (int i = 0; i < N_ADDS; i++) {
        snprintf(name, sizeof(name), "t%d", i % 50);
        sh_metric_add(M_shunt_uploads_bytes_total, SH_LABELS(name), 1);
        sh_metric_observe(M_shunt_http_request_duration_seconds, SH_LABELS("r"), 0.25);
    }
    for (int i = 0; i < N_SHARED; i++) /* nothing between two adds: they do meet */
        sh_metric_add(M_shunt_uploads_bytes_total, SH_LABELS("all"), 0.5);
    return NULL;
}

static void no_count_is_lost_between_threads(void **state)
{
    pthread_t id[N_THREADS];

    (void)state;
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&id[i], NULL, hammer, NULL), 0);
    for (int i = 0; i < 20; i++)
        free(page('a')); /* a scrape at the same time */
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(id[i], NULL);
    expect('a', "shunt_uploads_bytes_total{tenant=\"t0\"} 1600\n");
    expect('a', "shunt_uploads_bytes_total{tenant=\"t49\"} 1600\n");
    expect('a', "shunt_uploads_bytes_total{tenant=\"all\"} 600000\n");
    expect('a', "shunt_http_request_duration_seconds_count{route=\"r\"} 80000\n");
    expect('a', "shunt_http_request_duration_seconds_sum{route=\"r\"} 20000\n");
}

static atomic_bool come_and_go;

static void *come_and_go_main(void *arg)
{
    const int *first = arg;
    char name[16];

    for (int i = *first; atomic_load(&come_and_go); i++) {
        snprintf(name, sizeof(name), "t%d", i % (16 * SH_METRIC_MAX_SERIES));
        sh_metric_add(M_shunt_uploads_bytes_total, SH_LABELS(name), 1);
        sh_metric_drop(M_shunt_uploads_bytes_total, SH_LABELS(name));
    }
    return NULL;
}

/* Memory of what went is freed while others count and look. */
static void what_goes_harms_nothing_that_stays(void **state)
{
    int first[N_THREADS] = {0, 5000, 10000, 15000};
    pthread_t id[N_THREADS];

    (void)state;
    atomic_store(&come_and_go, true);
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&id[i], NULL, come_and_go_main, &first[i]), 0);
    for (int i = 0; i < N_SHARED; i++) {
        sh_metric_add(M_shunt_uploads_bytes_total, SH_LABELS("stays"), 1);
        if (i % 10000 == 0)
            free(page('a'));
    }
    atomic_store(&come_and_go, false);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(id[i], NULL);
    expect('a', "shunt_uploads_bytes_total{tenant=\"stays\"} 300000\n");
}

/* ---------------------------------------------------------------- format */

static const char *const FOUR[] = {"a b", "\xC3\xBC\"\\\n", "c", "d"};

/* All of ours: promtool's rules do not like the names that DCGM has given to its own. */
static void fill_all(void)
{
#define COUNTER sh_metric_add
#define GAUGE sh_metric_set
#define HISTOGRAM sh_metric_observe
#define SH_METRIC(kind, name, labels, buckets, procs, help) \
    if (strncmp(#name, "shunt_", 6) == 0)                   \
        kind(M_##name, FOUR, 1234567.125);
#include "common/metrics.def"
#undef SH_METRIC
#undef COUNTER
#undef GAUGE
#undef HISTOGRAM
}

/* Exit status of `promtool check metrics < path`; 127 if there is no promtool. */
static int promtool(const char *path)
{
    pid_t pid = fork();
    int status = 0;

    assert_true(pid >= 0);
    if (pid == 0) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);

        dup2(fd, 0);
        execlp("promtool", "promtool", "check", "metrics", (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void promtool_accepts_every_metric(void **state)
{
    char dir[SH_TEST_DIR_BYTES], path[128];
    int status = 0;

    (void)state;
    fill_all();
    sh_test_dir_make(dir);
    snprintf(path, sizeof(path), "%s/page", dir);
    for (const char *proc = "ase"; *proc && status == 0; proc++) {
        char *text = page(*proc);

        sh_test_write_file(path, text, strlen(text));
        free(text);
        status = promtool(path);
    }
    sh_test_dir_remove(dir);
    if (status == 127)
        skip();
    assert_int_equal(status, 0);
}

static void the_documentation_lists_every_metric(void **state)
{
    struct sh_buf b;

    (void)state;
    sh_buf_init(&b, MAX_BYTES);
    sh_metrics_print_docs(&b);
#define SH_METRIC(kind, name, labels, buckets, procs, help) assert_has(b.data, "| `" #name "` |");
#include "common/metrics.def"
#undef SH_METRIC
    assert_has(b.data, "| api, scheduler |");
    sh_buf_fini(&b);
}

/* ---------------------------------------------------------------- server */

/* One request on a connection of its own. *out: NUL-terminated. */
static void ask(int port, const char *method, const char *path, char *out, size_t size)
{
    struct sockaddr_in sa = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char request[128];
    size_t len = 0;
    ssize_t n;
    int fd;

    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    n = snprintf(request, sizeof(request),
                 "%s %s HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi",
                 method, path);
    assert_int_equal(send(fd, request, (size_t)n, MSG_NOSIGNAL), n);
    while ((n = recv(fd, out + len, size - 1 - len, 0)) > 0)
        len += (size_t)n;
    assert_int_equal(n, 0);
    out[len] = '\0';
    close(fd);
}

static void the_server_answers_get_on_two_paths_only(void **state)
{
    static char reply[1 << 16];
    int fds = sh_test_open_fds();
    struct sh_metrics_http *h;
    struct sh_err err = {0};
    int port;

    (void)state;
    assert_ok_err(sh_metrics_http_start('e', "127.0.0.1:0", &h, &err), &err);
    port = sh_metrics_http_port(h);
    assert_in_range(port, 1, 65535);
    sh_metric_set(M_shunt_build_info, SH_LABELS("v1", "cpu"), 1);

    ask(port, "GET", "/metrics", reply, sizeof(reply));
    assert_has(reply, "HTTP/1.1 200");
    assert_has(reply, "text/plain; version=0.0.4");
    assert_has(reply, "shunt_build_info{version=\"v1\",device=\"cpu\"} 1\n");
    assert_has(reply, "\nshunt_process_resident_bytes ");
    assert_has_not(reply, "\nshunt_process_resident_bytes 0\n");
    ask(port, "GET", "/healthz", reply, sizeof(reply));
    assert_has(reply, "HTTP/1.1 200");
    assert_has(reply, "\r\n\r\nok\n");
    ask(port, "GET", "/readyz", reply, sizeof(reply));
    assert_has(reply, "HTTP/1.1 503");
    sh_metrics_set_ready(true);
    ask(port, "GET", "/readyz", reply, sizeof(reply));
    assert_has(reply, "HTTP/1.1 200");
    sh_metrics_set_ready(false);
    ask(port, "POST", "/metrics", reply, sizeof(reply));
    assert_has(reply, "HTTP/1.1 405");
    assert_has(reply, "Allow: GET");
    ask(port, "GET", "/etc/passwd", reply, sizeof(reply));
    assert_has(reply, "HTTP/1.1 404");

    sh_metrics_http_stop(h);
    assert_int_equal(sh_test_open_fds(), fds);
}

static void a_taken_port_or_a_bad_address_is_refused(void **state)
{
    struct sh_metrics_http *h, *second;
    struct sh_err err = {0};
    char addr[64];

    (void)state;
    assert_ok(sh_metrics_http_start('e', "127.0.0.1:0", &h, NULL));
    snprintf(addr, sizeof(addr), "127.0.0.1:%d", sh_metrics_http_port(h));
    assert_fails(sh_metrics_http_start('e', addr, &second, &err), SH_E_CONFLICT, &err, addr);
    err = (struct sh_err){0};
    assert_fails(sh_metrics_http_start('e', "nonsense", &second, &err), SH_E_INVALID, &err, "port");
    assert_null(second);
    sh_metrics_http_stop(h);
}

#define TEST(fn) cmocka_unit_test_teardown(fn, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_series_exists_from_its_first_use),
        TEST(labels_keep_their_order_and_are_not_mixed_up),
        TEST(a_process_exports_only_its_own_metrics),
        TEST(label_values_are_escaped),
        TEST(a_value_that_is_too_long_ends_with_a_whole_character),
        TEST(a_histogram_counts_upwards_and_ends_with_infinity),
        TEST(the_table_can_name_its_own_buckets),
        TEST(what_would_spoil_a_metric_is_ignored),
        TEST(a_dropped_series_is_gone_and_may_come_back),
        TEST(a_counter_that_comes_back_begins_anew),
        TEST(names_may_come_and_go_for_ever),
        TEST(what_is_of_a_deleted_model_or_tenant_goes),
        TEST(gauges_of_too_many_label_sets_are_refused_and_counted),
        TEST(a_thousand_models_of_a_hundred_tenants_have_names),
        TEST(what_has_no_series_left_counts_under_a_common_name),
        TEST(even_tenants_may_be_too_many),
        TEST(no_count_is_lost_between_threads),
        TEST(what_goes_harms_nothing_that_stays),
        TEST(promtool_accepts_every_metric),
        TEST(the_documentation_lists_every_metric),
        TEST(the_server_answers_get_on_two_paths_only),
        TEST(a_taken_port_or_a_bad_address_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
