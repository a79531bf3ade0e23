/* vectorise.h - loops for the widest vectors that the processor has. */
#ifndef SH_COMMON_VECTORISE_H
#define SH_COMMON_VECTORISE_H

/* Of a function: it is compiled for each width, and the one to call is chosen when the program
 * starts. What it calls is compiled along with it only if it is inlined. Not under ThreadSanitizer:
 * the choice is made before that is ready, and the program ends there. */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#define SH_VECTORISE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define SH_VECTORISE
#endif

#endif
