/* test_onnx_loops.c - Without it: a loop could give another number than its trips do, or a file
 * with a short body could take the importer's time and memory without end. */
/* uses: libmodel.a libdevice.a */
/* link: -lprotobuf-c -ldl */
#include "runtime/model/package.h"
#include "tests/unit/graph_nodes.h"
#include "tests/unit/onnx_bytes.h"

#define AS_INT 2
#define AS_INTS 7
#define AS_GRAPH 5

/* ---------------------------------------------------------------- bodies from texts */

static void put_names(struct sh_buf *b, unsigned field, const char *list)
{
    char words[256], *save = NULL;

    snprintf(words, sizeof(words), "%s", list);
    for (char *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save))
        put_text(b, field, strcmp(w, "-") == 0 ? "" : w);
}

static void put_node(struct sh_buf *graph, const char *op, const char *in, const char *out,
                     const struct sh_buf *attrs)
{
    struct sh_buf m;

    sh_buf_init(&m, 16 << 20);
    put_names(&m, 1, in);
    put_names(&m, 2, out);
    put_text(&m, 3, op);
    put_text(&m, 4, op);
    if (attrs && attrs->len)
        assert_ok(sh_buf_append(&m, attrs->data, attrs->len, NULL));
    put_msg(graph, NODE, &m);
    sh_buf_fini(&m);
}

static void put_values(struct sh_buf *graph, unsigned field, const char *list)
{
    char words[256], *save = NULL;
    struct sh_buf m;

    sh_buf_init(&m, 1 << 10);
    snprintf(words, sizeof(words), "%s", list);
    for (char *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        put_text(&m, 1, w);
        put_msg(graph, field, &m);
    }
    sh_buf_fini(&m);
}

/* Adds the attribute "body": a graph with these inputs, the nodes in `nodes`, and these outputs. */
static void put_body(struct sh_buf *attrs, const char *in, const struct sh_buf *nodes,
                     const char *out)
{
    struct sh_buf graph, attr;

    sh_buf_init(&graph, 16 << 20);
    sh_buf_init(&attr, 16 << 20);
    assert_ok(sh_buf_append(&graph, nodes->data ? nodes->data : "", nodes->len, NULL));
    put_values(&graph, INPUT, in);
    put_values(&graph, OUTPUT, out);
    put_text(&attr, 1, "body");
    put_msg(&attr, 6, &graph);
    put_int(&attr, 20, AS_GRAPH);
    put_msg(attrs, 5, &attr);
    sh_buf_fini(&graph);
    sh_buf_fini(&attr);
}

static void put_number(struct sh_buf *attrs, const char *name, int type, int64_t v)
{
    struct sh_buf attr;

    sh_buf_init(&attr, 1 << 10);
    put_text(&attr, 1, name);
    put_int(&attr, type == AS_INT ? 3 : 8, v);
    put_int(&attr, 20, type);
    put_msg(attrs, 5, &attr);
    sh_buf_fini(&attr);
}

/* A file with input x, [2, 3], and output y of rows by 3. */
struct made {
    struct file f;
    struct sh_buf nodes, attrs; /* of the body at work */
};

static void begin(struct made *m, int64_t rows)
{
    file_init(&m->f);
    file_value(&m->f, INPUT, "x", FLOAT, 2, (int64_t[]){2, 3});
    file_value(&m->f, OUTPUT, "y", FLOAT, 2, (int64_t[]){rows, 3});
    sh_buf_init(&m->nodes, 16 << 20);
    sh_buf_init(&m->attrs, 16 << 20);
}

static void int_const(struct made *m, const char *name, int64_t v)
{
    file_tensor(&m->f, name, INT64, 1, &v, sizeof(v));
}

/* The nodes so far as the body of a node of the graph; the body at work is empty then. */
static void loop(struct made *m, const char *op, const char *in, const char *body_in,
                 const char *body_out, const char *out)
{
    put_body(&m->attrs, body_in, &m->nodes, body_out);
    put_node(&m->f.graph, op, in, out, &m->attrs);
    sh_buf_reset(&m->nodes);
    sh_buf_reset(&m->attrs);
}

/* The same, but the node becomes part of the body around, of which it is the first. */
static void inner_loop(struct made *m, const char *op, const char *in, const char *body_in,
                       const char *body_out, const char *out)
{
    put_body(&m->attrs, body_in, &m->nodes, body_out);
    sh_buf_reset(&m->nodes);
    put_node(&m->nodes, op, in, out, &m->attrs);
    sh_buf_reset(&m->attrs);
}

