/* shortage.c - see shortage.h. */
#include "tests/sim/shortage.h"

#include "common/json.h"
#include "common/loop.h"
#include "common/mem.h"
#include "common/shm.h"
#include "common/spawn.h"
#include "common/wire.h"
#include "executor/files/disk.h"
#include "tests/sim/executor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

double sim_shortage;
static uint64_t n_refused;

uint64_t sim_shortage_n(void)
{
    return n_refused;
}

static bool is_refused(void)
{
    const bool is = sim_shortage > 0 && sim_self() && sim_exec_of(sim_self()) &&
                    sim_proc_is_alive(sim_self()) && sim_chance(sim_shortage);

    n_refused += is;
    return is;
}

/* name PARAMETERS of the executor: refused, with what a failure leaves; or name ARGUMENTS. */
#define SHORT(name, left, parameters, arguments)                                        \
    int __wrap_##name parameters;                                                       \
    int __wrap_##name parameters                                                        \
    {                                                                                   \
        if (!is_refused())                                                              \
            return name arguments;                                                      \
        left;                                                                           \
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate: the host is short of it"); \
    }

SHORT(sh_strdup, *out = NULL, (const char *s, char **out, struct sh_err *err), (s, out, err))
SHORT(sh_json_dump, *out = NULL, (const json_t *j, char **out, struct sh_err *err), (j, out, err))
SHORT(sh_timer_add, *out = NULL,
      (struct sh_loop * l, int64_t delay_ns, int64_t period_ns, sh_timer_fn *fn, void *arg,
       struct sh_timer **out, struct sh_err *err),
      (l, delay_ns, period_ns, fn, arg, out, err))
SHORT(sh_io_add, *out = NULL,
      (struct sh_loop * l, int fd, unsigned events, sh_io_fn *fn, void *arg, struct sh_io **out,
       struct sh_err *err),
      (l, fd, events, fn, arg, out, err))
SHORT(sh_wire_new, *out = NULL,
      (struct sh_loop * l, int fd, const struct sh_wire_handler *h, struct sh_wire **out,
       struct sh_err *err),
      (l, fd, h, out, err))
SHORT(sh_grow, (void)0,
      (void *items, size_t *cap, size_t need, size_t item, size_t max, const char *what,
       struct sh_err *err),
      (items, cap, need, item, max, what, err))
SHORT(sh_loop_child, (void)0,
      (struct sh_loop * l, pid_t pid, sh_child_fn *fn, void *arg, struct sh_err *err),
      (l, pid, fn, arg, err))
SHORT(sh_spawn, *pid = 0, (const struct sh_spawn *s, pid_t *pid, struct sh_err *err), (s, pid, err))
SHORT(sh_shm_create, *out = (struct sh_shm){.fd = -1},
      (const char *name, size_t bytes, struct sh_shm *out, struct sh_err *err),
      (name, bytes, out, err))
SHORT(sh_shm_map, *out = (struct sh_shm){.fd = -1},
      (int fd, size_t bytes, bool writable, struct sh_shm *out, struct sh_err *err),
      (fd, bytes, writable, out, err))
SHORT(sh_shm_show, (void)0,
      (const struct sh_shm *m, const struct sh_shm *from, size_t off, size_t bytes,
       struct sh_err *err),
      (m, from, off, bytes, err))
SHORT(sh_wire_send_fds, (void)0,
      (struct sh_wire * w, const struct sh_msg *m, const int *fds, size_t n_fds,
       struct sh_err *err),
      (w, m, fds, n_fds, err))
SHORT(disk_submit, (void)0, (struct disk * d, struct disk_task *t, struct sh_err *err), (d, t, err))

int __wrap_sh_asprintf(struct sh_err *err, char **out, const char *fmt, ...)
{
    va_list ap;
    int n = -1;

    *out = NULL;
    va_start(ap, fmt);
    if (!is_refused())
        n = vasprintf(out, fmt, ap);
    va_end(ap);
    return n >= 0 ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate: the host is short of it");
}

void *__wrap_malloc(size_t n)
{
    return is_refused() ? NULL : malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return is_refused() ? NULL : calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return is_refused() ? NULL : realloc(p, n);
}
