/* What happens between the products of an LSTM's steps: few passes, over rows that stay in the
   first cache. The formulas and their accuracy: training/rules/recurrent/kernels.py. */

static const float PER_LN_2 = 1.4426950408889634f;
static const float LN_2_HIGH = 0.693145751953125f; /* few enough bits that k times it is exact */
static const float LN_2_LOW = (float)(0.6931471805599453 - 0.693145751953125);
static const float SINGLE_ROUNDER = 12582912.0f; /* 1.5 * 2^23 */
static const float FARTHEST = 87.0f;             /* e^87 and e^-87 are normal numbers */
static const float FLAT = 18.1f;                 /* tanh of half of it is 1 in float32 */

/* e^x = scale (1 + q): k goes into the exponent, and q follows by Horner's scheme. */
static inline float exponential(float x, float *scale) {
    const float rounded = x * PER_LN_2 + SINGLE_ROUNDER;
    const float k = rounded - SINGLE_ROUNDER;
    const float r = (x - k * LN_2_HIGH) - k * LN_2_LOW;
    const float p = (((((r * (1.0f / 5040) + (1.0f / 720)) * r + (1.0f / 120)) * r + (1.0f / 24)) * r +
                      (1.0f / 6)) * r + 0.5f) * r;
    *scale = single_of((bits_of_single(rounded) << 23) + (127u << 23));
    return p * r + r;
}

/* The nearest number in [-limit, limit], or NaN. */
static inline float within(float x, float limit) {
    x = x > limit ? limit : x;
    return x < -limit ? -limit : x;
}

static inline float sigmoid_of(float x) {
    float scale;
    const float q = exponential(within(-x, FARTHEST), &scale);
    return 1.0f / ((scale * q + scale) + 1.0f);
}

/* d = e^(2x) - 1 without cancellation: scale is a power of two, and scale - 1 is exact near 0. */
static inline float tanh_of(float x) {
    float scale;
    const float q = exponential(within(x + x, FLAT), &scale);
    const float d = scale * q + (scale - 1.0f);
    return d / (d + 2.0f);
}

void sigmoid_row(float *row, int64_t size) {
    for (int64_t j = 0; j < size; j++) row[j] = sigmoid_of(row[j]);
}

void tanh_row(float *row, int64_t size) {
    for (int64_t j = 0; j < size; j++) row[j] = tanh_of(row[j]);
}

/* One step: gates (m, 4 width) in place, c (m, width) before -> c after, u = tanh(c), y. */
void lstm_forward(int64_t records, int64_t width, float *restrict gates,
                           const float *restrict before, float *restrict after, float *restrict us,
                           float *restrict ys) {
    for (int64_t record = 0; record < records; record++) {
        float *restrict row = gates + 4 * width * record;
        const float *restrict c = before + width * record;
        float *restrict later = after + width * record;
        float *restrict u = us + width * record, *restrict y = ys + width * record;

        /* i and f lie beside each other: one pass for both. */
        sigmoid_row(row, 2 * width);
        tanh_row(row + 2 * width, width);
        sigmoid_row(row + 3 * width, width);
        for (int64_t j = 0; j < width; j++)
            later[j] = row[width + j] * c[j] + row[j] * row[2 * width + j];
        for (int64_t j = 0; j < width; j++) {
            u[j] = tanh_of(later[j]);
            y[j] = row[3 * width + j] * u[j];
        }
    }
}

/* One step back: gates become their gradients, and dc that of the cells before. */
void lstm_backward(int64_t records, int64_t width, float *restrict gates,
                            const float *restrict before, const float *restrict us,
                            const float *restrict dys, float *restrict dcs) {
    for (int64_t record = 0; record < records; record++) {
        float *restrict row = gates + 4 * width * record;
        const float *restrict c = before + width * record, *restrict u = us + width * record;
        const float *restrict dy = dys + width * record;
        float *restrict dc = dcs + width * record;

        for (int64_t j = 0; j < width; j++) {
            const float i = row[j], f = row[width + j], g = row[2 * width + j];
            const float o = row[3 * width + j];
            /* Through y = o tanh(c'). */
            const float d = dc[j] + dy[j] * o * (1.0f - u[j] * u[j]);
            row[j] = d * g * (i * (1.0f - i));
            row[width + j] = d * c[j] * (f * (1.0f - f));
            row[2 * width + j] = d * i * (1.0f - g * g);
            row[3 * width + j] = dy[j] * u[j] * (o * (1.0f - o));
            dc[j] = d * f;
        }
    }
}
