/* session.c - a model, compiled on a device of its own. */
#include "common/clock.h"
#include "common/mem.h"
#include "runtime/model/onnx.h"
#include "runtime/run/run.h"

#include <stdio.h>
#include <stdlib.h>

int session_open(const struct run_conf *c, struct session *s, struct sh_err *err)
{
    int rc;

    *s = (struct session){0};
    if (!c->model)
        return SH_FAIL(err, SH_E_INVALID, "give the model with --model FILE.onnx");
    rc = onnx_read(c->model, &s->graph, err);
    if (!rc)
        rc = dev_lib_open(c->device, &s->lib, err);
    return rc;
}

static int bind_file_tensor(struct graph *g, uint32_t i, const struct sh_st *file,
                            struct sh_err *err)
{
    const struct graph_value *v = &g->values[g->inputs[i]];
    const struct sh_st_tensor *t = sh_st_find(file, v->name);

    if (!t || t->dtype != v->dtype)
        return SH_FAIL(err, SH_E_INVALID,
                       "input \"%s\" decides shapes, and the file does not have it as %s", v->name,
                       sh_dtype_st(v->dtype));
    return graph_bind_input(g, i, t->data, t->bytes, err);
}

int session_bind(struct session *s, const struct sh_st *file, struct sh_err *err)
{
    struct graph *g = s->graph;
    bool *wanted = calloc((size_t)g->n_inputs + 1, sizeof(*wanted)), any = true;
    int rc = SH_OK;

    if (!wanted)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %u marks", g->n_inputs);
    while (!rc && any) { /* each round leaves fewer inputs */
        memset(wanted, 0, (size_t)g->n_inputs * sizeof(*wanted));
        rc = graph_deciding_inputs(g, wanted, &any, err);
        for (uint32_t i = g->n_inputs; i-- > 0 && !rc;)
            if (wanted[i])
                rc = bind_file_tensor(g, i, file, err);
    }
    free(wanted);
    return rc;
}

void session_close(struct session *s)
{
    program_free(s->program);
    dev_close(s->dev);
    graph_free(s->graph);
    dev_lib_close(s->lib);
    *s = (struct session){0};
}

static int compile_once(struct session *s, const struct run_conf *c, int64_t batch,
                        const struct train_spec *t, size_t arena_bytes, struct sh_err *err)
{
    struct dev_conf conf = {.ordinal = (uint32_t)c->ordinal,
                            .threads = (uint32_t)c->threads,
                            .arena_bytes = arena_bytes,
                            .deterministic = c->deterministic,
                            .verify_launches = c->verify_launches,
                            .tune_path = c->tune};
    const struct graph_sizes at = {.batch = batch, .of = s->sizes};
    struct train_spec spec = t ? *t : (struct train_spec){0};
    enum dev_precision precision = DEV_FP32;
    int rc = t ? SH_OK : dev_precision_parse(c->precision, &precision, err);

    spec.sizes = s->sizes;
    program_free(s->program);
    s->program = NULL;
    dev_close(s->dev);
    s->dev = NULL;
    if (!rc)
        rc = dev_open(s->lib, &conf, &s->dev, err);
    if (!rc && t)
        rc = program_train(s->dev, s->graph, &spec, &s->program, err);
    else if (!rc)
        rc = program_infer(s->dev, s->graph, &at, precision, NULL, &s->program, err);
    return rc;
}

/* ---------------------------------------------------------------- memory */

/* Before the memory is taken: a machine without it would stop this program, or another one. need:
 * bytes on the device. */
static int check_memory(const struct session *s, const struct run_conf *c, size_t need,
                        struct sh_err *err)
{
    const struct program *p = s->program;
    const uint64_t most = c->memory ? (uint64_t)c->memory : run_free_memory("");
    size_t host = strcmp(c->device, "cpu") == 0 ? need : 0;

    host += SH_MAX(program_image_bytes(p), program_state_bytes(p)); /* on the way to the device */
    for (size_t i = 0; i < program_n_outputs(p); i++)
        host += program_output(p, i)->bytes;
    if (host <= most)
        return SH_OK;
    return SH_FAIL(err, SH_E_NOMEM,
                   "the model takes %.0f MB of memory, and %s %.0f MB; fewer samples (--batch) or "
                   "smaller sizes take less",
                   (double)host / 1e6, c->memory ? "--memory-bytes allows" : "free are",
                   (double)most / 1e6);
}

static int fill_arena(struct session *s, size_t offset, size_t bytes,
                      int (*write)(struct program *, void *, struct sh_err *), struct sh_err *err)
{
    void *host;
    int rc;

    if (bytes == 0)
        return SH_OK;
    host = malloc(bytes);
    if (!host)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu bytes", bytes);
    rc = write(s->program, host, err);
    if (!rc)
        rc = dev_upload(s->dev, offset, host, bytes, err);
    if (!rc)
        rc = dev_sync(s->dev, err);
    free(host);
    return rc;
}

/* As a worker does, so that what is run here is what a worker runs. */
static int warm_session(struct session *s, struct sh_err *err)
{
    struct sh_err why = {0};
    const int64_t start = sh_clock_ns();
    int rc = program_warm(s->program, NULL, &why);

    s->warm_ns = sh_clock_ns() - start;
    if (rc == SH_OK || rc == SH_E_DEVMEM) /* without the memory for it the program is as good */
        return SH_OK;
    *err = why;
    return rc;
}

int session_compile(struct session *s, const struct run_conf *c, int64_t batch,
                    const struct train_spec *t, struct sh_err *err)
{
    size_t image, state, need;
    int rc;

    /* How much memory it takes is known after compiling, and compiling needs a device: twice. */
    rc = compile_once(s, c, batch, t, DEV_BLOCK, err);
    if (rc)
        return rc;
    image = SH_ALIGN_UP(program_image_bytes(s->program), DEV_BLOCK);
    state = SH_ALIGN_UP(program_state_bytes(s->program), DEV_BLOCK);
    need = image + state + SH_ALIGN_UP(program_workspace_bytes(s->program), DEV_BLOCK);
    rc = check_memory(s, c, need, err);
    if (!rc)
        rc = compile_once(s, c, batch, t, SH_MAX(need, DEV_BLOCK), err);
    if (rc)
        return rc;
    s->bases = (struct dev_bases){.image = 0, .state = image, .workspace = image + state};
    rc = warm_session(s, err);
    if (!rc)
        rc = fill_arena(s, s->bases.image, program_image_bytes(s->program), program_write_image,
                        err);
    if (!rc)
        rc = fill_arena(s, s->bases.state, program_state_bytes(s->program), program_write_state,
                        err);
    return rc;
}

int session_batch(const struct session *s, const struct run_conf *c, int64_t n_samples,
                  int64_t *out, struct sh_err *err)
{
    const int64_t fixed = graph_fixed_batch(s->graph);

    if (fixed && c->batch && c->batch != fixed)
        return SH_FAIL(err, SH_E_INVALID,
                       "the model has a fixed batch size of %lld, so --batch cannot be %lld",
                       (long long)fixed, (long long)c->batch);
    *out = fixed ? fixed : c->batch ? c->batch : SH_MAX(n_samples, (int64_t)1);
    if (n_samples && n_samples != *out)
        fprintf(stderr, "shunt-run: %s has %lld samples, the batch size is %lld (%s)\n", c->inputs,
                (long long)n_samples, (long long)*out, fixed ? "fixed by the model" : "--batch");
    return SH_OK;
}
