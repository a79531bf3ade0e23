/* classes.h - a folder with a folder of pictures for each class, as the file of a dataset. */
#ifndef SH_CLI_DATA_CLASSES_H
#define SH_CLI_DATA_CLASSES_H

#include "cli/cli.h"
#include "cli/data/picture.h"
#include "cli/data/setfile.h"

struct classes_plan {
    const char *tensor; /* name of the pictures, U8 */
    const char *labels; /* and of their classes' numbers, INT64 */
    struct picture_plan shape;
    size_t channels; /* 3, or 1: grey */
    bool is_last;    /* [height, width, channels] */
    bool skips;      /* leaves out what cannot be read */
};

struct classes_told {
    size_t n_samples, n_classes;
    size_t n_skipped, n_other; /* files that are damaged, and such as are no pictures */
    size_t n_other_size;       /* of n_skipped: these are, without a size for all, of another one */
    char skipped[512];         /* why the first was left out */
};

/* Classes are numbered in the order of their names, samples are in that of classes and files. The
 * names are in the file's metadata, as "classes": a JSON array. Reads with as many threads as there
 * are processors, with a bar. *out: OWNED, setfile_fini(), whatever is returned. A failure names
 * the first file that is the reason. */
int classes_read(struct cli *c, const char *folder, const struct classes_plan *p,
                 struct setfile *out, struct classes_told *told, struct sh_err *err);

#endif