static int read_made(struct made *m, struct graph **g, struct sh_err *err)
{
    *g = NULL;
    memset(err, 0, sizeof(*err));
    sh_buf_fini(&m->nodes);
    sh_buf_fini(&m->attrs);
    return file_read(&m->f, g, NULL, err);
}

/* Compiles and runs it. want: of x[i] = i - 2.5. */
static void check(const struct graph *g, const float *want, size_t n)
{
    const struct graph_sizes at = {.batch = 2};
    struct sh_err err = {0};
    struct program *p = NULL;
    struct dev_lib *lib;
    struct dev *d = open_cpu(&lib);
    float x[6], *y;
    size_t bytes;

    for (int i = 0; i < 6; i++)
        x[i] = (float)i - 2.5f;
    assert_ok_err(program_infer(d, g, &at, DEV_FP32, NULL, &p, &err), &err);
    y = run(d, p, x, &bytes);
    assert_int_equal(bytes, n * sizeof(*y));
    for (size_t i = 0; i < n; i++)
        assert_float_equal(y[i], want[i], 1e-5);
    free(y);
    program_free(p);
    dev_close(d);
    dev_lib_close(lib);
}

/* The same from a package, as a worker reads it. */
static void check_made(struct made *m, const float *want, size_t n)
{
    struct graph *g, *packed;
    struct sh_err err;

    assert_ok_err(read_made(m, &g, &err), &err);
    check(g, want, n);
    assert_ok_err(package_write(g, dir, &err), &err);
    assert_ok_err(package_read(dir, &packed, &err), &err);
    check(packed, want, n);
    graph_free(packed);
    graph_free(g);
}

/* ---------------------------------------------------------------- what they compute */

static void a_loop_is_made_as_often_as_its_count_says(void **state)
{
    struct made m;
    float want[6];
    (void)state;

    begin(&m, 2);
    int_const(&m, "n", 3);
    put_node(&m.nodes, "Add", "h x", "h2", NULL); /* x: of the graph around */
    put_node(&m.nodes, "Identity", "c", "c2", NULL);
    loop(&m, "Loop", "n - x", "i c h", "c2 h2", "y");
    for (int i = 0; i < 6; i++)
        want[i] = 4 * ((float)i - 2.5f);
    check_made(&m, want, 6);
}

static void rows_are_stacked_in_order(void **state)
{
    struct made m;
    float want[9];
    (void)state;

    begin(&m, 3);
    int_const(&m, "n", 3);
    int_const(&m, "zero", 0);
    put_node(&m.f.graph, "Gather", "x zero", "row", NULL); /* [1, 3] */
    put_node(&m.f.graph, "Squeeze", "row zero", "r", NULL);
    put_node(&m.nodes, "Add", "h r", "h2", NULL);
    put_node(&m.nodes, "Identity", "c", "c2", NULL);
    loop(&m, "Loop", "n - r", "i c h", "c2 h2 h2", "last y");
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < 3; i++)
            want[t * 3 + i] = (float)(t + 2) * ((float)i - 2.5f);
    check_made(&m, want, 9);
}

static void a_condition_of_data_stops_what_is_carried(void **state)
{
    static const float LIMIT = 9;
    struct made m;
    float want[6], h[6], max = 2.5f;
    (void)state;

    begin(&m, 2);
    int_const(&m, "n", 6);
    file_tensor(&m.f, "limit", FLOAT, 1, &LIMIT, sizeof(LIMIT));
    put_node(&m.nodes, "Add", "h h", "h2", NULL);
    put_node(&m.nodes, "ReduceMax", "h2", "top", NULL);
    put_node(&m.nodes, "Less", "top limit", "c2", NULL);
    loop(&m, "Loop", "n - x", "i c h", "c2 h2", "y");
    for (int i = 0; i < 6; i++)
        h[i] = (float)i - 2.5f;
    for (int t = 0; t < 6; t++) {
        for (int i = 0; i < 6; i++)
            h[i] *= 2;
        max *= 2;
        if (max >= LIMIT)
            break;
    }
    memcpy(want, h, sizeof(want));
    check_made(&m, want, 6);
}

