/* transfer.h - carries files over HTTP between an executor's folder and an API on another host, on
 * its own threads: two for downloads, one for uploads, so that a large dataset delays no
 * checkpoint.
 *
 * A broken transfer is retried with growing pauses until --api-retry-s have passed without a byte:
 * a download from where it broke, an upload from its beginning. A download's SHA-256 is compared
 * before the file gets its name; the API does the same for uploads. So a file is either complete
 * and correct, or absent.
 *
 * A task and all it points to belong to a thread from transfer_submit() until done() is called on
 * the loop.
 */
#ifndef SH_EXECUTOR_FILES_TRANSFER_H
#define SH_EXECUTOR_FILES_TRANSFER_H

#include "common/hash.h"
#include "common/loop.h"

#include <stdatomic.h>

struct transfers;
struct transfer_line; /* a thread and its connection */
struct transfer_task;
typedef int transfer_work_fn(struct transfer_task *t, struct transfer_line *l, struct sh_err *err);
typedef void transfer_done_fn(struct transfer_task *t); /* called on the loop; frees the task */

enum transfer_way { TRANSFER_IN, TRANSFER_OUT, TRANSFER_N_WAYS };

struct transfer_task {
    struct transfer_task *next;
    transfer_work_fn *work;
    transfer_done_fn *done;
    atomic_bool stop; /* raised by the loop: the work then ends with SH_E_CANCELLED */
    struct sh_err err;
};

struct transfer_conf { /* strings: BORROWED for good */
    const char *executor, *api, *key_file;
    const char *ca_file; /* NULL or "": the host's certificate authorities */
    int64_t retry_s;
};

/* Reads the key file. *out: OWNED, transfers_free(). */
int transfers_new(const struct transfer_conf *c, struct sh_loop *loop, struct transfers **out,
                  struct sh_err *err);
void transfers_free(struct transfers *h); /* stops the work under way; calls every done() */
/* True while being freed: a task submitted now is cancelled. */
bool transfers_end(const struct transfers *h);
void transfer_submit(struct transfers *h, enum transfer_way way,
                     struct transfer_task *t); /* TAKES t */

/* For work, on its thread. path: of the API, escaped. Fails: SH_E_NOTFOUND and the API's other
 * errors, SH_E_UNAVAILABLE, SH_E_TIMEOUT, SH_E_IO (damaged on the way), SH_E_DISKFULL,
 * SH_E_CANCELLED. */
int transfer_size(struct transfer_line *l, const char *path, uint64_t *bytes, struct sh_err *err);
/* part: the file's path until it is complete; a broken download resumes from it. digest: hex; NULL:
 * taken from the ETag. The file is durable. */
int transfer_get(struct transfer_line *l, const char *path, const char *digest, const char *part,
                 const char *to, struct sh_err *err);
/* Raised when the executor ends, which waits for the work under way. BORROWED. */
const atomic_bool *transfer_ends(const struct transfer_line *l);
int transfer_put(struct transfer_line *l, const char *path, const char *from, struct sh_err *err);

#endif
