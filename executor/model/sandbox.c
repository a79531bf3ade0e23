/* sandbox.c - setrlimit, PR_SET_NO_NEW_PRIVS, Landlock, seccomp. */
#include "executor/model/sandbox.h"

#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_FILES 64

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static int limit(int what, int64_t value, struct sh_err *err)
{
    struct rlimit old, r = {.rlim_cur = (rlim_t)value, .rlim_max = (rlim_t)value};

    if (getrlimit((__rlimit_resource_t)what, &old) == 0 && old.rlim_max != RLIM_INFINITY)
        r.rlim_cur = r.rlim_max = SH_MIN(r.rlim_max, old.rlim_max);
    if (setrlimit((__rlimit_resource_t)what, &r) != 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not set a limit");
    return SH_OK;
}

static int set_limits(const struct sandbox *s, struct sh_err *err)
{
    int rc = limit(RLIMIT_CPU, s->cpu_seconds, err);

    if (!rc)
        rc = limit(RLIMIT_FSIZE, s->file_bytes, err);
    if (!rc)
        rc = limit(RLIMIT_NOFILE, MAX_FILES, err);
    if (!rc)
        rc = limit(RLIMIT_CORE, 0, err);
    if (!rc && !SANITIZED)
        rc = limit(RLIMIT_AS, s->memory_bytes, err);
    return rc;
}

/* ---------------------------------------------------------------- files */

bool sandbox_hides_files(void)
{
    return syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) > 0;
}

static int allow_path(int ruleset, const char *path, uint64_t access, struct sh_err *err)
{
    struct landlock_path_beneath_attr rule = {.allowed_access = access};
    int rc = SH_OK;

    rule.parent_fd = open(path, O_PATH | O_CLOEXEC);
    if (rule.parent_fd < 0)
        return SH_FAIL_ERRNO(err, errno == ENOENT ? SH_E_NOTFOUND : SH_E_IO,
                             "could not open a file or folder that was named");
    if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not restrict access to files");
    close(rule.parent_fd);
    return rc;
}

static int restrict_files(const struct sandbox *s, struct sh_err *err)
{
    const uint64_t in_dir = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR |
                            LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG |
                            LANDLOCK_ACCESS_FS_REMOVE_FILE;
    struct landlock_ruleset_attr attr = {
        .handled_access_fs = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1, /* all of version 1 */
    };
    int ruleset, rc = SH_OK;

    if (!sandbox_hides_files()) /* an old kernel, or a container without it: the rest still holds */
        return SH_OK;
    ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
    if (ruleset < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not restrict access to files");
    for (size_t i = 0; s->read_paths[i] && rc == SH_OK; i++)
        rc = allow_path(ruleset, s->read_paths[i], LANDLOCK_ACCESS_FS_READ_FILE, err);
    if (!rc)
        rc = allow_path(ruleset, s->write_dir, in_dir, err);
    if (!rc && syscall(SYS_landlock_restrict_self, ruleset, 0) != 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not restrict access to files");
    close(ruleset);
    return rc;
}

/* ---------------------------------------------------------------- system calls */

static const int ALLOWED[] = {
    SCMP_SYS(read),
    SCMP_SYS(write),
    SCMP_SYS(pread64),
    SCMP_SYS(pwrite64),
    SCMP_SYS(readv),
    SCMP_SYS(writev),
    SCMP_SYS(lseek),
    SCMP_SYS(open),
    SCMP_SYS(openat),
    SCMP_SYS(close),
    SCMP_SYS(fstat),
    SCMP_SYS(newfstatat),
    SCMP_SYS(stat),
    SCMP_SYS(lstat),
    SCMP_SYS(statx),
    SCMP_SYS(fsync),
    SCMP_SYS(fdatasync),
    SCMP_SYS(ftruncate),
    SCMP_SYS(fchmod),
    SCMP_SYS(fcntl),
    SCMP_SYS(rename),
    SCMP_SYS(renameat),
    SCMP_SYS(renameat2),
    SCMP_SYS(unlink),
    SCMP_SYS(unlinkat),
    SCMP_SYS(mmap),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(mprotect),
    SCMP_SYS(madvise),
    SCMP_SYS(brk),
    SCMP_SYS(futex),
    SCMP_SYS(getrandom),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(time),
    SCMP_SYS(getpid),
    SCMP_SYS(gettid),
    SCMP_SYS(getrusage),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(sched_yield),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
};

static int restrict_calls(struct sh_err *err)
{
    scmp_filter_ctx f = seccomp_init(SCMP_ACT_KILL_PROCESS);
    int failed = f ? 0 : -1;

    for (size_t i = 0; i < SH_ARRAY_LEN(ALLOWED) && !failed; i++)
        failed = seccomp_rule_add(f, SCMP_ACT_ALLOW, ALLOWED[i], 0);
    if (!failed) /* abort() raises its signal in our own process only */
        failed = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1,
                                  SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)getpid()));
    if (!failed) /* standard output asks whether it is a terminal */
        failed = seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOTTY), SCMP_SYS(ioctl), 0);
    if (!failed)
        failed = seccomp_load(f);
    if (f)
        seccomp_release(f);
    if (failed)
        return SH_FAIL(err, SH_E_IO, "could not restrict system calls (%d)", failed);
    return SH_OK;
}

int sandbox_enter(const struct sandbox *s, struct sh_err *err)
{
    int rc;

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not give up privileges");
    rc = set_limits(s, err);
    if (!rc)
        rc = restrict_files(s, err);
    if (!rc && !SANITIZED)
        rc = restrict_calls(err);
    return rc;
}
