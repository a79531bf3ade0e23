/* infer.c - the body of an inference request: its JSON, and the bytes of binary tensors behind it.
 * The first two bytes of the input are the length of the JSON. Every input of the model, filled up,
 * has the room that was promised for it, and what was read as numbers is written as JSON. */
/* uses: api/infer/infer_plan.o api/infer/infer_json.o */
#include "api/infer/infer_plan.h"
#include "common/buf.h"
#include "common/json.h"
#include "common/mem.h"
#include "tests/fuzz/targets/fuzz.h"

#define MAX_JSON 65536
#define MAX_SIZE 64 /* of a symbol */

static struct cat_tensor ins[] = {
    {.name = "x", .dtype = SH_F32, .rank = 2, .dims = {-1, 2}},
    {.name = "h", .dtype = SH_F16, .rank = 2, .dims = {-1, 3}},
    {.name = "k", .dtype = SH_I64, .rank = 1, .dims = {-1}},
    {.name = "b", .dtype = SH_BOOL, .rank = 1, .dims = {-1}},
};
static struct cat_tensor outs[] = {
    {.name = "y", .dtype = SH_F32, .rank = 2, .dims = {-1, 2}},
    {.name = "z", .dtype = SH_U8, .rank = 1, .dims = {-1}},
};
static const struct cat_version MODEL = {.version = 3,
                                         .max_batch = 4,
                                         .model = "m",
                                         .inputs = ins,
                                         .n_inputs = SH_ARRAY_LEN(ins),
                                         .outputs = outs,
                                         .n_outputs = SH_ARRAY_LEN(outs),
                                         .batched = true,
                                         .ready = true,
                                         .usable = true};

static void take_input(const struct infer_plan *p, size_t k)
{
    const struct plan_input *in = &p->in[k];
    const size_t n = in->bytes / sh_dtype_bytes(ins[k].dtype);
    char *to = copy_of("", 0, 0);
    struct sh_err err = {0};
    struct sh_buf text;
    int rc = SH_OK;

    free(to);
    to = calloc(1, in->run_bytes + (in->run_bytes == 0));
    must(to != NULL);
    sh_buf_init(&text, 1u << 20);
    if (in->data)
        rc = tensor_from_json(&ins[k], in->data, to, n, &err);
    else if (in->binary)
        rc = plan_pad(&ins[k], p, in->binary, to, &err);
    must_say_why(rc, &err);
    if (!rc) {
        rc = tensor_to_json(&ins[k], to, n, &text, &err);
        must_say_why(rc, &err);
    }
    sh_buf_fini(&text);
    free(to);
}

static void reply(struct infer_plan *p)
{
    char *out = calloc(1, p->all_out_bytes + 1);
    struct sh_err err = {0};
    struct sh_buf head;
    bool binary;

    must(out != NULL);
    sh_buf_init(&head, 1u << 20);
    must_say_why(plan_cut(&MODEL, p, out, &err), &err);
    if (!err.rc)
        must_say_why(plan_reply(&MODEL, p, out, &head, &binary, &err), &err);
    sh_buf_fini(&head);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const struct plan_limits most = {MAX_JSON, MAX_SIZE};
    struct infer_plan p = {0};
    struct sh_err err = {0};
    size_t json, body;
    char *own;
    int rc;

    if (n < 2)
        return 0;
    body = n - 2;
    json = SH_MIN((size_t)data[0] | (size_t)data[1] << 8, body);
    own = copy_of(data + 2, body, 0);
    rc = plan_read(&MODEL, own, body, json, &most, &p, &err);
    must_say_why(rc, &err);
    for (size_t k = 0; !rc && k < SH_ARRAY_LEN(ins); k++) {
        const struct plan_input *in = &p.in[k];

        must(!in->binary || (in->binary >= own + json && in->bytes <= body &&
                             in->binary + in->bytes <= own + body));
        take_input(&p, k);
    }
    if (!rc)
        reply(&p);
    plan_fini(&p);
    free(own);
    return 0;
}
