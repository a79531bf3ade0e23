/* part.h - uploads whose connection broke, and whole ones that the database was not there to take,
 * for the client to go on from.
 *
 * The file of a version or dataset that comes with its Content-Digest is written to
 * blobs/tmp/part-<tenant>-<kind><row>-<sha256>, and stays there when the connection breaks.
 * GET .../artifact/parts/{digest} tells how much of it there is, and a PUT with Content-Range goes
 * on behind it. The whole file is hashed at the end, so a part that is damaged, or of another file,
 * is found out.
 *
 * Bounded: of a row one part (another digest removes it), of a tenant PART_MAX, together within the
 * storage that it has left, for PART_MAX_AGE_S after their last byte (upload_sweep). Who writes
 * one holds its lock (flock), in whichever API. Blocking; for a few short calls.
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
    size_t n; /* of other rows of the tenant */
    int64_t bytes;
};

/* "Content-Digest: sha-256=:...:" as hex. False: it names none that can be read. */
bool part_digest(const char *header, char hex[static SH_SHA256_HEX]);
/* "bytes 100-199/200": from 100, 200 in all. Fails: SH_E_INVALID, also if more would follow. */
int part_range(const char *header, uint64_t body_bytes, uint64_t *from, uint64_t *total,
               struct sh_err *err);

/* What the tenant has elsewhere. Parts of this row with another digest are removed. */
int part_survey(const char *state_dir, const struct part_key *k, struct part_survey *out,
                struct sh_err *err);
/* SH_E_NOTFOUND: there is none. */
int part_bytes(const char *state_dir, const struct part_key *k, int64_t *out, struct sh_err *err);
/* Opens it with its lock, cut to `from` bytes; a copy of it if it has another name, too, for it was
 * put in its place and the database did not say so. path: OWNED. Fails: SH_E_CONFLICT (it has less:
 * *have bytes), SH_E_UNAVAILABLE (somebody is writing it). */
int part_open(const char *state_dir, const struct part_key *k, uint64_t from, int *fd, char **path,
              uint64_t *have, struct sh_err *err);
/* Is the open file the one of this name? Not once it was removed or put in its place. */
bool part_is_at(int fd, const char *path);

#endif
