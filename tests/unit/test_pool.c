/* test_pool.c - without it, one tenant's requests could fill the queue for threads with a database
 * connection, or stand before all others in it; and a thread could lose its connection at work. */
/* uses: api/request/pool.o */
/* link: -lpq -Wl,--wrap=db_free */
#include "api/request/pool.h"
#include "tests/unit/sh_test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#define MAX_QUEUED 8
#define MAX_TASKS 16

struct order { /* in which tasks ran; the first one holds the only thread until it is told */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_held, may_go;
    char ran[MAX_TASKS + 1];
    size_t n;
};

struct one {
    struct pool_task task; /* first member */
    struct order *order;
    char name;
};

static void note(struct pool_task *t, struct db *db)
{
    struct one *x = (struct one *)t;

    (void)db;
    x->order->ran[x->order->n++] = x->name; /* there is one thread */
}

static void hold(struct pool_task *t, struct db *db)
{
    struct order *o = ((struct one *)t)->order;

    (void)db;
    pthread_mutex_lock(&o->lock);
    o->is_held = true;
    pthread_cond_broadcast(&o->changed);
    while (!o->may_go)
        pthread_cond_wait(&o->changed, &o->lock);
    pthread_mutex_unlock(&o->lock);
}

/* Submits a task for each letter, its owner, while the thread is held; upper case: refused. */
static void check(const char *owners, const char *want)
{
    struct order o = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER};
    struct one first = {.task.run = hold, .task.owner = POOL_OURS, .order = &o};
    struct one tasks[MAX_TASKS];
    struct pool *p = NULL;
    struct db_news news = {0};
    struct sh_err err = {0};

    assert_ok_err(pool_new("test", "postgresql:///nowhere", &news, 1, MAX_QUEUED, &p, &err), &err);
    assert_ok(pool_submit(p, &first.task, NULL));
    pthread_mutex_lock(&o.lock);
    while (!o.is_held)
        pthread_cond_wait(&o.changed, &o.lock);
    pthread_mutex_unlock(&o.lock);
    for (size_t i = 0; owners[i]; i++) {
        bool fits = owners[i] >= 'a';
        char name = fits ? owners[i] : (char)(owners[i] - 'A' + 'a');

        tasks[i] = (struct one){.task.run = note, .task.owner = name, .order = &o, .name = name};
        err = (struct sh_err){0};
        if (fits)
            assert_ok_err(pool_submit(p, &tasks[i].task, &err), &err);
        else
            assert_fails(pool_submit(p, &tasks[i].task, &err), SH_E_QUEUEFULL, &err, "too many");
    }
    pthread_mutex_lock(&o.lock);
    o.may_go = true;
    pthread_cond_broadcast(&o.changed);
    pthread_mutex_unlock(&o.lock);
    pool_free(p);
    assert_string_equal(o.ran, want);
}

static void owners_take_turns(void **state)
{
    (void)state;
    check("aab", "aba");
    check("aaabbc", "abcaba");
    check("abcd", "abcd");
}

static void nobody_has_more_than_half_of_the_queue(void **state)
{
    (void)state;
    check("aaaaAAb", "abaaa");
    check("aaaabbbbC", "abababab");
}

/* ---------------------------------------------------------------- the end */

#define N_THREADS 4

static atomic_int n_begun, n_ended, n_may_end, n_freed_at_work;

void __real_db_free(struct db *db);
void __wrap_db_free(struct db *db);

void __wrap_db_free(struct db *db)
{
    if (atomic_load(&n_begun) != atomic_load(&n_ended))
        atomic_fetch_add(&n_freed_at_work, 1);
    __real_db_free(db);
}

/* Ends in the order in which they began: the first thread first, as a rule. */
static void work(struct pool_task *t, struct db *db)
{
    int mine = atomic_fetch_add(&n_begun, 1);

    (void)t;
    (void)db;
    while (atomic_load(&n_may_end) <= mine)
        usleep(1000);
    atomic_fetch_add(&n_ended, 1);
}

static void *let_them_end(void *arg)
{
    for (int i = 0; i < N_THREADS; i++) {
        usleep(30000);
        atomic_fetch_add(&n_may_end, 1);
    }
    return arg;
}

/* Which of them a thread has taken, nobody else knows. */
static void connections_live_as_long_as_threads(void **state)
{
    struct pool_task tasks[N_THREADS] = {
        {.run = work}, {.run = work}, {.run = work}, {.run = work}};
    struct db_news news = {0};
    struct pool *p = NULL;
    pthread_t other;

    (void)state;
    assert_ok(pool_new("test", "postgresql:///nowhere", &news, N_THREADS, MAX_QUEUED, &p, NULL));
    for (size_t i = 0; i < N_THREADS; i++) {
        assert_ok(pool_submit(p, &tasks[i], NULL));
        while (atomic_load(&n_begun) <= (int)i)
            usleep(1000);
    }
    assert_int_equal(pthread_create(&other, NULL, let_them_end, NULL), 0);
    pool_free(p);
    pthread_join(other, NULL);
    assert_int_equal(atomic_load(&n_ended), N_THREADS);
    assert_int_equal(atomic_load(&n_freed_at_work), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(owners_take_turns),
        cmocka_unit_test(nobody_has_more_than_half_of_the_queue),
        cmocka_unit_test(connections_live_as_long_as_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
