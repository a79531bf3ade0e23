/* wire.c - what encrypted links cost: the same frames over TCP on this host, plain and by TLS in
 * turns, between two threads with a loop each.
 *
 *   trip    one small frame and its answer
 *   small   small frames in bursts of 64, as a pass of the scheduler sends them
 *   5 MB    a payload in chunks of 1 MiB and the answer to its end
 *   start   a connection, its handshake, and the answer to a first frame
 *
 * Prints the medians of the rounds and TLS over plain: by the clock, and by the processor time of
 * both sides, which says more on a machine that others use too. */
#include "common/wire.h"

#include "common/clock.h"
#include "common/hash.h"
#include "common/io.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/wire_keys.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 15
#define TRIPS 2000u
#define BURST 64u
#define SMALL (BURST * 2000u)
#define WINDOW (BURST * 16u)
#define PAYLOADS 40u
#define PAYLOAD_BYTES ((size_t)5000000)
#define CHUNK_BYTES ((size_t)1 << 20)
#define STARTS 20u
#define ANSWER (UINT64_C(1) << 63) /* in a cookie: the sender waits */

enum { PLAIN, TLS, N_KINDS };
enum { CLOCK, CPU, N_CLOCKS };
enum { TRIP, SMALL_FRAMES, PAYLOAD, START, N_WHATS };

static atomic_bool over;
static unsigned char payload[CHUNK_BYTES];

struct bench {
    struct sh_loop *loop;
    struct sh_wire_keys *keys[N_KINDS];
    char addr[N_KINDS][64];
    uint64_t n_answers;
    double took[N_CLOCKS][N_KINDS][N_WHATS][ROUNDS]; /* ns of one */
};

static void must(int rc, const struct sh_err *err)
{
    if (!rc)
        return;
    fprintf(stderr, "wire: %s %s\n", err->msg, err->detail);
    _exit(EXIT_FAILURE);
}

/* ---------------------------------------------------------------- the other side */

static void on_msg_there(struct sh_wire *w, const struct sh_msg *m, int *fds, size_t n_fds,
                         void *arg)
{
    (void)fds, (void)n_fds, (void)arg;
    if (m->type == MSG_DATA_END || (m->type == MSG_PING && m->u.ping.cookie & ANSWER))
        sh_wire_send(w, &(struct sh_msg){.type = MSG_PONG}, NULL);
}

static void on_close_there(struct sh_wire *w, const struct sh_err *why, void *arg)
{
    (void)w, (void)why, (void)arg;
}

static bool on_peer(struct sh_wire *w, struct sh_wire_handler *h, void *arg)
{
    (void)w, (void)arg;
    *h = (struct sh_wire_handler){.on_msg = on_msg_there, .on_close = on_close_there};
    return true;
}

static void *other_side(void *arg)
{
    struct bench *b = arg;
    struct sh_listen *port[N_KINDS];
    struct sh_err err = {0};

    for (int k = 0; k < N_KINDS; k++)
        must(sh_listen_new(b->loop, b->addr[k],
                           &(struct sh_listen_handler){.on_peer = on_peer, .keys = b->keys[k]},
                           &port[k], &err),
             &err);
    while (!atomic_load(&over))
        must(sh_loop_once(b->loop, 10000000, &err), &err);
    for (int k = 0; k < N_KINDS; k++)
        sh_listen_free(port[k]);
    return NULL;
}

/* ---------------------------------------------------------------- this side */

static void on_up(struct sh_wire *w, void *arg)
{
    (void)w, (void)arg;
}

static void on_msg(struct sh_wire *w, const struct sh_msg *m, int *fds, size_t n_fds, void *arg)
{
    struct bench *b = arg;

    (void)w, (void)m, (void)fds, (void)n_fds;
    b->n_answers++;
}

static void on_down(struct sh_wire *w, const struct sh_err *why, void *arg)
{
    (void)w, (void)arg;
    must(why->rc, why);
}

static struct sh_link *connect_by(struct bench *b, int kind)
{
    struct sh_link_handler h = {
        .on_up = on_up, .on_msg = on_msg, .on_down = on_down, .arg = b, .keys = b->keys[kind]};
    struct sh_link *k = NULL;
    struct sh_err err = {0};

    must(sh_link_new(b->loop, b->addr[kind], &h, &k, &err), &err);
    while (!sh_link_wire(k))
        must(sh_loop_once(b->loop, 10000000, &err), &err);
    return k;
}

static void wait_for(struct bench *b, uint64_t answers)
{
    struct sh_err err = {0};

    while (b->n_answers < answers)
        must(sh_loop_once(b->loop, 1000000000, &err), &err);
}

static void say(struct sh_wire *w, uint64_t cookie)
{
    struct sh_err err = {0};

    must(sh_wire_send(w, &(struct sh_msg){.type = MSG_PING, .u.ping.cookie = cookie}, &err), &err);
}

static void trips(struct bench *b, struct sh_wire *w)
{
    for (unsigned i = 0; i < TRIPS; i++) {
        uint64_t want = b->n_answers + 1;

        say(w, ANSWER);
        wait_for(b, want);
    }
}

static void small_frames(struct bench *b, struct sh_wire *w)
{
    uint64_t first = b->n_answers;

    for (unsigned i = 0; i < SMALL; i += BURST) {
        sh_wire_cork(w);
        for (unsigned k = 1; k <= BURST; k++)
            say(w, (i + k) % WINDOW == 0 ? ANSWER : i + k);
        sh_wire_uncork(w);
        if ((i + BURST) % WINDOW == 0) /* one window is on its way while the next is made */
            wait_for(b, first + (i + BURST) / WINDOW - 1);
    }
    wait_for(b, first + SMALL / WINDOW);
}

