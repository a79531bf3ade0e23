/* test_fetch.c - what is kept of a model comes from the memory of another executor. Without it: a
 * load could wait for ever for one that says nothing or sends what nobody asked for, memory could
 * be written behind its end, and the other one could send what is not whole, or not there any more.
 */
/* uses: executor/models/fetch.o executor/models/model_life.o */
/* link: -Wl,--wrap=sh_link_new,--wrap=sh_link_free,--wrap=sh_wire_send */
#include "common/clock.h"
#include "executor/models/fetch.h"
#include "executor/models/host.h"
#include "executor/models/keep.h"
#include "executor/models/model_int.h"
#include "tests/unit/sh_test.h"

#define MIB ((uint64_t)1 << 20)
#define HEAD (MIB / 2 + 5) /* of the file, before the image */
#define IMAGE (6 * MIB + 3)
#define WHOLE (HEAD + IMAGE)
#define MS INT64_C(1000000)
#define N_MODELS 6u
#define MAX_ASKED 64

/* What the others would say, and what they were told. One of the models has its image in memory;
 * the others, of which there are more than may be fetched at a time, look for one. */
static struct world {
    struct model here, from[N_MODELS];
    struct sh_link_handler link; /* of the last that began */
    unsigned n_links;
    bool refuses_link, refuses_send, refuses_adopt;
    struct msg_image_get asked[MAX_ASKED];
    size_t n_asked;
    struct msg_image_piece piece; /* the last that was sent */
    struct sh_shm adopted;
    void (*on_kept)(void *arg);
    void *kept_of;
    uint64_t left; /* host memory */
    char *file;    /* of WHOLE bytes */
    char path[SH_TEST_DIR_BYTES + 16], dir[SH_TEST_DIR_BYTES];
} w;

static const struct store_env ENV = {.executor = "x"};

const struct store_env *store__env(const struct store *s)
{
    (void)s;
    return &ENV;
}

struct model *store_next(struct store *s, const struct model *m)
{
    const size_t next = !m ? 0 : m == &w.here ? N_MODELS : (size_t)(m - w.from) + 1;

    (void)s;
    return next < N_MODELS ? &w.from[next] : next == N_MODELS && m != &w.here ? &w.here : NULL;
}

uint64_t host_left(const struct model *m)
{
    (void)m;
    return w.left;
}

struct kept_about keep_about(const struct model *m, uint32_t batches[static MODEL_MAX_BATCHES])
{
    (void)batches;
    return (struct kept_about){.image_bytes = m->image_bytes};
}

uint64_t kept_image_at(const struct kept_about *a)
{
    assert_int_equal(a->image_bytes, IMAGE);
    return HEAD;
}

int kept_dir_open(const struct kept_file *f)
{
    return open(f->path, O_RDONLY | O_CLOEXEC);
}

int kept_dir_adopt(struct kept_dir *k, const struct kept_file *f, struct sh_shm *image,
                   void (*fn)(void *arg), void *arg, struct sh_err *err)
{
    (void)k;
    assert_string_equal(f->key, "key");
    if (w.refuses_adopt)
        return SH_FAIL(err, SH_E_QUEUEFULL, "full");
    w.adopted = *image;
    *image = (struct sh_shm){.fd = -1};
    w.on_kept = fn;
    w.kept_of = arg;
    return SH_OK;
}

int __wrap_sh_link_new(struct sh_loop *l, const char *addrs, const struct sh_link_handler *h,
                       struct sh_link **out, struct sh_err *err);
void __wrap_sh_link_free(struct sh_link *k);
int __wrap_sh_wire_send(struct sh_wire *to, const struct sh_msg *m, struct sh_err *err);

int __wrap_sh_link_new(struct sh_loop *l, const char *addrs, const struct sh_link_handler *h,
                       struct sh_link **out, struct sh_err *err)
{
    (void)l;
    assert_string_equal(addrs, "there");
    *out = NULL;
    if (w.refuses_link)
        return SH_FAIL(err, SH_E_INVALID, "no address");
    w.link = *h;
    w.n_links++;
    *out = (struct sh_link *)&w;
    return SH_OK;
}

