/* test_augment.c - pictures that are moved and mirrored, ids that are hidden, mixtures.
 *
 * Without it pictures could be moved further than was asked, always the same way, or one into the
 * other, ids be hidden that are no words, and a step that is done again see other data. What is
 * drawn is not known here: what came out must be one of what may, in the right shares.
 */
#include "common/mem.h"
#include "tests/device/dev_test.h"

#include <math.h>

#define SEED 0x123456789abcdefu
#define PAD 3

/* Element [n][c][i][j] of a picture; 0 outside. */
static double at(const struct t_graph *t, uint32_t x, bool last, int64_t n, int64_t c, int64_t i,
                 int64_t j)
{
    const struct dev_tensor *d = &t->tensors[x];
    const int64_t h = d->dims[last ? 1 : 2], w = d->dims[last ? 2 : 3], k = d->dims[last ? 3 : 1];
    const int64_t e = last ? ((n * h + i) * w + j) * k + c : ((n * k + c) * h + i) * w + j;

    if (i < 0 || i >= h || j < 0 || j >= w)
        return 0;
    return d->dtype == SH_U8 ? ((const uint8_t *)t->plain[x])[e] : (double)t_f((void *)t, x)[e];
}

static bool is_moved(const struct t_graph *t, uint32_t x, uint32_t y, bool last, int64_t n,
                     const int64_t m[3])
{
    const int64_t *dims = t->tensors[x].dims;
    const int64_t h = dims[last ? 1 : 2], w = dims[last ? 2 : 3], k = dims[last ? 3 : 1];

    for (int64_t c = 0; c < k; c++)
        for (int64_t i = 0; i < h; i++)
            for (int64_t j = 0; j < w; j++)
                if (at(t, y, last, n, c, i, j) !=
                    at(t, x, last, n, c, i + m[0], (m[2] ? w - 1 - j : j) + m[1]))
                    return false;
    return true;
}

/* How sample n was moved: down, right, mirrored. */
static void find_move(const struct t_graph *t, uint32_t x, uint32_t y, bool last, int64_t n,
                      int64_t m[3])
{
    for (m[0] = -PAD; m[0] <= PAD; m[0]++)
        for (m[1] = -PAD; m[1] <= PAD; m[1]++)
            for (m[2] = 0; m[2] < 2; m[2]++)
                if (is_moved(t, x, y, last, n, m))
                    return;
    fail_msg("sample %d is no picture that was moved by up to %d pixels", (int)n, PAD);
}

/* Draws for one step; out: how each sample was moved. */
static void jitter(bool is_byte, bool last, int64_t step, int64_t n, int64_t (*out)[3])
{
    const struct t_dims dims = last ? DIMS(n, 11, 13, 3) : DIMS(n, 3, 11, 13);
    struct t_graph t;
    struct dev_op *op;
    uint32_t x, y;

    t_init(&t);
    t.step = step;
    x = t_add(&t, DEV_ROLE_INPUT, is_byte ? SH_U8 : SH_F32, dims);
    y = t_add(&t, DEV_ROLE_OUTPUT, is_byte ? SH_U8 : SH_F32, dims);
    for (int64_t i = 0; is_byte && i < n * 11 * 13 * 3; i++)
        ((uint8_t *)t.plain[x])[i] = (uint8_t)(1 + (i * 131 + i / 7) % 255);
    op = t_op(&t, DEV_OP_JITTER, IN(x), OUT(y));
    op->u.jitter =
        (struct dev_jitter){.pad = PAD, .flip = 0.25f, .channels_last = last, .seed = SEED};
    t_run(&t);
    for (int64_t i = 0; i < n; i++)
        find_move(&t, x, y, last, i, out[i]);
    t_fini(&t);
}

