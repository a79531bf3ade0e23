/* kept_dir.c - see kept_dir.h. */
#include "executor/kept_dir.h"

#include "common/clock.h"
#include "common/conf.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/mem.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER "kept"
#define SUFFIX ".kept"
#define PART ".part-"
#define HEX (SH_SHA256_HEX - 1)
#define PART_S 3600 /* no worker writes one file for longer */
#define MAX_FILES 65536u

struct file {
    char name[2 * HEX + 1 + sizeof(SUFFIX)];
    uint64_t bytes;
    int64_t used_s;
};

struct files {
    struct file *items; /* OWNED */
    size_t n, cap;
    uint64_t bytes;
};

static bool is_hex(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (sh_hex_digit(s[i]) < 0)
            return false;
    return true;
}

/* " SIZE.SECONDS.NANOSECONDS" of a file: who builds or installs it anew changes it. */
static int add_file(char **text, const char *path, struct sh_err *err)
{
    char *longer = NULL;
    struct stat st;
    int rc;

    if (stat(path, &st) < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not look at %s", path);
    rc = sh_asprintf(err, &longer, "%s %lld.%lld.%ld", *text, (long long)st.st_size,
                     (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    if (rc)
        return rc;
    free(*text);
    *text = longer;
    return SH_OK;
}

/* The programs that make an image: this one's folder has the worker, ../lib the back end. */
static int add_programs(const struct exec *x, char **text, struct sh_err *err)
{
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    char *worker = NULL, *lib = NULL;
    int rc;

    if (n < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not find out where this program lies");
    exe[n] = '\0';
    while (n > 0 && exe[n - 1] != '/')
        exe[--n] = '\0';
    rc = sh_asprintf(err, &worker, "%sshunt-worker", exe);
    if (!rc)
        rc = sh_asprintf(err, &lib, "%s../lib/shunt-dev-%s.so", exe, x->conf->device);
    if (!rc)
        rc = add_file(text, worker, err);
    if (!rc)
        rc = add_file(text, lib, err);
    free(worker);
    free(lib);
    return rc;
}

int kept_dir_name(const struct exec *x, const char *package, const char *what, const char *identity,
                  struct kept_file *f, struct sh_err *err)
{
    const char *digest = strrchr(package, '/');
    uint8_t key[SH_SHA256_BYTES];
    char *text = NULL;
    int rc;

    *f = (struct kept_file){0};
    digest = digest ? digest + 1 : package;
    if (x->conf->kept_bytes == 0 || !identity[0] || strlen(digest) != HEX || !is_hex(digest, HEX))
        return SH_OK;
    rc = sh_asprintf(err, &text, "%s package=%s %s %s", sh_conf_version(), digest, what, identity);
    if (!rc)
        rc = add_programs(x, &text, err);
    if (!rc)
        rc = sh_sha256(text, strlen(text), key, err);
    if (!rc) {
        sh_hex(key, sizeof(key), f->key);
        rc = sh_asprintf(err, &f->path, "%s/" FOLDER "/%s-%s" SUFFIX, x->conf->state_dir, digest,
                         f->key);
    }
    free(text);
    return rc;
}

bool kept_dir_has(const struct kept_file *f)
{
    struct stat st;

    return f->path && stat(f->path, &st) == 0 && st.st_size > 0;
}

int kept_dir_open(struct kept_file *f, int *part, int *old, struct sh_err *err)
{
    int rc;

    *part = *old = -1;
    if (!f->path)
        return SH_OK;
    rc = sh_asprintf(err, &f->part, "%s" PART "%d", f->path, (int)getpid());
    if (rc)
        return rc;
    unlink(f->part); /* of a worker that died */
    *part = open(f->part, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (*part < 0) {
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not make %s", f->part);
        free(f->part);
        f->part = NULL;
        return rc;
    }
    *old = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    return SH_OK;
}

/* The kernel gives a lease for reading only where nobody has the file open for writing. Nobody who
 * is not us can open it anew. */
bool kept_dir_is_still(int old)
{
    /* Of a lease that is broken, which ours is not: ignored unless somebody asks for it. */
    if (fcntl(old, F_SETSIG, SIGURG) < 0 || fcntl(old, F_SETLEASE, F_RDLCK) < 0)
        return false;
    return fcntl(old, F_SETLEASE, F_UNLCK) == 0;
}

void kept_dir_done(struct kept_file *f, enum msg_kept how)
{
    if (how == MSG_KEPT_READ)
        utimensat(AT_FDCWD, f->path, NULL, 0); /* the least recently used go first */
    if (f->part && (how != MSG_KEPT_NEW || rename(f->part, f->path) < 0))
        unlink(f->part);
    free(f->part);
    f->part = NULL;
}

void kept_dir_drop(struct kept_file *f)
{
    if (f->part)
        unlink(f->part);
    free(f->part);
    free(f->path);
    *f = (struct kept_file){0};
}

/* ------------------------------------------------------------------ sweeping */

static bool has_package(const struct exec *x, const char *name)
{
    char *path = NULL;
    bool has = true;

    if (sh_asprintf(NULL, &path, "%s/blobs/packages/%.*s", x->conf->state_dir, HEX, name) == SH_OK)
        has = access(path, F_OK) == 0;
    free(path);
    return has;
}

/* Ours, whole, and of a package that is there. */
static bool is_useful(const struct exec *x, const char *name)
{
    size_t n = strlen(name);

    return n == 2 * HEX + 1 + strlen(SUFFIX) && is_hex(name, HEX) && name[HEX] == '-' &&
           is_hex(name + HEX + 1, HEX) && strcmp(name + 2 * HEX + 1, SUFFIX) == 0 &&
           has_package(x, name);
}

static int look(const struct exec *x, int folder, const char *name, struct files *out,
                struct sh_err *err)
{
    struct stat st;
    int rc;

    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISDIR(st.st_mode))
        return SH_OK;
    if (!is_useful(x, name)) {
        /* A package that is being fetched, or a file that is being written, is young. */
        if (sh_clock_wall_ms() / 1000 - (int64_t)st.st_mtim.tv_sec > PART_S || !strstr(name, PART))
            unlinkat(folder, name, 0);
        return SH_OK;
    }
    rc = sh_grow(&out->items, &out->cap, out->n + 1, sizeof(*out->items), MAX_FILES, "kept files",
                 err);
    if (rc)
        return rc;
    out->items[out->n] =
        (struct file){.bytes = (uint64_t)st.st_size, .used_s = (int64_t)st.st_mtim.tv_sec};
    sh_strlcpy(out->items[out->n].name, name, sizeof(out->items[0].name));
    out->bytes += (uint64_t)st.st_size;
    out->n++;
    return SH_OK;
}

static int by_use(const void *a, const void *b)
{
    const struct file *x = a, *y = b;

    return (x->used_s > y->used_s) - (x->used_s < y->used_s);
}

static void evict(const struct exec *x, int folder, struct files *f)
{
    const uint64_t limit = (uint64_t)x->conf->kept_bytes;
    size_t n = 0;

    if (f->n > 1)
        qsort(f->items, f->n, sizeof(*f->items), by_use);
    for (; n < f->n && f->bytes > limit; n++) {
        unlinkat(folder, f->items[n].name, 0);
        f->bytes -= f->items[n].bytes;
    }
    if (n)
        SH_INFO("kept.evict", "files=%zu left_bytes=%" PRIu64, n, f->bytes);
}

void kept_dir_sweep(const struct exec *x)
{
    struct files f = {0};
    struct sh_err err = {0};
    char *path = NULL;
    DIR *d = NULL;
    int rc = sh_asprintf(&err, &path, "%s/" FOLDER, x->conf->state_dir);

    if (!rc)
        d = opendir(path);
    for (struct dirent *e; d && !rc && (e = readdir(d));)
        rc = look(x, dirfd(d), e->d_name, &f, &err);
    if (d)
        evict(x, dirfd(d), &f);
    if (rc)
        sh_log_err(SH_LOG_WARN, "kept.sweep", &err);
    if (d)
        closedir(d);
    free(f.items);
    free(path);
}
