/* http.c - what the API is compared with, and what loads it.
 *
 *   http library THREADS POOL   libmicrohttpd with threads of its own, which sleep, and POOL bytes
 *                               for a connection: reads the body, sends back its first bytes
 *   http socket                 accept, recv, memcpy of each piece, a reply: what the kernel takes
 *   http load PORT N SECONDS < REQUEST
 *                               N connections that send the same request again and again; prints
 *                               requests, seconds and percentiles as one JSON object
 *   http grpc PORT N SECONDS < REQUEST
 *                               the same over gRPC: REQUEST is the frames of a call on stream 1
 *
 * The servers print their port and stop at the end of standard input.
 */
#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ECHO_BYTES 4096u
#define PIECE_BYTES ((size_t)256 << 10)
#define BODY_BYTES ((size_t)64 << 20)
#define MAX_CONNECTIONS 256
#define MAX_SAMPLES ((size_t)1 << 20)
#define FRAME_HEAD 9u

static void wait_for_the_end(void)
{
    char byte;

    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
}

static int print_port(int port)
{
    printf("%d\n", port);
    return fflush(stdout);
}

/* ---------------------------------------------------------------- the library by itself */

struct echo {
    size_t n;
    char bytes[ECHO_BYTES];
};

static enum MHD_Result on_request(void *cls, struct MHD_Connection *conn, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *size, void **state)
{
    struct echo *e = *state;
    struct MHD_Response *r;
    enum MHD_Result done;

    (void)cls;
    (void)url;
    (void)method;
    (void)version;
    if (!e) {
        *state = e = calloc(1, sizeof(*e));
        return e ? MHD_YES : MHD_NO;
    }
    if (*size > 0) {
        size_t n = *size < ECHO_BYTES - e->n ? *size : ECHO_BYTES - e->n;

        memcpy(e->bytes + e->n, data, n);
        e->n += n;
        *size = 0;
        return MHD_YES;
    }
    r = MHD_create_response_from_buffer(e->n, e->bytes, MHD_RESPMEM_MUST_COPY);
    done = r ? MHD_queue_response(conn, 200, r) : MHD_NO;
    MHD_destroy_response(r);
    return done;
}

static void on_done(void *cls, struct MHD_Connection *conn, void **state,
                    enum MHD_RequestTerminationCode code)
{
    (void)cls;
    (void)conn;
    (void)code;
    free(*state);
    *state = NULL;
}

static int serve_library(unsigned threads, size_t pool)
{
    unsigned flags =
        MHD_USE_EPOLL | MHD_USE_INTERNAL_POLLING_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC;
    struct MHD_OptionItem many[] = {{MHD_OPTION_THREAD_POOL_SIZE, (intptr_t)threads, NULL},
                                    {MHD_OPTION_END, 0, NULL}};
    struct MHD_Daemon *d = MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, NULL, MHD_OPTION_CONNECTION_MEMORY_LIMIT, pool,
        MHD_OPTION_CONNECTION_MEMORY_INCREMENT, (size_t)16 << 10, MHD_OPTION_NOTIFY_COMPLETED,
        on_done, NULL, MHD_OPTION_ARRAY, threads > 1 ? many : many + 1, MHD_OPTION_END);
    const union MHD_DaemonInfo *info = d ? MHD_get_daemon_info(d, MHD_DAEMON_INFO_BIND_PORT) : NULL;

    if (!info || print_port(info->port))
        return 1;
    wait_for_the_end();
    MHD_stop_daemon(d);
    return 0;
}

/* ---------------------------------------------------------------- the kernel by itself */

/* Length of the headers with their empty line; 0: they are not complete. */
static size_t find_body(char *text, size_t n, size_t *length)
{
    char *end, *at;

    text[n] = '\0';
    end = strstr(text, "\r\n\r\n");
    at = strcasestr(text, "\r\nContent-Length:");
    *length = at ? strtoul(at + 17, NULL, 10) : 0;
    return end ? (size_t)(end + 4 - text) : 0;
}

