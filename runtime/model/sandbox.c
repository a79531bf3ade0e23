/* sandbox.c - setrlimit, setresuid, PR_SET_NO_NEW_PRIVS, Landlock, seccomp. */
#include "runtime/model/sandbox.h"

#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <linux/sockios.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_FILES 64
#define MAX_PATHS 8

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

int sandbox_limit(int what, int64_t value, struct sh_err *err)
{
    struct rlimit old, r = {.rlim_cur = (rlim_t)value, .rlim_max = (rlim_t)value};

    if (getrlimit((__rlimit_resource_t)what, &old) == 0 && old.rlim_max != RLIM_INFINITY)
        r.rlim_cur = r.rlim_max = SH_MIN(r.rlim_max, old.rlim_max);
    if (setrlimit((__rlimit_resource_t)what, &r) != 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not set a limit");
    return SH_OK;
}

static int set_sandbox_limits(const struct sandbox *s, struct sh_err *err)
{
    int rc = sandbox_limit(RLIMIT_CPU, s->cpu_seconds, err);

    if (!rc)
        rc = sandbox_limit(RLIMIT_FSIZE, s->file_bytes, err);
    if (!rc)
        rc = sandbox_limit(RLIMIT_NOFILE, MAX_FILES, err);
    if (!rc)
        rc = sandbox_limit(RLIMIT_CORE, 0, err);
    if (!rc && !SANITIZED)
        rc = sandbox_limit(RLIMIT_AS, s->memory_bytes, err);
    return rc;
}

/* ---------------------------------------------------------------- user */

int sandbox_user(uid_t uid, gid_t gid, struct sh_err *err)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};

    /* Those of libc, which reach every thread; leaving uid 0 takes the capabilities of each. */
    if (uid &&
        (setgroups(0, NULL) != 0 || setresgid(gid, gid, gid) != 0 || setresuid(uid, uid, uid) != 0))
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not become user %u and group %u", (unsigned)uid,
                             (unsigned)gid);
    if (syscall(SYS_capset, &head, none) != 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not give up capabilities");
    return SH_OK;
}

bool sandbox_is_powerless(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct has[_LINUX_CAPABILITY_U32S_3] = {{0}};

    if (syscall(SYS_capget, &head, has) != 0)
        return false;
    for (size_t i = 0; i < SH_ARRAY_LEN(has); i++)
        if (has[i].effective | has[i].permitted)
            return false;
    return true;
}

/* ---------------------------------------------------------------- files */

bool sandbox_hides_files(void)
{
    return syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) > 0;
}

/* Landlock refuses a right to a folder's entries on what is no folder. */
static uint64_t rights(unsigned access, bool is_dir)
{
    uint64_t r = 0;

    if (access & SANDBOX_READ)
        r |= LANDLOCK_ACCESS_FS_READ_FILE | (is_dir ? LANDLOCK_ACCESS_FS_READ_DIR : 0);
    if (access & (SANDBOX_WRITE | SANDBOX_MAKE))
        r |= LANDLOCK_ACCESS_FS_WRITE_FILE;
    if ((access & SANDBOX_MAKE) && is_dir)
        r |= LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_REMOVE_FILE;
    return r;
}

static int allow_path(int ruleset, const struct sandbox_path *p, struct sh_err *err)
{
    struct landlock_path_beneath_attr rule = {.parent_fd = open(p->path, O_PATH | O_CLOEXEC)};
    struct stat st;
    int rc = SH_OK;

    if (rule.parent_fd < 0 && (p->access & SANDBOX_IF_ANY))
        return SH_OK;
    if (rule.parent_fd < 0)
        return SH_FAIL_ERRNO(err, errno == ENOENT ? SH_E_NOTFOUND : SH_E_IO,
                             "could not open a file or folder that was named");
    rule.allowed_access = rights(p->access, !fstat(rule.parent_fd, &st) && S_ISDIR(st.st_mode));
    if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not restrict access to files");
    if (rc || !(p->access & SANDBOX_HOLD))
        close(rule.parent_fd);
    return rc;
}