void __wrap_sh_link_free(struct sh_link *k)
{
    w.n_links -= k != NULL;
}

int __wrap_sh_wire_send(struct sh_wire *to, const struct sh_msg *m, struct sh_err *err)
{
    (void)to;
    if (w.refuses_send)
        return SH_FAIL(err, SH_E_UNAVAILABLE, "down");
    if (m->type == MSG_IMAGE_GET) {
        assert_true(w.n_asked < MAX_ASKED);
        assert_string_equal(m->u.image_get.key, "key");
        w.asked[w.n_asked++] = m->u.image_get;
    } else {
        assert_int_equal(m->type, MSG_IMAGE_PIECE);
        w.piece = m->u.image_piece;
    }
    return SH_OK;
}

static char name[] = "m", source[] = "there", nobody[] = "";

static void make_model(struct model *m, int64_t handle)
{
    *m = (struct model){
        .handle = handle, .name = name, .source = source, .kept = {.path = w.path, .key = "key"}};
    m->image.fd = -1;
}

static int set_up(void **state)
{
    (void)state;
    w = (struct world){.left = WHOLE, .adopted = {.fd = -1}};
    sh_test_dir_make(w.dir);
    snprintf(w.path, sizeof(w.path), "%s/kept", w.dir);
    w.file = malloc(WHOLE);
    assert_non_null(w.file);
    for (size_t i = 0; i < WHOLE; i++)
        w.file[i] = (char)(i * 31 + i / 1000);
    sh_test_write_file(w.path, w.file, HEAD);
    for (size_t i = 0; i < N_MODELS; i++)
        make_model(&w.from[i], (int64_t)i + 1);
    make_model(&w.here, 100);
    w.here.phase = MODEL_READY;
    w.here.image_bytes = w.here.link_bytes = IMAGE;
    w.here.image.base = w.file + HEAD;
    sh_clock_fake(1000 * MS, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MODELS; i++)
        fetch_free(&w.from[i]);
    assert_int_equal(w.n_links, 0);
    sh_shm_fini(&w.adopted);
    free(w.file);
    sh_test_dir_remove(w.dir);
    sh_clock_real();
    return 0;
}

static void begin(void)
{
    assert_true(fetch_delays(&w.from[0]));
    assert_true(fetch_is_under_way(&w.from[0]));
    w.link.on_up(NULL, w.link.arg);
    assert_int_equal(w.n_asked, 1); /* nobody knows yet how much there is */
}

static void tell(const struct msg_image_piece *p)
{
    const struct sh_msg m = {.type = MSG_IMAGE_PIECE, .u.image_piece = *p};

    w.link.on_msg(NULL, &m, NULL, 0, w.link.arg);
}

/* What the other executor says to the i-th question. */
static void answer(size_t i)
{
    fetch_answer(NULL, NULL, &w.asked[i]);
    tell(&w.piece);
}

static void tick(void)
{
    fetch_tick(&w.from[0], sh_clock_ns());
}

/* Nothing comes of it: the load goes on, and does not ask again. */
static void assert_over(void)
{
    assert_false(fetch_is_under_way(&w.from[0]));
    assert_false(fetch_is_keeping(&w.from[0]));
    assert_false(fetch_delays(&w.from[0]));
    assert_int_equal(w.n_links, 0);
    assert_int_equal(w.adopted.fd, -1);
}

static void all_of_it_comes_in_order_and_is_kept(void **state)
{
    struct model *m = &w.from[0];

    (void)state;
    begin();
    m->is_looked_at = true;
    for (size_t i = 0; i < w.n_asked; i++) {
        assert_true(w.n_asked <= i + 4); /* so many at a time */
        assert_int_equal(w.asked[i].off, i * MIB);
        tick();
        assert_false(fetch_is_keeping(m));
        answer(i);
    }
    assert_int_equal(w.n_asked, (WHOLE + MIB - 1) / MIB);
    tick();
    assert_true(fetch_is_keeping(m) && fetch_delays(m));
    assert_int_equal(w.n_links, 0);
    assert_int_equal(w.adopted.bytes, WHOLE);
    assert_memory_equal(w.adopted.base, w.file, WHOLE);
    assert_true(m->is_looked_at);
    tick(); /* until it is on disk nothing else happens */
    assert_true(fetch_is_keeping(m));
    w.on_kept(w.kept_of);
    assert_false(fetch_is_under_way(m) || fetch_is_keeping(m) || fetch_delays(m));
    assert_false(m->is_looked_at); /* the file is there: looked at once more */
}

