/* sandbox.h - gives up what a process does not need, before it reads what a stranger wrote. There
 * is no way back.
 *
 * sandbox_enter() is all of it for a program that reads one file and ends (shunt-import). A worker
 * takes the parts one after the other, each as early as its device allows
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
    SANDBOX_READ = 1,   /* the file, or all files beneath the folder */
    SANDBOX_WRITE = 2,  /* likewise */
    SANDBOX_MAKE = 4,   /* a folder in which files may be made, replaced and removed */
    SANDBOX_IF_ANY = 8, /* what is not there is no failure */
    SANDBOX_HOLD = 16,  /* stays open: procfs makes an entry anew that nobody held while memory was
                         * wanted, and no rule is about the new one */
};

struct sandbox_path {
    const char *path;
    unsigned access;
};

/* Which system calls are left. None of them has a network, new programs, new processes, tracing, or
 * signals to others.
 * IMPORT   files by name, no threads; any other call ends the process
 * COMPUTE  descriptors that it has or is sent, memory, threads; any other call fails with EPERM
 * DRIVER   all but those that a device driver's library has no business with: that library is not
 *          ours, and what it needs changes with it; those fail with EPERM */
enum sandbox_calls { SANDBOX_IMPORT, SANDBOX_COMPUTE, SANDBOX_DRIVER };

struct sandbox {
    const char *const *read_paths; /* files that may be read; NULL-terminated */
    const char *write_dir;         /* folder in which files may be made, read and replaced */
    int64_t memory_bytes, cpu_seconds, file_bytes;
};

/* Builds with sanitizers get no limit on memory and no list of system calls: both need more. */
int sandbox_enter(const struct sandbox *s, struct sh_err *err);

bool sandbox_hides_files(void);  /* does the kernel know Landlock? */
bool sandbox_lists_calls(void);  /* not in a build with sanitizers */
bool sandbox_is_powerless(void); /* this thread has no capability */
/* This thread and those that it starts: no new privileges, and of all files the n named ones alone.
 * On a kernel without Landlock files stay as they are. */
int sandbox_files(const struct sandbox_path *paths, size_t n, struct sh_err *err);
/* All threads of a process that is root: becomes this user and group, of no others, without
 * capabilities. 0: stays root; then only this thread loses its capabilities. */
int sandbox_user(uid_t uid, gid_t gid, struct sh_err *err);
int sandbox_limit(int what, int64_t value, struct sh_err *err); /* RLIMIT_*: lowers, never raises */
/* All threads. The other two first: its lists have no calls for them. */
int sandbox_calls(enum sandbox_calls list, struct sh_err *err);

#endif
