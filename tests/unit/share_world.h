/* share_world.h - images, a disk thread that works when it is told, the queue of those that wait to
 * be page-locked, and a device that keeps account of what is: for tests of executor/models/share.h.
 *
 * A test links tests/unit/share_world.o, executor/memory/locking.o and runtime/device/lock.o. */
#ifndef SH_TESTS_UNIT_SHARE_WORLD_H
#define SH_TESTS_UNIT_SHARE_WORLD_H

#include "executor/files/disk.h"
#include "executor/models/model_int.h"
#include "executor/models/share.h"
#include "tests/unit/sh_test.h"

#define N_MODELS 4u
#define TAIL 4711u /* bytes of an image behind its last chunk */
#define TAIL_PAGES ((uint64_t)8192)
#define MOST_PIECES 32u
#define CHUNKS(n) ((n) * (uint64_t)SHARE_CHUNK)

struct world {
    struct model m[N_MODELS];
    struct store_share share;
    struct disk_task *out; /* what the thread has */
    struct sh_loop *loop;
    bool is_full, is_busy, refuses_lock;
    bool is_turn; /* of the queue's, or of who locks at once: nobody else may */
    struct {
        const char *at;
        size_t bytes;
    } locked[MOST_PIECES];
    size_t n_locked;
    unsigned n_locks;    /* so many pieces were locked in the queue's turns */
    unsigned n_calls;    /* of the driver in them, to unlock as well */
    unsigned most_locks; /* more are refused; 0: none */
    unsigned n_opened, n_closed;
    void *maker; /* of m[0]: how it can still write there */
};
extern struct world w;
extern struct store_env env;

int w_set_up(void **state);
int w_tear_down(void **state); /* nothing is held or locked any more */

/* Model i, whose image has a chunk for each of these letters, and TAIL bytes that say `tail`. It is
 * locked. */
struct model *w_put(size_t i, uint32_t tag, const char *chunks, char tail);
void w_drop(struct model *m);
void w_check(const struct model *m, const char *chunks,
             char tail); /* it has what it was put with */
size_t w_bytes_of(const char *chunks);
void w_fill(void *base, const char *chunks, char tail);

void w_later(int64_t s);
void w_thread_works(void);
void w_thread_drops(void); /* the executor stops */
void w_turn(void);         /* of the loop: at most one piece is locked or unlocked */
/* By what the thread has done, or a tick and a turn. False: it rests, or waits. */
bool w_goes_on(void);
void w_all_rests(void);         /* nothing is locked then but what is an image's */
void w_unlock(struct model *m); /* at once */
void w_end_queue(void);         /* as when the executor ends; there is a new one */
void w_go_to(enum share_at at);
/* Until the thread has so many chunks of the image behind it that is copied. */
void w_copy_chunks(uint32_t n);

uint64_t w_held_bytes(void); /* memory that images and trunks really have */
uint64_t w_counted_bytes(void);

#endif
