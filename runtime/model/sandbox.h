/* sandbox.h - gives up what a process does not need, before it reads untrusted input. There is no
 * way back.
 *
 * sandbox_enter() does all of it for a program that reads one file and ends (shunt-import). A
 * worker takes the parts one after the other, each as early as its device allows
 * (executor/worker/confine.c).
 */
#ifndef SH_RUNTIME_MODEL_SANDBOX_H
#define SH_RUNTIME_MODEL_SANDBOX_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum sandbox_access {
    SANDBOX_READ = 1,   /* read the file, or all files beneath the folder */
    SANDBOX_WRITE = 2,  /* write the file, or all files beneath the folder */
    SANDBOX_MAKE = 4,   /* create, replace and remove files in the folder */
    SANDBOX_IF_ANY = 8, /* a missing path is no failure */
    SANDBOX_HOLD = 16,  /* keep it open: procfs recreates entries that nobody held when memory was
    short,
                         * and no rule covers the new one */
};

struct sandbox_path {
    const char *path;
    unsigned access;
};

/* The system calls that remain. None of the lists has a network, new programs, new processes,
 * tracing, or signals to others.
 * IMPORT   files by name, no threads; any other call ends the process
 * COMPUTE  descriptors that it has or receives, memory, threads; any other call fails with EPERM
 * DRIVER   all except those of no use to a device driver's library: it is not ours, and its needs
 * change with
 *          its version; the others fail with EPERM */
enum sandbox_calls { SANDBOX_IMPORT, SANDBOX_COMPUTE, SANDBOX_DRIVER };

struct sandbox {
    const char *const *read_paths; /* files that may be read; NULL-terminated */
    const char *write_dir;         /* folder in which files may be created, read and replaced */
    int64_t memory_bytes, cpu_seconds, file_bytes;
};

/* Builds with sanitizers get no memory limit and no list of system calls, since they need more. */
int sandbox_enter(const struct sandbox *s, struct sh_err *err);

bool sandbox_hides_files(void);  /* does the kernel know Landlock? */
bool sandbox_lists_calls(void);  /* not in a build with sanitizers */
bool sandbox_is_powerless(void); /* this thread has no capability */
/* For this thread and those it starts: no new privileges, and only the n named files. On a kernel
 * without Landlock files stay accessible. */
int sandbox_files(const struct sandbox_path *paths, size_t n, struct sh_err *err);
/* For all threads of a root process: switches to this user and group, without other groups or
 * capabilities. 0: stays root; then only this thread loses its capabilities. */
int sandbox_user(uid_t uid, gid_t gid, struct sh_err *err);
int sandbox_limit(int what, int64_t value, struct sh_err *err); /* RLIMIT_*: lowers, never raises */
/* For all threads. Call the other two first: the lists do not allow what they need. */
int sandbox_calls(enum sandbox_calls list, struct sh_err *err);

#endif
