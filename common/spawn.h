/* spawn.h - starts children with posix_spawn: only chosen descriptors, on 3 and up, and a chosen
 * environment.
 *
 * All our descriptors are close-on-exec. The child gets 0 (/dev/null), 1, 2, and fds[i] as 3+i, and
 * no blocked or ignored signals. It receives SIGKILL when the THREAD that started it ends
 * (PR_SET_PDEATHSIG, set in the child by sh_spawn_child_init()), so start such children from a
 * thread that lives as long as the process. Thread-safe.
 */
#ifndef SH_COMMON_SPAWN_H
#define SH_COMMON_SPAWN_H

#include "common/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

struct sh_spawn {
    const char *path;        /* a bare name is looked up beside our executable, then in PATH */
    const char *const *argv; /* NULL-terminated, argv[0] included */
    const char *const *keep; /* what it gets of our environment, see below; NULL: everything */
    const char *const *env;  /* added "NAME=value" pairs, NULL-terminated; NULL: none */
    const int *fds;
    size_t n_fds;
    int stdout_fd, stderr_fd; /* -1: inherit */
    /* for sh_spawn_run: another thread may raise it to end the child; NULL: none */
    const atomic_bool *stop;
};

/* Lists for `keep`: names, NULL-terminated. "NAME*" is a prefix; "!NAME" excludes what a later
 * entry would let through.
 * SYSTEM: how to find libraries, devices and the time zone; no option and no secret of ours
 * DAEMON: that and our options, but neither the database nor a key, for programs that need
 * neither */
extern const char *const SH_ENV_SYSTEM[];
extern const char *const SH_ENV_DAEMON[];

int sh_spawn(const struct sh_spawn *s, pid_t *pid_out, struct sh_err *err);
/* First call in main() of a child program: parent-death signal; fails if the parent is gone. */
int sh_spawn_child_init(struct sh_err *err);
/* Runs a child to its end; keeps the first max_out bytes of its stdout; kills it after timeout_ms.
 * *out: OWNED, free(), NUL-terminated. *wait_status: as from waitpid. Blocks. Fails: SH_E_TIMEOUT,
 * SH_E_CANCELLED (stop was raised; within 100 ms); the child is then dead. */
int sh_spawn_run(const struct sh_spawn *s, int64_t timeout_ms, size_t max_out, char **out,
                 size_t *out_len, int *wait_status, struct sh_err *err);
/* Folder of our own executable. Writes at most size bytes. */
int sh_self_dir(char *out, size_t size, struct sh_err *err);
/* Cores that this process may use at once: its affinity, limited by the CPU time that its cgroups
 * (version 2 or 1) allow, rounded up. At least 1. */
unsigned sh_cores(void);
/* What cgroups leave of n cores. root: where they are mounted; own: as /proc/self/cgroup. A cgroup
 * that cannot be read limits nothing. */
unsigned sh_cores_within(unsigned n, const char *root, const char *own);

#endif
