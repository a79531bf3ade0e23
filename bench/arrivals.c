/* arrivals.c - sends requests when they are due, whether or not those before are answered.
 *
 *   arrivals PORT SECONDS SEED < KINDS
 *
 * A kind of request is a line "open RATE BYTES" (Poisson, so many a second), "closed N BYTES" (N at
 * a time, each followed by the next) or "listed N BYTES" (N in all, when they are said to be due),
 * and then its BYTES; of listed ones then N lines of nanoseconds from the beginning, in order. One
 * thread, as many connections as there are requests in flight. For each request, when all are over,
 * a line of microseconds:
 *
 *   KIND STATUS DUE SENT ANSWERED
 *
 * DUE is when it should have been sent (closed: when it was), ANSWERED when the reply's last byte
 * was read. Who measures from DUE misses nothing by waiting for others. STATUS 0: no reply within
 * ANSWER_S after the end, or the connection was closed; 1: all connections were taken.
 */
#include "simulate/draw.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_KINDS 64u
#define MAX_CONNECTIONS 1000u
#define MAX_RECORDS ((size_t)1 << 23)
#define MAX_REQUEST ((size_t)1 << 20)
#define HEAD_BYTES 4096u
#define PIECE_BYTES ((size_t)64 << 10)
#define ANSWER_S 20
#define NO_REPLY 0
#define NOT_SENT 1

struct kind {
    double rate;        /* of open ones, a second */
    unsigned at_a_time; /* of closed ones */
    int64_t *due_ns;    /* of listed ones, from the beginning */
    size_t n_due, n_sent;
    char *request;
    size_t bytes;
    int64_t next_ns; /* open and listed: the next is due then; INT64_MAX: never */
};

struct record {
    uint32_t kind, status;
    int64_t due_ns, sent_ns, answered_ns; /* from the beginning */
};

struct conn {
    int fd;
    bool is_busy;
    size_t record;     /* of the request that it carries */
    size_t got, whole; /* bytes of the reply; whole: 0: not known yet */
    char head[HEAD_BYTES + 1];
    struct conn *next; /* of the free ones */
};

struct load {
    struct kind kinds[MAX_KINDS];
    size_t n_kinds;
    struct conn *conns[MAX_CONNECTIONS], *idle;
    size_t n_conns, n_busy;
    struct record *records;
    size_t n_records;
    int port, epoll;
    uint64_t seed;
    int64_t begin_ns, end_ns;
};

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static int64_t gap_ns(struct load *l, double rate)
{
    const double u = ((double)draw_bits(&l->seed) + 1) / 9007199254740993.0;

    return (int64_t)(-log(u) / rate * 1e9);
}

/* Of an open or listed kind, after the one that was due at next_ns. */
static void set_next(struct load *l, struct kind *k)
{
    if (k->rate > 0)
        k->next_ns += gap_ns(l, k->rate);
    else
        k->next_ns = k->n_sent < k->n_due ? l->begin_ns + k->due_ns[k->n_sent++] : INT64_MAX;
}

static struct conn *connect_one(struct load *l)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)l->port),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct conn *c = calloc(1, sizeof(*c));
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};
    int one = 1;

    if (!c)
        return NULL;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&addr, sizeof(addr)) ||
        epoll_ctl(l->epoll, EPOLL_CTL_ADD, c->fd, &ev)) {
        free(c);
        return NULL;
    }
    l->conns[l->n_conns++] = c;
    return c;
}

static struct conn *take_conn(struct load *l)
{
    struct conn *c = l->idle;

    if (c)
        l->idle = c->next;
    else if (l->n_conns < MAX_CONNECTIONS)
        c = connect_one(l);
    return c;
}

static void send_one(struct load *l, uint32_t kind, int64_t due_ns)
{
    const struct kind *k = &l->kinds[kind];
    struct record *r = &l->records[l->n_records];
    struct conn *c;

    if (l->n_records == MAX_RECORDS)
        return;
    *r = (struct record){.kind = kind, .status = NOT_SENT, .due_ns = due_ns - l->begin_ns};
    l->n_records++;
    c = take_conn(l);
    r->sent_ns = now_ns() - l->begin_ns;
    if (!c)
        return;
    r->status = NO_REPLY;
    c->record = l->n_records - 1;
    c->got = c->whole = 0;
    c->is_busy = true;
    l->n_busy++;
    if (send(c->fd, k->request, k->bytes, MSG_NOSIGNAL) != (ssize_t)k->bytes)
        shutdown(c->fd, SHUT_RDWR); /* the end is told as one by the peer */
}

static void end_conn(struct load *l, struct conn *c)
{
    epoll_ctl(l->epoll, EPOLL_CTL_DEL, c->fd, NULL);
    close(c->fd);
    l->n_busy -= c->is_busy;
    for (struct conn **at = &l->idle; *at; at = &(*at)->next)
        if (*at == c) {
            *at = c->next;
            break;
        }
    for (size_t i = 0; i < l->n_conns; i++)
        if (l->conns[i] == c)
            l->conns[i] = l->conns[--l->n_conns];
    free(c);
}

static void answered(struct load *l, struct conn *c)
{
    struct record *r = &l->records[c->record];
    const int64_t now = now_ns();

    r->status = (uint32_t)strtoul(c->head + 9, NULL, 10);
    r->answered_ns = now - l->begin_ns;
    c->is_busy = false;
    l->n_busy--;
    c->next = l->idle;
    l->idle = c;
    if (l->kinds[r->kind].at_a_time && now < l->end_ns)
        send_one(l, r->kind, now);
}

