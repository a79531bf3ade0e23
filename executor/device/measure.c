/* measure.c - what a copy costs: alpha + bytes * beta, fitted over sizes.
 *
 * The bytes that are copied in were copied out of the same place just before, so the arena keeps
 * its contents as long as nothing else writes there meanwhile.
 */
#include "common/clock.h"
#include "common/mem.h"
#include "executor/device/dev.h"

#include <poll.h>
#include <stdlib.h>

#define MAX_BYTES ((size_t)16 << 20)
#define BUDGET_NS INT64_C(600000000)
#define WAIT_MS 5000
#define REPEAT 5 /* the best counts: the machine has other work too */

static int run_copy(struct dev_mem *m, uint32_t lane, enum dev_dir dir, void *host, size_t bytes,
                    double *ns, struct sh_err *err)
{
    struct pollfd p = {.fd = dev_mem_event_fd(m), .events = POLLIN};
    int64_t t0 = sh_clock_ns();
    uint64_t cookie = 0;
    int rc;

    rc = dev_mem_copy(m, lane, dir, 0, host, bytes, err);
    if (!rc)
        rc = dev_mem_mark(m, lane, (uint64_t)t0, err);
    if (rc)
        return rc;
    if (poll(&p, 1, WAIT_MS) != 1)
        return SH_FAIL(err, SH_E_TIMEOUT, "a copy of %zu bytes took more than %d s", bytes,
                       WAIT_MS / 1000);
    *ns = (double)(sh_clock_ns() - t0);
    if (!dev_mem_next_mark(m, &cookie) || cookie != (uint64_t)t0)
        return SH_FAIL(err, SH_E_CONFLICT, "copies cannot be measured while others are under way");
    return SH_OK;
}

/* Weighted by 1/t^2, so that every size counts by its relative error and alpha is not lost. */
static void fit(const double *x, const double *y, size_t n, double *alpha, double *beta)
{
    double s = 0, sx = 0, sy = 0, sxx = 0, sxy = 0, det;

    for (size_t i = 0; i < n; i++) {
        double w = 1 / (y[i] * y[i]);

        s += w;
        sx += w * x[i];
        sy += w * y[i];
        sxx += w * x[i] * x[i];
        sxy += w * x[i] * y[i];
    }
    det = s * sxx - sx * sx;
    *beta = n > 1 && det > 0 ? (s * sxy - sx * sy) / det : y[0] / x[0];
    *beta = SH_MAX(*beta, 0);
    *alpha = SH_MAX((sy - *beta * sx) / s, 0);
}

int dev_mem_measure(struct dev_mem *m, uint32_t lane, double *alpha_ns, double *beta_ns,
                    struct sh_err *err)
{
    const size_t max = SH_MIN(MAX_BYTES, m->bytes);
    const enum dev_dir dir = m->n_lanes > 1 && lane == m->n_lanes - 1 ? DEV_D2H : DEV_H2D;
    int64_t begin = sh_clock_ns();
    double x[16], y[16], ns;
    size_t n = 0;
    void *host = malloc(max);
    int rc = host ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate memory to measure copies");

    for (size_t bytes = 64 << 10; !rc && bytes <= max && n < SH_ARRAY_LEN(x); bytes *= 4, n++) {
        if (n > 1 && sh_clock_ns() - begin > BUDGET_NS / 5)
            break; /* the next size costs four times as much */
        rc = run_copy(m, lane, DEV_D2H, host, bytes, &ns, err);
        y[n] = ns;
        x[n] = (double)bytes;
        for (int i = 0; !rc && i < REPEAT; i++) {
            rc = run_copy(m, lane, dir, host, bytes, &ns, err);
            if (!rc && (i == 0 || ns < y[n]))
                y[n] = ns;
        }
        y[n] = SH_MAX(y[n], 1);
    }
    if (!rc)
        fit(x, y, n, alpha_ns, beta_ns);
    free(host);
    return rc;
}
