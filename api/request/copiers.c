/* copiers.c - see copiers.h.
 *
 * A copy lies on its caller's stack and is in the list while it may get helpers. Pieces are taken
 * in order, from a counter. A helper joins by taking its first piece, under the lock; the caller
 * unlinks the copy, under the lock, when no piece is left. From then on helpers only leave, and the
 * last thing that each of them does with the copy is to count itself out.
 */
#include "api/request/copiers.h"

#include "common/io.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/relax.h"
#include "common/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define CORES_EACH 4u    /* others have work too: docs/decisions/0059 */
#define MOST_BY_CORES 8u /* each is woken by each copy */
#define LOOKS 200u /* for the last piece, of half a microsecond each: to sleep takes as long */

struct copy {
    struct copy *next; /* in the list; under the lock */
    int fd;
    bool is_write;
    char *memory;
    size_t bytes;
    uint64_t off;
    size_t n_pieces;
    atomic_size_t n_taken; /* may go beyond n_pieces */
    atomic_uint n_helpers; /* that have taken a piece, and not left */
    size_t fault;          /* the first piece that is not whole, or n_pieces; under the lock */
    size_t fault_bytes;    /* of it that are there */
    int fault_errno;       /* 0: the file ends there */
};

struct copiers {
    pthread_mutex_t lock;
    pthread_cond_t work; /* helpers sleep */
    pthread_cond_t left; /* callers wait for their helpers */
    struct copy *first;  /* in the order of their begin */
    bool stop;
    size_t n_threads;
    pthread_t threads[];
};

/* ---------------------------------------------------------------- pieces; without the lock */

static void note_fault(struct copiers *c, struct copy *y, size_t piece, ssize_t got, int why)
{
    atomic_store(&y->n_taken, y->n_pieces); /* those before it have been taken; no more are */
    pthread_mutex_lock(&c->lock);
    if (piece < y->fault) {
        y->fault = piece;
        y->fault_bytes = got < 0 ? 0 : (size_t)got;
        y->fault_errno = got < 0 ? why : 0;
    }
    pthread_mutex_unlock(&c->lock);
}

/* Returns what of it is there. */
static size_t carry_piece(struct copiers *c, struct copy *y, size_t piece)
{
    const size_t at = piece * COPIERS_PIECE, n = SH_MIN(y->bytes - at, COPIERS_PIECE);
    ssize_t got;

    if (y->is_write)
        got = sh_pwrite_all(y->fd, y->memory + at, n, y->off + at) ? (ssize_t)n : -1;
    else
        got = sh_pread_all(y->fd, y->memory + at, n, y->off + at);
    if (got != (ssize_t)n)
        note_fault(c, y, piece, got, errno);
    return got < 0 ? 0 : (size_t)got;
}

/* The piece, and then what nobody has taken. Returns bytes. */
static size_t carry_pieces(struct copiers *c, struct copy *y, size_t piece)
{
    size_t n = 0;

    for (; piece < y->n_pieces; piece = atomic_fetch_add(&y->n_taken, 1))
        n += carry_piece(c, y, piece);
    return n;
}

static void count_bytes(const char *by, size_t n)
{
    sh_metric_add(M_shunt_client_shm_large_bytes_total, SH_LABELS(by), (double)n);
}

/* ---------------------------------------------------------------- helpers */

/* Takes a piece of the first copy that has one; under the lock. */
static struct copy *join_copy(struct copiers *c, size_t *piece)
{
    for (struct copy *y = c->first; y; y = y->next) {
        *piece = atomic_fetch_add(&y->n_taken, 1);
        if (*piece < y->n_pieces) {
            atomic_fetch_add(&y->n_helpers, 1);
            return y;
        }
    }
    return NULL;
}

