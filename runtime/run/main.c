/* main.c - shunt-run: one model on one device with no server. */
#include "common/mem.h"
#include "runtime/model/op_list.h"
#include "runtime/run/run.h"

#include <stdio.h>
#include <stdlib.h>

#define WHICH_DEVICE                                                                              \
    SH_OPT_STR(struct run_conf, device, "device", "cpu", 0, "cpu or cuda"),                       \
        SH_OPT_INT(struct run_conf, ordinal, "ordinal", 0, 0, 63, 0, "which device of its kind"), \
        SH_OPT_INT(struct run_conf, threads, "threads", 0, 0, 1024, 0,                            \
                   "threads of the cpu device; 0 = one per core")
#define COMMON_OPTS                                                                                \
    WHICH_DEVICE, SH_OPT_STR(struct run_conf, model, "model", NULL, 0, "ONNX file"),               \
        SH_OPT_BOOL(struct run_conf, deterministic, "deterministic", true, 0,                      \
                    "only kernels that give the same bits each time"),                             \
        SH_OPT_BOOL(struct run_conf, verify_launches, "verify-launches", false, 0,                 \
                    "cuda: verify recorded launches before they are used"),                        \
        SH_OPT_STR(struct run_conf, tune, "tune", NULL, 0,                                         \
                   "file that keeps which kernels measured fastest; made if need be, and without " \
                   "it nothing is measured"),                                                      \
        SH_OPT_BYTES(struct run_conf, memory, "memory-bytes", "0", 0, 1LL << 50, 0,                \
                     "bytes of the machine that the model may take; 0 = all that are free")
#define PRECISION_OPT(def, more) \
    SH_OPT_STR(struct run_conf, precision, "precision", def, 0, "fp32, tf32, fp16 or bf16" more)

#define INPUTS_OPT                                         \
    SH_OPT_STR(struct run_conf, inputs, "inputs", NULL, 0, \
               "safetensors file with a tensor for each input of the model; others are ignored")

#define BATCH_OPT(help) SH_OPT_INT(struct run_conf, batch, "batch", 0, 0, 65536, 0, help)

static const struct sh_conf_opt INFER_OPTS[] = {
    COMMON_OPTS,
    PRECISION_OPT("fp32", ""),
    INPUTS_OPT,
    SH_OPT_STR(struct run_conf, outputs, "outputs", NULL, 0,
               "safetensors file to write, tensors named as the model's outputs"),
    BATCH_OPT("samples in one run; 0 = all of the file, or what the model fixes"),
    SH_OPT_STR(struct run_conf, list, "list", NULL, 0,
               "file of many runs, one a line: {\"model\",\"inputs\",\"outputs\"}; answers a line "
               "of JSON for each"),
};

static const struct sh_conf_opt TRAIN_OPTS[] = {
    COMMON_OPTS,
    PRECISION_OPT("fp32", ""),
    INPUTS_OPT,
    SH_OPT_STR(struct run_conf, labels, "labels", NULL, 0, "FILE:TENSOR, or TENSOR of --inputs"),
    SH_OPT_STR(struct run_conf, loss, "loss", "cross-entropy", 0,
               "cross-entropy, binary-cross-entropy, mse, l1 or huber"),
    SH_OPT_STR(struct run_conf, optimizer, "optimizer", "sgd", 0, "sgd, adam or adamw"),
    SH_OPT_STR(struct run_conf, spec, "spec", NULL, 0,
               "JSON file with fields of a job's spec; they win over options"),
    SH_OPT_F64(struct run_conf, lr, "lr", 0.001, 0, 1e6, 0, "learning rate"),
    SH_OPT_F64(struct run_conf, momentum, "momentum", 0, 0, 1, 0, "of sgd"),
    SH_OPT_F64(struct run_conf, weight_decay, "weight-decay", -1, -1, 1e6, 0,
               "-1 = the optimizer's default: 0, for adamw 0.01"),
    SH_OPT_F64(struct run_conf, beta1, "beta1", 0.9, 0, 0.9999999, 0, "of adam and adamw"),
    SH_OPT_F64(struct run_conf, beta2, "beta2", 0.999, 0, 0.9999999, 0, "of adam and adamw"),
    SH_OPT_F64(struct run_conf, eps, "eps", 1e-8, 0, 1, 0, "of adam and adamw"),
    SH_OPT_BOOL(struct run_conf, nesterov, "nesterov", false, 0, "of sgd"),
    BATCH_OPT("samples in one step; 0 = all of the file, or what the model fixes"),
    SH_OPT_INT(struct run_conf, steps, "steps", 1, 1, 1e12, 0, "steps to train"),
    SH_OPT_INT(struct run_conf, seed, "seed", 0, 0, 9e15, 0, "of shuffling and dropout"),
    SH_OPT_BOOL(struct run_conf, shuffle, "shuffle", false, 0,
                "take each epoch in an order of its own"),
    SH_OPT_STR(struct run_conf, losses, "losses", NULL, 0,
               "JSON file to write: the loss of each step, taken before its update"),
    SH_OPT_STR(struct run_conf, gradients, "gradients", NULL, 0,
               "safetensors file to write: the gradients of step 1"),
    SH_OPT_STR(struct run_conf, state, "state", NULL, 0,
               "safetensors file to write: parameters and running statistics at the end"),
};