/* One request: false at the end of the connection. */
static bool serve_one(int fd, char *piece, char *body)
{
    static const char REPLY[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    size_t got = 0, head = 0, length = 0, done;

    while (head == 0) {
        ssize_t n = recv(fd, piece + got, PIECE_BYTES - got, 0);

        if (n <= 0)
            return false;
        got += (size_t)n;
        head = find_body(piece, got, &length);
    }
    if (length > BODY_BYTES)
        return false;
    done = got - head;
    memcpy(body, piece + head, done);
    while (done < length) {
        ssize_t n = recv(fd, piece, PIECE_BYTES, 0);

        if (n <= 0)
            return false;
        memcpy(body + done, piece, (size_t)n);
        done += (size_t)n;
    }
    return send(fd, REPLY, sizeof(REPLY) - 1, MSG_NOSIGNAL) > 0;
}

static void *serve_socket_thread(void *arg)
{
    int listener = *(int *)arg;
    char *piece = malloc(PIECE_BYTES + 1), *body = calloc(1, BODY_BYTES);

    for (int fd; piece && body && (fd = accept(listener, NULL, NULL)) >= 0; close(fd))
        while (serve_one(fd, piece, body))
            ;
    free(piece);
    free(body);
    return NULL;
}

static int serve_socket(void)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    pthread_t t;

    if (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr)) || listen(fd, 8) ||
        getsockname(fd, (struct sockaddr *)&addr, &len) ||
        pthread_create(&t, NULL, serve_socket_thread, &fd) || print_port(ntohs(addr.sin_port)))
        return 1;
    wait_for_the_end();
    return 0; /* the thread, which may wait for a client, ends with the process */
}

/* ---------------------------------------------------------------- load */

struct client {
    pthread_t thread;
    bool is_grpc;
    uint32_t stream; /* the last one of gRPC */
    const char *request;
    size_t bytes;
    int port;
    int64_t end_ns;
    uint32_t *us10; /* a tenth of a microsecond each */
    size_t n;
    bool failed;
};

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static bool send_all(int fd, const char *data, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t n = send(fd, data + at, bytes - at, MSG_NOSIGNAL);

        if (n <= 0)
            return false;
        at += (size_t)n;
    }
    return true;
}

static size_t frame_bytes(const unsigned char *head)
{
    return FRAME_HEAD + ((size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2]);
}

/* The preface, no settings of ours, and a window that never closes in a measurement. */
static bool begin_grpc(int fd)
{
    static const char HELLO[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
                                "\0\0\4\x8\0\0\0\0\0\x7f\xfe\0\0";

    return send_all(fd, HELLO, sizeof(HELLO) - 1);
}

/* A failed call has trailers only. */
static bool exchange_grpc(int fd, struct client *c, char *reply)
{
    static const char ACK[FRAME_HEAD] = {0, 0, 0, 4, 1};
    char *request = memcpy(reply + PIECE_BYTES, c->request, c->bytes);
    size_t got = 0, at = 0;
    bool has_data = false;

    c->stream += c->stream ? 2 : 1;
    for (size_t i = 0; i < c->bytes; i += frame_bytes((unsigned char *)request + i))
        for (unsigned k = 0; k < 4; k++)
            request[i + 5 + k] = (char)(c->stream >> (24 - 8 * k));
    if (!send_all(fd, request, c->bytes))
        return false;
    for (;;) {
        const unsigned char *f = (unsigned char *)reply + at;
        ssize_t n;

        if (got >= at + FRAME_HEAD && got >= at + frame_bytes(f)) {
            has_data |= f[3] == 0;
            if (f[3] == 1 && (f[4] & 1)) /* headers that end the stream */
                return has_data;
            if (f[3] == 3 || f[3] == 7 ||
                (f[3] == 4 && !(f[4] & 1) && !send_all(fd, ACK, sizeof(ACK))))
                return false;
            at += frame_bytes(f);
            continue;
        }
        n = recv(fd, reply + got, PIECE_BYTES - got, 0);
        if (n <= 0)
            return false;
        got += (size_t)n;
    }
}

static bool exchange(int fd, const struct client *c, char *reply)
{
    size_t got = 0, head = 0, length = 0;

    if (!send_all(fd, c->request, c->bytes))
        return false;
    while (head == 0 || got < head + length) {
        ssize_t n = recv(fd, reply + got, PIECE_BYTES - got, 0);

        if (n <= 0)
            return false;
        got += (size_t)n;
        head = find_body(reply, got, &length);
    }
    return strncmp(reply, "HTTP/1.1 200 ", 13) == 0 || strncmp(reply, "HTTP/1.1 201 ", 13) == 0;
}

static void *client_thread(void *arg)
{
    struct client *c = arg;
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)c->port),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char *reply = malloc(PIECE_BYTES + c->bytes + 1);
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    c->failed = !reply || connect(fd, (struct sockaddr *)&addr, sizeof(addr)) ||
                (c->is_grpc && !begin_grpc(fd));
    while (!c->failed && c->n < MAX_SAMPLES) {
        int64_t t = now_ns();

        if (t >= c->end_ns)
            break;
        c->failed = c->is_grpc ? !exchange_grpc(fd, c, reply) : !exchange(fd, c, reply);
        c->us10[c->n++] = (uint32_t)((now_ns() - t) / 100);
    }
    close(fd);
    free(reply);
    return NULL;
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

