/* store_life.h - a row version beside the life of the database that has given it (SQL_LIFE in
 * store_sql.h): in another life it may be another row's. */
#ifndef SH_API_STORE_STORE_LIFE_H
#define SH_API_STORE_STORE_LIFE_H

#include <stdint.h>

#define STORE_LIFE_BYTES 48

struct store_life {
    char life[STORE_LIFE_BYTES];
    int64_t version;
};

#endif
