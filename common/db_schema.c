/* db_schema.c - the schema that this build knows; the Makefile counts the migrations. */
#include "common/db.h"

const int DB_SCHEMA_VERSION = MIGRATIONS;