/* Content-Length of a head that is complete, with the head itself; 0: it is not. */
static size_t whole_of(struct conn *c)
{
    const char *end, *length;

    c->head[c->got < HEAD_BYTES ? c->got : HEAD_BYTES] = '\0';
    end = strstr(c->head, "\r\n\r\n");
    length = strcasestr(c->head, "\r\nContent-Length:");
    if (!end)
        return 0;
    return (size_t)(end + 4 - c->head) + (length ? strtoul(length + 17, NULL, 10) : 0);
}

static void receive(struct load *l, struct conn *c)
{
    static char piece[PIECE_BYTES];
    ssize_t n = recv(c->fd, piece, sizeof(piece), MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || !c->is_busy) {
        end_conn(l, c);
        return;
    }
    if (c->got < HEAD_BYTES) {
        const size_t left = HEAD_BYTES - c->got;

        memcpy(c->head + c->got, piece, (size_t)n < left ? (size_t)n : left);
    }
    c->got += (size_t)n;
    if (!c->whole)
        c->whole = whole_of(c);
    if (c->whole && c->got >= c->whole)
        answered(l, c);
}

static void wait_until(struct load *l, int64_t until_ns)
{
    const int64_t left = until_ns - now_ns();
    const struct timespec t = {left > 0 ? left / 1000000000 : 0, left > 0 ? left % 1000000000 : 0};
    struct epoll_event ev[64];
    int n = epoll_pwait2(l->epoll, ev, 64, &t, NULL);

    for (int i = 0; i < n; i++)
        receive(l, ev[i].data.ptr);
}

static int64_t send_due(struct load *l)
{
    int64_t next_ns = l->end_ns;

    for (uint32_t k = 0; k < l->n_kinds; k++) {
        struct kind *x = &l->kinds[k];

        while (x->next_ns <= now_ns() && x->next_ns < l->end_ns) {
            send_one(l, k, x->next_ns);
            set_next(l, x);
        }
        if (x->next_ns < next_ns)
            next_ns = x->next_ns;
    }
    return next_ns;
}

static void run(struct load *l, double seconds)
{
    l->begin_ns = now_ns();
    l->end_ns = l->begin_ns + (int64_t)(seconds * 1e9);
    for (uint32_t k = 0; k < l->n_kinds; k++) {
        l->kinds[k].next_ns = l->begin_ns;
        set_next(l, &l->kinds[k]);
        for (unsigned i = 0; i < l->kinds[k].at_a_time; i++)
            send_one(l, k, now_ns());
    }
    while (now_ns() < l->end_ns)
        wait_until(l, send_due(l));
    while (l->n_busy > 0 && now_ns() < l->end_ns + ANSWER_S * INT64_C(1000000000))
        wait_until(l, now_ns() + 100000000);
}

static int read_due(struct kind *k)
{
    char line[32];

    k->due_ns = calloc(k->n_due + 1, sizeof(*k->due_ns));
    for (size_t i = 0; k->due_ns && i < k->n_due; i++) {
        if (!fgets(line, sizeof(line), stdin))
            return 1;
        k->due_ns[i] = strtoll(line, NULL, 10);
    }
    return k->due_ns == NULL;
}

static int read_kinds(struct load *l)
{
    char line[128], how[8];
    double much;
    size_t bytes;

    while (l->n_kinds < MAX_KINDS && fgets(line, sizeof(line), stdin)) {
        struct kind *k = &l->kinds[l->n_kinds++];

        if (sscanf(line, "%7s %lf %zu", how, &much, &bytes) != 3 || bytes > MAX_REQUEST || much < 0)
            return 1;
        if (strcmp(how, "open") == 0)
            k->rate = much;
        else if (strcmp(how, "listed") == 0)
            k->n_due = (size_t)much;
        else
            k->at_a_time = (unsigned)much;
        k->bytes = bytes;
        k->request = malloc(bytes + 1);
        if (!k->request || fread(k->request, 1, bytes, stdin) != bytes || read_due(k))
            return 1;
    }
    return l->n_kinds == 0;
}

static void print(const struct load *l)
{
    for (size_t i = 0; i < l->n_records; i++) {
        const struct record *r = &l->records[i];

        printf("%u %u %lld %lld %lld\n", r->kind, r->status, (long long)(r->due_ns / 1000),
               (long long)(r->sent_ns / 1000), (long long)(r->answered_ns / 1000));
    }
}

int main(int argc, char **argv)
{
    static struct load l;

    if (argc != 4) {
        fputs("usage: arrivals PORT SECONDS SEED < KINDS\n", stderr);
        return 2;
    }
    l.port = (int)strtol(argv[1], NULL, 10);
    l.seed = strtoull(argv[3], NULL, 10) * 2654435761u + 88172645463325252u;
    l.epoll = epoll_create1(EPOLL_CLOEXEC);
    l.records = calloc(MAX_RECORDS, sizeof(*l.records));
    if (l.epoll < 0 || !l.records || read_kinds(&l)) {
        fputs("arrivals: the kinds on standard input are malformed, or there is no memory\n",
              stderr);
        return 1;
    }
    run(&l, strtod(argv[2], NULL));
    print(&l);
    return 0;
}