int sandbox_files(const struct sandbox_path *paths, size_t n, struct sh_err *err)
{
    struct landlock_ruleset_attr attr = {
        .handled_access_fs = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1, /* all of version 1 */
    };
    int ruleset, rc = SH_OK;

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not give up privileges");
    if (!sandbox_hides_files()) /* an old kernel, or a container without it: the rest still holds */
        return SH_OK;
    ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
    if (ruleset < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not restrict access to files");
    for (size_t i = 0; i < n && rc == SH_OK; i++)
        rc = allow_path(ruleset, &paths[i], err);
    if (!rc && syscall(SYS_landlock_restrict_self, ruleset, 0) != 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not restrict access to files");
    close(ruleset);
    return rc;
}

/* ---------------------------------------------------------------- system calls */

static const int COMMON[] = {
    SCMP_SYS(read),
    SCMP_SYS(write),
    SCMP_SYS(pread64),
    SCMP_SYS(pwrite64),
    SCMP_SYS(readv),
    SCMP_SYS(writev),
    SCMP_SYS(lseek),
    SCMP_SYS(close),
    SCMP_SYS(fstat),
    SCMP_SYS(ftruncate),
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
    SCMP_SYS(sysinfo), /* of qsort(), for a list of more than 1 KiB */
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(sched_yield),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
};

static const int IMPORT[] = {
    SCMP_SYS(open),   SCMP_SYS(openat),   SCMP_SYS(newfstatat), SCMP_SYS(stat),
    SCMP_SYS(lstat),  SCMP_SYS(statx),    SCMP_SYS(fsync),      SCMP_SYS(fdatasync),
    SCMP_SYS(fchmod), SCMP_SYS(rename),   SCMP_SYS(renameat),   SCMP_SYS(renameat2),
    SCMP_SYS(unlink), SCMP_SYS(unlinkat),
};

/* Messages with descriptors, shared memory, threads, sleep. */
static const int COMPUTE[] = {
    SCMP_SYS(recvmsg),
    SCMP_SYS(sendmsg),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(shutdown),
    SCMP_SYS(memfd_create),
    SCMP_SYS(fallocate), /* gives pages of shared memory back */
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(nanosleep),
    SCMP_SYS(clock_getres),
    SCMP_SYS(set_robust_list),
    SCMP_SYS(rseq),
    SCMP_SYS(membarrier),
    SCMP_SYS(sched_getaffinity),
    SCMP_SYS(getcpu),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(uname),
    SCMP_SYS(getppid),
    SCMP_SYS(getuid),
    SCMP_SYS(geteuid),
    SCMP_SYS(getgid),
    SCMP_SYS(getegid),
};

/* By these a process gets at others, at the kernel, or at more than it has. */
static const int NOT_DRIVER[] = {
    SCMP_SYS(execve),
    SCMP_SYS(execveat),
    SCMP_SYS(fork),
    SCMP_SYS(vfork),
    SCMP_SYS(socket),
    SCMP_SYS(connect),
    SCMP_SYS(bind),
    SCMP_SYS(listen),
    SCMP_SYS(accept),
    SCMP_SYS(accept4),
    SCMP_SYS(ptrace),
    SCMP_SYS(process_vm_readv),
    SCMP_SYS(process_vm_writev),
    SCMP_SYS(process_madvise),
    SCMP_SYS(process_mrelease),
    SCMP_SYS(pidfd_open),
    SCMP_SYS(pidfd_getfd),
    SCMP_SYS(pidfd_send_signal),
    SCMP_SYS(kcmp),
    SCMP_SYS(kill),
    SCMP_SYS(tkill),
    SCMP_SYS(rt_sigqueueinfo),
    SCMP_SYS(rt_tgsigqueueinfo),
    SCMP_SYS(mount),
    SCMP_SYS(umount2),
    SCMP_SYS(pivot_root),
    SCMP_SYS(chroot),
    SCMP_SYS(move_mount),
    SCMP_SYS(open_tree),
    SCMP_SYS(fsopen),
    SCMP_SYS(fsconfig),
    SCMP_SYS(fsmount),
    SCMP_SYS(fspick),
    SCMP_SYS(mount_setattr),
    SCMP_SYS(unshare),
    SCMP_SYS(setns),
    SCMP_SYS(bpf),
    SCMP_SYS(perf_event_open),
    SCMP_SYS(userfaultfd),
    SCMP_SYS(io_uring_setup),
    SCMP_SYS(io_uring_enter),
    SCMP_SYS(io_uring_register),
    SCMP_SYS(keyctl),
    SCMP_SYS(add_key),
    SCMP_SYS(request_key),
    SCMP_SYS(kexec_load),
    SCMP_SYS(kexec_file_load),
    SCMP_SYS(init_module),
    SCMP_SYS(finit_module),
    SCMP_SYS(delete_module),
    SCMP_SYS(reboot),
    SCMP_SYS(swapon),
    SCMP_SYS(swapoff),
    SCMP_SYS(acct),
    SCMP_SYS(quotactl),
    SCMP_SYS(syslog),
    SCMP_SYS(settimeofday),
    SCMP_SYS(clock_settime),
    SCMP_SYS(clock_adjtime),
    SCMP_SYS(adjtimex),
    SCMP_SYS(sethostname),
    SCMP_SYS(setdomainname),
    SCMP_SYS(iopl),
    SCMP_SYS(ioperm),
    SCMP_SYS(personality),
    SCMP_SYS(fanotify_init),
    SCMP_SYS(name_to_handle_at),
    SCMP_SYS(open_by_handle_at),
    SCMP_SYS(setuid),
    SCMP_SYS(setgid),
    SCMP_SYS(setreuid),
    SCMP_SYS(setregid),
    SCMP_SYS(setresuid),
    SCMP_SYS(setresgid),
    SCMP_SYS(setgroups),
    SCMP_SYS(setfsuid),
    SCMP_SYS(setfsgid),
    SCMP_SYS(capset),
    SCMP_SYS(chmod),
    SCMP_SYS(fchmod),
    SCMP_SYS(fchmodat),
    SCMP_SYS(chown),
    SCMP_SYS(fchown),
    SCMP_SYS(lchown),
    SCMP_SYS(fchownat),
    SCMP_SYS(mknod),
    SCMP_SYS(mknodat),
    SCMP_SYS(truncate), /* Landlock of version 1 knows nothing of it */
};

/* What is left of fcntl(): who is told of input by a signal of its choice can be any process of
 * this user, and the signal SIGKILL. */
static const int FCNTL[] = {
    F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_ADD_SEALS, F_GET_SEALS,
};
static const int NOT_FCNTL[] = {F_SETOWN, F_SETOWN_EX, F_SETSIG};
static const int NOT_IOCTL[] = {FIOSETOWN, SIOCSPGRP}; /* the same */

struct filter {
    scmp_filter_ctx ctx;
    int failed; /* the first failure of libseccomp */
};

static void add_all(struct filter *f, uint32_t action, const int *calls, size_t n)
{
    for (size_t i = 0; i < n && !f->failed; i++)
        f->failed = seccomp_rule_add(f->ctx, action, calls[i], 0);
}

/* A call whose argument `arg` decides. */
static void add_if(struct filter *f, uint32_t action, int call, struct scmp_arg_cmp arg)
{
    if (!f->failed)
        f->failed = seccomp_rule_add(f->ctx, action, call, 1, arg);
}

/* One whose second argument says what it does. */
static void add_commands(struct filter *f, uint32_t action, int call, const int *commands, size_t n)
{
    for (size_t i = 0; i < n; i++)
        add_if(f, action, call, SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX, (scmp_datum_t)commands[i]));
}

/* A thread is a clone(); so is a process, and a namespace. What clone3() is asked for lies in
 * memory, where no filter sees it: libc takes clone() where there is no clone3(). */
static void add_threads(struct filter *f, bool is_allowed_else)
{
    const scmp_datum_t spaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                                CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;

    if (is_allowed_else)
        add_if(f, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone),
               SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0));
    else
        add_if(f, SCMP_ACT_ALLOW, SCMP_SYS(clone),
               SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD | spaces, CLONE_THREAD));
    add_all(f, SCMP_ACT_ERRNO(ENOSYS), (const int[]){SCMP_SYS(clone3)}, 1);
}