static int report(const struct client *clients, size_t n, double seconds)
{
    size_t total = 0, failed = 0, at = 0;
    uint32_t *all;

    for (size_t i = 0; i < n; i++) {
        total += clients[i].n;
        failed += clients[i].failed;
    }
    all = calloc(total + 1, sizeof(*all));
    if (!all || total == 0)
        return 1;
    for (size_t i = 0; i < n; at += clients[i++].n)
        memcpy(all + at, clients[i].us10, clients[i].n * sizeof(*all));
    qsort(all, total, sizeof(*all), by_size);
    printf("{\"requests\": %zu, \"failed\": %zu, \"seconds\": %.3f, \"p50_ms\": %.4f, "
           "\"p99_ms\": %.4f}\n",
           total, failed, seconds, (double)all[total / 2] / 1e4,
           (double)all[total * 99 / 100] / 1e4);
    free(all);
    return 0;
}

static int load(int port, size_t n, double seconds, bool is_grpc)
{
    static struct client clients[MAX_CONNECTIONS];
    char *request = malloc(BODY_BYTES);
    size_t bytes = request ? fread(request, 1, BODY_BYTES, stdin) : 0;
    int64_t begin = now_ns();
    int rc;

    if (bytes == 0 || n == 0 || n > MAX_CONNECTIONS)
        return 1;
    for (size_t i = 0; i < n; i++) {
        clients[i] = (struct client){.request = request, .bytes = bytes, .port = port};
        clients[i].is_grpc = is_grpc;
        clients[i].end_ns = begin + (int64_t)(seconds * 1e9);
        clients[i].us10 = calloc(MAX_SAMPLES, sizeof(uint32_t));
        if (!clients[i].us10 ||
            pthread_create(&clients[i].thread, NULL, client_thread, &clients[i]))
            return 1;
    }
    for (size_t i = 0; i < n; i++)
        pthread_join(clients[i].thread, NULL);
    rc = report(clients, n, (double)(now_ns() - begin) / 1e9);
    for (size_t i = 0; i < n; i++)
        free(clients[i].us10);
    free(request);
    return rc;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "library") == 0)
        return serve_library((unsigned)strtoul(argv[2], NULL, 10), strtoul(argv[3], NULL, 10));
    if (argc == 2 && strcmp(argv[1], "socket") == 0)
        return serve_socket();
    if (argc == 5 && (strcmp(argv[1], "load") == 0 || strcmp(argv[1], "grpc") == 0))
        return load((int)strtol(argv[2], NULL, 10), strtoul(argv[3], NULL, 10),
                    strtod(argv[4], NULL), strcmp(argv[1], "grpc") == 0);
    fputs("usage: http library THREADS POOL | socket | load|grpc PORT N SECONDS < REQUEST\n",
          stderr);
    return 2;
}
