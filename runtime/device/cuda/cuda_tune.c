/* cuda_tune.c - the file of measured choices.
 *
 *   header line    what the choices depend on; compared as a whole
 *   record         key TAB choice TAB blob bytes TAB blob crc TAB crc of the line so far NL
 *                  blob NL
 *
 * `grep -a` shows it. Readers take no lock: a record that is not whole yet ends what they read, and
 * they go on from there at the next miss. Who holds the lock and still finds such an end has found
 * what a dead writer left, and cuts it off.
 */
#include "runtime/device/cuda/cuda_tune.h"

#include "common/hash.h"
#include "common/mem.h"
#include "common/units.h"
#include "runtime/device/cuda/cuda.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FORMAT 1 /* of the file, and of what the back end writes as choices */
#define MAX_ENTRIES 8192u
#define MAX_LINE 1024u
#define MAX_PATH 4000u
#define LOCK_STEP_MS 5

struct entry {
    char *key, *choice; /* OWNED */
    off_t blob_at;
    size_t blob_bytes;
    uint32_t blob_crc;
};

struct cuda_tune {
    char *path, *lock_path, *new_path; /* OWNED */
    char header[512];
    struct entry *entries; /* OWNED; later ones win */
    size_t n_entries, cap_entries;
    int fd; /* OWNED, the file that `entries` were read from; -1: none */
    dev_t dev;
    ino_t ino;
    off_t end;    /* of the last whole record */
    bool is_ours; /* the header fits */
};

/* ------------------------------------------------------------------ opening */

int cuda_tune_identity(char *out, size_t size, struct sh_err *err)
{
    struct cudaDeviceProp prop;
    int device = 0, driver = 0, rc;

    rc = cuda__check(cudaGetDevice(&device), "ask for the device", err);
    if (!rc)
        rc = cuda__check(cudaGetDeviceProperties(&prop, device), "ask for the device's name", err);
    if (!rc)
        rc = cuda__check(cudaDriverGetVersion(&driver), "ask for the driver's version", err);
    if (rc)
        return rc;
    snprintf(out, size, "device=%s sms=%d driver=%d cudnn=%zu cublaslt=%zu", prop.name,
             prop.multiProcessorCount, driver, cudnnGetVersion(), cublasLtGetVersion());
    return SH_OK;
}

static int make_tune_header(char *out, size_t size, struct sh_err *err)
{
    char text[448];
    int rc = cuda_tune_identity(text, sizeof(text), err);

    snprintf(out, size, "shunt-tune %d %s\n", FORMAT, rc ? "" : text);
    return rc;
}

int cuda_tune_open(const char *path, struct cuda_tune **out, struct sh_err *err)
{
    struct cuda_tune *t = calloc(1, sizeof(*t));
    int rc;

    *out = NULL;
    if (!t)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the table of measured kernels");
    t->fd = -1;
    if (strlen(path) > MAX_PATH) {
        rc = SH_FAIL(err, SH_E_TOOBIG, "the path of the tuning file is longer than %u bytes",
                     MAX_PATH);
        goto out;
    }
    rc = sh_strdup(path, &t->path, err);
    if (!rc)
        rc = sh_asprintf(err, &t->lock_path, "%s.lock", path);
    if (!rc)
        rc = sh_asprintf(err, &t->new_path, "%s.new", path);
    if (!rc)
        rc = make_tune_header(t->header, sizeof(t->header), err);
    if (rc)
        goto out;
    *out = t;
    t = NULL;
out:
    cuda_tune_close(t);
    return rc;
}

static void forget_choices(struct cuda_tune *t)
{
    for (size_t i = 0; i < t->n_entries; i++) {
        free(t->entries[i].key);
        free(t->entries[i].choice);
    }
    t->n_entries = 0;
    t->end = 0;
    t->is_ours = false;
}

void cuda_tune_close(struct cuda_tune *t)
{
    if (!t)
        return;
    forget_choices(t);
    free(t->entries);
    if (t->fd >= 0)
        close(t->fd);
    free(t->path);
    free(t->lock_path);
    free(t->new_path);
    free(t);
}

/* ------------------------------------------------------------------ reading */

