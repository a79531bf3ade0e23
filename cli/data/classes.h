/* classes.h - makes a dataset file from a folder with a folder of pictures for each class. */
#ifndef SH_CLI_DATA_CLASSES_H
#define SH_CLI_DATA_CLASSES_H

#include "cli/cli.h"
#include "cli/data/picture.h"
#include "cli/data/setfile.h"

struct classes_plan {
    const char *tensor; /* name of the pictures, U8 */
    const char *labels; /* name of the class numbers, INT64 */
    struct picture_plan shape;
    size_t channels; /* 3, or 1: grey */
    bool is_last;    /* [height, width, channels] */
    bool skips;      /* leaves out unreadable pictures */
};

struct classes_told {
    size_t n_samples, n_classes;
    size_t n_skipped, n_other; /* damaged files; files that are not pictures */
    size_t n_other_size;       /* of n_skipped: of another size, if no size is given */
    char skipped[512];         /* why the first was left out */
};

/* Classes are numbered in the order of their names, which go to the file's metadata as "classes", a
 * JSON array; samples are in the order of classes and files. Reads with one thread for each
 * processor, with a progress bar. *out: OWNED, setfile_fini(), whatever is returned. A failure
 * names the first file that caused it. */
int classes_read(struct cli *c, const char *folder, const struct classes_plan *p,
                 struct setfile *out, struct classes_told *told, struct sh_err *err);

#endif