static const struct sh_conf_opt BENCH_OPTS[] = {
    COMMON_OPTS,
    PRECISION_OPT("fp32", ""),
    INPUTS_OPT,
    SH_OPT_STR(struct run_conf, labels, "labels", NULL, 0,
               "TENSOR of --inputs: times training steps instead of inference"),
    SH_OPT_STR(struct run_conf, loss, "loss", "cross-entropy", 0,
               "cross-entropy, binary-cross-entropy, mse, l1 or huber"),
    SH_OPT_STR(struct run_conf, optimizer, "optimizer", "sgd", 0, "sgd, adam or adamw"),
    SH_OPT_F64(struct run_conf, lr, "lr", 1e-4, 0, 1e6, 0, "learning rate"),
    SH_OPT_F64(struct run_conf, momentum, "momentum", 0.9, 0, 1, 0, "of sgd"),
    BATCH_OPT("samples in one run or step; 0 = all of the file, or what the model fixes"),
    SH_OPT_INT(struct run_conf, runs, "runs", 50, 1, 1000000, 0, "that are timed"),
    SH_OPT_INT(struct run_conf, warm_runs, "warm-runs", 10, 0, 1000000, 0, "before them"),
    SH_OPT_BOOL(struct run_conf, ops, "ops", false, 0, "adds what each operation takes"),
    SH_OPT_BOOL(struct run_conf, prepare, "prepare", true, 0,
                "make whole runs cheap to enqueue first, where the device can"),
};

static const struct sh_conf_opt PROFILE_OPTS[] = {
    COMMON_OPTS,
    PRECISION_OPT("fp32", ""),
    BATCH_OPT("samples in one run; 0 = what the model fixes, or 1"),
    SH_OPT_INT(struct run_conf, repeat, "repeat", 10, 1, 10000, 0,
               "runs of each operation; the best counts"),
    SH_OPT_F64(struct run_conf, copy_gb_per_s, "copy-gb-per-s", 0, 0, 1e6, 0,
               "rate of copies to the device; 0 = measure"),
    SH_OPT_F64(struct run_conf, copy_latency_us, "copy-latency-us", 0, 0, 1e6, 0,
               "fixed cost of a copy, when the rate is given"),
    SH_OPT_STR(struct run_conf, report, "report", NULL, 0, "JSON file to write as well"),
};

static const struct sh_conf_opt DEVICE_OPTS[] = {WHICH_DEVICE};

static const struct command {
    const char *name;
    int (*run)(const struct run_conf *c, struct sh_err *err);
    struct sh_conf_table table;
} COMMANDS[] = {
    {"infer",
     infer_run,
     {"shunt-run infer", "Runs the samples of a file through a model.", INFER_OPTS,
      SH_ARRAY_LEN(INFER_OPTS), sizeof(struct run_conf)}},
    {"train",
     train_run,
     {"shunt-run train", "Trains a model on the samples of a file.", TRAIN_OPTS,
      SH_ARRAY_LEN(TRAIN_OPTS), sizeof(struct run_conf)}},
    {"bench",
     bench_run,
     {"shunt-run bench", "Times a ready model, its inputs on the device; prints JSON.", BENCH_OPTS,
      SH_ARRAY_LEN(BENCH_OPTS), sizeof(struct run_conf)}},
    {"profile",
     profile_run,
     {"shunt-run profile", "Shows time and bytes of each layer, and how copies are grouped.",
      PROFILE_OPTS, SH_ARRAY_LEN(PROFILE_OPTS), sizeof(struct run_conf)}},
    {"device",
     device_run,
     {"shunt-run device", "Says whether a device can be used here, and what it is; prints JSON.",
      DEVICE_OPTS, SH_ARRAY_LEN(DEVICE_OPTS), sizeof(struct run_conf)}},
};

static void usage(FILE *out)
{
    fprintf(out, "shunt-run: one model on one device, with no server\n\n");
    for (size_t i = 0; i < SH_ARRAY_LEN(COMMANDS); i++)
        fprintf(out, "  shunt-run %-8s %s\n", COMMANDS[i].name, COMMANDS[i].table.purpose);
    fprintf(out, "  shunt-run operators Prints which operators of ONNX are supported.\n");
    fprintf(out, "\nOptions: shunt-run COMMAND --help\n");
}

static int run_with_options(const struct command *cmd, int argc, char **argv, struct sh_err *err)
{
    struct run_conf conf = {0};
    enum sh_conf_action action = SH_CONF_RUN;
    int rc = sh_conf_load(&cmd->table, &conf, argc, argv, NULL, NULL, &action, err);

    if (!rc && action == SH_CONF_RUN)
        rc = cmd->run(&conf, err);
    sh_conf_free(&cmd->table, &conf);
    return rc;
}

int main(int argc, char **argv)
{
    struct sh_err err = {0};

    if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0)) {
        usage(stdout);
        return EXIT_SUCCESS;
    }
    if (argc == 2 && strcmp(argv[1], "operators") == 0) {
        op_list_print(stdout);
        return EXIT_SUCCESS;
    }
    for (size_t i = 0; argc >= 2 && i < SH_ARRAY_LEN(COMMANDS); i++) {
        if (strcmp(argv[1], COMMANDS[i].name) != 0)
            continue;
        if (run_with_options(&COMMANDS[i], argc - 1, argv + 1, &err) == SH_OK)
            return EXIT_SUCCESS;
        fprintf(stderr, "shunt-run: %s\n", err.msg);
        if (err.detail[0])
            fprintf(stderr, "  (%s)\n", err.detail);
        return EXIT_FAILURE;
    }
    if (argc >= 2)
        fprintf(stderr, "shunt-run: there is no command \"%.40s\"\n\n", argv[1]);
    usage(stderr);
    return 2;
}
