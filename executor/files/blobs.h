/* blobs.h - models, datasets and checkpoints of an executor that does not share the API's folder
 * (--api): fetched by digest before they are needed, kept in blobs/ of its own folder up to
 * --blob-cache-bytes (cache.h).
 *
 *   COMING  asked for its size; room is made; fetched, compared, and a model made a package of
 *   HERE    where files_path() looks for it, until the last set that wants it is dropped, and after
 *           that as long as there is room
 *   FAILED  with the reason
 *
 * A model travels as its ONNX file, whose SHA-256 is the package's name; the package is made here,
 * by shunt-import in its sandbox. A file of a job is fetched by its name, each time.
 *
 * Without --api there are no blobs (NULL below): nothing is done, and a set is always HERE.
 */
#ifndef SH_EXECUTOR_FILES_BLOBS_H
#define SH_EXECUTOR_FILES_BLOBS_H

#include "common/err.h"

struct blob;
struct blobs;
struct transfers;

enum blob_state { BLOB_HERE, BLOB_COMING, BLOB_FAILED };

#define BLOB_SET_MAX 6
struct blob_set { /* what one model or job needs; zeroed at first */
    struct blob *v[BLOB_SET_MAX];
    size_t n;
};

struct blobs_conf { /* strings: BORROWED for good */
    const char *state_dir, *executor;
    int64_t cache_bytes; /* 0: without a limit */
};

/* Counts what is there. KEEPS transfers. *out: OWNED, blobs_free(). */
int blobs_new(const struct blobs_conf *c, struct transfers *transfers, struct blobs **out,
              struct sh_err *err);
void blobs_free(struct blobs *b); /* behind transfers_free(); all sets are dropped */

/* path: of a command, "packages/<sha256>", "datasets/<sha256>.safetensors"; absolute or empty: not
 * ours, nothing is done. */
int blob_want(struct blobs *b, struct blob_set *s, const char *path, struct sh_err *err);
/* path: "<job>/<file>". A file that the API does not have is no failure if it is optional. */
int blob_want_job_file(struct blobs *b, struct blob_set *s, const char *path, bool optional,
                       struct sh_err *err);
/* A package or dataset that was put into its place here. */
int blob_adopt(struct blobs *b, struct blob_set *s, const char *path, struct sh_err *err);
/* *why: BORROWED, of the first that has FAILED. */
enum blob_state blob_set_state(const struct blob_set *s, const struct sh_err **why);
void blob_set_drop(struct blob_set *s);

#endif
