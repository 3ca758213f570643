/* The loops that are compiled: noise.h, sums.h and lstm.h, for one set of instructions.

   Plain C11, without Python's headers: the functions take pointers, and `library.py` calls them.
   Compiled with -ffp-contract=off and without -ffast-math, so that every operation of the source
   rounds as IEEE 754 says, and none is fused or reordered. So every set of instructions gives the
   same bits; they differ in how many numbers a vector holds. With -DAVX2 or -DAVX512 the loops need
   a processor that has these; `is_supported`, which needs nothing, says whether this one does. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(AVX512)
int is_supported(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx2,avx512f,avx512bw,avx512dq,avx512vl"))), apply_to = function)
#else
#pragma GCC target("avx2,avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")
#endif
#elif defined(AVX2)
int is_supported(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2");
}
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC target("avx2")
#endif
#else
int is_supported(void) { return 1; }
#endif

static inline double double_of(uint64_t bits) {
    double number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

static inline uint64_t bits_of(double number) {
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

static inline float single_of(uint32_t bits) {
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

static inline uint32_t bits_of_single(float number) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

#include "noise.h"
#include "sums.h"
#include "lstm.h"

#if defined(__clang__) && (defined(AVX2) || defined(AVX512))
#pragma clang attribute pop
#endif
