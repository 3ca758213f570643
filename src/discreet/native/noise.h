/* The fast paths of the Gaussian noise: the operations of randomness/ziggurat.py, in its order.

   Where numbers are released there is no branch for each number, so that the compiler uses the
   widest vectors there are. Constants come from ziggurat.py, so that they stand in one place. */

/* Numbers at a time: their scratch stays in the first cache. */
enum { BLOCK = 128, LAYER = 4095, LAYER_BITS = 12, ATTEMPTS = 3, FURTHER = 5 };

typedef struct {
    double log[6], minus_ln_2, bias;
    double height_unit, least_height, tail_area, least_tail, inverse_r, r;
    double rounder, doubt;
    uint64_t bits_of_1, bits_of_2_52, bits_of_root, root_to_1, fraction;
} Constants;

typedef struct {
    const double *limits, *edges, *heights, *twice_widths, *slopes;
    double scale, threshold, tail_threshold;
} Law;

static inline double position_of(uint64_t word, const Constants *k) {
    return double_of(word >> LAYER_BITS | k->bits_of_1) - 1.5;
}

/* --- tier 1 --- */

/* Write spacing * (integers of the sums + noise) for the numbers that this tier decides, and NaN
   for each other one: list these, and the integers of their sums. `sums` may be `out`. */
#define RELEASE(NAME, SUM, OUT)                                                                    \
    int64_t NAME(const uint64_t *restrict words, int64_t size,                                     \
                          const double *restrict slopes, const float *restrict limits,             \
                          double threshold, const Constants *constants, const SUM *sums,           \
                          double spacing, OUT *out, int64_t *restrict places,                      \
                          double *restrict units) {                                                \
        /* Of a power of two: the product is the quotient, to the last bit. */                     \
        const double inverse = 1.0 / spacing, rounder = constants->rounder;                        \
        const Constants k = *constants;                                                            \
        double noise[BLOCK], integers[BLOCK];                                                      \
        float limit[BLOCK];                                                                        \
        int64_t count = 0;                                                                         \
        for (int64_t start = 0; start < size; start += BLOCK) {                                    \
            const int64_t length = size - start < BLOCK ? size - start : BLOCK;                    \
            const uint64_t *word = words + start;                                                  \
            int64_t left = 0;                                                                      \
            /* Look-ups do not become vector code, so they have a loop of their own. */            \
            for (int64_t j = 0; j < length; j++) {                                                 \
                const uint64_t layer = word[j] & LAYER;                                            \
                noise[j] = slopes[layer];                                                          \
                limit[j] = limits[layer];                                                          \
            }                                                                                      \
            for (int64_t j = 0; j < length; j++) {                                                 \
                const double f = position_of(word[j], &k);                                         \
                const double value = f * noise[j];                                                 \
                const double nearest = (value + rounder) - rounder;                                \
                const int decided =                                                                \
                    (fabs(f) <= (double)limit[j]) & (fabs(value - nearest) <= threshold);          \
                integers[j] = rint((double)sums[start + j] * inverse);                             \
                noise[j] = decided ? nearest : NAN;                                                \
                left += 1 - decided;                                                               \
            }                                                                                      \
            if (left > 0)                                                                          \
                for (int64_t j = 0; j < length; j++)                                               \
                    if (noise[j] != noise[j]) {                                                    \
                        places[count] = start + j;                                                 \
                        units[count] = integers[j];                                                \
                        count++;                                                                   \
                    }                                                                              \
            for (int64_t j = 0; j < length; j++)                                                   \
                out[start + j] = (OUT)((integers[j] + noise[j]) * spacing);                        \
        }                                                                                          \
        return count;                                                                              \
    }

RELEASE(release_dd, double, double)
RELEASE(release_df, double, float)
RELEASE(release_fd, float, double)
RELEASE(release_ff, float, float)
#undef RELEASE

/* --- tier 2 --- */

/* Compute -ln(number): the mantissa is in sqrt(1/2) * [1, 2). */
static inline double minus_log(double number, const Constants *k) {
    const uint64_t bits = bits_of(number) + k->root_to_1;
    const double mantissa = double_of((bits & k->fraction) + k->bits_of_root);
    const double exponent = double_of(bits >> 52 | k->bits_of_2_52) - k->bias;
    const double z = (1.0 - mantissa) / (mantissa + 1.0);
    const double t = z * z;
    const double *l = k->log;
    return (((((t * l[5] + l[4]) * t + l[3]) * t + l[2]) * t + l[1]) * t + l[0]) * z +
           exponent * k->minus_ln_2;
}

/* Make the attempts of a number that is outside: its integer, or NaN where float64 cannot tell. */
static double attempts(uint64_t position, const uint64_t *further, const Law *law,
                                const Constants *k) {
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        if (attempt > 0) position = further[2 * attempt - 1];
        const double height = (double)further[2 * attempt];
        const uint64_t i = position & LAYER;
        const double f = position_of(position, k);
        double x = f * law->slopes[i], threshold = law->threshold, over;

        if (fabs(f) <= law->limits[i]) {
            over = INFINITY;
        } else if (!(height >= k->least_height)) {
            return NAN;
        } else if (i == 0) {
            const double u = k->tail_area * (1.0 - 2.0 * fabs(f));
            if (!((u >= k->least_tail) & (u <= 1.0 - k->doubt))) return NAN;
            const double distance = minus_log(u, k) * k->inverse_r;
            over = minus_log(height * k->height_unit, k) - 0.5 * distance * distance;
            x = copysign((k->r + distance) * law->scale, f);
            threshold = law->tail_threshold;
        } else {
            const double y = law->edges[i] + height * k->height_unit * law->heights[i];
            const double x_0 = fabs(f) * law->twice_widths[i];
            over = minus_log(y, k) - 0.5 * x_0 * x_0;
        }

        if (over > k->doubt) {
            const double nearest = (x + k->rounder) - k->rounder;
            return fabs(x - nearest) <= threshold ? nearest : NAN;
        }
        if (!(over < -k->doubt)) return NAN;
    }
    return NAN;
}

/* Decide numbers that a release left; those that are inside stay NaN and have no further words.
   Returns how many are outside, which is at most `rows`, or -1. */
int64_t decide(const uint64_t *first, int64_t size, const uint64_t *further, int64_t rows,
                        const Law *law, const Constants *k, double *integers) {
    int64_t rank = 0;
    for (int64_t j = 0; j < size; j++) {
        const double f = position_of(first[j], k);
        if (fabs(f) <= law->limits[first[j] & LAYER]) {
            integers[j] = NAN;
            continue;
        }
        if (rank == rows) return -1;
        integers[j] = attempts(first[j], further + FURTHER * rank, law, k);
        rank++;
    }
    return rank;
}

/* Count numbers that are larger than the bound, or NaN. */
#define BEYOND(NAME, KIND)                                                                         \
    int64_t NAME(const KIND *values, int64_t size, double bound) {                                 \
        int64_t count = 0;                                                                         \
        for (int64_t j = 0; j < size; j++) count += !(fabs((double)values[j]) <= bound);           \
        return count;                                                                              \
    }
BEYOND(beyond_d, double)
BEYOND(beyond_f, float)
#undef BEYOND
