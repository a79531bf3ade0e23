/* worker_log.c - see worker_log.h. */
#include "executor/pool/worker_log.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/units.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TELL_NS SH_S(60)
#define LAST_READS 64 /* at the end, of WORKER_LOG_LINE_BYTES: more than a pipe holds */

struct worker_log {
    uint32_t worker;
    int fd, out_fd; /* fd: OWNED */
    struct sh_io *io;
    struct sh_timer *again;    /* armed while nothing is read */
    int64_t budget, filled_ns; /* bytes that may be passed on, as of then */
    int64_t told_ns;           /* when it was said that there is too much; 0: never */
    size_t n;
    char line[WORKER_LOG_LINE_BYTES]; /* what is not a whole line yet */
};

static void refill(struct worker_log *g)
{
    const int64_t now = sh_clock_ns();
    const int64_t ns = SH_MIN(now - g->filled_ns, SH_S(WORKER_LOG_BURST / WORKER_LOG_PER_S));

    if (ns < SH_MS(100))
        return;
    g->budget = SH_MIN(g->budget + ns * WORKER_LOG_PER_S / SH_S(1), WORKER_LOG_BURST);
    g->filled_ns = now;
}

/* Passes the whole lines on, in one piece: what the log does not take is lost, as in log.c. One
 * byte of `line` is always free for the end of a line that has none. */
static void pass_lines(struct worker_log *g, bool all)
{
    const char *last = memrchr(g->line, '\n', g->n);
    size_t n = last ? (size_t)(last - g->line) + 1 : 0;
    ssize_t put;

    if (n < g->n && (all || (n == 0 && g->n == sizeof(g->line) - 1))) {
        g->line[g->n++] = '\n';
        n = g->n;
    }
    if (n == 0)
        return;
    put = write(g->out_fd, g->line, n);
    (void)put;
    g->budget -= (int64_t)n;
    g->n -= n;
    memmove(g->line, g->line + n, g->n);
}

/* False: there is nothing now. */
static bool take_output(struct worker_log *g)
{
    const ssize_t n = read(g->fd, g->line + g->n, sizeof(g->line) - 1 - g->n);

    if (n <= 0)
        return false;
    g->n += (size_t)n;
    pass_lines(g, false);
    return true;
}

static void pause_log_reading(struct worker_log *g)
{
    const int64_t now = sh_clock_ns();

    if (!g->told_ns || now - g->told_ns >= TELL_NS) {
        SH_WARN("worker.log",
                "worker=%u bytes_per_s=%lld msg=\"it prints more than that: lines are lost\"",
                g->worker, (long long)WORKER_LOG_PER_S);
        g->told_ns = now;
    }
    sh_io_set(g->io, 0, NULL);
    sh_timer_set(g->again, SH_S(1));
}

/* One read: the loop has others to look after. There is budget: nothing is read without. */
static void on_input(struct sh_loop *l, int fd, unsigned events, void *arg)
{
    struct worker_log *g = arg;

    (void)l, (void)fd;
    refill(g);
    if (events & SH_IO_READ) {
        take_output(g);
        if (g->budget <= 0)
            pause_log_reading(g);
    } else { /* its end; worker_log_close() has the rest */
        sh_io_del(g->io);
        g->io = NULL;
    }
}

static void on_again(struct sh_loop *l, void *arg)
{
    struct worker_log *g = arg;

    (void)l;
    refill(g);
    if (g->io)
        sh_io_set(g->io, SH_IO_READ, NULL);
}

int worker_log_open(struct sh_loop *l, uint32_t worker, int out_fd, struct worker_log **out,
                    int *child_fd, struct sh_err *err)
{
    struct worker_log *g = calloc(1, sizeof(*g));
    int fds[2], rc;

    *out = NULL;
    *child_fd = -1;
    if (!g)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the log of a worker");
    g->worker = worker;
    g->out_fd = out_fd;
    g->budget = WORKER_LOG_BURST;
    g->filled_ns = sh_clock_ns();
    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0) {
        free(g);
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not make a pipe for what a worker prints");
    }
    g->fd = fds[0];
    rc = sh_timer_add(l, -1, 0, on_again, g, &g->again, err);
    if (!rc)
        rc = sh_io_add(l, g->fd, SH_IO_READ, on_input, g, &g->io, err);
    if (rc) {
        worker_log_close(g);
        close(fds[1]);
        return rc;
    }
    *out = g;
    *child_fd = fds[1];
    return SH_OK;
}

void worker_log_close(struct worker_log *g)
{
    if (!g)
        return;
    for (int i = 0; i < LAST_READS && take_output(g); i++)
        ;
    pass_lines(g, true);
    sh_io_del(g->io);
    sh_timer_del(g->again);
    close(g->fd);
    free(g);
}
