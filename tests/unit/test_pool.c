/* test_pool.c - without it, one tenant's requests could fill the queue for threads with a database
 * connection, or stand before all others in it, and a process that ends could take the connection
 * from a thread that still uses it. */
/* uses: api/request/pool.o */
/* link: -lpq -Wl,--wrap=pthread_create -Wl,--wrap=pthread_join -Wl,--wrap=db_free */
#include "api/request/pool.h"
#include "tests/unit/sh_test.h"

#include <pthread.h>
#include <stdlib.h>

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

static struct
{ /* the first of two threads begins when the second one runs a task, which lasts until
                 * that thread is waited for */
    bool is_on, is_running, may_end, has_ended, lost_its_db;
    int n_threads;
    pthread_t second;
    const struct db *db; /* of the task */
    void *(*main)(void *arg);
    void *arg;
    pthread_mutex_t lock;
    pthread_cond_t changed;
} late = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

int __real_pthread_create(pthread_t *id, const pthread_attr_t *attr, void *(*fn)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *id, const pthread_attr_t *attr, void *(*fn)(void *),
                          void *arg);
int __real_pthread_join(pthread_t id, void **out);
int __wrap_pthread_join(pthread_t id, void **out);
void __real_db_free(struct db *db);
void __wrap_db_free(struct db *db);

static void late_set(bool *what)
{
    pthread_mutex_lock(&late.lock);
    *what = true;
    pthread_cond_broadcast(&late.changed);
    pthread_mutex_unlock(&late.lock);
}

static void late_wait(const bool *what)
{
    pthread_mutex_lock(&late.lock);
    while (!*what)
        pthread_cond_wait(&late.changed, &late.lock);
    pthread_mutex_unlock(&late.lock);
}

static void *late_main(void *arg)
{
    (void)arg;
    late_wait(&late.is_running);
    return late.main(late.arg);
}

int __wrap_pthread_create(pthread_t *id, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    int e;

    if (late.is_on && late.n_threads++ == 0) {
        late.main = fn;
        late.arg = arg;
        return __real_pthread_create(id, attr, late_main, NULL);
    }
    e = __real_pthread_create(id, attr, fn, arg);
    late.second = *id;
    return e;
}

int __wrap_pthread_join(pthread_t id, void **out)
{
    if (late.is_on && pthread_equal(id, late.second))
        late_set(&late.may_end);
    return __real_pthread_join(id, out);
}

void __wrap_db_free(struct db *db)
{
    late.lost_its_db |= late.is_on && db == late.db && !late.has_ended;
    __real_db_free(db);
}

static void use_db(struct pool_task *t, struct db *db)
{
    (void)t;
    late.db = db;
    late_set(&late.is_running);
    late_wait(&late.may_end);
    late.has_ended = true;
}

static void a_thread_keeps_its_connection_until_it_has_ended(void **state)
{
    struct pool_task task = {.run = use_db};
    struct db_news news = {0};
    struct pool *p = NULL;

    (void)state;
    late.is_on = true;
    assert_ok(pool_new("test", "postgresql:///nowhere", &news, 2, MAX_QUEUED, &p, NULL));
    assert_ok(pool_submit(p, &task, NULL));
    pool_free(p);
    late.is_on = false;
    assert_true(late.has_ended);
    assert_false(late.lost_its_db);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(owners_take_turns),
        cmocka_unit_test(nobody_has_more_than_half_of_the_queue),
        cmocka_unit_test(a_thread_keeps_its_connection_until_it_has_ended),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
