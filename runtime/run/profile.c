/* profile.c - shunt-run profile: time and bytes of each layer, and the grouping that they give. */
#include "common/mem.h"
#include "runtime/group.h"
#include "runtime/pack/layers.h"
#include "runtime/run/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MEASURE_BYTES ((size_t)64 << 20)

struct profile {
    struct session s;
    double *op_ns;
    int64_t *copy_ns, *compute_ns;
    uint32_t n;               /* layers */
    double alpha_ns, beta_ns; /* of a copy: alpha + bytes * beta */
    struct group_plan groups;
};

static int copy_cost(struct profile *f, const struct run_conf *c, struct sh_err *err)
{
    struct dev_mem_conf conf = {
        .ordinal = (uint32_t)c->ordinal, .pool_bytes = MEASURE_BYTES, .n_lanes = 2};
    struct dev_mem *m = NULL;
    int rc;

    if (c->copy_gb_per_s > 0) {
        f->alpha_ns = c->copy_latency_us * 1e3;
        f->beta_ns = 1.0 / c->copy_gb_per_s;
        return SH_OK;
    }
    rc = dev_mem_open(f->s.lib, &conf, &m, err);
    if (!rc)
        rc = dev_mem_measure(m, 0, &f->alpha_ns, &f->beta_ns, err);
    dev_mem_close(m);
    return rc;
}

static uint32_t layer_end_op(const struct profile *f, uint32_t layer)
{
    return layer + 1 < f->n ? program_layer_begin(f->s.program, layer + 1)
                            : program_n_ops(f->s.program);
}

static uint64_t bytes_of_layer(const struct profile *f, uint32_t i)
{
    return layer_bytes(program_layer_ends(f->s.program), i);
}

static int layer_times(struct profile *f, struct sh_err *err)
{
    f->copy_ns = calloc(f->n + 1u, sizeof(*f->copy_ns));
    f->compute_ns = calloc(f->n + 1u, sizeof(*f->compute_ns));
    if (!f->copy_ns || !f->compute_ns)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the times of %u layers", f->n);
    for (uint32_t i = 0; i < f->n; i++) {
        double ns = 0;

        for (uint32_t op = program_layer_begin(f->s.program, i); op < layer_end_op(f, i); op++)
            ns += f->op_ns[op];
        f->compute_ns[i] = (int64_t)llround(ns);
        f->copy_ns[i] = (int64_t)llround((double)bytes_of_layer(f, i) * f->beta_ns);
    }
    return SH_OK;
}

static struct group_way one_link(const struct profile *f)
{
    return (struct group_way){.alpha_ns = (int64_t)llround(f->alpha_ns), .copy_ns = f->copy_ns};
}

/* The inputs are zero: the time that an operation takes does not depend on values. */
static int measure_layers(struct profile *f, const struct run_conf *c, struct sh_err *err)
{
    int rc =
        dev_fill(f->s.dev, f->s.bases.workspace, 0, program_workspace_bytes(f->s.program), err);

    f->n = program_n_layers(f->s.program);
    f->op_ns = calloc(program_n_ops(f->s.program) + 1u, sizeof(*f->op_ns));
    if (!rc && !f->op_ns)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the times of the operations");
    if (!rc)
        rc = program_profile(f->s.program, &f->s.bases, (uint32_t)c->repeat, f->op_ns, err);
    if (!rc)
        rc = copy_cost(f, c, err);
    if (!rc)
        rc = layer_times(f, err);
    if (!rc && f->n) {
        const struct group_way link = one_link(f);

        rc = group_solve(&link, 1, f->compute_ns, f->n, &f->groups, err);
    }
    return rc;
}

static uint32_t group_of(const struct profile *f, uint32_t layer)
{
    uint32_t g = 0;

    while (g + 1 < f->groups.n && layer >= f->groups.ends[g])
        g++;
    return g;
}

struct totals {
    int64_t compute_ns, copy_ns, one_group_ns, per_layer_ns;
};

static int totals_of(const struct profile *f, struct totals *t, struct sh_err *err)
{
    const struct group_way link = one_link(f);
    uint32_t *each = calloc(f->n + 1u, sizeof(*each));

    *t = (struct totals){0};
    if (!each)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %u groups", f->n);
    for (uint32_t i = 0; i < f->n; i++) {
        each[i] = i + 1;
        t->compute_ns += f->compute_ns[i];
        t->copy_ns += f->copy_ns[i];
    }
    if (f->n) {
        t->per_layer_ns = group_evaluate(&link, 1, f->compute_ns, f->n, each, f->n);
        t->one_group_ns = group_evaluate(&link, 1, f->compute_ns, f->n, &f->n, 1);
    }
    free(each);
    return SH_OK;
}

