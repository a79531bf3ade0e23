/* artifact.h - is an uploaded file what it should be, and its way into blobs/.
 *
 * A model is parsed by shunt-import, a limited process of its own; the API never looks inside.
 * Names in blobs/ are digests, so the same file twice is one file: putting it in place again is no
 * error. Blocking; pool threads only.
 */
#ifndef SH_API_FILES_ARTIFACT_H
#define SH_API_FILES_ARTIFACT_H

#include "api/options.h"
#include "common/json.h"

struct artifact {
    char *path;                    /* OWNED: below blobs/ */
    char *dir;                     /* OWNED: a model's package until it is placed; or NULL */
    char *inputs, *outputs, *meta; /* OWNED: JSON text; inputs of a dataset are its tensors */
    json_t *nodes;                 /* OWNED: what a refused model asks for and we lack; or NULL */
    int64_t n_samples;
    int64_t fixed_batch; /* of a model: the only one that it runs with; 0: any */
    bool is_solo;        /* of a model: samples may meet, so that each request runs by itself */
};
void artifact_fini(struct artifact *a); /* removes what was not placed */

/* The file stays where it is. buckets: JSON (common/buckets.h), "" for none. Fails:
 * SH_E_UNSUPPORTED, SH_E_INVALID, SH_E_TIMEOUT, SH_E_DISKFULL; nodes is set then. */
int artifact_import_model(const struct api_conf *c, const char *file, const char *digest,
                          const char *buckets, struct artifact *out, struct sh_err *err);
int artifact_check_dataset(const char *file, const char *digest, struct artifact *out,
                           struct sh_err *err);
/* Puts the file that was imported or checked where `path` says. It has its old name, too, until the
 * caller removes that: what is to be written to it then is written to a copy. */
int artifact_place(const struct api_conf *c, const char *file, const struct artifact *a,
                   struct sh_err *err);
int artifact_sync_dir(const char *path, struct sh_err *err); /* what was renamed there stays */
/* Removes everything in a folder, one level of folders included. */
int artifact_empty_dir(const char *path, struct sh_err *err);
/* The same for what nobody has changed for age_s seconds. */
int artifact_remove_old(const char *path, int64_t age_s, struct sh_err *err);

/* The verdict of shunt-import as text; pure. */
int artifact_read_verdict(const char *text, size_t len, struct artifact *out, struct sh_err *err);

#endif