static void *copier_main(void *arg)
{
    struct copiers *c = arg;
    struct copy *y;
    size_t piece, n;
    bool was_last;

    pthread_mutex_lock(&c->lock);
    while (!c->stop) {
        y = join_copy(c, &piece);
        if (!y) {
            pthread_cond_wait(&c->work, &c->lock);
            continue;
        }
        pthread_mutex_unlock(&c->lock);
        n = carry_pieces(c, y, piece);
        was_last = atomic_fetch_sub(&y->n_helpers, 1) == 1; /* y may be gone now */
        count_bytes("helper", n);
        pthread_mutex_lock(&c->lock);
        if (was_last)
            pthread_cond_broadcast(&c->left);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* ---------------------------------------------------------------- callers */

static void link_copy(struct copiers *c, struct copy *y)
{
    struct copy **at = &c->first;

    pthread_mutex_lock(&c->lock);
    while (*at)
        at = &(*at)->next;
    *at = y;
    pthread_mutex_unlock(&c->lock);
    pthread_cond_broadcast(&c->work);
}

static void unlink_copy(struct copiers *c, struct copy *y)
{
    struct copy **at = &c->first;

    pthread_mutex_lock(&c->lock);
    while (*at != y)
        at = &(*at)->next;
    *at = y->next;
    pthread_mutex_unlock(&c->lock);
}

static void await_helpers(struct copiers *c, struct copy *y)
{
    for (unsigned i = 0; i < LOOKS && atomic_load(&y->n_helpers) > 0; i++)
        sh_relax();
    if (atomic_load(&y->n_helpers) == 0)
        return;
    pthread_mutex_lock(&c->lock);
    while (atomic_load(&y->n_helpers) > 0)
        pthread_cond_wait(&c->left, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

/* Returns how much is there from the beginning on, or -1. */
static ssize_t copy_together(struct copiers *c, struct copy *y)
{
    size_t n;

    y->n_pieces = y->fault = (y->bytes + COPIERS_PIECE - 1) / COPIERS_PIECE;
    atomic_init(&y->n_taken, 1); /* the first is the caller's */
    atomic_init(&y->n_helpers, 0);
    link_copy(c, y);
    n = carry_pieces(c, y, 0);
    unlink_copy(c, y);
    await_helpers(c, y);
    count_bytes("caller", n);
    if (y->fault == y->n_pieces)
        return (ssize_t)y->bytes;
    errno = y->fault_errno;
    return y->fault_errno ? -1 : (ssize_t)(y->fault * COPIERS_PIECE + y->fault_bytes);
}

static bool is_shared_out(const struct copiers *c, size_t n)
{
    return c && n >= COPIERS_LARGE;
}

ssize_t copiers_pread(struct copiers *c, int fd, void *to, size_t n, uint64_t off)
{
    struct copy y = {.fd = fd, .memory = to, .bytes = n, .off = off};

    return is_shared_out(c, n) ? copy_together(c, &y) : sh_pread_all(fd, to, n, off);
}

bool copiers_pwrite(struct copiers *c, int fd, const void *from, size_t n, uint64_t off)
{
    struct copy y = {.fd = fd, .is_write = true, .memory = (char *)from, .bytes = n, .off = off};

    return is_shared_out(c, n) ? copy_together(c, &y) >= 0 : sh_pwrite_all(fd, from, n, off);
}

/* ---------------------------------------------------------------- start and end */

unsigned copiers_by_cores(unsigned cores)
{
    return SH_MIN(cores / CORES_EACH, MOST_BY_CORES);
}

int copiers_new(unsigned n_threads, struct copiers **out, struct sh_err *err)
{
    struct copiers *c = calloc(1, sizeof(*c) + n_threads * sizeof(c->threads[0]));

    *out = NULL;
    if (!c)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the threads that copy");
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->work, NULL);
    pthread_cond_init(&c->left, NULL);
    for (; c->n_threads < n_threads; c->n_threads++) {
        if (sh_thread_start(&c->threads[c->n_threads], copier_main, c)) {
            copiers_free(c);
            return SH_FAIL(err, SH_E_NOMEM, "could not start a thread that copies");
        }
        pthread_setname_np(c->threads[c->n_threads], "copier");
    }
    *out = c;
    return SH_OK;
}

void copiers_free(struct copiers *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    pthread_cond_broadcast(&c->work);
    pthread_mutex_unlock(&c->lock);
    for (size_t i = 0; i < c->n_threads; i++)
        pthread_join(c->threads[i], NULL);
    pthread_cond_destroy(&c->left);
    pthread_cond_destroy(&c->work);
    pthread_mutex_destroy(&c->lock);
    free(c);
}
