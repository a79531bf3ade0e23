/* dbqueue.c - see dbqueue.h. */
#include "scheduler/database/dbqueue.h"

#include "common/units.h"

#include <stdlib.h>

#define SOFT_TRIES 20 /* of db_tx, which itself repeats: then it is reported */
#define BEHIND_NS SH_MS(DBTHREAD_BEHIND_MS)

/* ------------------------------------------------------------------ lists */

void dblist_init(struct dblist *l)
{
    *l = (struct dblist){.tail = &l->head};
}

static void push_back(struct dblist *l, struct dbitem *i)
{
    i->next = NULL;
    *l->tail = i;
    l->tail = &i->next;
    l->n++;
}

static void push_front(struct dblist *l, struct dbitem *i)
{
    i->next = l->head;
    if (!l->head)
        l->tail = &i->next;
    l->head = i;
    l->n++;
}

/* Out of the list, where `at` points to it. */
static struct dbitem *unlink_item_at(struct dblist *l, struct dbitem **at)
{
    struct dbitem *i = *at;

    if (!i)
        return NULL;
    *at = i->next;
    if (l->tail == &i->next)
        l->tail = at;
    l->n--;
    return i;
}

struct dbitem *dblist_pop(struct dblist *l)
{
    return unlink_item_at(l, &l->head);
}

void dblist_free(struct dblist *l)
{
    struct dbitem *i;

    while ((i = dblist_pop(l)))
        dbitem_free(i);
}

/* ------------------------------------------------------------------ the queue */

void dbqueue_init(struct dbqueue *q, size_t max_queued)
{
    *q = (struct dbqueue){.max_queued = max_queued};
    dblist_init(&q->todo);
    dblist_init(&q->finished);
}

void dbqueue_fini(struct dbqueue *q)
{
    dblist_free(&q->todo);
    dblist_free(&q->finished);
}

int dbqueue_submit(struct dbqueue *q, struct dbitem *i, struct sh_err *err)
{
    bool front = i->op.flags & DBOP_FRONT;

    if (q->todo.n >= q->max_queued && !front)
        return SH_FAIL(err, SH_E_QUEUEFULL, "%zu database operations wait already", q->max_queued);
    if (front)
        push_front(&q->todo, i);
    else
        push_back(&q->todo, i);
    return SH_OK;
}

struct dbitem *dbqueue_take(struct dbqueue *q, int64_t now_ns)
{
    struct dbitem **at = &q->todo.head;

    while (*at && (*at)->after_ns > now_ns)
        at = &(*at)->next;
    return unlink_item_at(&q->todo, at);
}

enum dbqueue_next dbqueue_settle(struct dbqueue *q, struct dbitem *i, int64_t now_ns)
{
    bool again = dbitem_failed_for_now(i) && !(i->op.flags & DBOP_FAIL_FAST);

    if (i->rc == SH_E_DBSOFT && ++i->soft_tries < SOFT_TRIES)
        again = true;
    if (!again || q->stop) {
        push_back(&q->finished, i);
        return DBQUEUE_FINISHED;
    }
    if (i->rc == SH_E_TIMEOUT && i->op.flags & DBOP_ANY_ORDER) {
        i->after_ns = now_ns + BEHIND_NS;
        push_back(&q->todo, i);
        return DBQUEUE_BEHIND;
    }
    push_front(&q->todo, i);
    return DBQUEUE_RETRY;
}

void dbqueue_drop(struct dbqueue *q, uint64_t generation, struct dblist *dropped)
{
    struct dbitem **at = &q->todo.head;

    while (*at) {
        if ((*at)->op.generation == generation)
            push_back(dropped, unlink_item_at(&q->todo, at));
        else
            at = &(*at)->next;
    }
}

/* ------------------------------------------------------------------ one operation */

int dbitem_new(const struct dbop *op, struct dbitem **out, struct sh_err *err)
{
    *out = calloc(1, sizeof(**out));
    if (!*out)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a database operation");
    (*out)->op = *op;
    return SH_OK;
}

void dbitem_free(struct dbitem *i)
{
    if (!i)
        return;
    if (i->op.free_arg)
        i->op.free_arg(i->op.arg);
    free(i);
}

bool dbitem_failed_for_now(const struct dbitem *i)
{
    return i->rc == SH_E_DBDOWN || i->rc == SH_E_TIMEOUT || i->rc == SH_E_DISKFULL ||
           i->rc == SH_E_UNAVAILABLE;
}

void dbitem_run(struct dbitem *i, struct db *db, bool *is_up)
{
    int rc = SH_OK;

    i->err = (struct sh_err){0};
    if (!*is_up)
        rc = db_ready(db, DB_SCHEMA_VERSION, &i->err);
    /* A schema we do not know is no better than none: wait until it is the right one again. */
    if (rc == SH_E_CONFLICT)
        rc = SH_E_DBDOWN;
    if (!rc)
        rc = i->op.run(db, i->op.arg, &i->err);
    *is_up = rc != SH_E_DBDOWN;
    i->rc = rc;
}

void dbitem_tell(struct dbitem *i, const uint64_t *generation)
{
    if (i->op.done && (i->op.generation == 0 || i->op.generation == *generation))
        i->op.done(i->op.ctx, i->op.arg, i->rc, &i->err);
}
