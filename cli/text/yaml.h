/* yaml.h - JSON as YAML, for `-o yaml` and for what is nested in a table. */
#ifndef SH_CLI_TEXT_YAML_H
#define SH_CLI_TEXT_YAML_H

#include "common/buf.h"
#include "common/json.h"

/* Appends j in block style, every line after `indent` blanks and with its end. What YAML 1.1 or 1.2
 * would read as something else than the text it is (yes, null, 1e3, 010, 2026-11-22, a line break)
 * is quoted. */
int yaml_append(struct sh_buf *b, const json_t *j, int indent, struct sh_err *err);

#endif