static void print_layer_table(const struct profile *f, const struct totals *t)
{
    const struct program *p = f->s.program;

    printf("%5s %5s %12s %12s %12s %5s  %s\n", "layer", "ops", "bytes", "compute us", "copy us",
           "group", "first operation");
    for (uint32_t i = 0; i < f->n; i++)
        printf("%5u %5u %12llu %12.1f %12.1f %5u  %s\n", i,
               layer_end_op(f, i) - program_layer_begin(p, i),
               (unsigned long long)bytes_of_layer(f, i), (double)f->compute_ns[i] / 1e3,
               (double)f->copy_ns[i] / 1e3, group_of(f, i),
               program_op_label(p, program_layer_begin(p, i)));
    printf("\n%u operations, image %zu bytes, workspace %zu bytes\n", program_n_ops(p),
           program_image_bytes(p), program_workspace_bytes(p));
    printf("compute %.3f ms, copy %.3f ms at %.2f GB/s and %.1f us each\n",
           (double)t->compute_ns / 1e6, (double)t->copy_ns / 1e6,
           f->beta_ns > 0 ? 1.0 / f->beta_ns : 0.0, f->alpha_ns / 1e3);
    printf("start to result: %u groups chosen %.3f ms, one group %.3f ms, one per layer %.3f ms\n",
           f->groups.n, (double)f->groups.finish_ns / 1e6, (double)t->one_group_ns / 1e6,
           (double)t->per_layer_ns / 1e6);
}

static json_t *layers_json(const struct profile *f)
{
    json_t *list = json_array();

    for (uint32_t i = 0; list && i < f->n; i++)
        json_array_append_new(
            list,
            json_pack("{s:s, s:I, s:I, s:I, s:I}", "name",
                      program_op_label(f->s.program, program_layer_begin(f->s.program, i)), "bytes",
                      (json_int_t)bytes_of_layer(f, i), "compute_ns", (json_int_t)f->compute_ns[i],
                      "copy_ns", (json_int_t)f->copy_ns[i], "group", (json_int_t)group_of(f, i)));
    return list;
}

static json_t *profile_ops_json(const struct profile *f)
{
    json_t *list = json_array();

    for (uint32_t i = 0; list && i < program_n_ops(f->s.program); i++)
        json_array_append_new(
            list,
            json_pack("{s:s, s:f}", "name", program_op_label(f->s.program, i), "ns", f->op_ns[i]));
    return list;
}

static int write_report(const struct profile *f, const struct totals *t, const char *path,
                        struct sh_err *err)
{
    json_t *j = json_pack(
        "{s:o, s:o, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "layers", layers_json(f),
        "operations", profile_ops_json(f), "alpha_ns", f->alpha_ns, "beta_ns_per_byte", f->beta_ns,
        "image_bytes", (json_int_t)program_image_bytes(f->s.program), "workspace_bytes",
        (json_int_t)program_workspace_bytes(f->s.program), "groups", (json_int_t)f->groups.n,
        "finish_ns", (json_int_t)f->groups.finish_ns, "one_group_ns", (json_int_t)t->one_group_ns,
        "per_layer_ns", (json_int_t)t->per_layer_ns, "compute_ns", (json_int_t)t->compute_ns);
    int rc = SH_OK;

    if (!j)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not put the report together");
    else if (json_dump_file(j, path, JSON_INDENT(1)))
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not write %s", path);
    json_decref(j);
    return rc;
}

int profile_run(const struct run_conf *c, struct sh_err *err)
{
    struct profile f = {0};
    struct totals t;
    int64_t batch = 1;
    int rc = session_open(c, &f.s, err);

    if (!rc)
        rc = session_batch(&f.s, c, 0, &batch, err);
    if (!rc)
        rc = session_compile(&f.s, c, batch, NULL, err);
    if (!rc)
        rc = measure_layers(&f, c, err);
    if (!rc)
        rc = totals_of(&f, &t, err);
    if (!rc)
        print_layer_table(&f, &t);
    if (!rc && c->report)
        rc = write_report(&f, &t, c->report, err);
    group_plan_fini(&f.groups);
    free(f.op_ns);
    free(f.copy_ns);
    free(f.compute_ns);
    session_close(&f.s);
    return rc;
}