static void after_a_loss_of_the_connection_it_goes_on_from_what_it_has(void **state)
{
    const struct sh_err why = {.rc = SH_E_UNAVAILABLE};

    (void)state;
    begin();
    answer(0);
    assert_int_equal(w.n_asked, 5);
    answer(1);
    w.link.on_down(NULL, &why, w.link.arg);
    w.n_asked = 0;
    w.refuses_send = true;
    w.link.on_up(NULL, w.link.arg); /* and down again */
    assert_int_equal(w.n_asked, 0);
    w.refuses_send = false;
    w.link.on_up(NULL, w.link.arg);
    assert_int_equal(w.n_asked, 4);
    assert_int_equal(w.asked[0].off, 2 * MIB);
    tick();
    assert_true(fetch_is_under_way(&w.from[0]));
}

static void what_was_not_asked_for_ends_it(void **state)
{
    static char bytes[2 * MIB];
    const struct msg_image_piece cases[] = {
        {.rc = SH_E_NOTFOUND},
        {.total = WHOLE + 1, .off = MIB, .bytes = {bytes, MIB}},
        {.total = WHOLE, .off = 0, .bytes = {bytes, MIB}},
        {.total = WHOLE, .off = 2 * MIB, .bytes = {bytes, MIB}},
        {.total = WHOLE, .off = MIB},
        {.total = WHOLE, .off = MIB, .bytes = {bytes, MIB - 1}},
        {.total = WHOLE, .off = MIB, .bytes = {bytes, 2 * MIB}},
    };

    for (size_t i = 0; i < SH_ARRAY_LEN(cases); i++) {
        begin();
        answer(0);
        tell(&cases[i]);
        assert_true(fetch_is_under_way(&w.from[0])); /* its wire is in use until the next tick */
        w.n_asked = 0;
        w.link.on_up(NULL, w.link.arg);
        assert_int_equal(w.n_asked, 0);
        answer(1);
        assert_int_equal(w.n_asked, 0);
        tick();
        assert_over();
        tear_down(state);
        set_up(state);
    }
    begin();
    w.link.on_msg(NULL, &(struct sh_msg){.type = MSG_PONG}, NULL, 0, w.link.arg);
    tick();
    assert_over();
}

/* Its size comes with the first piece, from another host. */
static void a_size_that_cannot_be_is_refused(void **state)
{
    const uint64_t totals[] = {0, UINT64_MAX, WHOLE + KEPT_PIECE};

    for (size_t i = 0; i < SH_ARRAY_LEN(totals); i++) {
        begin();
        w.left = WHOLE - 1;
        tell(&(struct msg_image_piece){.total = totals[i], .bytes = {w.file, MIB}});
        tick();
        assert_over();
        tear_down(state);
        set_up(state);
    }
}

static void one_that_says_nothing_or_little_is_not_waited_for(void **state)
{
    (void)state;
    begin();
    sh_clock_advance(FETCH_SILENT_NS);
    tick();
    assert_true(fetch_is_under_way(&w.from[0]));
    sh_clock_advance(1);
    tick();
    assert_over();
    tear_down(state);
    set_up(state);
    begin();
    for (size_t i = 0; i < 5; i++) /* fast so far */
        answer(i);
    sh_clock_advance(FETCH_SILENT_NS + 1);
    tick();
    assert_over();
    tear_down(state);
    set_up(state);
    begin();
    for (size_t i = 0; i < 3; i++) { /* 1 MiB in 2 s: never silent, and too slow */
        sh_clock_advance(2000 * MS);
        if (i == 2)
            assert_over();
        else
            answer(i);
        tick();
    }
}

