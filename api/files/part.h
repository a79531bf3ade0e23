/* part.h - resumable uploads: those whose connection broke, and complete ones that the database was
 * not there to accept.
 *
 * The file of a version or dataset with a Content-Digest is written to
 * blobs/tmp/part-<tenant>-<kind><row>-<sha256>, and stays there if the connection breaks.
 * GET .../artifact/parts/{digest} tells how much of it there is, and a PUT with Content-Range
 * continues it. The whole file is hashed at the end, so a part that is damaged, or of another file,
 * is detected.
 *
 * Limits: one part for each row (another digest removes it), PART_MAX for a tenant, within its free
 * storage, for PART_MAX_AGE_S after their last byte (upload_sweep). The writer of a part holds its
 * lock (flock), in whichever API. Blocks, for a few short calls.
 */
#ifndef SH_API_FILES_PART_H
#define SH_API_FILES_PART_H

#include "common/err.h"
#include "common/hash.h"

#define PART_MAX 8
#define PART_MAX_AGE_S (24 * 3600)

struct part_key {
    int64_t tenant_id, row_id;
    char kind; /* 'm' or 'd' */
    char digest[SH_SHA256_HEX];
};

struct part_survey {
    size_t n; /* parts of other rows of the tenant */
    int64_t bytes;
};

/* "Content-Digest: sha-256=:...:" as hex. False: there is none, or it is malformed. */
bool part_digest(const char *header, char hex[static SH_SHA256_HEX]);
/* "bytes 100-199/200": from 100, 200 in all. Fails: SH_E_INVALID, also if it is not the end. */
int part_range(const char *header, uint64_t body_bytes, uint64_t *from, uint64_t *total,
               struct sh_err *err);

/* Counts the tenant's other parts. Removes parts of this row with another digest. */
int part_survey(const char *state_dir, const struct part_key *k, struct part_survey *out,
                struct sh_err *err);
/* Its size. Fails: SH_E_NOTFOUND. */
int part_bytes(const char *state_dir, const struct part_key *k, int64_t *out, struct sh_err *err);
/* Opens and locks it, cut to `from` bytes. Opens a copy if it has a second name, because it was
 * placed without an answer from the database. path: OWNED. Fails: SH_E_CONFLICT (it is shorter:
 * *have bytes), SH_E_UNAVAILABLE (somebody is writing it). */
int part_open(const char *state_dir, const struct part_key *k, uint64_t from, int *fd, char **path,
              uint64_t *have, struct sh_err *err);
/* Does this name still mean the open file? Not once it was removed or placed. */
bool part_is_at(int fd, const char *path);

#endif
