/* found.h - what runs find of their weights on the device. */
#ifndef SH_EXECUTOR_MODELS_FOUND_H
#define SH_EXECUTOR_MODELS_FOUND_H

/* Label "result" of shunt_residency_total. */
enum model_found {
    MODEL_FOUND_NONE,
    MODEL_FOUND_PARTIAL,
    MODEL_FOUND_PACKED, /* all, but some have to be unpacked */
    MODEL_FOUND_FULL,
    N_MODEL_FOUND
};
const char *model_found_name(enum model_found f);

#endif