static void loops_in_loops_see_all_that_is_around(void **state)
{
    struct made m;
    float want[6];
    (void)state;

    begin(&m, 2);
    int_const(&m, "n", 3);
    int_const(&m, "k", 2);
    /* y = x; 3 times: { z = 0; twice: z += y + x; y = z } */
    put_node(&m.nodes, "Add", "outer x", "sum", NULL);
    put_node(&m.nodes, "Add", "z sum", "z2", NULL);
    put_node(&m.nodes, "Identity", "d", "d2", NULL);
    inner_loop(&m, "Loop", "k - none", "j d z", "d2 z2", "after");
    put_node(&m.nodes, "Identity", "c", "c2", NULL);
    put_node(&m.f.graph, "Sub", "x x", "none", NULL);
    loop(&m, "Loop", "n - x", "i c outer", "c2 after", "y");
    for (int i = 0; i < 6; i++) {
        const float x = (float)i - 2.5f;

        want[i] = x;
        for (int t = 0; t < 3; t++)
            want[i] = 2 * (want[i] + x);
    }
    check_made(&m, want, 6);
}

static void no_trip_at_all_leaves_what_was_there(void **state)
{
    struct made m;
    float want[6];
    (void)state;

    begin(&m, 2);
    int_const(&m, "n", 0);
    put_node(&m.nodes, "Add", "h x", "h2", NULL);
    put_node(&m.nodes, "Identity", "c", "c2", NULL);
    loop(&m, "Loop", "n - x", "i c h", "c2 h2", "h3");
    put_node(&m.f.graph, "Neg", "h3", "y", NULL);
    for (int i = 0; i < 6; i++)
        want[i] = 2.5f - (float)i;
    check_made(&m, want, 6);
}

static void a_scan_goes_along_an_axis(void **state)
{
    for (int back = 0; back < 2; back++) {
        struct made m;
        float want[6];

        begin(&m, 2);
        int_const(&m, "zero", 0);
        int_const(&m, "one", 1);
        put_node(&m.f.graph, "Slice", "x zero one zero", "first", NULL);
        put_node(&m.f.graph, "Squeeze", "first zero", "r", NULL);
        put_node(&m.nodes, "Add", "h e", "h2", NULL);
        put_node(&m.nodes, "Identity", "h2", "o", NULL);
        put_number(&m.attrs, "num_scan_inputs", AS_INT, 1);
        put_number(&m.attrs, "scan_input_directions", AS_INTS, back);
        put_number(&m.attrs, "scan_output_directions", AS_INTS, back);
        loop(&m, "Scan", "r x", "h e", "h2 o", "last y");
        for (int i = 0; i < 3; i++) { /* row 0 is the first state */
            const float a = (float)i - 2.5f, b = a + 3;

            want[i] = back ? a + b + a : a + a;
            want[3 + i] = back ? a + b : a + a + b;
        }
        check_made(&m, want, 6);
    }
    (void)state;
}

static void sequences_are_gone_once_they_are_taken_apart(void **state)
{
    struct made m;
    struct graph *g, *at;
    struct sh_err err;
    float want[6];
    (void)state;

    for (int pass = 0; pass < 2; pass++) {
        begin(&m, 2);
        int_const(&m, "n", 3);
        int_const(&m, "last", -1);
        put_node(&m.f.graph, "SequenceConstruct", "x", "s", NULL);
        put_node(&m.nodes, "SequenceAt", "q last", "h", NULL);
        put_node(&m.nodes, "Add", "h x", "h2", NULL);
        put_node(&m.nodes, "SequenceInsert", "q h2", "q2", NULL);
        put_node(&m.nodes, "Identity", "c", "c2", NULL);
        loop(&m, "Loop", "n - s", "i c q", "c2 q2", "t");
        put_node(&m.f.graph, "SequenceErase", "t", "u", NULL); /* the last one */
        put_node(&m.f.graph, "SequenceAt", "u last", "y", NULL);
        for (int i = 0; i < 6; i++)
            want[i] = 3 * ((float)i - 2.5f);
        if (pass == 0) {
            check_made(&m, want, 6);
            continue;
        }
        assert_ok_err(read_made(&m, &g, &err), &err);
        assert_ok_err(graph_at_batch(g, 2, false, &at, &err), &err);
        assert_int_equal(at->n_nodes, 2); /* the last sum is not used */
        graph_free(at);
        graph_free(g);
    }
}

