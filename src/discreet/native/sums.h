/* Certified norms and exact sums: the operations of numerics/norms.py and numerics/exact.py. */

enum { LANES = 512, PIECE = 2048, INTEGER_LANES = 256 };

/* Add up lanes in the tree of `norms.tree_sums`: the same order, so the same bits. */
static inline double tree(double *lanes, int64_t width) {
    while (width > 1) {
        const int64_t half = width / 2, later = width - half;
        for (int64_t j = 0; j < half; j++) lanes[j] += lanes[j + later];
        width -= half;
    }
    return lanes[0];
}

#define SQUARES(NAME, KIND)                                                                        \
    void NAME(const KIND *restrict rows, int64_t records, int64_t columns,                         \
                       double *restrict out) {                                                     \
        double lanes[LANES];                                                                       \
        const int64_t width = columns < LANES ? columns : LANES;                                   \
        for (int64_t i = 0; i < (columns ? records : 0); i++) {                                    \
            const KIND *row = rows + i * columns;                                                  \
            for (int64_t j = 0; j < width; j++) lanes[j] = 0.0;                                    \
            for (int64_t start = 0; start < columns; start += LANES) {                             \
                const int64_t length = columns - start < LANES ? columns - start : LANES;          \
                for (int64_t j = 0; j < length; j++) {                                             \
                    const double x = (double)row[start + j];                                       \
                    lanes[j] += x * x;                                                             \
                }                                                                                  \
            }                                                                                      \
            out[i] = tree(lanes, width);                                                           \
        }                                                                                          \
    }
SQUARES(squares_d, double)
SQUARES(squares_f, float)
#undef SQUARES

/* Add the integers trunc(row * weight) of the chosen rows, and their squares, in one pass. */
#define ADD_UNITS(NAME, KIND)                                                                      \
    void NAME(const KIND *restrict rows, int64_t columns, const double *restrict weight,           \
                       const int64_t *restrict chosen, int64_t count, double *restrict total,      \
                       double *restrict squares) {                                                 \
        double lanes[INTEGER_LANES];                                                               \
        for (int64_t begin = 0; begin < columns; begin += PIECE) {                                 \
            const int64_t end = columns - begin < PIECE ? columns : begin + PIECE;                 \
            const int64_t width = end - begin < INTEGER_LANES ? end - begin : INTEGER_LANES;       \
            for (int64_t c = 0; c < count; c++) {                                                  \
                const int64_t i = chosen[c];                                                       \
                const KIND *row = rows + i * columns;                                              \
                const double w = weight[i];                                                        \
                for (int64_t j = 0; j < width; j++) lanes[j] = 0.0;                                \
                for (int64_t start = begin; start < end; start += INTEGER_LANES) {                 \
                    const int64_t length =                                                         \
                        end - start < INTEGER_LANES ? end - start : INTEGER_LANES;                 \
                    for (int64_t j = 0; j < length; j++) {                                         \
                        const double k = trunc((double)row[start + j] * w);                        \
                        total[start + j] += k;                                                     \
                        lanes[j] += k * k;                                                         \
                    }                                                                              \
                }                                                                                  \
                squares[i] += tree(lanes, width);                                                  \
            }                                                                                      \
        }                                                                                          \
    }
ADD_UNITS(units_d, double)
ADD_UNITS(units_f, float)
#undef ADD_UNITS
