/* onnx.c - the import of an ONNX file, without files beside it. Mutated models go through whole
 * programs in tests/fuzz/mutations.py. */
/* uses: libmodel.a */
/* link: -lprotobuf-c */
#include "runtime/model/onnx.h"

#include "tests/fuzz/targets/fuzz.h"

static int read_file(const char *path, struct graph **out)
{
    struct sh_err err = {0};
    char *list = NULL;
    int rc = onnx_read_list(path, false, out, &list, &err);

    must_say_why(rc, &err);
    must((rc == SH_E_UNSUPPORTED) >= (list != NULL));
    free(list);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct graph *g = NULL;
    char path[FUZZ_PATH];
    int fd = file_of(data, n, path);

    if (read_file(path, &g) == SH_OK)
        graph_free(g);
    close(fd);
    return 0;
}
