/* upload.h - sending a file: its digest first, then the bytes with a progress bar. */
#ifndef SH_CLI_UPLOAD_H
#define SH_CLI_UPLOAD_H

#include "cli/cli.h"

/* Can it be sent? Asked before something is created for it. */
int upload_check(const char *file, struct sh_err *err);

/* PUT path with the file's bytes and Content-Digest. *out: OWNED, json_decref(). */
int upload_file(struct cli *c, const char *path, const char *file, json_t **out,
                struct sh_err *err);

struct progress;
/* SHA-256 of a file from its start, whose position is there again then. Fails too if it has not
 * just so many bytes. */
int upload_digest(int fd, int64_t bytes, struct progress *bar, uint8_t *out, struct sh_err *err);

#endif
