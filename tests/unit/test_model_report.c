/* test_model_report.c - what an executor says of its models in metrics, once a second. Without it:
 * thousands of models would hold up its loop while they are added up, or a series would have what
 * one version takes and not all of its label. */
/* uses: executor/models/model_report.o */
#include "common/clock.h"
#include "common/metrics.h"
#include "common/units.h"
#include "executor/models/host.h"
#include "executor/models/loading.h"
#include "executor/models/model_int.h"
#include "executor/models/tables.h"
#include "tests/unit/sh_test.h"

#include <stdlib.h>

#define MANY 2000u

static const struct store_env env = {.executor = "e"};
static struct model models[MANY];
static size_t n_models, n_asked;
static char tenants[MANY][16], names[MANY][16];

const struct store_env *store__env(const struct store *s)
{
    (void)s;
    return &env;
}

struct model *store_next(struct store *s, const struct model *m)
{
    const size_t i = m ? (size_t)(m - models) + 1 : 0;

    (void)s;
    return i < n_models ? &models[i] : NULL;
}

uint64_t tx_needed_bytes(const struct tx_image *im)
{
    return im->bytes;
}

uint64_t model_resident_bytes(const struct model *m)
{
    n_asked++;
    return m->image_bytes / 2;
}

uint64_t store_say_place(struct model *m, int64_t *unpack_ns)
{
    (void)unpack_ns;
    return m->image_bytes / 2;
}

/* Not reached: nothing is told to a scheduler. */
struct store_counts *store__counts(struct store *s)
{
    (void)s;
    return NULL;
}

struct model *store_next_shape(struct store *s, const struct model *m)
{
    (void)s, (void)m;
    return NULL;
}

double model_tail_ns(const struct model *m, const double *layer_ns)
{
    (void)m, (void)layer_ns;
    return 0;
}

struct loading_step loading_step_of(struct store *s, const struct model *m)
{
    (void)s, (void)m;
    return (struct loading_step){.step = ""};
}

void served__note_all(struct store *s)
{
    (void)s;
}

int64_t waits_for(const struct waits *x, struct pool *p, int64_t handle)
{
    (void)x, (void)p, (void)handle;
    return 0;
}

void uplink_send(const struct uplink *u, const struct sh_msg *m)
{
    (void)u, (void)m;
}

void host_update_metrics(struct store *s)
{
    (void)s;
}

static void put(int64_t handle, uint32_t tag, const char *tenant, const char *name,
                int64_t last_use_ns)
{
    const size_t i = n_models++;

    snprintf(tenants[i], sizeof(tenants[i]), "%s", tenant);
    snprintf(names[i], sizeof(names[i]), "%s", name);
    models[i] = (struct model){.handle = handle,
                               .tag = tag,
                               .tenant = tenants[i],
                               .name = names[i],
                               .image_bytes = i < 10 ? UINT64_C(2) << (2 * i) : 2,
                               .last_use_ns = last_use_ns};
}

/* Of a gauge; -1: there is none. */
static double value(const char *series)
{
    struct sh_buf text;
    const char *at;
    double v = -1;

    sh_buf_init(&text, 1 << 20);
    assert_ok(sh_metrics_render('e', &text, NULL));
    at = strstr(text.data, series);
    if (at)
        v = strtod(at + strlen(series), NULL);
    sh_buf_fini(&text);
    return v;
}

static void a_series_has_what_all_of_its_label_take(void **state)
{
    const int64_t now = SH_S(1000);

    (void)state;
    sh_clock_fake(now, 0);
    sh_metrics_reset();
    n_models = 0;
    put(1, 7, "anna", "m", now);             /* 2 */
    put(2, 8, "berta", "m", now);            /* 8 */
    put(3, 7, "anna", "a", now - SH_S(50));  /* 32 */
    put(4, 7, "anna", "z", now - SH_S(100)); /* 128: not of late */
    put(-5, 7, "", "own", now);              /* 512: an evaluation */
    put(-6, 9, "", "own", now);              /* 2048: of a tenant without models */
    store_update_metrics(NULL);
    assert_true(value("shunt_resident_bytes{executor=\"e\",model=\"m\"} ") == 5);
    assert_true(value("shunt_resident_bytes{executor=\"e\",model=\"a\"} ") == 16);
    assert_true(value("shunt_resident_bytes{executor=\"e\",model=\"own\"} ") == 1280);
    assert_true(value("shunt_working_set_bytes{executor=\"e\",tenant=\"anna\"} ") == 34);
    assert_true(value("shunt_working_set_bytes{executor=\"e\",tenant=\"berta\"} ") == 8);
    assert_true(value("shunt_working_set_bytes{executor=\"e\",tenant=\"\"} ") == -1);
    sh_clock_real();
}

static void what_a_tenant_had_goes_with_its_last_model(void **state)
{
    static const char *const full[] = {"e", "anna", "full"};
    static const char *const others[] = {"e", "berta", "none"};
    struct model *gone;

    (void)state;
    sh_metrics_reset();
    n_models = 0;
    put(1, 7, "anna", "m", 0);
    put(2, 7, "anna", "n", 0);
    sh_metric_add(M_shunt_residency_total, full, 3);
    sh_metric_add(M_shunt_residency_total, others, 4);
    gone = &models[--n_models];
    model__forget_series(gone);
    assert_true(value("shunt_residency_total{executor=\"e\",tenant=\"anna\",result=\"full\"} ") ==
                3);
    gone = &models[--n_models];
    model__forget_series(gone);
    assert_true(value("shunt_residency_total{executor=\"e\",tenant=\"anna\",result=\"full\"} ") ==
                -1);
    assert_true(value("shunt_residency_total{executor=\"e\",tenant=\"berta\",result=\"none\"} ") ==
                4);
    sh_metrics_reset();
}

static void of_many_each_is_looked_at_once(void **state)
{
    (void)state;
    sh_metrics_reset();
    n_models = n_asked = 0;
    for (uint32_t i = 0; i < MANY; i++) {
        char name[16];

        snprintf(name, sizeof(name), "m%u", i % 4);
        put(i + 1, i % 10, "t", name, 0);
    }
    store_update_metrics(NULL);
    assert_int_equal(n_asked, MANY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_series_has_what_all_of_its_label_take),
        cmocka_unit_test(what_a_tenant_had_goes_with_its_last_model),
        cmocka_unit_test(of_many_each_is_looked_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
