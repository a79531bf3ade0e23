/* data.h - payloads in, results out: one connection to each API process.
 *
 * An API on this host passes its slab's descriptor; inputs are read from the slab and outputs
 * written to it. For an API on another host the executor keeps a mirror of the slab: DATA_CHUNK
 * frames fill it, DATA_END says that a request's input is complete, and outputs go back as chunks
 * before RESULT. Executors on other hosts ask here for images (models/fetch.h).
 *
 * Belongs to the loop's thread.
 */
#ifndef SH_EXECUTOR_REQUESTS_DATA_H
#define SH_EXECUTOR_REQUESTS_DATA_H

#include "common/loop.h"
#include "common/wire.h"
#include "common/wire_keys.h"
#include "executor/requests/run_part.h"

#define DATA_MAX_ASKING 16u /* executors that ask for images, beside the APIs */
#define DATA_CHUNK_BYTES ((size_t)1 << 20)

struct data;
struct slabs;

typedef void data_gone_fn(void *arg, uint64_t api_id); /* its slab still exists during the call */

/* An executor on another host asks: answers on w. */
typedef void data_image_fn(void *arg, struct sh_wire *w, const struct msg_image_get *m);

struct data_conf {
    const char *executor, *addr; /* BORROWED for good */
    struct sh_wire_keys *keys;   /* BORROWED for good */
    uint64_t incarnation, run_ms;
    size_t max_apis;
    data_gone_fn *on_gone;
    data_image_fn *on_image;
    void *arg;
};

/* Listens. KEEPS slabs. *out: OWNED, data_free(). */
int data_new(const struct data_conf *c, struct sh_loop *loop, struct slabs *slabs,
             struct data **out, struct sh_err *err);
/* Disconnects all APIs and accepts no more; later results are dropped. */
void data_close(struct data *d);
void data_free(struct data *d); /* NULL is allowed */
/* Is the input of this request here? Input from another host is lost with its connection: an API
 * that has reconnected has sent nothing yet. */
bool data_has(const struct data *d, uint64_t api_id, uint64_t rid);
/* Should the run of this request, received at came_ns, stop waiting for its input? An unknown API
 * may be about to connect, as all do after this process starts, so its requests wait a second. Then
 * the answer is true, and the run reports what is wrong. */
bool data_is_complete(const struct data *d, uint64_t api_id, uint64_t rid, int64_t came_ns);
/* Sends the outputs first to an API on another host. Dropped if the API is gone. */
void data_result(struct data *d, const struct run_part *p, const struct msg_result *r);
/* What local APIs are told in between leaves in one write each: whoever is told of one request at a
 * time is also woken for each. */
void data_cork(struct data *d);
void data_uncork(struct data *d);

#endif
