/* artifact.h - checks an uploaded file and puts it into blobs/.
 *
 * shunt-import, a process with limits, parses a model; the API never looks inside. Names in blobs/
 * are digests, so the same file twice is one file, and placing it again is no error. Blocks; pool
 * threads only.
 */
#ifndef SH_API_FILES_ARTIFACT_H
#define SH_API_FILES_ARTIFACT_H

#include "api/options.h"
#include "common/json.h"

struct artifact {
    char *path;                    /* OWNED: below blobs/ */
    char *dir;                     /* OWNED: a model's package until placed; NULL: none */
    char *inputs, *outputs, *meta; /* OWNED: JSON text; a dataset's inputs are its tensors */
    json_t *nodes;                 /* OWNED: what a refused model needs and we lack; NULL: none */
    int64_t n_samples;
    int64_t fixed_batch; /* of a model: the only batch that it runs with; 0: any */
    bool is_solo;        /* of a model: samples may interact, so each request runs alone */
};
void artifact_fini(struct artifact *a); /* removes files that were not placed */

/* Leaves the file in place. buckets: JSON (common/buckets.h), "": none. Fails: SH_E_UNSUPPORTED
 * (nodes may be set), SH_E_INVALID, SH_E_TIMEOUT, SH_E_DISKFULL. */
int artifact_import_model(const struct api_conf *c, const char *file, const char *digest,
                          const char *buckets, struct artifact *out, struct sh_err *err);
int artifact_check_dataset(const char *file, const char *digest, struct artifact *out,
                           struct sh_err *err);
/* Places the imported or checked file at `path`. It keeps its old name too until the caller removes
 * that: later writes to it go to a copy. */
int artifact_place(const struct api_conf *c, const char *file, const struct artifact *a,
                   struct sh_err *err);
int artifact_sync_dir(const char *path, struct sh_err *err); /* makes renames in it durable */
/* Removes everything in a folder, including one level of folders. */
int artifact_empty_dir(const char *path, struct sh_err *err);
/* The same for entries not changed for age_s seconds. */
int artifact_remove_old(const char *path, int64_t age_s, struct sh_err *err);

/* Reads what shunt-import printed. Pure. */
int artifact_read_verdict(const char *text, size_t len, struct artifact *out, struct sh_err *err);

#endif
