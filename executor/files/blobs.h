/* blobs.h - models, datasets and checkpoints for an executor that does not share the API's folder
 * (--api): fetched by digest before they are needed, and kept in blobs/ of its own folder, at most
 * --blob-cache-bytes (cache.h).
 *
 *   COMING  its size is asked for, room is made, the file is fetched and its digest compared; a
 *           model is then made into a package
 *   HERE    files_path() finds it. It stays until the last set that wants it is dropped, and after
 *           that for as long as there is room
 *   FAILED  with the reason
 *
 * A model travels as its ONNX file, whose SHA-256 is the name of the package; shunt-import makes
 * the package here, in its sandbox. A job's file is fetched by name, every time.
 *
 * Without --api there are no blobs (`b` is NULL below): the calls do nothing, and a set is always
 * HERE. Belongs to the loop's thread.
 */
#ifndef SH_EXECUTOR_FILES_BLOBS_H
#define SH_EXECUTOR_FILES_BLOBS_H

#include "common/err.h"

struct blob;
struct blobs;
struct transfers;

enum blob_state { BLOB_HERE, BLOB_COMING, BLOB_FAILED };

#define BLOB_SET_MAX 6
struct blob_set { /* what one model or job needs; zero it before use */
    struct blob *v[BLOB_SET_MAX];
    size_t n;
};

struct blobs_conf { /* strings: BORROWED for good */
    const char *state_dir, *executor;
    int64_t cache_bytes; /* 0: no limit */
};

/* Counts the blobs on the disk. KEEPS transfers. *out: OWNED, blobs_free(). */
int blobs_new(const struct blobs_conf *c, struct transfers *transfers, struct blobs **out,
              struct sh_err *err);
void blobs_free(struct blobs *b); /* after transfers_free(), when all sets are dropped */

/* path: from a command, "packages/<sha256>" or "datasets/<sha256>.safetensors". An absolute or
 * empty path is not a blob: nothing is done. */
int blob_want(struct blobs *b, struct blob_set *s, const char *path, struct sh_err *err);
/* path: "<job>/<file>". If it is optional, a file that the API does not have is no failure. */
int blob_want_job_file(struct blobs *b, struct blob_set *s, const char *path, bool optional,
                       struct sh_err *err);
/* Adds a package or dataset that was put in place locally. */
int blob_adopt(struct blobs *b, struct blob_set *s, const char *path, struct sh_err *err);
/* *why: BORROWED, of the first one that FAILED. */
enum blob_state blob_set_state(const struct blob_set *s, const struct sh_err **why);
void blob_set_drop(struct blob_set *s);

#endif