static void parts_larger_than_the_whole_are_one_part(void **state)
{
    struct made m;
    float want[6];
    (void)state;

    begin(&m, 2);
    int_const(&m, "list", INT64_MAX);
    int_const(&m, "first", 0);
    put_node(&m.f.graph, "Squeeze", "list", "most", NULL);
    put_node(&m.f.graph, "SplitToSequence", "x most", "s", NULL);
    put_node(&m.f.graph, "SequenceAt", "s first", "y", NULL);
    for (int i = 0; i < 6; i++)
        want[i] = (float)i - 2.5f;
    check_made(&m, want, 6);
}

/* ---------------------------------------------------------------- what is refused */

static void refuse(struct made *m, int rc, const char *why)
{
    struct graph *g, *at = NULL;
    struct sh_err err;
    int got = read_made(m, &g, &err);

    if (got == SH_OK)
        got = graph_at_batch(g, 2, false, &at, &err);
    assert_fails(got, rc, &err, why);
    graph_free(g);
}

static void bombs_are_refused(void **state)
{
    struct made m;
    (void)state;

    for (int nested = 0; nested < 2; nested++) {
        begin(&m, 2);
        int_const(&m, "n", nested ? 300 : INT64_MAX);
        put_node(&m.nodes, "Add", "h x", "h2", NULL);
        put_node(&m.nodes, "Identity", "c", "c2", NULL);
        if (nested) {
            inner_loop(&m, "Loop", "n - h0", "i c h", "c2 h2", "h3");
            put_node(&m.nodes, "Identity", "c0", "c3", NULL);
            loop(&m, "Loop", "n - x", "i c0 h0", "c3 h3", "y");
        } else {
            loop(&m, "Loop", "n - x", "i c h", "c2 h2", "y");
        }
        refuse(&m, SH_E_UNSUPPORTED, "more than 65536 nodes when they are unrolled");
    }
    begin(&m, 2); /* an empty body, without end */
    loop(&m, "Loop", "- - x", "i c h", "c h", "y");
    refuse(&m, SH_E_UNSUPPORTED, "more than 65536 nodes when they are unrolled");
    begin(&m, 2); /* 64 MiB of constants in each trip */
    int_const(&m, "n", 1000);
    int_const(&m, "large", 8 << 20);
    int_const(&m, "zero", 0);
    put_node(&m.nodes, "ConstantOfShape", "large", "l", NULL);
    put_node(&m.nodes, "Gather", "l zero", "e", NULL);
    put_node(&m.nodes, "Add", "h e", "h2", NULL);
    put_node(&m.nodes, "Identity", "c", "c2", NULL);
    loop(&m, "Loop", "n - x", "i c h", "c2 h2", "y");
    refuse(&m, SH_E_UNSUPPORTED, "constants of more than 1024 MiB");
    begin(&m, 2); /* a list that doubles the work of each step */
    int_const(&m, "n", 30000);
    put_node(&m.f.graph, "SequenceConstruct", "x", "s", NULL);
    put_node(&m.nodes, "SequenceInsert", "q x", "q2", NULL);
    put_node(&m.nodes, "Identity", "c", "c2", NULL);
    loop(&m, "Loop", "n - s", "i c q", "c2 q2", "t");
    put_node(&m.f.graph, "SequenceAt", "t n", "y", NULL);
    refuse(&m, SH_E_TOOBIG, "more than 4194304 elements");
}

static void loops_of_which_the_length_is_not_known_are_refused(void **state)
{
    struct made m;
    (void)state;

    begin(&m, 2);
    put_node(&m.nodes, "Add", "h h", "h2", NULL);
    put_node(&m.nodes, "ReduceMax", "h2", "top", NULL);
    put_node(&m.nodes, "Less", "top top", "c2", NULL);
    loop(&m, "Loop", "- - x", "i c h", "c2 h2", "y");
    refuse(&m, SH_E_UNSUPPORTED, "no trip count bounds it");
    begin(&m, 2);
    int_const(&m, "n", 4);
    put_node(&m.nodes, "ReduceMax", "h", "top", NULL);
    put_node(&m.nodes, "Less", "top top", "c2", NULL);
    loop(&m, "Loop", "n - x", "i c h", "c2 h top", "h9 y");
    refuse(&m, SH_E_UNSUPPORTED, "how many rows its outputs have");
    begin(&m, 2);
    int_const(&m, "n", 4);
    put_node(&m.nodes, "ReduceMax", "h", "top", NULL);
    put_node(&m.nodes, "Less", "top top", "c2", NULL);
    put_node(&m.nodes, "Unsqueeze", "h n0", "h2", NULL);
    int_const(&m, "n0", 0);
    loop(&m, "Loop", "n - x", "i c h", "c2 h2", "y");
    refuse(&m, SH_E_UNSUPPORTED, "changes its shape");
}

