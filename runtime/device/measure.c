/* measure.c - what a copy costs: alpha + bytes * beta, fitted over sizes.
 *
 * Copies travel one behind the other, each with its ticket, so what counts is what one more copy
 * and ticket add: the time of many less the time of one. That leaves out what is paid once, above
 * all the way of the mark, which on a real device takes longer than a small copy.
 *
 * The bytes that are copied in were copied out of the same place just before, so the arena keeps
 * its contents as long as nothing else writes there meanwhile.
 */
#include "common/clock.h"
#include "common/mem.h"
#include "common/units.h"
#include "runtime/device/backend.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#define MAX_BYTES ((size_t)16 << 20)
#define MAX_SIZES 16
#define BUDGET_NS SH_MS(600)
#define WAIT_MS 5000
#define REPEAT 5     /* the best counts: the machine has other work too */
#define TRAIN_NS 4e6 /* copies that follow the first one: so many as take this long, */
#define MIN_TRAIN 4  /* at least */
#define MAX_TRAIN 32 /* and at most */
#define WAKE_BYTES ((size_t)1 << 20)
#define MAX_WAKE 2000     /* copies */
#define WAKE_NS SH_MS(30) /* a link that was idle has to come up to its speed */
#define PAGE ((size_t)4096)

/* A signal is not the end of the wait. */
static bool wait_readable(int fd, int64_t timeout_ns)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    const int64_t end = sh_clock_ns() + timeout_ns;
    int n;

    do {
        int64_t left = sh_clock_until(end);

        n = poll(&p, 1, (int)sh_ms_up(left));
    } while (n < 0 && errno == EINTR);
    return n == 1;
}

static int run_copies(struct dev_mem *m, uint32_t lane, enum dev_dir dir, void *host, size_t bytes,
                      int n, double *ns, struct sh_err *err)
{
    const uint32_t value = dev_ticket_value(m, 0); /* written again, it changes nothing */
    int64_t t0 = sh_clock_ns();
    uint64_t cookie = 0;
    int rc = SH_OK;

    for (int i = 0; i < n && !rc; i++) {
        rc = dev_mem_copy(m, lane, dir, 0, host, bytes, err);
        if (!rc)
            rc = dev_mem_ticket(m, lane, 0, value, err);
    }
    if (!rc)
        rc = dev_mem_mark(m, lane, (uint64_t)t0, err);
    if (rc)
        return rc;
    if (!wait_readable(dev_mem_event_fd(m), SH_MS(WAIT_MS)))
        return SH_FAIL(err, SH_E_TIMEOUT, "%d copies of %zu bytes took more than %d s", n, bytes,
                       WAIT_MS / 1000);
    *ns = (double)(sh_clock_ns() - t0);
    if (!dev_mem_next_mark(m, &cookie) || cookie != (uint64_t)t0)
        return SH_FAIL(err, SH_E_CONFLICT, "copies cannot be measured while others are under way");
    return SH_OK;
}

/* What one more copy of this size adds. */
static int measure_size(struct dev_mem *m, uint32_t lane, enum dev_dir dir, void *host,
                        size_t bytes, double *out, struct sh_err *err)
{
    double one = 0, train = 0, ns = 0;
    int rc = run_copies(m, lane, DEV_D2H, host, bytes, 1, &ns, err), n = MIN_TRAIN;

    for (int i = 0; !rc && i < REPEAT; i++) {
        rc = run_copies(m, lane, dir, host, bytes, 1, &ns, err);
        one = i == 0 ? ns : SH_MIN(one, ns);
    }
    if (!rc && one > 0)
        n = (int)SH_MAX(MIN_TRAIN, SH_MIN(MAX_TRAIN, TRAIN_NS / one));
    for (int i = 0; !rc && i < REPEAT; i++) {
        rc = run_copies(m, lane, dir, host, bytes, 1 + n, &ns, err);
        train = i == 0 ? ns : SH_MIN(train, ns);
    }
    /* A single copy that something disturbed must not make the others look free. */
    *out = SH_MAX((train - one) / n, train / (1 + n) / 4);
    *out = SH_MAX(*out, 1);
    return rc;
}

/* x ascends. The rate shows in the largest size, where what is paid once is little; what a copy
 * costs beside it, in the others: the middle one of what they say. */
static void fit_line(const double *x, const double *y, size_t n, double *alpha, double *beta)
{
    double rest[MAX_SIZES];

    *beta = n > 1 ? (y[n - 1] - y[0]) / (x[n - 1] - x[0]) : y[0] / x[0];
    *beta = SH_MAX(*beta, 0);
    for (size_t i = 0; i < n; i++)
        rest[i] = y[i] - *beta * x[i];
    sh_sort_f64(rest, n);
    *alpha = SH_MAX(rest[n / 2], 0);
}

static int wake_link(struct dev_mem *m, uint32_t lane, enum dev_dir dir, void *host, size_t bytes,
                     struct sh_err *err)
{
    const int64_t end = sh_clock_ns() + WAKE_NS;
    double ns;
    int rc = run_copies(m, lane, DEV_D2H, host, bytes, 1, &ns, err);

    for (int i = 0; !rc && i < MAX_WAKE && sh_clock_ns() < end; i++)
        rc = run_copies(m, lane, dir, host, bytes, 1, &ns, err);
    return rc;
}

int dev_mem_measure(struct dev_mem *m, uint32_t lane, double *alpha_ns, double *beta_ns,
                    struct sh_err *err)
{
    const size_t max = SH_MIN(MAX_BYTES, m->bytes);
    const enum dev_dir dir = m->n_lanes > 1 && lane == m->n_lanes - 1 ? DEV_D2H : DEV_H2D;
    int64_t begin;
    double x[MAX_SIZES], y[MAX_SIZES];
    size_t n = 0;
    void *host = aligned_alloc(PAGE, SH_ALIGN_UP(max, PAGE));
    int rc;

    if (!host)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate memory to measure copies");
    rc = dev_mem_host_lock(m, host, SH_ALIGN_UP(max, PAGE), err);
    if (rc) {
        free(host);
        return rc;
    }
    rc = wake_link(m, lane, dir, host, SH_MIN(max, WAKE_BYTES), err);
    begin = sh_clock_ns();
    for (size_t bytes = 64 << 10; !rc && bytes <= max && n < MAX_SIZES; bytes *= 4, n++) {
        if (n > 1 && sh_clock_ns() - begin > BUDGET_NS / 5)
            break; /* the next size costs four times as much */
        x[n] = (double)bytes;
        rc = measure_size(m, lane, dir, host, bytes, &y[n], err);
    }
    if (!rc)
        fit_line(x, y, n, alpha_ns, beta_ns);
    if (rc == SH_E_TIMEOUT)
        return rc; /* a copy that is still under way keeps the memory */
    dev_mem_host_unlock(m, host);
    free(host);
    return rc;
}

int dev_mem_rehearse(struct dev_mem *m, struct sh_err *err)
{
    return m->ops->mem->rehearse ? m->ops->mem->rehearse(m, err) : SH_OK;
}
