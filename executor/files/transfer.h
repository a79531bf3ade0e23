/* transfer.h - carries files between the folder of an executor and an API on another host, over
 * HTTP, on threads of its own: two for what comes, one for what goes, so that a large dataset keeps
 * no checkpoint waiting.
 *
 * A transfer that breaks is tried again, from where it broke (what comes) or from its beginning
 * (what goes), with growing pauses, until --api-retry-s have passed without a byte. What comes is
 * compared with its SHA-256 before it gets its name; the API does the same with what goes. So a
 * file is either there and right, or not there.
 *
 * A task and all it points to belong to a thread from transfer_submit() until its done() is called
 * from the loop.
 */
#ifndef SH_EXECUTOR_FILES_TRANSFER_H
#define SH_EXECUTOR_FILES_TRANSFER_H

#include "common/hash.h"
#include "common/loop.h"

#include <stdatomic.h>

struct transfers;
struct transfer_line; /* a thread with its connection */
struct transfer_task;
typedef int transfer_work_fn(struct transfer_task *t, struct transfer_line *l, struct sh_err *err);
typedef void transfer_done_fn(struct transfer_task *t); /* on the loop; frees the task */

enum transfer_way { TRANSFER_IN, TRANSFER_OUT, TRANSFER_N_WAYS };

struct transfer_task {
    struct transfer_task *next;
    transfer_work_fn *work;
    transfer_done_fn *done;
    atomic_bool stop; /* raised by the loop: what is under way ends with SH_E_CANCELLED */
    struct sh_err err;
};

struct transfer_conf { /* strings: BORROWED for good */
    const char *executor, *api, *key_file;
    const char *ca_file; /* NULL or "": the authorities of the host */
    int64_t retry_s;
};

/* Reads the key file. *out: OWNED, transfers_free(). */
int transfers_new(const struct transfer_conf *c, struct sh_loop *loop, struct transfers **out,
                  struct sh_err *err);
void transfers_free(struct transfers *h); /* what is under way is stopped; every done() is called */
/* They are being freed: what is submitted now is cancelled. */
bool transfers_end(const struct transfers *h);
void transfer_submit(struct transfers *h, enum transfer_way way,
                     struct transfer_task *t); /* TAKES t */

/* For work, on its thread. path: of the API, escaped. Fails: SH_E_NOTFOUND and what else the API
 * says, SH_E_UNAVAILABLE, SH_E_TIMEOUT, SH_E_IO (it came damaged), SH_E_DISKFULL, SH_E_CANCELLED.
 */
int transfer_size(struct transfer_line *l, const char *path, uint64_t *bytes, struct sh_err *err);
/* part: where it lies until it is whole, and from where it goes on when it broke; digest: hex,
 * NULL: that of its ETag. The file is durable. */
int transfer_get(struct transfer_line *l, const char *path, const char *digest, const char *part,
                 const char *to, struct sh_err *err);
/* Raised when the executor ends, which waits for the work under way. BORROWED */
const atomic_bool *transfer_ends(const struct transfer_line *l);
int transfer_put(struct transfer_line *l, const char *path, const char *from, struct sh_err *err);

#endif
