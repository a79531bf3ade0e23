/* relax.h - the pause between two looks while polling. */
#ifndef SH_COMMON_RELAX_H
#define SH_COMMON_RELAX_H

/* Gives the core to its other hyperthread for about half a microsecond: it may be the one that we
 * wait for. */
static inline void sh_relax(void)
{
    for (int i = 0; i < 16; i++) {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
    }
}

#endif
