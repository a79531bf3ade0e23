/* test_filekind.c - Without it: a model could be refused as something that it only looks like, or
 * who pushes a .pt file reads of an impossible field number. */
#include "common/filekind.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

#include <string.h>

#define BYTES(s) s, sizeof(s) - 1

static void the_beginning_of_a_file_tells_its_kind(void **state)
{
    static const struct {
        const char *head;
        size_t n;
        enum sh_file_kind kind;
    } ROWS[] = {
        {BYTES("\x08\x07\x12\x07pytorch"), SH_FILE_ONNX},
        {BYTES("\x08\x0a\x3a\xff\xff\x03"), SH_FILE_ONNX},
        {BYTES("\x40\0\0\0\0\0\0\0{\"x\":"), SH_FILE_SAFETENSORS},
        {BYTES("PK\x03\x04\x14\0"), SH_FILE_ZIP},
        {BYTES("PK\x05\x06\0\0"), SH_FILE_ZIP},
        {BYTES("\x80\x02}q\0."), SH_FILE_PICKLE},
        {BYTES("\x80\x05\x95"), SH_FILE_PICKLE},
        {BYTES("PAR1\x15\x04"), SH_FILE_PARQUET},
        {BYTES("\x89HDF\r\n\x1a\n\0"), SH_FILE_HDF5},
        {BYTES("\x1f\x8b\x08\0"), SH_FILE_GZIP},
        {BYTES("\x93NUMPY\x01\0"), SH_FILE_NUMPY},
        {BYTES("GGUF\x03\0"), SH_FILE_GGUF},
        {BYTES("\xff\xd8\xff\xe0"), SH_FILE_JPEG},
        {BYTES("\x89PNG\r\n\x1a\n\0"), SH_FILE_PNG},
        {BYTES("version https://git-lfs.github.com/spec/v1\noid"), SH_FILE_LFS},
        {BYTES("import torch\n\tx = 1\r\n"), SH_FILE_TEXT},
        {BYTES("gr\xc3\xbc\xc3\x9f"), SH_FILE_TEXT},
        {BYTES(""), SH_FILE_OTHER},
        {BYTES("\x01\x02"), SH_FILE_OTHER},
        {BYTES("PK"), SH_FILE_TEXT},
        {BYTES("\x08"), SH_FILE_OTHER},
    };
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(ROWS); i++)
        assert_int_equal(sh_file_kind(ROWS[i].head, ROWS[i].n), ROWS[i].kind);
}

/* A header of 640 or 35615 bytes. */
static void a_length_that_looks_like_another_kind_is_a_length(void **state)
{
    (void)state;

    assert_int_equal(sh_file_kind(BYTES("\x80\x02\0\0\0\0\0\0{")), SH_FILE_SAFETENSORS);
    assert_int_equal(sh_file_kind(BYTES("\x1f\x8b\x08\0\0\0\0\0{")), SH_FILE_SAFETENSORS);
}

static void only_the_beginning_counts(void **state)
{
    char text[SH_FILE_HEAD + 1];
    (void)state;

    memset(text, 'a', sizeof(text));
    text[SH_FILE_HEAD] = '\0';
    assert_int_equal(sh_file_kind(text, sizeof(text)), SH_FILE_TEXT);
    text[SH_FILE_HEAD - 1] = '\0';
    assert_int_equal(sh_file_kind(text, sizeof(text)), SH_FILE_OTHER);
}

static void each_kind_has_words(void **state)
{
    (void)state;

    for (int k = SH_FILE_OTHER; k < SH_N_FILE_KINDS; k++)
        assert_true(strlen(sh_file_kind_text((enum sh_file_kind)k)) > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_beginning_of_a_file_tells_its_kind),
        cmocka_unit_test(a_length_that_looks_like_another_kind_is_a_length),
        cmocka_unit_test(only_the_beginning_counts),
        cmocka_unit_test(each_kind_has_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
