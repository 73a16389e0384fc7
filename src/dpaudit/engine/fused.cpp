// One DP-SGD step of many small fully connected networks on a CPU; see fused.py.
//
// Compiled with -DWIDTHS=8,6,2 for a network with 8 features, 6 hidden units and 2 classes. The
// layers have biases and ReLUs between them, the loss is the cross-entropy. A run is computed with the
// same operations whatever the other runs are.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

constexpr int LANES = 16;  // examples in a vector
typedef float Vector __attribute__((vector_size(4 * LANES)));

constexpr int width[] = {WIDTHS};
constexpr int layers = sizeof(width) / sizeof(int) - 1;
constexpr int classes = width[layers];

constexpr int units_before(int layer) {  // rows of all activations up to this layer
    int sum = 0;
    for (int i = 0; i < layer; i++) sum += width[i];
    return sum;
}
constexpr int parameters_before(int layer) {
    int sum = 0;
    for (int i = 0; i < layer; i++) sum += (width[i] + 1) * width[i + 1];
    return sum;
}
constexpr int units = units_before(layers + 1);
constexpr int parameters = parameters_before(layers);
constexpr int rounded = (parameters + LANES - 1) / LANES * LANES;
constexpr int quarter = (parameters + 3) / 4;

// The sums of the lanes of 16 vectors, each added pairwise: halves, then quarters, and so on. A fold
// adds the halves of all groups of lanes in two vectors; after four folds every group is one sum.

#define FIRST(i) ((i) / half * 2 * half + (i) % half)
#define SECOND(i) (FIRST(i) + half)
#define ALL(at) at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7), \
                at(8), at(9), at(10), at(11), at(12), at(13), at(14), at(15)
#ifdef __clang__
#define SHUFFLED(one, two, at) __builtin_shufflevector(one, two, ALL(at))
#else
#define SHUFFLED(one, two, at) __builtin_shuffle(one, two, Places{ALL(at)})
typedef int32_t Places __attribute__((vector_size(4 * LANES)));
#endif

template <int half>
inline Vector fold(Vector one, Vector two) {
    return SHUFFLED(one, two, FIRST) + SHUFFLED(one, two, SECOND);
}
template <int half>
inline Vector totals(const Vector* values) {  // of 16 / half vectors
    if constexpr (half == 16) return *values;
    else return fold<half>(totals<2 * half>(values), totals<2 * half>(values + 8 / half));
}

// Elementary functions without branches, so that loops of them vectorise; the polynomials are those
// of the Cephes library (Moshier), accurate to about one unit in the last place.

template <typename To, typename From>
inline To bits(From value) {
    To found;
    static_assert(sizeof(To) == sizeof(From));
    std::memcpy(&found, &value, sizeof(To));
    return found;
}

inline float exponential(float x) {  // of x <= 0
    x = x < -87.0f ? -87.0f : x;
    float n = nearbyintf(x * 1.44269504f);
    float r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return (p * r * r + r + 1) * bits<float>((int32_t(n) + 127) << 23);
}

inline float logarithm(float x) {  // of 0 < x <= 1, not subnormal
    int32_t word = bits<int32_t>(x);
    int32_t exponent = (word - 0x3F3504F3) >> 23;  // the mantissa is between sqrt(1/2) and sqrt(2)
    float m = bits<float>(word - exponent * (1 << 23)) - 1, e = float(exponent);
    float p = 7.0376836292e-2f;
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    float square = m * m;
    float rest = p * m * square - 2.12194440e-4f * e - 0.5f * square;
    return m + rest + 0.693359375f * e;
}

inline void circle(float turn, float& cosine, float& sine) {  // of 0 <= turn <= 2 pi
    float q = nearbyintf(turn * 0.636619772f);  // quarter turns
    float r = turn - q * 1.5703125f - q * 4.837512969970703125e-4f - q * 7.54978995489188e-8f;
    float square = r * r;
    float s = ((-1.9515295891e-4f * square + 8.3321608736e-3f) * square - 1.6666654611e-1f) *
                  square * r + r;
    float c = ((2.443315711809948e-5f * square - 1.388731625493765e-3f) * square +
               4.166664568298827e-2f) * square * square - 0.5f * square + 1;
    int quarters = int(q);
    float x = quarters & 1 ? s : c, y = quarters & 1 ? c : s;
    cosine = (quarters + 1) & 2 ? -x : x;
    sine = quarters & 2 ? -y : y;
}

// Rows of vectors: row `unit` has `blocks` vectors with that unit's number for every example.
struct Scratch {
    std::vector<Vector> activations, slopes, squares, input_norms;
    std::vector<float> noise;
    explicit Scratch(int64_t blocks)
        : activations(units * blocks), slopes(units * blocks), squares(2 * blocks),
          input_norms(blocks), noise(4 * quarter) {}
};

