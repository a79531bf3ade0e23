/* upload.h - sending a file: its digest first, then the bytes with a progress bar. */
#ifndef SH_CLI_CLIENT_UPLOAD_H
#define SH_CLI_CLIENT_UPLOAD_H

#include "cli/cli.h"
#include "cli/data/cargo.h"
#include "common/filekind.h"

/* Can it be sent, and is it of no other kind, as far as its beginning tells? Asked before something
 * is created for it. want: ONNX or SAFETENSORS. */
int upload_check(const char *file, enum sh_file_kind want, struct sh_err *err);

struct upload;
/* Reads the file, and those that hold the data of a model, for their digest. From then to
 * upload_close() the first INT or TERM ends the upload and not the program, so that what was made
 * for it can go.
 * weights: of a model, or NULL (cargo_open). *out: OWNED, upload_close(), whatever is returned. */
int upload_open(struct cli *c, const char *file, const char *weights, struct upload **out,
                struct sh_err *err);
void upload_close(struct upload *u); /* NULL is allowed */
/* Does the server have a part of it from an upload that broke? path: of an artifact. Nobody asks if
 * the file is not large. */
bool upload_is_large(const struct upload *u);
bool upload_has_part(struct upload *u, const char *path);
/* PUT path with the file's bytes and Content-Digest. *out: OWNED, json_decref(). */
int upload_send(struct upload *u, const char *path, json_t **out, struct sh_err *err);
/* After a failure: deletes the version or dataset that was made for this file, unless it has a file
 * all the same, or a part at which the next push goes on. path: of its artifact. */
void upload_undo(struct upload *u, const char *path);

struct progress;
int upload_digest(struct cargo *c, struct progress *bar, uint8_t *out, struct sh_err *err);

#endif
