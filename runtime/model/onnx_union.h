/* onnx_union.h - constants that an exporter took of one parameter, and that have rows in common:
 * one table has the rows of all of them. */
#ifndef SH_RUNTIME_MODEL_ONNX_UNION_H
#define SH_RUNTIME_MODEL_ONNX_UNION_H

#include "runtime/model/onnx_build.h"
#include "runtime/model/param_forms.h"

struct onnx_taken {
    const Onnx__TensorProto *t; /* BORROWED, as the next */
    const uint8_t *data;        /* unaligned */
    size_t n;                   /* F32 numbers */
    uint32_t of;                /* initializer */
    bool is_whole;              /* the parameter itself */
    bool is_drawn;              /* by numbers that no formula gives: equal ones prove something */
    char param[PARAM_FORM_NAME];
    int64_t *places;  /* OWNED: which row of the union its own are; NULL: it is in none */
    uint32_t cluster; /* which union, where places are set */
};

struct onnx_union;

/* Bits of a number that may differ by chance: fewer, where all were rounded to a half. */
int onnx_union_bits(const uint8_t *data, size_t n);
/* Looks for unions among n constants that are not gone from b, larger ones first, and sets places
 * and clusters. Rows are common if so many numbers are equal in a row that chance would give them
 * in one of 2^16 files. What has equal rows, some of which chance may have given, is in none; nor
 * is what is beyond a bound of the bytes that are looked at. *out: OWNED, onnx_union_free(). all:
 * BORROWED by it. Fails: SH_E_NOMEM. */
int onnx_union_find(struct onnx_taken *all, size_t n, const struct onnx_build *b,
                    struct onnx_union **out);
/* The constants become what nodes take of the unions, but for those that are gone from b: a union
 * is the first of them, if that has all of its rows, or a new initializer, NAME@union. Fails:
 * SH_E_NOMEM, SH_E_TOOBIG. */
int onnx_union_build(const struct onnx_union *u, struct onnx_build *b);
void onnx_union_free(struct onnx_union *u); /* NULL is allowed */

#endif
