/* onnx_bytes.h - ONNX files as bytes, for the tests of who reads them: good ones, and ones that no
 * exporter would write. Each test works in a folder of its own. */
#ifndef SH_TESTS_UNIT_ONNX_BYTES_H
#define SH_TESTS_UNIT_ONNX_BYTES_H

#include "common/buf.h"
#include "runtime/model/onnx.h"
#include "tests/unit/sh_test.h"

#define PATH_BYTES 128

static char dir[SH_TEST_DIR_BYTES];

static inline const char *path_of(const char *name, char *out)
{
    snprintf(out, PATH_BYTES, "%s/%s", dir, name);
    return out;
}

static inline int setup(void **state)
{
    (void)state;
    sh_test_dir_make(dir);
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    sh_test_dir_remove(dir);
    return 0;
}

/* ---------------------------------------------------------------- a protobuf writer */

static inline void put_varint(struct sh_buf *b, uint64_t v)
{
    do {
        char byte = (char)((v & 0x7F) | (v > 0x7F ? 0x80 : 0));

        assert_ok(sh_buf_append(b, &byte, 1, NULL));
        v >>= 7;
    } while (v);
}

static inline void put_int(struct sh_buf *b, unsigned field, int64_t v)
{
    put_varint(b, field << 3);
    put_varint(b, (uint64_t)v);
}

static inline void put_bytes(struct sh_buf *b, unsigned field, const void *p, size_t n)
{
    put_varint(b, field << 3 | 2);
    put_varint(b, n);
    assert_ok(sh_buf_append(b, p, n, NULL));
}

static inline void put_text(struct sh_buf *b, unsigned field, const char *s)
{
    put_bytes(b, field, s, strlen(s));
}

/* Appends message `in` as a field of `b` and empties it. */
static inline void put_msg(struct sh_buf *b, unsigned field, struct sh_buf *in)
{
    put_bytes(b, field, in->data ? in->data : "", in->len);
    sh_buf_reset(in);
}

enum { NODE = 1, INITIALIZER = 5, INPUT = 11, OUTPUT = 12 }; /* fields of GraphProto */
enum { FLOAT = 1, INT32 = 6, INT64 = 7, STRING = 8, BOOL = 9, FLOAT16 = 10 };

/* A file of one graph: [input x] [nodes and initializers given by the test] [output y]. */
struct file {
    struct sh_buf graph, msg, sub, sub2, sub3;
    int64_t opset;
    const char *producer; /* NULL: not said */
};

/* An input or output; -1: an axis that is open, as the batch if it is the first. */
static inline void file_value(struct file *f, unsigned field, const char *name, int type, int rank,
                              const int64_t *dims)
{
    for (int i = 0; i < rank; i++) {
        char axis[16];

        snprintf(axis, sizeof(axis), "d%d", i);
        if (dims[i] == -1)
            put_text(&f->sub3, 2, i ? axis : "batch");
        else
            put_int(&f->sub3, 1, dims[i]);
        put_msg(&f->sub2, 1, &f->sub3);
    }
    put_int(&f->sub, 1, type);
    put_msg(&f->sub, 2, &f->sub2);
    put_msg(&f->sub2, 1, &f->sub);
    put_text(&f->msg, 1, name);
    put_msg(&f->msg, 2, &f->sub2);
    put_msg(&f->graph, field, &f->msg);
}

static inline void file_init(struct file *f)
{
    memset(f, 0, sizeof(*f));
    sh_buf_init(&f->graph, 64 << 20);
    sh_buf_init(&f->msg, 1 << 20);
    sh_buf_init(&f->sub, 1 << 20);
    sh_buf_init(&f->sub2, 1 << 20);
    sh_buf_init(&f->sub3, 1 << 20);
    f->opset = 17;
}

/* in: names with blanks between; - is an input that is absent. */
static inline void file_node(struct file *f, const char *domain, const char *op, const char *in,
                             const char *out)
{
    char words[128], *save = NULL;

    snprintf(words, sizeof(words), "%s", in);
    for (char *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save))
        put_text(&f->msg, 1, strcmp(w, "-") == 0 ? "" : w);
    put_text(&f->msg, 2, out);
    put_text(&f->msg, 3, out);
    put_text(&f->msg, 4, op);
    if (domain[0])
        put_text(&f->msg, 7, domain);
    put_msg(&f->graph, NODE, &f->msg);
}

/* A tensor [n] with raw data. */
static inline void file_tensor(struct file *f, const char *name, int type, int64_t n, const void *p,
                               size_t bytes)
{
    put_int(&f->msg, 1, n);
    put_int(&f->msg, 2, type);
    put_text(&f->msg, 8, name);
    put_bytes(&f->msg, 9, p, bytes);
    put_msg(&f->graph, INITIALIZER, &f->msg);
}

/* The whole file is in f->msg then. */
static inline void file_end(struct file *f)
{
    put_int(&f->msg, 1, 8);
    if (f->producer)
        put_text(&f->msg, 2, f->producer);
    put_int(&f->sub, 2, f->opset);
    put_msg(&f->msg, 8, &f->sub);
    put_msg(&f->msg, 7, &f->graph);
}

static inline void file_fini(struct file *f)
{
    sh_buf_fini(&f->graph);
    sh_buf_fini(&f->msg);
    sh_buf_fini(&f->sub);
    sh_buf_fini(&f->sub2);
    sh_buf_fini(&f->sub3);
}

/* Writes the file and reads it. *list may be NULL. Frees f. */
static inline int file_read(struct file *f, struct graph **g, char **list, struct sh_err *err)
{
    char path[PATH_BYTES];
    int rc;

    file_end(f);
    sh_test_write_file(path_of("made.onnx", path), f->msg.data, f->msg.len);
    rc = onnx_read_list(path, true, g, list, err);
    file_fini(f);
    return rc;
}

static inline void file_begin(struct file *f)
{
    file_init(f);
    file_value(f, INPUT, "x", FLOAT, 2, (int64_t[]){-1, 3});
    file_value(f, OUTPUT, "y", FLOAT, 2, (int64_t[]){-1, 3});
}

#endif