/* x, [2, 3], as a number of trips that the data decide, and what a loop may add rows to. */
static void begin_unknown(struct made *m)
{
    begin(m, 2);
    int_const(m, "n0", 0);
    int_const(m, "flat", -1);
    put_number(&m->attrs, "to", AS_INT, INT64);
    put_node(&m->f.graph, "Cast", "x", "ints", &m->attrs);
    sh_buf_reset(&m->attrs);
    put_node(&m->f.graph, "ReduceMax", "ints", "top", NULL);
    put_node(&m->f.graph, "Reshape", "top flat", "n", NULL);
    put_node(&m->f.graph, "Slice", "x n0 n0", "none", NULL);
}

/* What a body computes is compared with what is known, whatever it looks like. */
static void bodies_are_compared_within_limits(void **state)
{
    static const char *const WHY = "how often it runs";
    char in[64], out[64];
    struct sh_buf many;
    struct made m;
    (void)state;

    begin_unknown(&m); /* much that it is given */
    for (int i = 0; i < 100; i++) {
        snprintf(out, sizeof(out), "x%d", i);
        put_node(&m.f.graph, "Neg", "x", out, NULL);
        snprintf(in, sizeof(in), i ? "h%d x%d" : "h x0", i, i);
        snprintf(out, sizeof(out), "h%d", i + 1);
        put_node(&m.nodes, "Add", in, out, NULL);
    }
    loop(&m, "Loop", "n - none", "i c h", "c h100", "y");
    refuse(&m, SH_E_UNSUPPORTED, WHY);
    begin_unknown(&m); /* one node with much */
    sh_buf_init(&many, 1 << 20);
    for (int i = 0; i < 20000; i++)
        put_text(&many, 1, "h");
    put_text(&many, 2, "h2");
    put_text(&many, 3, "all");
    put_text(&many, 4, "Max");
    put_msg(&m.nodes, NODE, &many);
    sh_buf_fini(&many);
    loop(&m, "Loop", "n - none", "i c h", "c h2", "y");
    refuse(&m, SH_E_UNSUPPORTED, WHY);
    begin_unknown(&m); /* deep, and much that moves nothing */
    for (int i = 0; i < 2000; i++) {
        snprintf(in, sizeof(in), i ? "h%d" : "h", i);
        snprintf(out, sizeof(out), "h%d", i + 1);
        put_node(&m.nodes, i < 1000 ? "Identity" : "Neg", in, out, NULL);
    }
    loop(&m, "Loop", "n - none", "i c h", "c h2000", "y");
    refuse(&m, SH_E_UNSUPPORTED, WHY);
}

static void bodies_that_make_no_sense_are_refused(void **state)
{
    static const struct {
        const char *in, *body_in, *body_out, *out, *why;
    } BAD[] = {
        {"n - x", "i c h", "c h nowhere", "h9 y", "nothing computes output nowhere"},
        {"n - x", "i c c", "c c", "y", "two inputs of the body have one name"},
        {"n - x", "i c", "c i", "y", "wrong number of inputs or outputs"},
        {"n - x", "i c h", "c", "y", "wrong number of inputs or outputs"},
        {"n - x", "i c h", "c h", "y1 y", "wrong number of inputs or outputs"},
        {"n - -", "i c h", "c h", "y", "lacks the first value"},
        {"n x x", "i c h", "c h", "y", "must be one BOOL"},
        {"n - x", "i c h", "h h", "y", "must be one BOOL"},
        {"x - x", "i c h", "c h", "y", ""},
        {"n - gone", "i c h", "c h", "y", "before anything defines it"},
    };
    struct made m;
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(BAD); i++) {
        begin(&m, 2);
        int_const(&m, "n", 2);
        loop(&m, "Loop", BAD[i].in, BAD[i].body_in, BAD[i].body_out, BAD[i].out);
        refuse(&m, SH_E_INVALID, BAD[i].why);
    }
    begin(&m, 2); /* a capture that does not exist */
    int_const(&m, "n", 2);
    put_node(&m.nodes, "Add", "h gone", "h2", NULL);
    loop(&m, "Loop", "n - x", "i c h", "c h2", "y");
    refuse(&m, SH_E_INVALID, "before anything defines it");
    begin(&m, 2); /* a body that needs what its loop gives */
    int_const(&m, "n", 2);
    put_node(&m.nodes, "Add", "h y", "h2", NULL);
    loop(&m, "Loop", "n - x", "i c h", "c h2", "y");
    refuse(&m, SH_E_INVALID, "before anything defines it");
    begin(&m, 2); /* a name of around, given again */
    int_const(&m, "n", 2);
    put_node(&m.nodes, "Add", "h h", "x", NULL);
    loop(&m, "Loop", "n - x", "i c h", "c x", "y");
    refuse(&m, SH_E_INVALID, "");
    begin(&m, 2);
    put_node(&m.f.graph, "Loop", "- - x", "y", NULL);
    refuse(&m, SH_E_INVALID, "needs a body");
    begin(&m, 2);
    put_node(&m.f.graph, "Body", "x", "y", NULL);
    refuse(&m, SH_E_INVALID, "");
    begin(&m, 2);
    put_number(&m.attrs, "num_scan_inputs", AS_INT, 5);
    loop(&m, "Scan", "x", "h", "h", "y");
    refuse(&m, SH_E_INVALID, "wrong number of inputs or outputs");
}