static void only_what_gains_by_it_is_fetched(void **state)
{
    struct model *m = &w.from[0];

    (void)state;
    m->is_quick = true; /* this host has it */
    assert_false(fetch_delays(m));
    m->is_quick = false;
    m->kept.path = NULL; /* nothing is kept of it */
    assert_false(fetch_delays(m));
    m->kept.path = w.path;
    m->source = NULL;
    assert_false(fetch_delays(m));
    m->source = nobody;
    assert_false(fetch_delays(m));
    m->source = source;
    assert_null(m->fetch);
    fetch_tick(m, sh_clock_ns());
    assert_false(fetch_is_under_way(m) || fetch_is_keeping(m));
    for (size_t i = 0; i < N_MODELS; i++)
        assert_int_equal(fetch_delays(&w.from[i]), i < FETCH_MOST);
    assert_int_equal(w.n_links, FETCH_MOST);
    fetch_free(m);
    assert_true(fetch_delays(&w.from[FETCH_MOST])); /* its turn */
}

static void an_address_that_is_none_is_tried_once(void **state)
{
    (void)state;
    w.refuses_link = true;
    assert_false(fetch_delays(&w.from[0]));
    w.refuses_link = false;
    assert_over();
}

static void what_cannot_be_kept_is_loaded_without_it(void **state)
{
    (void)state;
    begin();
    for (size_t i = 0; i < w.n_asked; i++)
        answer(i);
    w.refuses_adopt = true;
    tick();
    assert_over();
}

static void assert_not_there(uint64_t off)
{
    w.piece = (struct msg_image_piece){0};
    fetch_answer(NULL, NULL,
                 &(struct msg_image_get){.key = "key", .off = off, .bytes = (uint32_t)MIB});
    assert_int_equal(w.piece.rc, SH_E_NOTFOUND);
    assert_int_equal(w.piece.bytes.len, 0);
}

static void what_is_not_whole_here_is_not_given(void **state)
{
    struct model *m = &w.here;
    const struct model was = *m;
    struct msg_image_get get = {.key = "key", .off = WHOLE - 1, .bytes = UINT32_MAX};

    (void)state;
    fetch_answer(NULL, NULL, &get);
    assert_int_equal(w.piece.rc, 0);
    assert_int_equal(w.piece.bytes.len, 1);
    assert_int_equal(*(const char *)w.piece.bytes.data, w.file[WHOLE - 1]);
    assert_not_there(WHOLE);
    assert_not_there(UINT64_MAX);
    m->phase = MODEL_GOING;
    assert_not_there(0);
    *m = was;
    m->handle = -1; /* of a job, to evaluate it */
    assert_not_there(0);
    *m = was;
    m->tier.at = TIER_COMING;
    assert_not_there(0);
    *m = was;
    m->image.base = NULL;
    assert_not_there(0);
    *m = was;
    m->is_unkept = true;
    assert_not_there(0);
    *m = was;
    m->kept.path = NULL;
    assert_not_there(0);
    *m = was;
    snprintf(m->kept.key, sizeof(m->kept.key), "another");
    assert_not_there(0);
    *m = was;
    sh_test_write_file(w.path, w.file, HEAD - 1); /* damaged */
    assert_not_there(0);
    unlink(w.path);
    assert_not_there(0);
    assert_not_there(HEAD - 1);
    get.off = HEAD; /* memory alone */
    fetch_answer(NULL, NULL, &get);
    assert_int_equal(w.piece.bytes.len, MIB);
    assert_memory_equal(w.piece.bytes.data, w.file + HEAD, MIB);
    w.refuses_send = true;
    fetch_answer(NULL, NULL, &get); /* who asked is gone */
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(all_of_it_comes_in_order_and_is_kept),
        TEST(after_a_loss_of_the_connection_it_goes_on_from_what_it_has),
        TEST(what_was_not_asked_for_ends_it),
        TEST(a_size_that_cannot_be_is_refused),
        TEST(one_that_says_nothing_or_little_is_not_waited_for),
        TEST(only_what_gains_by_it_is_fetched),
        TEST(an_address_that_is_none_is_tried_once),
        TEST(what_cannot_be_kept_is_loaded_without_it),
        TEST(what_is_not_whole_here_is_not_given),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
