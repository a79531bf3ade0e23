/* op_list.h - the page that lists every ONNX operator, whether it is supported, and why not. */
#ifndef SH_RUNTIME_MODEL_OP_LIST_H
#define SH_RUNTIME_MODEL_OP_LIST_H

#include <stdbool.h>
#include <stdio.h>

void op_list_print(FILE *out); /* Markdown */
/* Why an operator that is in no table is refused. */
const char *op_list_why(const char *op);
bool op_list_trains(const char *op);
size_t op_list_n_trains(void);

#endif
