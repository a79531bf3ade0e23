/* kept_dir.c - see kept_dir.h. */
#include "executor/models/kept_dir.h"

#include "common/conf.h"
#include "common/hash.h"
#include "common/importer.h"
#include "common/log.h"
#include "common/mem.h"
#include "executor/files/disk.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER "kept"
#define SUFFIX ".kept"
#define PART ".part-"
#define HEX (SH_SHA256_HEX - 1)
#define MAX_FILES 65536u
#define MAX_KEEPING 16u

struct file {
    char name[2 * HEX + 1 + sizeof(SUFFIX)];
    uint64_t bytes;
    int64_t used_s;
};

struct listing {
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
static int add_kept_file(char **text, const char *path, struct sh_err *err)
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
static int add_programs(const struct kept_dir *k, char **text, struct sh_err *err)
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
        rc = sh_asprintf(err, &lib, "%s../lib/shunt-dev-%s.so", exe, k->device);
    if (!rc)
        rc = add_kept_file(text, worker, err);
    if (!rc)
        rc = add_kept_file(text, lib, err);
    free(worker);
    free(lib);
    return rc;
}

int kept_dir_name(const struct kept_dir *k, const char *tenant, const char *package,
                  const char *what, const char *identity, struct kept_file *f, struct sh_err *err)
{
    const char *digest = strrchr(package, '/');
    uint8_t key[SH_SHA256_BYTES];
    char *text = NULL;
    int rc;

    *f = (struct kept_file){0};
    digest = digest ? digest + 1 : package;
    if (k->max_bytes == 0 || !identity[0] || strlen(digest) != HEX || !is_hex(digest, HEX))
        return SH_OK;
    rc = sh_asprintf(err, &text, "%s tenant=%s package=%s importer=%" PRId64 " %s %s",
                     sh_conf_version(), tenant, digest, sh_importer_of(package), what, identity);
    if (!rc)
        rc = add_programs(k, &text, err);
    if (!rc)
        rc = sh_sha256(text, strlen(text), key, err);
    if (!rc) {
        sh_hex(key, sizeof(key), f->key);
        rc = sh_asprintf(err, &f->path, "%s/" FOLDER "/%s-%s" SUFFIX, k->files->state_dir, digest,
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

int kept_dir_open(const struct kept_file *f)
{
    return f->path ? open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW) : -1;
}

/* The kernel gives a lease for reading only where nobody has the file open for writing. */
bool kept_dir_is_still(int old)
{
    /* Of a lease that is broken, which ours is not: ignored unless somebody asks for it. */
    if (fcntl(old, F_SETSIG, SIGURG) < 0 || fcntl(old, F_SETLEASE, F_RDLCK) < 0)
        return false;
    return fcntl(old, F_SETLEASE, F_UNLCK) == 0;
}

void kept_dir_used(const struct kept_file *f)
{
    utimensat(AT_FDCWD, f->path, NULL, 0); /* the least recently used go first */
}

void kept_dir_drop(struct kept_file *f)
{
    free(f->path);
    *f = (struct kept_file){0};
}

/* ------------------------------------------------------------------ writing */

struct writing {
    struct disk_task task;
    struct kept_dir *k;
    char *path, *part;       /* OWNED */
    struct sh_shm image;     /* OWNED */
    struct kept_about about; /* its tables: OWNED */
    double *layer_ns;        /* OWNED */
    void (*fn)(void *arg);   /* set: image is the whole file */
    void *arg;
};

static void free_writing(struct writing *w)
{
    if (!w)
        return;
    sh_shm_fini(&w->image);
    free((void *)w->about.layer_ends);
    free((void *)w->about.link_ends);
    free((void *)w->about.batches);
    free(w->layer_ns);
    free(w->path);
    free(w->part);
    free(w);
}

/* On the thread. */
static int write_kept_file(struct disk_task *t, struct sh_err *err)
{
    struct writing *w = (struct writing *)t;
    int fd = open(w->part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    int rc;

    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (fd >= 0)
            close(fd);
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not make %s", w->part);
    }
    rc = w->fn ? kept_put(fd, w->image.base, w->image.bytes, err)
               : kept_write(fd, &w->about, w->image.base, w->layer_ns, err);
    if (!rc && rename(w->part, w->path) < 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not rename %s", w->part);
    if (rc)
        unlink(w->part);
    close(fd);
    return rc;
}

static void on_written(struct disk_task *t)
{
    struct writing *w = (struct writing *)t;
    struct kept_dir *k = w->k;

    if (t->err.rc) /* the next start takes longer, nothing else */
        sh_log_err(SH_LOG_WARN, "model.keep", &t->err);
    else
        SH_INFO("model.keep", "file=%s", strrchr(w->path, '/') + 1);
    if (w->fn)
        w->fn(w->arg);
    free_writing(w);
    k->n_writing--;
    kept_dir_sweep(k);
}

static int copy_table(const void *from, size_t n, void *out, struct sh_err *err)
{
    void *p = malloc(n + 1);

    if (!p)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the tables of a model");
    if (n)
        memcpy(p, from, n);
    *(void **)out = p;
    return SH_OK;
}

static int copy_tables(struct writing *w, const struct kept_about *a, const double *layer_ns,
                       struct sh_err *err)
{
    int rc;

    w->about = *a;
    w->about.layer_ends = w->about.link_ends = NULL;
    w->about.batches = NULL;
    rc = copy_table(a->layer_ends, a->n_layers * sizeof(*a->layer_ends), &w->about.layer_ends, err);
    if (!rc && a->link_ends)
        rc =
            copy_table(a->link_ends, a->n_layers * sizeof(*a->link_ends), &w->about.link_ends, err);
    if (!rc)
        rc = copy_table(a->batches, a->n_batches * sizeof(*a->batches), &w->about.batches, err);
    if (!rc)
        rc = copy_table(layer_ns, (size_t)a->n_batches * a->n_layers * sizeof(*layer_ns),
                        &w->layer_ns, err);
    return rc;
}

/* Mapped anew, so that the model may go meanwhile. */
static int map_image(struct writing *w, int image, struct sh_err *err)
{
    int own = fcntl(image, F_DUPFD_CLOEXEC, 3);
    int rc;

    if (own < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not keep the image of a model");
    rc = sh_shm_map(own, SH_MAX((size_t)kept_stored_bytes(&w->about), (size_t)1), false, &w->image,
                    err);
    if (rc)
        close(own);
    return rc;
}

static int new_writing(struct kept_dir *k, struct writing **out, struct sh_err *err)
{
    struct writing *w;

    *out = NULL;
    if (k->n_writing == MAX_KEEPING) /* checkpoints go the same way */
        return SH_FAIL(err, SH_E_QUEUEFULL, "%u models wait to be kept", MAX_KEEPING);
    w = calloc(1, sizeof(*w));
    if (!w)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a file to be written");
    *w = (struct writing){
        .task = {.work = write_kept_file, .done = on_written}, .k = k, .image = {.fd = -1}};
    *out = w;
    return SH_OK;
}

static int submit_write(struct writing *w, const struct kept_file *f, struct sh_err *err)
{
    struct kept_dir *k = w->k;
    int rc = sh_strdup(f->path, &w->path, err);

    if (!rc)
        rc = sh_asprintf(err, &w->part, "%s" PART "%016" PRIx64, f->path, k->incarnation);
    if (!rc)
        rc = disk_submit(k->files->disk, &w->task, err);
    k->n_writing += rc == SH_OK;
    return rc;
}

int kept_dir_write(struct kept_dir *k, const struct kept_file *f, struct kept_about *a,
                   const double *layer_ns, int image, struct sh_err *err)
{
    struct writing *w;
    int rc = new_writing(k, &w, err);

    if (!rc)
        rc = sh_unhex(f->key, a->key, sizeof(a->key), err);
    if (!rc)
        rc = copy_tables(w, a, layer_ns, err);
    if (!rc)
        rc = map_image(w, image, err);
    if (!rc)
        rc = submit_write(w, f, err);
    if (rc)
        free_writing(w);
    return rc;
}

int kept_dir_adopt(struct kept_dir *k, const struct kept_file *f, struct sh_shm *image,
                   void (*fn)(void *arg), void *arg, struct sh_err *err)
{
    struct writing *w;
    int rc = new_writing(k, &w, err);

    if (rc)
        return rc;
    w->image = *image;
    w->fn = fn;
    w->arg = arg;
    rc = submit_write(w, f, err);
    if (rc) { /* it stays the caller's */
        w->image = (struct sh_shm){.fd = -1};
        free_writing(w);
        return rc;
    }
    *image = (struct sh_shm){.fd = -1};
    return SH_OK;
}

/* ------------------------------------------------------------------ sweeping */

static bool has_package(const struct kept_dir *k, const char *name)
{
    char *path = NULL;
    bool has = true;

    if (sh_asprintf(NULL, &path, "%s/blobs/packages/%.*s", k->files->state_dir, HEX, name) == SH_OK)
        has = access(path, F_OK) == 0;
    free(path);
    return has;
}

/* Ours, whole, and of a package that is there. */
static bool is_useful(const struct kept_dir *k, const char *name)
{
    size_t n = strlen(name);

    return n == 2 * HEX + 1 + strlen(SUFFIX) && is_hex(name, HEX) && name[HEX] == '-' &&
           is_hex(name + HEX + 1, HEX) && strcmp(name + 2 * HEX + 1, SUFFIX) == 0 &&
           has_package(k, name);
}

/* By this executor or another one: whoever writes a file has its lock. */
static bool is_being_written(int folder, const char *name)
{
    int fd = strstr(name, PART) ? openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
    bool is = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0;

    if (fd >= 0)
        close(fd);
    return is;
}

static int look_at_file(const struct kept_dir *k, int folder, const char *name, struct listing *out,
                        struct sh_err *err)
{
    struct stat st;
    int rc;

    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISDIR(st.st_mode))
        return SH_OK;
    if (!is_useful(k, name)) {
        if (!is_being_written(folder, name))
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

static int by_listed_use(const void *a, const void *b)
{
    const struct file *x = a, *y = b;

    return (x->used_s > y->used_s) - (x->used_s < y->used_s);
}

static void evict(const struct kept_dir *k, int folder, struct listing *f)
{
    const uint64_t limit = k->max_bytes;
    size_t n = 0;

    if (f->n > 1)
        qsort(f->items, f->n, sizeof(*f->items), by_listed_use);
    for (; n < f->n && f->bytes > limit; n++) {
        unlinkat(folder, f->items[n].name, 0);
        f->bytes -= f->items[n].bytes;
    }
    if (n)
        SH_INFO("kept.evict", "files=%zu left_bytes=%" PRIu64, n, f->bytes);
}

void kept_dir_sweep(const struct kept_dir *k)
{
    struct listing f = {0};
    struct sh_err err = {0};
    char *path = NULL;
    DIR *d = NULL;
    int rc = sh_asprintf(&err, &path, "%s/" FOLDER, k->files->state_dir);

    if (!rc)
        d = opendir(path);
    for (struct dirent *e; d && !rc && (e = readdir(d));)
        rc = look_at_file(k, dirfd(d), e->d_name, &f, &err);
    if (d)
        evict(k, dirfd(d), &f);
    if (rc)
        sh_log_err(SH_LOG_WARN, "kept.sweep", &err);
    if (d)
        closedir(d);
    free(f.items);
    free(path);
}