static void fill_filter(struct filter *f, enum sandbox_calls list)
{
    const scmp_datum_t self = (scmp_datum_t)getpid();

    if (list == SANDBOX_DRIVER) {
        add_all(f, SCMP_ACT_ERRNO(EPERM), NOT_DRIVER, SH_ARRAY_LEN(NOT_DRIVER));
        add_if(f, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(tgkill), SCMP_A0(SCMP_CMP_NE, self));
        add_if(f, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(prlimit64), SCMP_A0(SCMP_CMP_NE, 0));
        add_commands(f, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(fcntl), NOT_FCNTL, SH_ARRAY_LEN(NOT_FCNTL));
        add_commands(f, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), NOT_IOCTL, SH_ARRAY_LEN(NOT_IOCTL));
        add_threads(f, true);
        return;
    }
    add_all(f, SCMP_ACT_ALLOW, COMMON, SH_ARRAY_LEN(COMMON));
    add_commands(f, SCMP_ACT_ALLOW, SCMP_SYS(fcntl), FCNTL, SH_ARRAY_LEN(FCNTL));
    /* abort() raises its signal in our own process only */
    add_if(f, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), SCMP_A0(SCMP_CMP_EQ, self));
    /* standard output asks whether it is a terminal */
    add_all(f, SCMP_ACT_ERRNO(ENOTTY), (const int[]){SCMP_SYS(ioctl)}, 1);
    if (list == SANDBOX_IMPORT) {
        add_all(f, SCMP_ACT_ALLOW, IMPORT, SH_ARRAY_LEN(IMPORT));
        return;
    }
    add_all(f, SCMP_ACT_ALLOW, COMPUTE, SH_ARRAY_LEN(COMPUTE));
    /* libc's fstat(). It could name a file too, and would learn its size, not what is in it. */
    add_if(f, SCMP_ACT_ALLOW, SCMP_SYS(newfstatat), SCMP_A3(SCMP_CMP_EQ, AT_EMPTY_PATH));
    add_if(f, SCMP_ACT_ALLOW, SCMP_SYS(prctl), SCMP_A0(SCMP_CMP_EQ, PR_SET_NAME));
    add_if(f, SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), SCMP_A2(SCMP_CMP_EQ, 0)); /* reads */
    add_threads(f, false);
}

