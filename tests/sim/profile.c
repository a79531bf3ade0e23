/* profile.c - see profile.h. */
#include "tests/sim/profile.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN 8u

struct reading {
    struct sim_profile *p;
    const char *path;
    unsigned line;
};

__attribute__((noreturn)) static void refuse(const struct reading *r, const char *why)
{
    fprintf(stderr, "sim: %s:%u: %s\n", r->path, r->line, why);
    exit(2);
}

static uint64_t scaled(uint64_t bytes)
{
    const uint64_t n = (bytes + SIM_SCALE - 1) / SIM_SCALE;

    return bytes ? (n + ALIGN - 1) / ALIGN * ALIGN : 0;
}

static struct sim_model *model(const struct reading *r)
{
    if (r->p->n_models == 0)
        refuse(r, "a model comes first");
    return &r->p->models[r->p->n_models - 1];
}

static void add_model(struct reading *r, const char *name, double compile_ms, double profile_ms)
{
    struct sim_model *m;

    if (r->p->n_models == SIM_MAX_MODELS)
        refuse(r, "too many models");
    m = &r->p->models[r->p->n_models++];
    snprintf(m->name, sizeof(m->name), "%s", name);
    m->compile_ns = (int64_t)(compile_ms * 1e6);
    m->profile_ns = (int64_t)(profile_ms * 1e6);
}

static void add_layers(const struct reading *r, uint32_t n, uint64_t bytes, int64_t ns)
{
    struct sim_model *m = model(r);

    for (; n > 0; n--) {
        if (m->n_layers == SIM_MAX_LAYERS)
            refuse(r, "too many layers");
        m->layer_ends[m->n_layers] =
            (m->n_layers ? m->layer_ends[m->n_layers - 1] : 0) + scaled(bytes);
        m->layer_ns[m->n_layers++] = ns;
    }
}

static void add_ops(const struct reading *r, uint32_t n, int64_t ns, bool is_update)
{
    struct sim_model *m = model(r);

    if (is_update && m->update == 0)
        m->update = m->n_ops;
    for (; n > 0; n--) {
        if (m->n_ops == SIM_MAX_OPS)
            refuse(r, "too many operations");
        m->op_ns[m->n_ops++] = ns;
    }
}

static void add_size(const struct reading *r, uint32_t batch, uint64_t bytes, double times)
{
    struct sim_model *m = model(r);

    if (m->n_sizes == SIM_MAX_SIZES)
        refuse(r, "too many batch sizes");
    m->sizes[m->n_sizes++] = (struct sim_size){batch, scaled(bytes), times};
}

static double ns_per_byte(double gb_per_s)
{
    return (double)SIM_SCALE / gb_per_s;
}

static bool read_model_line(struct reading *r, const char *line)
{
    char name[32];
    double a, b;
    uint64_t x, y;
    uint32_t n;
    int64_t ns;

    if (sscanf(line, "model %31s %lf %lf", name, &a, &b) == 3) {
        add_model(r, name, a, b);
    } else if (sscanf(line, "io %" SCNu64 " %" SCNu64, &x, &y) == 2) {
        model(r)->in_bytes = scaled(x);
        model(r)->out_bytes = scaled(y);
    } else if (sscanf(line, "layers %" SCNu32 " %" SCNu64 " %" SCNd64, &n, &x, &ns) == 3) {
        add_layers(r, n, x, ns);
    } else if (sscanf(line, "batch %" SCNu32 " %" SCNu64 " %lf", &n, &x, &a) == 3) {
        add_size(r, n, x, a);
    } else if (sscanf(line, "train %" SCNu64 " %" SCNu64 " %lf", &x, &y, &a) == 3) {
        model(r)->state_bytes = scaled(x);
        model(r)->train_ws_bytes = scaled(y);
        model(r)->train_compile_ns = (int64_t)(a * 1e6);
    } else if (sscanf(line, "operations %" SCNu32 " %" SCNd64, &n, &ns) == 2) {
        add_ops(r, n, ns, false);
    } else if (sscanf(line, "updates %" SCNu32 " %" SCNd64, &n, &ns) == 2) {
        add_ops(r, n, ns, true);
    } else {
        return false;
    }
    return true;
}

static void read_line(struct reading *r, const char *line)
{
    struct sim_profile *p = r->p;
    double a, b, us;
    uint64_t n;

    if (sscanf(line, "device %47s %" SCNu64, p->device, &n) == 2) {
        p->device_bytes = n;
    } else if (sscanf(line, "link %lf %lf %lf", &a, &b, &us) == 3) {
        p->to_ns_per_byte = ns_per_byte(a);
        p->from_ns_per_byte = ns_per_byte(b);
        p->latency_ns = (int64_t)(us * 1e3);
    } else if (sscanf(line, "memory %lf", &a) == 1) {
        p->memory_ns_per_byte = ns_per_byte(a);
    } else if (!read_model_line(r, line)) {
        refuse(r, "not a line of a profile; see tests/sim/profile.h");
    }
}

const struct sim_profile *sim_profile_read(const char *path)
{
    struct reading r = {.p = calloc(1, sizeof(*r.p)), .path = path};
    FILE *f = fopen(path, "re");
    char line[256];

    if (!f || !r.p)
        refuse(&r, "could not be read");
    while (fgets(line, sizeof(line), f)) {
        r.line++;
        line[strcspn(line, "#\n")] = '\0';
        if (line[strspn(line, " ")] != '\0')
            read_line(&r, line);
    }
    fclose(f);
    if (r.p->n_models == 0 || !(r.p->to_ns_per_byte > 0))
        refuse(&r, "it has no model or no link");
    return r.p;
}

const struct sim_model *sim_profile_model(const struct sim_profile *p, const char *name)
{
    for (uint32_t i = 0; i < p->n_models; i++)
        if (strcmp(p->models[i].name, name) == 0)
            return &p->models[i];
    return NULL;
}
