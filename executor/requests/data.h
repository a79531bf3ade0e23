/* data.h - where payloads come from and results go to: one connection for each API process.
 *
 * An API on this host hands over its slab's descriptor: workers read inputs from it and write
 * outputs to it, and nothing is copied on the way. For one on another host a mirror of the slab is
 * made here; DATA_CHUNK frames fill it, DATA_END says that the input of a request is complete, and
 * the outputs go back as chunks before the RESULT.
 */
#ifndef SH_EXECUTOR_REQUESTS_DATA_H
#define SH_EXECUTOR_REQUESTS_DATA_H

#include "common/loop.h"
#include "common/wire_keys.h"
#include "executor/requests/run_part.h"

#define DATA_MAX_PEERS 56u
#define DATA_CHUNK_BYTES ((size_t)1 << 20)

struct data;
struct slabs;

typedef void data_gone_fn(void *arg, uint64_t api_id); /* its slab is there until it returns */

struct data_conf {
    const char *executor, *addr; /* BORROWED for good */
    struct sh_wire_keys *keys;   /* likewise */
    uint64_t incarnation, run_ms;
    data_gone_fn *on_gone;
    void *arg;
};

/* Listens. KEEPS slabs. *out: OWNED, data_free(). */
int data_new(const struct data_conf *c, struct sh_loop *loop, struct slabs *slabs,
             struct data **out, struct sh_err *err);
/* Lets all APIs go and takes no more; what is said to them from now on is dropped. */
void data_close(struct data *d);
void data_free(struct data *d); /* NULL is allowed */
/* Is the input of this request here? What came from another host goes with the connection that it
 * came over: an API that is there again has sent nothing yet. */
bool data_has(const struct data *d, uint64_t api_id, uint64_t rid);
/* Is a run to wait no longer for the input of this request, whose run came at came_ns? An API that
 * is unknown may be about to connect, as all do after a start of this process, so its requests wait
 * a second. After that the answer is true, and the run says what is wrong. */
bool data_is_complete(const struct data *d, uint64_t api_id, uint64_t rid, int64_t came_ns);
/* Outputs first, for a peer on another host. Dropped when the API is gone. */
void data_result(struct data *d, const struct run_part *p, const struct msg_result *r);

#endif
