/* main.c - shunt-zoo: writes a standard architecture as an ONNX file. */
#include "common/conf.h"
#include "common/mem.h"
#include "runtime/model/onnx.h"
#include "zoo/zoo.h"

#include <stdio.h>

struct zoo_conf {
    char *out, *form;
    int64_t seed, seq;
};

static const struct sh_conf_opt OPTS[] = {
    SH_OPT_STR(struct zoo_conf, out, "out", NULL, 0, "ONNX file to write"),
    SH_OPT_STR(struct zoo_conf, form, "form", "inference", 0, "inference or training"),
    SH_OPT_INT(struct zoo_conf, seed, "seed", 1, 0, 1e15, 0, "seed of the random weights"),
    SH_OPT_INT(struct zoo_conf, seq, "seq", 128, 1, 512, 0, "tokens of a sequence (bert-base)"),
};

static const struct sh_conf_table TABLE = {
    "shunt-zoo",
    "Write a standard model as ONNX with seeded random weights: shunt-zoo MODEL --out FILE, with "
    "MODEL one of resnet18 resnet50 resnet152 inception-v3 bert-base digits-cnn.",
    OPTS, SH_ARRAY_LEN(OPTS), sizeof(struct zoo_conf)};

static int build_model(struct zoo *z, const char *model, const struct zoo_conf *c,
                       struct graph **out, struct sh_err *err)
{
    if (strcmp(model, "resnet18") == 0)
        return zoo_resnet(z, 18, out);
    if (strcmp(model, "resnet50") == 0)
        return zoo_resnet(z, 50, out);
    if (strcmp(model, "resnet152") == 0)
        return zoo_resnet(z, 152, out);
    if (strcmp(model, "inception-v3") == 0)
        return zoo_inception_v3(z, out);
    if (strcmp(model, "bert-base") == 0)
        return zoo_bert_base(z, c->seq, out);
    if (strcmp(model, "digits-cnn") == 0)
        return zoo_digits_cnn(z, out);
    return SH_FAIL(err, SH_E_INVALID, "there is no model \"%s\"; see shunt-zoo --help", model);
}

static int run_zoo(const struct zoo_conf *c, char **rest, int n_rest, struct sh_err *err)
{
    enum zoo_form form = ZOO_INFERENCE;
    struct graph *g = NULL;
    struct zoo z = {0};
    int rc;

    if (n_rest != 1 || !c->out)
        return SH_FAIL(err, SH_E_INVALID, "name one model and --out FILE; see shunt-zoo --help");
    if (strcmp(c->form, "training") == 0)
        form = ZOO_TRAINING;
    else if (strcmp(c->form, "inference") != 0)
        return SH_FAIL(err, SH_E_INVALID, "--form is inference or training, not \"%s\"", c->form);
    rc = zoo_init(&z, form, (uint64_t)c->seed, err);
    if (!rc)
        rc = build_model(&z, rest[0], c, &g, err);
    if (!rc)
        rc = onnx_write(g, c->out, err);
    graph_free(g);
    zoo_fini(&z);
    return rc;
}

int main(int argc, char **argv)
{
    enum sh_conf_action action = SH_CONF_RUN;
    struct zoo_conf c = {0};
    struct sh_err err = {0};
    char **rest = NULL;
    int n_rest = 0, rc;

    rc = sh_conf_load(&TABLE, &c, argc, argv, &rest, &n_rest, &action, &err);
    if (!rc && action == SH_CONF_RUN)
        rc = run_zoo(&c, rest, n_rest, &err);
    sh_conf_free(&TABLE, &c);
    if (rc)
        fprintf(stderr, "shunt-zoo: %s%s%s%s\n", err.msg, err.detail[0] ? " (" : "", err.detail,
                err.detail[0] ? ")" : "");
    return rc ? 1 : 0;
}