static void payloads(struct bench *b, struct sh_wire *w)
{
    struct sh_err err = {0};

    for (unsigned i = 0; i < PAYLOADS; i++) {
        uint64_t want = b->n_answers + 1;

        for (size_t at = 0; at < PAYLOAD_BYTES; at += CHUNK_BYTES) {
            struct sh_msg m = {.type = MSG_DATA_CHUNK, .u.data_chunk.off = at};

            m.u.data_chunk.bytes =
                (struct sh_blob){payload, SH_MIN(CHUNK_BYTES, PAYLOAD_BYTES - at)};
            must(sh_wire_send(w, &m, &err), &err);
        }
        must(sh_wire_send(w, &(struct sh_msg){.type = MSG_DATA_END}, &err), &err);
        wait_for(b, want);
    }
}

static void starts(struct bench *b, int kind)
{
    for (unsigned i = 0; i < STARTS; i++) {
        struct sh_link *k = connect_by(b, kind);
        uint64_t want = b->n_answers + 1;

        say(sh_link_wire(k), ANSWER);
        wait_for(b, want);
        sh_link_free(k);
    }
}

static void read_clocks(double ns[N_CLOCKS])
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    ns[CPU] = (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
    ns[CLOCK] = (double)sh_clock_ns();
}

static void round_of(struct bench *b, int kind, int r)
{
    static const double N[N_WHATS] = {TRIPS, SMALL, PAYLOADS, STARTS};
    struct sh_link *k = connect_by(b, kind);

    for (int what = 0; what < N_WHATS; what++) {
        double from[N_CLOCKS], to[N_CLOCKS];

        read_clocks(from);
        if (what == TRIP)
            trips(b, sh_link_wire(k));
        else if (what == SMALL_FRAMES)
            small_frames(b, sh_link_wire(k));
        else if (what == PAYLOAD)
            payloads(b, sh_link_wire(k));
        else
            starts(b, kind);
        read_clocks(to);
        for (int c = 0; c < N_CLOCKS; c++)
            b->took[c][kind][what][r] = (to[c] - from[c]) / N[what];
    }
    sh_link_free(k);
}

/* ---------------------------------------------------------------- all of it */

static void open_side(struct bench *b, const char *key_file)
{
    struct sh_wire_key_conf none = {0}, key = {.key_file = (char *)(uintptr_t)key_file};
    const char *const *addrs = (const char *const[]){NULL};
    struct sh_err err = {0};

    must(sh_loop_new(&b->loop, &err), &err);
    must(sh_wire_keys_open(&none, addrs, &b->keys[PLAIN], &err), &err);
    must(sh_wire_keys_open(&key, addrs, &b->keys[TLS], &err), &err);
}

static void close_side(struct bench *b)
{
    for (int k = 0; k < N_KINDS; k++)
        sh_wire_keys_free(b->keys[k]);
    sh_loop_free(b->loop);
}

static void make_key(char *path, struct sh_err *err)
{
    uint8_t raw[32];
    char hex[2 * sizeof(raw) + 1];
    int fd = mkstemp(path);

    must(fd < 0 ? SH_FAIL_ERRNO(err, SH_E_IO, "could not make a key file") : SH_OK, err);
    must(sh_random(raw, sizeof(raw), err), err);
    sh_hex(raw, sizeof(raw), hex);
    if (!sh_write_all(fd, hex, sizeof(hex) - 1))
        must(SH_FAIL_ERRNO(err, SH_E_IO, "could not write a key file"), err);
    close(fd);
}

static void choose_port(char *addr, size_t size)
{
    struct sh_err err = {0};
    int fd;

    must(sh_wire_listen("tcp:127.0.0.1:0", &fd, &err), &err);
    snprintf(addr, size, "tcp:127.0.0.1:%d", sh_wire_port(fd));
    close(fd);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *v)
{
    qsort(v, ROUNDS, sizeof(*v), compare);
    return v[ROUNDS / 2];
}

static void print(struct bench *b)
{
    static const char *const WHAT[N_WHATS] = {"trip", "small", "5 MB", "start"};

    printf("us of one   %8s %8s %6s   cpu: %8s %8s %6s\n", "plain", "TLS", "ratio", "plain", "TLS",
           "ratio");
    for (int i = 0; i < N_WHATS; i++) {
        printf("%-9s", WHAT[i]);
        for (int c = 0; c < N_CLOCKS; c++) {
            double plain = median(b->took[c][PLAIN][i]) / 1e3,
                   tls = median(b->took[c][TLS][i]) / 1e3;

            printf("%s%8.2f %8.2f %6.2f", c == CLOCK ? "   " : "        ", plain, tls, tls / plain);
        }
        printf("\n");
    }
}

int main(void)
{
    static struct bench here, there;
    char key[] = "/tmp/shunt-bench-key-XXXXXX";
    struct sh_err err = {0};
    pthread_t thread;

    sh_log_init("wire", SH_LOG_WARN);
    make_key(key, &err);
    open_side(&here, key);
    open_side(&there, key);
    for (int k = 0; k < N_KINDS; k++) {
        choose_port(here.addr[k], sizeof(here.addr[k]));
        memcpy(there.addr[k], here.addr[k], sizeof(there.addr[k]));
    }
    if (pthread_create(&thread, NULL, other_side, &there))
        must(SH_FAIL(&err, SH_E_NOMEM, "could not start a thread"), &err);
    for (int r = 0; r < ROUNDS; r++)
        for (int k = 0; k < N_KINDS; k++)
            round_of(&here, (r + k) % N_KINDS, r);
    atomic_store(&over, true);
    pthread_join(thread, NULL);
    print(&here);
    close_side(&here);
    close_side(&there);
    unlink(key);
    return EXIT_SUCCESS;
}