static void bodies_are_not_nested_without_end(void **state)
{
    struct made m;
    (void)state;

    begin(&m, 2);
    int_const(&m, "n", 1);
    put_node(&m.nodes, "Identity", "x", "h0", NULL);
    for (int i = 0; i < 33; i++) {
        char out[16], h[16];

        snprintf(h, sizeof(h), "c h%d", i);
        snprintf(out, sizeof(out), "h%d", i + 1);
        inner_loop(&m, "Loop", "n - x", "i c g", h, out);
    }
    loop(&m, "Loop", "n - x", "i c g", "c h33", "y");
    refuse(&m, SH_E_INVALID, "too deeply");
}

static void sequences_are_no_tensors(void **state)
{
    static const struct {
        const char *op, *in, *why;
    } BAD[] = {
        {"Relu", "s", "a sequence where a tensor belongs"},
        {"SequenceConstruct", "s", "must be a tensor"},
        {"SequenceAt", "s far", "outside of a sequence of 2"},
        {"SequenceAt", "s s", "must be a tensor"},
        {"SequenceAt", "x far", "must be a sequence"},
        {"ConcatFromSequence", "e", "joins an empty sequence"},
        {"SequenceErase", "e", "empty sequence"},
        {"SequenceInsert", "s s", "must be a tensor"},
        {"SequenceInsert", "s x far", "outside of a sequence of 2"},
        {"SplitToSequence", "x far", "do not add up"},
        {"SplitToSequence", "s", "must be a tensor"},
        {"OptionalGetElement", "o", "empty optional"},
        {"Identity", "s", "is no tensor"},
        {"Scan", "s", "needs a body"},
    };
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(BAD); i++) {
        struct made m;
        struct graph *g, *at = NULL;
        struct sh_err err;
        int rc;

        begin(&m, 2);
        int_const(&m, "far", 7);
        put_node(&m.f.graph, "SequenceConstruct", "x x", "s", NULL);
        put_node(&m.f.graph, "SequenceEmpty", "", "e", NULL);
        put_node(&m.f.graph, "Optional", "", "o", NULL);
        put_node(&m.f.graph, BAD[i].op, BAD[i].in, "y", NULL);
        rc = read_made(&m, &g, &err);
        if (!rc)
            rc = graph_at_batch(g, 2, false, &at, &err);
        assert_true(rc == SH_E_INVALID || rc == SH_E_UNSUPPORTED);
        if (!strstr(err.msg, BAD[i].why))
            fail_msg("%s %s: %s", BAD[i].op, BAD[i].in, err.msg);
        graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(a_loop_is_made_as_often_as_its_count_says),
        T(rows_are_stacked_in_order),
        T(a_condition_of_data_stops_what_is_carried),
        T(loops_in_loops_see_all_that_is_around),
        T(no_trip_at_all_leaves_what_was_there),
        T(a_scan_goes_along_an_axis),
        T(sequences_are_gone_once_they_are_taken_apart),
        T(parts_larger_than_the_whole_are_one_part),
        T(bombs_are_refused),
        T(loops_of_which_the_length_is_not_known_are_refused),
        T(bodies_are_compared_within_limits),
        T(bodies_that_make_no_sense_are_refused),
        T(bodies_are_not_nested_without_end),
        T(sequences_are_no_tensors),
#undef T
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
