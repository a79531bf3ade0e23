/* spec_schema.h - JSON Schemas that follow from tables of other parts. OWNED; NULL: no memory. */
#ifndef SH_API_SPEC_SCHEMA_H
#define SH_API_SPEC_SCHEMA_H

#include <jansson.h>

json_t *spec_schema(void);   /* of training: common/train_option.def */
json_t *config_schema(void); /* a change of live options: options.c */

#endif
