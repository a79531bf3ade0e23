/* test_tree.c - without it, a tree could lose a node, or grow to a list, or find a wrong first one:
 * whoever decides by it would decide wrongly, or take as long as there is much. */
#include "common/tree.h"
#include "tests/unit/sh_test.h"

#define N 600
#define STEPS 60000

struct item {
    int value, worth;
    struct sh_tree_node node;
    int most; /* worth of those below it */
};

static const struct item *item(const struct sh_tree_node *n)
{
    return SH_TREE_OF(n, const struct item, node);
}

static int by_value(const struct sh_tree_node *a, const struct sh_tree_node *b)
{
    return (item(a)->value > item(b)->value) - (item(a)->value < item(b)->value);
}

static bool most_worth(struct sh_tree_node *n)
{
    struct item *x = SH_TREE_OF(n, struct item, node);
    const int was = x->most;

    x->most = x->worth;
    for (int k = 0; k < 2; k++)
        if (n->kid[k] && item(n->kid[k])->most > x->most)
            x->most = item(n->kid[k])->most;
    return x->most != was;
}

static const struct sh_tree_kind PLAIN = {by_value, NULL}, SUMMED = {by_value, most_worth};

/* Returns the number of nodes. */
static size_t check(const struct sh_tree_node *n, const struct sh_tree_node *up, bool is_summed)
{
    int height[2] = {0, 0};
    size_t count = 1;

    assert_ptr_equal(n->up, up);
    for (int k = 0; k < 2; k++) {
        if (!n->kid[k])
            continue;
        count += check(n->kid[k], n, is_summed);
        height[k] = n->kid[k]->height;
        assert_true((by_value(n->kid[k], n) > 0) == (k == 1));
    }
    assert_true(abs(height[0] - height[1]) <= 1);
    assert_int_equal(n->height, 1 + (height[0] > height[1] ? height[0] : height[1]));
    if (is_summed) {
        struct item copy = *item(n);

        most_worth(&copy.node);
        assert_int_equal(copy.most, item(n)->most);
    }
    return count;
}

static bool is_worth(const struct sh_tree_node *n, const void *arg)
{
    return item(n)->worth >= *(const int *)arg;
}

static bool has_worth(const struct sh_tree_node *n, const void *arg)
{
    return item(n)->most >= *(const int *)arg;
}

/* All that are worth so much, in their order, and no other. */
static void check_ask(const struct sh_tree *t, int least)
{
    const struct sh_tree_ask ask = {is_worth, has_worth, &least};
    const struct sh_tree_node *found = sh_tree_first_with(t, &ask);

    for (const struct sh_tree_node *n = sh_tree_first(t); n; n = sh_tree_next(n)) {
        if (item(n)->worth < least)
            continue;
        assert_ptr_equal(found, n);
        found = sh_tree_next_with(found, &ask);
    }
    assert_null(found);
}

static void check_all(const struct sh_tree *t, const struct item *items, bool is_summed)
{
    size_t n = 0;

    const struct sh_tree_node *first = t->root;

    assert_int_equal(t->root ? check(t->root, NULL, is_summed) : 0, t->n);
    while (first && first->kid[0])
        first = first->kid[0];
    assert_ptr_equal(sh_tree_first(t), first);
    for (const struct sh_tree_node *x = sh_tree_first(t); x; x = sh_tree_next(x))
        n++;
    assert_int_equal(n, t->n);
    for (int i = 0; i < N; i++) {
        const struct item key = {.value = items[i].value};
        const struct sh_tree_node *at = sh_tree_find(t, is_summed ? &SUMMED : &PLAIN, &key.node);

        assert_ptr_equal(at, sh_tree_has(&items[i].node) ? &items[i].node : NULL);
    }
}

static void churn(const struct sh_tree_kind *k)
{
    static struct item items[N];
    struct sh_tree t = {0};
    uint64_t seed = 7;

    for (int i = 0; i < N; i++)
        items[i] = (struct item){.value = i, .worth = i * 7919 % 101};
    for (int step = 0; step < STEPS; step++) {
        struct item *x;

        seed = seed * 6364136223846793005u + 1442695040888963407u;
        x = &items[(seed >> 33) % N];
        if (sh_tree_has(&x->node) && (seed >> 20) % 2) { /* a value of its own: far, or near */
            x->worth = (int)(seed >> 40) % 200;
            x->value = x->value % N + N * ((seed >> 21) % 2 ? (int)(seed >> 45) % N : x->value / N);
            sh_tree_fix(&t, k, &x->node);
        } else if (sh_tree_has(&x->node)) {
            sh_tree_del(&t, k, &x->node);
        } else {
            x->worth = (int)(seed >> 40) % 200;
            sh_tree_add(&t, k, &x->node);
        }
        if (step % 100 != 0)
            continue;
        check_all(&t, items, k->sum != NULL);
        for (int least = 0; k->sum && least < 220; least += 20)
            check_ask(&t, least);
    }
    while (t.root) /* to its end */
        sh_tree_del(&t, k, t.root);
    assert_int_equal(t.n, 0);
    assert_null(sh_tree_first(&t));
}

static void nodes_come_and_go_in_order(void **state)
{
    (void)state;
    churn(&PLAIN);
}

static void what_lies_below_is_known(void **state)
{
    (void)state;
    churn(&SUMMED);
}

static void sorted_nodes_make_no_list(void **state)
{
    static struct item items[4096];
    struct sh_tree t = {0};

    (void)state;
    for (int i = 0; i < 4096; i++) {
        items[i] = (struct item){.value = i};
        sh_tree_add(&t, &PLAIN, &items[i].node);
    }
    assert_true(t.root->height <= 13);
    for (int i = 0; i < 4000; i++)
        sh_tree_del(&t, &PLAIN, &items[i].node);
    assert_true(t.root->height <= 9);
    assert_int_equal(check(t.root, NULL, false), 96);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_come_and_go_in_order),
        cmocka_unit_test(what_lies_below_is_known),
        cmocka_unit_test(sorted_nodes_make_no_list),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
