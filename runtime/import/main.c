/* main.c - shunt-import: options in, one JSON object out. */
#include "common/conf.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/spawn.h"
#include "runtime/import/import.h"

#include <stdlib.h>

static const struct sh_conf_opt OPTIONS[] = {
    SH_OPT_STR(struct import_conf, onnx, "onnx", NULL, 0,
               "the model, an ONNX file or a tar file of one and its external data"),
    SH_OPT_STR(struct import_conf, dir, "dir", NULL, 0, "package: an existing folder to fill"),
    SH_OPT_BOOL(struct import_conf, training, "training", false, 0,
                "package: also refuse models that cannot be trained"),
    SH_OPT_STR(struct import_conf, buckets, "buckets", NULL, 0,
               "package: sizes to which requests are padded, {\"axis\": [size...]}; refused unless "
               "padding provably changes no answer"),
    SH_OPT_BOOL(struct import_conf, beside, "beside", false, 0,
                "also read the files beside the model that its tensors name as external data"),
    SH_OPT_STR(struct import_conf, state, "state", NULL, 0,
               "export: a safetensors file with the trained weights"),
    SH_OPT_STR(struct import_conf, out, "out", NULL, 0, "export: the ONNX file to write"),
    SH_OPT_BYTES(struct import_conf, memory_bytes, "memory-bytes", "8G", 67108864.0,
                 1099511627776.0, 0,
                 "limit on the process's memory, in addition to the size of the model's file"),
    SH_OPT_INT(struct import_conf, cpu_seconds, "cpu-seconds", 300, 1, 86400, 0,
               "limit on processor time, in seconds"),
    SH_OPT_BYTES(struct import_conf, file_bytes, "file-bytes", "8G", 1048576.0, 1099511627776.0, 0,
                 "limit on the size of a written file, in addition to that of the model's file"),
};

static const struct sh_conf_table TABLE = {
    .program = "shunt-import",
    .purpose = "Turns an ONNX file into a model package, or a trained state into an ONNX file. "
               "Commands: package --onnx FILE --dir DIR [--beside] [--training], "
               "export --onnx FILE --state FILE --out FILE.",
    .opts = OPTIONS,
    .n_opts = SH_ARRAY_LEN(OPTIONS),
    .struct_bytes = sizeof(struct import_conf),
};

int main(int argc, char **argv)
{
    enum sh_conf_action action = SH_CONF_RUN;
    struct import_conf conf = {0};
    struct sh_err err = {0};
    char **rest = NULL;
    int n_rest = 0, rc;

    sh_log_init("shunt-import", SH_LOG_INFO);
    rc = sh_spawn_child_init(&err); /* a daemon that is gone imports nothing */
    if (!rc)
        rc = sh_conf_load(&TABLE, &conf, argc, argv, &rest, &n_rest, &action, &err);
    if (!rc && action == SH_CONF_RUN) {
        if (n_rest == 1)
            rc = import_run(rest[0], &conf, &err);
        else
            rc = SH_FAIL(&err, SH_E_INVALID, "give one command: package or export");
    }
    if (rc)
        sh_log_err(SH_LOG_ERROR, "import.fail", &err);
    sh_conf_free(&TABLE, &conf);
    return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}