static void pictures_are_moved_and_mirrored_within_bounds(void **state)
{
    enum { N = 67 };
    static int64_t first[N][3], same[N][3], other[N][3];
    int seen[2][2 * PAD + 1] = {{0}}, mirrored = 0;

    (void)state;
    jitter(true, false, 5, N, first);
    jitter(false, true, 5, N, same); /* neither type nor layout matters */
    jitter(true, true, 6, N, other);
    assert_memory_equal(first, same, sizeof(first));
    assert_memory_not_equal(first, other, sizeof(first));
    for (int i = 0; i < N; i++) {
        seen[0][first[i][0] + PAD]++;
        seen[1][first[i][1] + PAD]++;
        mirrored += (int)first[i][2] + (int)other[i][2];
    }
    for (int i = 0; i <= 2 * PAD; i++)
        assert_true(seen[0][i] > 0 && seen[1][i] > 0);
    assert_true(mirrored > N / 4 && mirrored < 3 * N / 4); /* of 2 N a quarter */
}

#define IDS 20011
#define VOCABULARY 997
#define MASK 5

static void hide(int64_t step, int64_t *ids, int64_t *seen, int64_t *labels)
{
    struct t_graph t;
    struct dev_op *op;
    uint32_t x, y, l;

    t_init(&t);
    t.step = step;
    x = t_index(&t, DIMS(IDS), VOCABULARY);
    y = t_add(&t, DEV_ROLE_OUTPUT, SH_I64, DIMS(IDS));
    l = t_add(&t, DEV_ROLE_OUTPUT, SH_I64, DIMS(IDS));
    op = t_op(&t, DEV_OP_TOKENS, IN(x), OUT(y, l));
    op->u.tokens = (struct dev_tokens){.share = 0.15f,
                                       .n_keep = 2,
                                       .mask = MASK,
                                       .size = VOCABULARY,
                                       .ignore = -100,
                                       .keep = {0, 7},
                                       .seed = SEED};
    t_run(&t);
    memcpy(ids, t.plain[x], IDS * sizeof(*ids));
    memcpy(seen, t.plain[y], IDS * sizeof(*seen));
    memcpy(labels, t.plain[l], IDS * sizeof(*labels));
    t_fini(&t);
}

static void some_ids_are_hidden_as_bert_does(void **state)
{
    static int64_t ids[IDS], seen[IDS], labels[IDS], again[IDS], other[IDS];
    int chosen = 0, masked = 0, random = 0, as_is = 0;

    (void)state;
    hide(3, ids, other, again);
    hide(4, ids, again, labels);
    assert_memory_not_equal(again, other, sizeof(again));
    hide(4, ids, seen, labels);
    assert_memory_equal(seen, again, sizeof(seen));
    for (int i = 0; i < IDS; i++) {
        if (labels[i] == -100) {
            assert_int_equal(seen[i], ids[i]);
            continue;
        }
        assert_int_equal(labels[i], ids[i]);
        assert_true(ids[i] != 0 && ids[i] != 7 && seen[i] >= 0 && seen[i] < VOCABULARY);
        chosen++;
        masked += seen[i] == MASK;
        as_is += seen[i] == ids[i];
        random += seen[i] != MASK && seen[i] != ids[i];
    }
    /* Five deviations of a binomial distribution either way. */
    assert_true(fabs(chosen - 0.15 * IDS) < 5 * sqrt(IDS * 0.15 * 0.85));
    assert_true(fabs(masked - 0.8 * chosen) < 5 * sqrt(chosen * 0.8 * 0.2));
    assert_true(fabs(random - 0.1 * chosen) < 5 * sqrt(chosen * 0.1 * 0.9));
    assert_true(fabs(as_is - 0.1 * chosen) < 5 * sqrt(chosen * 0.1 * 0.9));
}

static void a_mixture_is_the_turn_s(void **state)
{
    const double want = 0.375;
    struct t_graph t;
    uint32_t y;

    (void)state;
    t_init(&t);
    t.turn.mix = 0.375f;
    y = t_add(&t, DEV_ROLE_OUTPUT, SH_F32, DIMS(1));
    t_op(&t, DEV_OP_MIX, NO_IN, OUT(y));
    t_run(&t);
    t_close_f32(&t, y, &want, 0);
    t_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_are_moved_and_mirrored_within_bounds),
        cmocka_unit_test(some_ids_are_hidden_as_bert_does),
        cmocka_unit_test(a_mixture_is_the_turn_s),
    };

    return cmocka_run_group_tests(tests, t_setup, t_teardown);
}