template <int layer>
void forward(const float* flat, Vector* activations, int64_t blocks) {
    constexpr int in = width[layer], out = width[layer + 1];
    const float* weight = flat + parameters_before(layer);
    const float* bias = weight + in * out;
    const Vector* inputs = activations + units_before(layer) * blocks;
    Vector* outputs = activations + units_before(layer + 1) * blocks;
    for (int64_t block = 0; block < blocks; block++) {
        Vector sums[out];
        for (int j = 0; j < out; j++) sums[j] = Vector{} + bias[j];
        for (int i = 0; i < in; i++) {
            Vector value = inputs[i * blocks + block];
            for (int j = 0; j < out; j++) sums[j] += weight[j * in + i] * value;
        }
        for (int j = 0; j < out; j++) {
            // "<= 0" keeps NaN, so that a diverged run is noticed.
            if (layer + 1 < layers) sums[j] = sums[j] <= 0.0f ? Vector{} : sums[j];
            outputs[j * blocks + block] = sums[j];
        }
    }
    if constexpr (layer + 1 < layers) forward<layer + 1>(flat, activations, blocks);
}

// Logits become gradients of the cross-entropy: the softmax minus the one-hot target.
void loss_slopes(const float* logits, float* slopes, const int32_t* targets, int64_t examples) {
    for (int c = 0; c < classes; c++) {
        float* own = slopes + c * examples;
#pragma omp simd
        for (int64_t b = 0; b < examples; b++) {
            float largest = logits[b];
            for (int k = 1; k < classes; k++)
                largest = logits[k * examples + b] > largest ? logits[k * examples + b] : largest;
            own[b] = exponential(logits[c * examples + b] - largest);
        }
    }
#pragma omp simd
    for (int64_t b = 0; b < examples; b++) {
        float sum = 0;
        for (int k = 0; k < classes; k++) sum += slopes[k * examples + b];
        for (int k = 0; k < classes; k++)
            slopes[k * examples + b] = slopes[k * examples + b] / sum - (targets[b] == k);
    }
}

// Squared norms of the per-example gradients, from the last layer to the first: the gradient of a
// weight is an outer product, whose squared norm is a product of squared norms.
template <int layer>
void backward(const float* flat, Scratch& scratch, Vector* norms, int64_t blocks) {
    constexpr int in = width[layer], out = width[layer + 1];
    const float* weight = flat + parameters_before(layer);
    const Vector* inputs = scratch.activations.data() + units_before(layer) * blocks;
    const Vector* outer = scratch.slopes.data() + units_before(layer + 1) * blocks;
    Vector* inner = scratch.slopes.data() + units_before(layer) * blocks;
    for (int64_t block = 0; block < blocks; block++) {
        Vector of_inputs = layer > 0 ? Vector{} + 1.0f : scratch.input_norms[block];  // 1: the bias
        Vector of_slopes = Vector{};
        for (int j = 0; j < out; j++) {
            Vector slope = outer[j * blocks + block];
            of_slopes += slope * slope;
        }
        for (int i = 0; i < (layer > 0 ? in : 0); i++) {
            Vector value = inputs[i * blocks + block], sum = Vector{};
            of_inputs += value * value;
            for (int j = 0; j < out; j++) sum += weight[j * in + i] * outer[j * blocks + block];
            inner[i * blocks + block] = value > 0.0f ? sum : Vector{};
        }
        norms[block] += of_slopes * of_inputs;
    }
    if constexpr (layer > 0) backward<layer - 1>(flat, scratch, norms, blocks);
}

// The sums of the gradients with one factor for each example; those of the lanes are still separate.
template <int layer>
void sums(const Scratch& scratch, const Vector* factors, Vector* found, int64_t blocks) {
    constexpr int in = width[layer], out = width[layer + 1];
    const Vector* inputs = scratch.activations.data() + units_before(layer) * blocks;
    const Vector* slopes = scratch.slopes.data() + units_before(layer + 1) * blocks;
    Vector* weight = found + parameters_before(layer);
    for (int j = 0; j < out; j++) {
        Vector of_weight[in], of_bias = Vector{};
        for (int i = 0; i < in; i++) of_weight[i] = Vector{};
        for (int64_t block = 0; block < blocks; block++) {
            Vector slope = slopes[j * blocks + block] * factors[block];
            of_bias += slope;
            for (int i = 0; i < in; i++) of_weight[i] += slope * inputs[i * blocks + block];
        }
        for (int i = 0; i < in; i++) weight[j * in + i] = of_weight[i];
        weight[in * out + j] = of_bias;
    }
    if constexpr (layer + 1 < layers) sums<layer + 1>(scratch, factors, found, blocks);
}