static bool add_tune_entry(struct cuda_tune *t, const char *key, const char *choice,
                           const struct entry *where)
{
    struct entry e = *where;

    if (sh_grow(&t->entries, &t->cap_entries, t->n_entries + 1, sizeof(*t->entries), MAX_ENTRIES,
                "measured kernels", NULL) ||
        sh_strdup(key, &e.key, NULL))
        return false;
    if (sh_strdup(choice, &e.choice, NULL)) {
        free(e.key);
        return false;
    }
    t->entries[t->n_entries++] = e;
    return true;
}

/* The record at t->end; false: there is no whole and valid one. */
static bool read_record(struct cuda_tune *t, off_t size)
{
    char line[MAX_LINE + 1], *tab[4], *nl;
    ssize_t got = pread(t->fd, line, MAX_LINE, t->end);
    uint64_t bytes, crc, own;
    struct entry e;
    off_t next;

    if (got <= 0)
        return false;
    line[got] = 0;
    nl = strchr(line, '\n');
    if (!nl)
        return false;
    *nl = 0;
    tab[0] = strchr(line, '\t');
    for (int i = 1; i < 4; i++)
        tab[i] = tab[i - 1] ? strchr(tab[i - 1] + 1, '\t') : NULL;
    if (!tab[3] ||
        sscanf(tab[1] + 1, "%" SCNu64 "\t%" SCNx64 "\t%" SCNx64, &bytes, &crc, &own) != 3)
        return false;
    if (own != sh_crc32c(0, line, (size_t)(tab[3] - line)) || bytes > CUDA_TUNE_BLOB ||
        tab[0] - line >= CUDA_TUNE_KEY || tab[1] - tab[0] > CUDA_TUNE_CHOICE)
        return false;
    e = (struct entry){.blob_at = t->end + (nl - line) + 1,
                       .blob_bytes = (size_t)bytes,
                       .blob_crc = (uint32_t)crc};
    next = e.blob_at + (off_t)bytes + 1;
    if (next > size)
        return false;
    *tab[0] = *tab[1] = 0;
    if (!add_tune_entry(t, line, tab[0] + 1, &e))
        return false;
    t->end = next;
    return true;
}

static bool header_fits(const struct cuda_tune *t)
{
    char have[sizeof(t->header)];
    size_t n = strlen(t->header);

    return pread(t->fd, have, n, 0) == (ssize_t)n && memcmp(have, t->header, n) == 0;
}

/* The file at the path is another one than ours. */
static bool take_tune_file(struct cuda_tune *t)
{
    int fd = open(t->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;

    if (fd < 0)
        return false;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        close(fd);
        return false;
    }
    if (t->fd >= 0)
        close(t->fd);
    forget_choices(t);
    t->fd = fd;
    t->dev = st.st_dev;
    t->ino = st.st_ino;
    return true;
}

/* Who took the file away wants what is in it measured again. What was never in a file stays. */
static void drop_file(struct cuda_tune *t)
{
    if (t->fd < 0)
        return;
    close(t->fd);
    t->fd = -1;
    forget_choices(t);
}

/* Reads what was added since the last time. */
static void refresh_choices(struct cuda_tune *t)
{
    struct stat st;

    if (stat(t->path, &st)) {
        if (errno == ENOENT)
            drop_file(t);
        return;
    }
    if ((t->fd < 0 || st.st_dev != t->dev || st.st_ino != t->ino) && !take_tune_file(t))
        return;
    if (fstat(t->fd, &st))
        return;
    if (st.st_size < t->end)
        forget_choices(t);
    if (!t->is_ours) {
        if (!header_fits(t))
            return;
        t->is_ours = true;
        t->end = (off_t)strlen(t->header);
    }
    while (t->end < st.st_size && read_record(t, st.st_size))
        ;
}

static const struct entry *find_choice(const struct cuda_tune *t, const char *key)
{
    for (size_t i = t->n_entries; i-- > 0;)
        if (strcmp(t->entries[i].key, key) == 0)
            return &t->entries[i];
    return NULL;
}

static void read_blob(const struct cuda_tune *t, const struct entry *e, struct cuda_tuned *out)
{
    void *p = e->blob_bytes && t->fd >= 0 ? malloc(e->blob_bytes) : NULL;

    if (!p)
        return;
    if (pread(t->fd, p, e->blob_bytes, e->blob_at) != (ssize_t)e->blob_bytes ||
        sh_crc32c(0, p, e->blob_bytes) != e->blob_crc) {
        free(p);
        return;
    }
    out->blob = p;
    out->blob_bytes = e->blob_bytes;
}

