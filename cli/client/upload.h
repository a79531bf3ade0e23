/* upload.h - sends a file: first its digest, then its bytes with a progress bar. */
#ifndef SH_CLI_CLIENT_UPLOAD_H
#define SH_CLI_CLIENT_UPLOAD_H

#include "cli/cli.h"
#include "cli/data/cargo.h"
#include "common/filekind.h"

/* Can the file be sent, and does its beginning not show another kind? Call it before creating
 * anything for it. want: ONNX or SAFETENSORS. */
int upload_check(const char *file, enum sh_file_kind want, struct sh_err *err);

struct upload;
/* Reads the file, and those that hold a model's data, for the digest. Until upload_close() the
 * first INT or TERM ends the upload but not the program, so that what was created for it can be
 * removed. with: a model, or NULL (cargo_open). *out: OWNED, upload_close(), whatever is
 * returned. */
int upload_open(struct cli *c, const char *file, const struct cargo_with *with, struct upload **out,
                struct sh_err *err);
void upload_close(struct upload *u); /* NULL is allowed */
/* Does the server have a part from a broken upload? path: of the artifact. Asks only if the file is
 * large. */
bool upload_is_large(const struct upload *u);
bool upload_has_part(struct upload *u, const char *path);
/* PUT path with the file's bytes and Content-Digest. *out: OWNED, json_decref(). */
int upload_send(struct upload *u, const char *path, json_t **out, struct sh_err *err);
/* After a failure: deletes the version or dataset created for this file, unless it has a file
 * anyway, or a part from which the next push can continue. path: of its artifact. */
void upload_undo(struct upload *u, const char *path);

struct progress;
int upload_digest(struct cargo *c, struct progress *bar, uint8_t *out, struct sh_err *err);

#endif