// Standard normals from Philox4x32-10 and Box-Muller, as in dpaudit.engine.noise.
void normals(const int64_t* key, int64_t stream, int64_t run, int64_t step, float* found) {
    uint32_t words[4][quarter];
#pragma omp simd
    for (int place = 0; place < quarter; place++) {
        uint32_t first = run, second = place, third = step, fourth = stream;
        uint32_t left = key[0], right = key[1];
        for (int round = 0; round < 10; round++) {
            uint64_t one = uint64_t(first) * 0xD2511F53u, two = uint64_t(third) * 0xCD9E8D57u;
            first = uint32_t(two >> 32) ^ second ^ left;
            third = uint32_t(one >> 32) ^ fourth ^ right;
            second = uint32_t(two), fourth = uint32_t(one);
            left += 0x9E3779B9u, right += 0xBB67AE85u;
        }
        words[0][place] = first, words[1][place] = second;
        words[2][place] = third, words[3][place] = fourth;
    }
    for (int pair = 0; pair < 2; pair++) {
        const uint32_t *radii = words[2 * pair], *angles = words[2 * pair + 1];
        float* cosines = found + 2 * pair * quarter;
        float* sines = cosines + quarter;
#pragma omp simd
        for (int i = 0; i < quarter; i++) {
            float length = sqrtf(-2 * logarithm((float(radii[i]) + 0.5f) * 0x1p-32f));
            float cosine, sine;
            circle(float(angles[i]) * float(2 * M_PI * 0x1p-32), cosine, sine);
            cosines[i] = length * cosine;
            sines[i] = length * sine;
        }
    }
}

}  // namespace

// Replaces the parameters of all runs by those after the steps `first_step` to `last_step` - 1.
// Arrays are row-major. A batch has `examples` examples, a multiple of 16 (padding has weight 0).
//   parameters:  (runs, parameters)
//   features:    (any, width[0])         targets:  (any,), of all examples and canaries
//   batches:     (batches, examples), numbers of examples
//   present:     (batches, examples), their weights, shared by all runs
//   batch_at:    (steps,)                inserted_at:  (steps,), 1 where canaries are inserted, else 0
//   coins:       (runs, points), further weights of the examples from number `first_point` on
//   canaries:    (runs, parameters), added to the clipped sums, or null
//   scalars:     (steps, 4): learning rate over batch size, clip norm, noise, factor of weight decay
extern "C" void fused_steps(
    float* all_parameters, const float* features, const int64_t* targets, const int64_t* batches,
    const float* present, const int64_t* batch_at, const float* inserted_at, const float* coins,
    const float* canaries, const int64_t* runs, const int64_t* key, const float* scalars,
    int64_t count, int64_t examples, int64_t first_point, int64_t points, int64_t first_step,
    int64_t last_step, int64_t stream, int64_t noisy) {
    const int64_t blocks = examples / LANES;
    Scratch scratch(blocks);
    float* inputs = reinterpret_cast<float*>(scratch.activations.data());
    Vector *norms = scratch.squares.data(), *factors = norms + blocks;
    float* factor = reinterpret_cast<float*>(factors);
    std::vector<int32_t> classes_of(examples);
    std::vector<Vector> gradients(rounded);
    alignas(Vector) float found[rounded];
    for (int64_t step = first_step; step < last_step; step++) {
        const int64_t* batch = batches + batch_at[step] * examples;
        const float* weights = present + batch_at[step] * examples;
        for (int64_t b = 0; b < examples; b++) {
            classes_of[b] = int32_t(targets[batch[b]]);
            for (int i = 0; i < width[0]; i++)
                inputs[i * examples + b] = features[batch[b] * width[0] + i];
        }
        for (int64_t block = 0; block < blocks; block++) {
            Vector& norm = scratch.input_norms[block] = Vector{} + 1.0f;  // 1 for the bias
            for (int i = 0; i < width[0]; i++) {
                Vector value = scratch.activations[i * blocks + block];
                norm += value * value;
            }
        }
        const float *own_scalars = scalars + 4 * step, inserted = inserted_at[step];
        const float rate = own_scalars[0], clip_norm = own_scalars[1], spread = own_scalars[2];
        const float decay = own_scalars[3];
        for (int64_t run = 0; run < count; run++) {
            float* flat = all_parameters + run * parameters;
            forward<0>(flat, scratch.activations.data(), blocks);
            loss_slopes(inputs + units_before(layers) * examples,
                        reinterpret_cast<float*>(scratch.slopes.data()) +
                            units_before(layers) * examples,
                        classes_of.data(), examples);
            for (int64_t block = 0; block < blocks; block++) norms[block] = Vector{};
            backward<layers - 1>(flat, scratch, norms, blocks);
            const float* squares = reinterpret_cast<const float*>(norms);
#pragma omp simd
            for (int64_t b = 0; b < examples; b++) {
                float ratio = clip_norm / sqrtf(squares[b]);
                factor[b] = weights[b] * (ratio < 1 ? ratio : 1.0f);
            }
            for (int64_t point = 0; point < points; point++)
                factor[first_point + point] *= inserted * coins[run * points + point];
            sums<0>(scratch, factors, gradients.data(), blocks);
            for (int p = 0; p < rounded; p += LANES)
                *reinterpret_cast<Vector*>(found + p) = totals<1>(&gradients[p]);
            if (noisy) normals(key, stream, runs[run], step, scratch.noise.data());
            const float* own = canaries && inserted ? canaries + run * parameters : nullptr;
            for (int p = 0; p < parameters; p++) {
                float sum = found[p] + (own ? own[p] : 0.0f);
                if (noisy) sum += spread * scratch.noise[p];
                flat[p] = flat[p] * decay - rate * sum;
            }
        }
    }
}