int sandbox_calls(enum sandbox_calls list, struct sh_err *err)
{
    struct filter f = {.failed = 0};
    uint32_t otherwise = list == SANDBOX_IMPORT    ? SCMP_ACT_KILL_PROCESS
                         : list == SANDBOX_COMPUTE ? SCMP_ACT_ERRNO(EPERM)
                                                   : SCMP_ACT_ALLOW;

    if (SANITIZED)
        return SH_OK;
    f.ctx = seccomp_init(otherwise);
    f.failed = f.ctx ? seccomp_attr_set(f.ctx, SCMP_FLTATR_CTL_TSYNC, 1) : -ENOMEM;
    fill_filter(&f, list);
    if (!f.failed)
        f.failed = seccomp_load(f.ctx);
    if (f.ctx)
        seccomp_release(f.ctx);
    if (f.failed)
        return SH_FAIL(err, SH_E_IO, "could not restrict system calls (%d)", f.failed);
    return SH_OK;
}

bool sandbox_lists_calls(void)
{
    return !SANITIZED;
}

/* ---------------------------------------------------------------- all of it */

int sandbox_enter(const struct sandbox *s, struct sh_err *err)
{
    struct sandbox_path paths[MAX_PATHS] = {
        {s->write_dir, SANDBOX_READ | SANDBOX_MAKE},
    };
    size_t n = 1;
    int rc;

    for (size_t i = 0; s->read_paths[i]; i++) {
        if (n == MAX_PATHS)
            return SH_FAIL(err, SH_E_BUG, "a sandbox with more than %d paths", MAX_PATHS);
        paths[n++] = (struct sandbox_path){s->read_paths[i], SANDBOX_READ};
    }
    rc = set_sandbox_limits(s, err);
    if (!rc)
        rc = sandbox_files(paths, n, err);
    if (!rc)
        rc = sandbox_calls(SANDBOX_IMPORT, err);
    return rc;
}