bool cuda_tune_find(struct cuda_tune *t, const char *key, struct cuda_tuned *out)
{
    const struct entry *e;

    *out = (struct cuda_tuned){.blob = NULL};
    if (!t)
        return false;
    e = find_choice(t, key);
    if (!e) {
        refresh_choices(t);
        e = find_choice(t, key);
    }
    if (!e)
        return false;
    sh_strlcpy(out->choice, e->choice, sizeof(out->choice));
    read_blob(t, e, out);
    return true;
}

/* ------------------------------------------------------------------ writing */

static int lock_tune_file(const struct cuda_tune *t)
{
    const struct timespec step = {.tv_nsec = SH_MS(LOCK_STEP_MS)};
    int fd = open(t->lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    for (int i = 0; fd >= 0 && i < CUDA_TUNE_LOCK_MS / LOCK_STEP_MS; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return fd;
        if (errno != EWOULDBLOCK && errno != EINTR)
            break;
        nanosleep(&step, NULL);
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

static bool write_all_at(int fd, const char *p, size_t n, off_t at)
{
    while (n > 0) {
        ssize_t put = pwrite(fd, p, n, at);

        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        p += put;
        n -= (size_t)put;
        at += put;
    }
    return true;
}

static bool append_choice(const struct cuda_tune *t, const char *record, size_t n)
{
    int fd = open(t->path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    bool ok = fd >= 0 && ftruncate(fd, t->end) == 0 && write_all_at(fd, record, n, t->end);

    if (fd >= 0)
        close(fd);
    return ok;
}

static bool start_again(const struct cuda_tune *t, const char *record, size_t n)
{
    int fd = open(t->new_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    size_t head = strlen(t->header);
    bool ok = fd >= 0 && write_all_at(fd, t->header, head, 0) &&
              write_all_at(fd, record, n, (off_t)head) && rename(t->new_path, t->path) == 0;

    if (fd >= 0)
        close(fd);
    return ok;
}

/* *out: OWNED. */
static size_t make_record(const char *key, const char *choice, const void *blob, size_t bytes,
                          char **out)
{
    char line[MAX_LINE];
    int n, all;

    n = snprintf(line, sizeof(line), "%s\t%s\t%zu\t%" PRIx32, key, choice, bytes,
                 bytes ? sh_crc32c(0, blob, bytes) : 0);
    if (n < 0 || (size_t)n >= sizeof(line))
        return 0;
    all = snprintf(line + n, sizeof(line) - (size_t)n, "\t%" PRIx32 "\n",
                   sh_crc32c(0, line, (size_t)n));
    if (all < 0 || (size_t)(n + all) >= sizeof(line))
        return 0;
    *out = malloc((size_t)(n + all) + bytes + 1);
    if (!*out)
        return 0;
    memcpy(*out, line, (size_t)(n + all));
    if (bytes)
        memcpy(*out + n + all, blob, bytes);
    (*out)[(size_t)(n + all) + bytes] = '\n';
    return (size_t)(n + all) + bytes + 1;
}

void cuda_tune_record(struct cuda_tune *t, const char *key, const char *choice, const void *blob,
                      size_t blob_bytes)
{
    const size_t bytes = blob && blob_bytes <= CUDA_TUNE_BLOB ? blob_bytes : 0;
    bool is_stored = false;
    char *record = NULL;
    size_t n;
    int fd;

    if (!t || strlen(key) >= CUDA_TUNE_KEY || strlen(choice) >= CUDA_TUNE_CHOICE ||
        strpbrk(key, "\t\n") || strpbrk(choice, "\t\n"))
        return;
    n = make_record(key, choice, blob, bytes, &record);
    fd = n ? lock_tune_file(t) : -1;
    if (fd >= 0) {
        refresh_choices(t);
        is_stored = t->is_ours && t->n_entries < MAX_ENTRIES && (size_t)t->end + n <= CUDA_TUNE_FILE
                        ? append_choice(t, record, n)
                        : start_again(t, record, n);
        close(fd); /* gives the lock back */
        refresh_choices(t);
    }
    /* No room or no right to write: at least this process measures only once. */
    if (!is_stored)
        (void)add_tune_entry(t, key, choice, &(struct entry){.blob_bytes = 0});
    free(record);
}
