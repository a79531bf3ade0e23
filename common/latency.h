/* latency.h - latencies in buckets that grow by 2^(1/8): percentiles are within 5 %. */
#ifndef SH_COMMON_LATENCY_H
#define SH_COMMON_LATENCY_H

#include <stdint.h>

#define SH_LATENCY_BUCKETS 192u /* 10 us to 168 s; the first and last hold the rest */

unsigned sh_latency_bucket(int64_t ns);
/* The latency in ms that `percentile` percent do not exceed; 0: none counted. */
double sh_latency_percentile_ms(const int64_t count[static SH_LATENCY_BUCKETS], double percentile);

#endif
