/* safetensors.c - a file of tensors: data that are handed out lie in the file, and what is written
 * from what was read can be read. */
#include "common/safetensors.h"

#include "common/mem.h"
#include "tests/fuzz/targets/fuzz.h"

#define MAX_TENSORS 64

static void write_again(const struct sh_st *s)
{
    struct sh_st_tensor t[MAX_TENSORS];
    size_t n = SH_MIN(sh_st_count(s), (size_t)MAX_TENSORS), head_bytes, file_bytes;
    struct sh_err err = {0};
    void *head = NULL;

    for (size_t i = 0; i < n; i++)
        t[i] = *sh_st_at(s, i);
    must_say_why(sh_st_head(t, n, NULL, &head, &head_bytes, &file_bytes, &err), &err);
    free(head);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *own = copy_of(data, n, 0);
    struct sh_err err = {0};
    struct sh_st *s = NULL;
    volatile char sum = 0;
    int rc = sh_st_open_mem(own, n, &s, &err);

    must_say_why(rc, &err);
    for (size_t i = 0; !rc && i < sh_st_count(s); i++) {
        const struct sh_st_tensor *t = sh_st_at(s, i);
        const char *p = t->data;

        must(t->rank <= SH_MAX_RANK && sh_st_find(s, t->name) != NULL);
        must(sh_st_offset(s, t) <= n && t->bytes <= n - sh_st_offset(s, t));
        if (t->bytes)
            sum = (char)(sum + p[0] + p[t->bytes - 1]);
    }
    if (!rc) {
        sh_st_meta(s, "step");
        write_again(s);
    }
    sh_st_close(s);
    free(own);
    return 0;
}
