/* content.h - what lies in simulated memory and files, so that a byte says whose it is.
 *
 * All is words of 8 bytes: the tenant, what it is, and more. A word of 0 is cleared memory.
 *
 *   image    of the package `id`, at this place of it; siblings are alike up to some place
 *   packed   the same, of what it is packed to
 *   spent    where a packed layer lay that has been unpacked
 *   state    of a job, of one step, at this place; no step writes the end of some jobs' states
 *   work     of whoever computed there
 *   input    of a request
 *   output   of a model for an input
 */
#ifndef SH_TESTS_SIM_CONTENT_H
#define SH_TESTS_SIM_CONTENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sim_kind { SIM_IMAGE = 1, SIM_STATE, SIM_WORK, SIM_INPUT, SIM_OUTPUT, SIM_PACKED, SIM_SPENT };

/* So far apart are the ids of siblings: of models that differ from some layer on. What is trained
 * is a sibling of what it was trained from. */
#define SIM_SIBLING (1u << 16)

/* What the file graph.json of a simulated package says. */
struct sim_package {
    char model[32];  /* of the profile */
    unsigned tenant; /* 1 to 4095 */
    unsigned id;
    uint32_t own_size; /* of the one size that its file leaves open; 0: none is open */
};

unsigned sim_stem(const struct sim_package *p); /* which its siblings have, too */
uint64_t sim_word(unsigned tenant, enum sim_kind kind, uint64_t rest);
unsigned sim_word_tenant(uint64_t word);
uint64_t sim_mix(uint64_t a, uint64_t b);

/* Of n words that are `at` words from the start, the first that is not as it must be; n: none. */
size_t sim_image_look(const struct sim_package *p, const uint64_t *words, size_t at, size_t n);
size_t sim_packed_look(const struct sim_package *p, const uint64_t *words, size_t at, size_t n);
size_t sim_state_look(unsigned tenant, int64_t job, int64_t step, const uint64_t *words, size_t at,
                      size_t n);
/* Steps of this job write so many of its state's words, from the first on: some write all of them.
 * They are whole parts of SIM_STATE_PARTS. The rest is of step SIM_FIXED. */
#define SIM_STATE_PARTS 16
#define SIM_FIXED INT64_C(0xfffff)
size_t sim_state_written(int64_t job, size_t words);
void sim_image_fill(const struct sim_package *p, uint64_t *words, size_t at, size_t n);
void sim_packed_fill(const struct sim_package *p, uint64_t *words, size_t at, size_t n);
void sim_spend(const struct sim_package *p, uint64_t *words, size_t n);
void sim_state_fill(unsigned tenant, int64_t job, int64_t step, uint64_t *words, size_t at,
                    size_t n);
int64_t sim_state_step(uint64_t word); /* modulo 2^20 */
int64_t sim_state_job(uint64_t word);  /* modulo 2^12 */
/* What a client puts into a request, and what must come back: rid is any number of it. */
void sim_fill_input(unsigned tenant, uint64_t rid, void *to, size_t bytes);
void sim_fill_output(const struct sim_package *p, const void *in, size_t in_bytes, void *to,
                     size_t bytes);

/* True: every word is 0 or of this tenant. Else *at_out: the first that is not. */
bool sim_is_of(unsigned tenant, const void *p, size_t bytes, size_t *at_out);

/* Files of a state folder; what is there already stays. path: relative, as commands have it. No
 * fault of a disk befalls them: clients brought them before. */
void sim_package_make(const char *state_dir, const struct sim_package *p, char path[static 96]);
void sim_dataset_make(const char *state_dir, unsigned tenant, unsigned id, size_t sample_bytes,
                      int64_t n, char path[static 96]);
void sim_dataset_sample(unsigned tenant, unsigned id, int64_t i, void *to, size_t bytes);
bool sim_package_read(int fd, struct sim_package *out); /* of a graph.json or model.onnx */
void sim_package_text(const struct sim_package *p, char out[static 96]);

#endif
