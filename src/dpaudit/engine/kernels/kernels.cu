// CUDA kernels of `dpaudit.engine.kernels.operations`: convolution, ReLU and max-pooling of many small
// networks.
//
// Every product is a matrix product of 16 x 8 x 8 tiles on the tensor cores (`multiply`). One of
// its factors consists of patches of an image. Patches are never stored: the image lies in shared
// memory, and each thread reads the numbers of its part of a tile from there.
//
// Outputs of the convolution are counted in quads of four: a pooling window of 2 x 2, or four
// neighbours in a row if nothing is pooled. The four threads of a group of lanes take one each.
//
// `dpaudit.engine.kernels.launching` defines these constants:
//   C, H, W, OUT                     channels and size of the inputs, and output channels
//   KERNEL_H, STRIDE_H, PAD_H, DILATION_H and the same for the width
//   POOL, RELU, SELECTS              as in `Shape`
//   WINDOWS_H, WINDOWS_W             size of the outputs
//   ROW, PLANE, IMAGE                numbers from one row, channel and image to the next
//   VECTOR                           numbers that are copied at once: 1 or 2
//   WARPS, EXAMPLES, TILES_M, TILES_N, ...
//                                    what one block of threads computes; see each kernel
//   Number                           how numbers are stored: float, or unsigned short for bfloat16

constexpr int WINDOWS = WINDOWS_H * WINDOWS_W;
constexpr int PLACES = KERNEL_H * KERNEL_W;
constexpr int QUADS_W = POOL == 2 ? WINDOWS_W : (WINDOWS_W + 3) / 4;
constexpr int QUADS = WINDOWS_H * QUADS_W;
constexpr int QUAD_DOWN = POOL * STRIDE_H * ROW, QUAD_RIGHT = (POOL == 2 ? 2 : 4) * STRIDE_W;
constexpr int THREADS = 32 * WARPS;

#ifndef EMULATED  // tests run this file on a CPU and bring their own
extern __shared__ __align__(16) float memory[];

__device__ float rounded(float value) {  // to the precision of the products
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return __uint_as_float(bits & 0xffffe000u);
}

// Add to `sum` the product of a 16 x 8 and an 8 x 8 tile. With group = lane / 4 and t = lane % 4 a
// thread has (group, t), (group + 8, t), (group, t + 4), (group + 8, t + 4) of the first factor,
// (t, group), (t + 4, group) of the second, and (group, 2 t), (group, 2 t + 1), (group + 8, 2 t),
// (group + 8, 2 t + 1) of the sum.
__device__ void multiply(float (&sum)[4], const float4 &a, float b0, float b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(__float_as_uint(a.x)), "r"(__float_as_uint(a.y)), "r"(__float_as_uint(a.z)),
          "r"(__float_as_uint(a.w)), "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
}
#endif

__device__ float number(float stored) { return stored; }
__device__ float number(unsigned short stored) { return __uint_as_float(unsigned(stored) << 16); }
__device__ float2 two_numbers(const float *from) { return *(const float2 *)from; }
__device__ float2 two_numbers(const unsigned short *from) {
    unsigned both = *(const unsigned *)from;
    return make_float2(__uint_as_float(both << 16), __uint_as_float(both & 0xffff0000u));
}
__device__ float2 load(const Number *from) {
    return VECTOR == 2 ? two_numbers(from) : make_float2(number(*from), 0);
}

__device__ unsigned bfloat16(float value) {
    unsigned bits = __float_as_uint(value);
    return (value == value ? bits + 0x7fffu + (bits >> 16 & 1) : bits | 0x400000u) >> 16;
}
__device__ void store(float *to, float value) { *to = value; }
__device__ void store(unsigned short *to, float value) { *to = bfloat16(value); }
__device__ void store_two(float *to, float a, float b) { *(float2 *)to = make_float2(a, b); }
__device__ void store_two(unsigned short *to, float a, float b) {
    *(unsigned *)to = bfloat16(a) | bfloat16(b) << 16;
}

// A number of a pooling window with the position of its largest output in the last two bits, which
// the products round away anyhow.
__device__ float marked(float value, int position) {
    return __uint_as_float((__float_as_uint(value) & ~3u) | position);
}
__device__ int position_of(float value) { return __float_as_uint(value) & 3; }
__device__ float unmarked(float value) { return __uint_as_float(__float_as_uint(value) & ~3u); }

// Where in an image the patch of a quad's first output begins, and how far the others are from it.
__device__ int corner(unsigned quad) {
    return quad / QUADS_W * QUAD_DOWN + quad % QUADS_W * QUAD_RIGHT;
}
__device__ int beside(int t) {
    return POOL == 2 ? t / 2 * STRIDE_H * ROW + t % 2 * STRIDE_W : t * STRIDE_W;
}
__device__ constexpr int patch_place(int place) {
    return place / KERNEL_W * DILATION_H * ROW + place % KERNEL_W * DILATION_W;
}

__device__ void fill_with_zeros(float *to, int count) {
    for (int k = threadIdx.x; k < count; k += THREADS) to[k] = 0;
}

// Copy `count` images to shared memory. The loads of a batch do not wait for each other.
__device__ void copy_images(float *images, const Number *from, int count) {
    constexpr int BATCH = 8;
    unsigned total = count * (C * H * W / VECTOR);
    for (unsigned begin = threadIdx.x; begin < total; begin += THREADS * BATCH) {
        float2 found[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            unsigned k = begin + b * THREADS;
            if (k < total) found[b] = load(from + k * VECTOR);
        }
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            unsigned k = begin + b * THREADS, line = k / (W / VECTOR),
                     x = k % (W / VECTOR) * VECTOR;
            unsigned plane = line / H, y = line % H;
            float *to =
                images + plane / C * IMAGE + plane % C * PLANE + (y + PAD_H) * ROW + x + PAD_W;
            if (k >= total) break;
            if (VECTOR == 2)
                *(float2 *)to = make_float2(rounded(found[b].x), rounded(found[b].y));
            else
                *to = rounded(found[b].x);
        }
    }
}

// The line (run, example, output channel) of a row (run, output channel), counted from that of the
// first run.
__device__ unsigned line_of(unsigned row, unsigned first_run, unsigned examples) {
    return (row / OUT - first_run) * examples * OUT + row % OUT;
}

// Keep the first factors of `tiles` x `steps` products as the threads of a warp need them.
// `weight(row, step, half, t)` is the number at (row, t + 4 half) of a tile.
template <class Weight>
__device__ void keep_factors(float4 *factors, int tiles, int steps, Weight weight) {
    for (int k = threadIdx.x; k < tiles * steps * 32; k += THREADS) {
        int row = k / (steps * 32) * 16 + k % 32 / 4, step = k / 32 % steps, t = k % 4;
        factors[k] = make_float4(weight(row, step, 0, t), weight(row + 8, step, 0, t),
                                 weight(row, step, 1, t), weight(row + 8, step, 1, t));
    }
}

// Whether numbers around an image are read that copying does not write.
constexpr bool SURROUNDED = PAD_H > 0 || PAD_W > 0 || POOL == 1;

#ifdef FORWARD
// Rows are (run, output channel), columns outputs of the convolution, the depth is the patch: four
// channels at a time, and two of their places in the kernel. A warp computes TILES_M x TILES_N
// tiles.
constexpr int CHANNEL_GROUPS = (C + 3) / 4;
constexpr int PLACE_STEPS = (PLACES + 1) / 2;
constexpr int STEPS = CHANNEL_GROUPS * PLACE_STEPS;
constexpr int GROUPS_N = ((QUADS + 1) / 2 + TILES_N - 1) / TILES_N;
constexpr int STAGED = 2 * TILES_N;  // windows of a row that a warp writes together
constexpr int AT_ONCE = 32 / STAGED;

__device__ float weight_of_forward(const Number *weight, int row, int rows, int step, int half,
                                   int t) {
    int c = step / PLACE_STEPS * 4 + t, place = step % PLACE_STEPS * 2 + half;
    return row < rows && c < C && place < PLACES
               ? rounded(number(weight[(row * C + c) * PLACES + place]))
               : 0;
}

// Where the outputs of one example go.
struct Target {
    Number *out;
    signed char *which;
    const Number *bias;
    unsigned rows, examples, first_run;
};

__device__ void write(const Target &to, unsigned row, unsigned window, float value, int position) {
    unsigned at = line_of(row, to.first_run, to.examples) * WINDOWS + window;
    value += number(to.bias[row]);
    if (SELECTS) to.which[at] = RELU && !(value > 0) ? -1 : position;
    store(to.out + at, RELU && value <= 0 ? 0 : value);  // not-a-number stays
}

#if POOL == 2
// Whether `b` replaces `a` as the largest so far; not-a-number counts as largest.
__device__ bool larger(float b, float a) { return b > a || b != b; }

// Write the largest outputs of every window of 16 rows. Two threads have a window's four outputs of
// two rows, and each takes one row. Results pass through shared memory, so that a row's windows are
// written together.
__device__ void write_tiles(float (&sum)[TILES_N][4], unsigned first_row, unsigned first_quad,
                            const Target &to, float *staged) {
    int lane = threadIdx.x % 32, group = lane / 4, t = lane % 4, half = t % 2;
#pragma unroll
    for (int n = 0; n < TILES_N; n++) {
        float *own = sum[n];
        bool later[2] = {larger(own[1], own[0]), larger(own[3], own[2])};
        float best[2] = {marked(later[0] ? own[1] : own[0], 2 * half + later[0]),
                         marked(later[1] ? own[3] : own[2], 2 * half + later[1])};
        float kept = half ? best[1] : best[0];
        float other = __shfl_xor_sync(0xffffffffu, half ? best[0] : best[1], 1);
        bool is_before = position_of(other) < position_of(kept);
        bool replaced = is_before ? !larger(unmarked(kept), unmarked(other))
                                  : larger(unmarked(other), unmarked(kept));
        staged[(group + 8 * half) * STAGED + 2 * n + t / 2] = replaced ? other : kept;
    }
    __syncwarp();
    unsigned window = first_quad + lane % STAGED;
#pragma unroll
    for (int begin = 0; begin < 16; begin += AT_ONCE) {
        int own = begin + lane / STAGED;
        if (lane >= AT_ONCE * STAGED || own >= 16 || first_row + own >= to.rows || window >= QUADS)
            continue;
        float value = staged[own * STAGED + lane % STAGED];
        write(to, first_row + own, window, unmarked(value), position_of(value));
    }
    __syncwarp();
}
#else
__device__ void write_tiles(float (&sum)[TILES_N][4], unsigned first_row, unsigned first_quad,
                            const Target &to, float *staged) {
    int lane = threadIdx.x % 32, group = lane / 4, t = lane % 4;
#pragma unroll
    for (int n = 0; n < TILES_N; n++) {
        unsigned quad = first_quad + 2 * n + t / 2;
#pragma unroll
        for (int e = 0; e < 4; e++) {
            unsigned row = first_row + group + e / 2 * 8,
                     x = quad % QUADS_W * 4 + t % 2 * 2 + e % 2;
            if (row < to.rows && quad < QUADS && x < WINDOWS_W)
                write(to, row, quad / QUADS_W * WINDOWS_W + x, sum[n][e], 0);
        }
    }
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    kernel(const Number *__restrict__ inputs, const Number *__restrict__ weight,
           const Number *__restrict__ bias, Number *__restrict__ out,
           signed char *__restrict__ which, int rows, int examples) {
    float *images = memory;
    float4 *factors = (float4 *)(images + EXAMPLES * IMAGE);  // TILES_M x STEPS x 32
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, t = lane % 4;
    float *staged = (float *)(factors + TILES_M * STEPS * 32) + warp * 16 * STAGED;
    unsigned first_row = blockIdx.y * TILES_M * 16;
    long long first_run = (long long)blockIdx.z * (rows / OUT);
    inputs += (long long)blockIdx.z * examples * C * H * W;
    weight += first_run * OUT * C * PLACES;
    bias += first_run * OUT;
    if (SURROUNDED) fill_with_zeros(images, EXAMPLES * IMAGE);
    keep_factors(factors, TILES_M, STEPS, [&](int row, int step, int half, int own) {
        return weight_of_forward(weight, first_row + row, rows, step, half, own);
    });
    for (int first = blockIdx.x * EXAMPLES; first < examples; first += gridDim.x * EXAMPLES) {
        int count = min(EXAMPLES, examples - first);
        __syncthreads();
        copy_images(images, inputs + (long long)first * C * H * W, count);
        __syncthreads();
        for (int unit = warp; unit < count * GROUPS_N; unit += WARPS) {
            int example = unit / GROUPS_N, first_quad = unit % GROUPS_N * TILES_N * 2;
            const float *patches[TILES_N];
#pragma unroll
            for (int n = 0; n < TILES_N; n++) {
                int quad = min(first_quad + 2 * n + group / 4, QUADS - 1);
                patches[n] = images + example * IMAGE + corner(quad) + beside(group % 4);
            }
            long long line = ((first_run + first_row / OUT) * examples + first + example) * OUT;
            Target to = {out + line * WINDOWS, which + line * WINDOWS, bias,
                         unsigned(rows),       unsigned(examples),     first_row / OUT};
            float sum[TILES_M][TILES_N][4] = {};
#pragma unroll 1
            for (int channels = 0; channels < CHANNEL_GROUPS; channels++) {
                int own = min(channels * 4 + t, C - 1) * PLANE;
                const float4 *factor = factors + channels * PLACE_STEPS * 32 + lane;
#pragma unroll
                for (int step = 0; step < PLACE_STEPS; step++) {
                    float4 a[TILES_M];
#pragma unroll
                    for (int m = 0; m < TILES_M; m++) a[m] = factor[(m * STEPS + step) * 32];
#pragma unroll
                    for (int n = 0; n < TILES_N; n++) {
                        const float *patch = patches[n] + own;
                        float b0 = patch[patch_place(2 * step)];
                        float b1 = patch[patch_place(min(2 * step + 1, PLACES - 1))];
#pragma unroll
                        for (int m = 0; m < TILES_M; m++) multiply(sum[m][n], a[m], b0, b1);
                    }
                }
            }
#pragma unroll
            for (int m = 0; m < TILES_M; m++)
                write_tiles(sum[m], first_row + 16 * m, first_quad, to, staged);
        }
    }
}
#endif

#ifdef WEIGHT_GRADIENT
// For each example apart: rows are (run, output channel), columns the kernel's numbers, the depth
// outputs of the convolution, CHUNK rows of quads at a time. Each example has SETS warps, and each
// of those computes 16 rows and TILES_N tiles. KEPT is the distance of two rows of kept gradients.
constexpr int COLUMNS = C * PLACES;
constexpr int PER_QUAD = POOL == 2 ? 1 : 4;
constexpr int LINE = QUADS_W * PER_QUAD;  // gradients in a row of quads

__device__ float gradient_at(const float *kept, int t) {
    if (POOL == 1) return kept[t];
    return position_of(kept[0]) == t ? unmarked(kept[0]) : 0;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    kernel(const Number *__restrict__ inputs, const Number *__restrict__ gradient,
           const signed char *__restrict__ which, Number *__restrict__ out,
           Number *__restrict__ out_bias, int rows, int examples) {
    float *images = memory;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, t = lane % 4;
    float *kept = images + EXAMPLES * IMAGE + warp * 16 * KEPT;
    int first = blockIdx.x * EXAMPLES, count = min(EXAMPLES, examples - first);
    int first_row = (blockIdx.y * SETS + warp % SETS) * 16;
    int first_column = blockIdx.z % COLUMN_GROUPS * TILES_N * 8, part = blockIdx.z / COLUMN_GROUPS;
    if (SURROUNDED) {
        fill_with_zeros(images, EXAMPLES * IMAGE);
        __syncthreads();
    }
    copy_images(images, inputs + ((long long)part * examples + first) * C * H * W, count);
    __syncthreads();
    if (warp / SETS >= count) return;
    unsigned first_run = first_row / OUT;
    long long first_line =
        ((part * (rows / OUT) + (long long)first_run) * examples + first + warp / SETS) * OUT;
    gradient += first_line * WINDOWS;
    which += SELECTS ? first_line * WINDOWS : 0;
    out += first_line * COLUMNS;
    out_bias += first_line;
    const float *patches[TILES_N];
#pragma unroll
    for (int n = 0; n < TILES_N; n++) {
        int column = min(first_column + n * 8 + group, COLUMNS - 1);
        patches[n] = images + warp / SETS * IMAGE + column / PLACES * PLANE +
                     patch_place(column % PLACES) + beside(t);
    }
    float sum[TILES_N][4] = {}, sum_bias[2] = {};
#pragma unroll 1
    for (int begin = 0; begin < WINDOWS_H; begin += CHUNK) {
        __syncwarp();
        for (int at = lane; at < CHUNK * LINE; at += 32) {
            int y = begin + at / LINE, x = at % LINE;
            bool known = y < WINDOWS_H && x < WINDOWS_W;
            constexpr int BATCH = 8;
#pragma unroll 1
            for (int line = 0; line < 16; line += BATCH) {
                float values[BATCH];
                int positions[BATCH];
#pragma unroll
                for (int b = 0; b < BATCH; b++) {
                    int row = first_row + line + b;
                    unsigned from = line_of(row, first_run, examples) * WINDOWS + y * WINDOWS_W + x;
                    positions[b] = -1;
                    if (known && row < rows) {
                        values[b] = number(gradient[from]);
                        positions[b] = SELECTS ? which[from] : 0;
                    }
                }
#pragma unroll
                for (int b = 0; b < BATCH; b++) {
                    float value = positions[b] < 0 ? 0 : rounded(values[b]);
                    kept[(line + b) * KEPT + at] =
                        POOL == 2 ? marked(value, positions[b] & 3) : value;
                }
            }
        }
        __syncwarp();
#pragma unroll 1
        for (int y = 0; y < min(CHUNK, WINDOWS_H - begin); y++) {
            const float *own = kept + group * KEPT + y * LINE;
#pragma unroll
            for (int quad = 0; quad < QUADS_W; quad += 2) {
                bool second = quad + 1 < QUADS_W;
                const float *up = own + quad * PER_QUAD, *down = up + 8 * KEPT;
                float4 a = make_float4(gradient_at(up, t), gradient_at(down, t),
                                       second ? gradient_at(up + PER_QUAD, t) : 0,
                                       second ? gradient_at(down + PER_QUAD, t) : 0);
                sum_bias[0] += a.x + a.z;
                sum_bias[1] += a.y + a.w;
#pragma unroll
                for (int n = 0; n < TILES_N; n++)
                    multiply(sum[n], a, patches[n][quad * QUAD_RIGHT],
                             patches[n][(quad + second) * QUAD_RIGHT]);
            }
#pragma unroll
            for (int n = 0; n < TILES_N; n++) patches[n] += QUAD_DOWN;
        }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float whole = sum_bias[half];
        whole += __shfl_xor_sync(0xffffffffu, whole, 1);
        whole += __shfl_xor_sync(0xffffffffu, whole, 2);
        int row = first_row + half * 8 + group;
        if (row >= rows) continue;
        if (t == 0 && first_column == 0) store(out_bias + line_of(row, first_run, examples), whole);
        Number *to =
            out + (long long)line_of(row, first_run, examples) * COLUMNS + first_column + 2 * t;
#pragma unroll
        for (int n = 0; n < TILES_N; n++) {
            int left = COLUMNS - first_column - n * 8 - 2 * t;
            if (COLUMNS % 2 == 0 && left > 1) {
                store_two(to + n * 8, sum[n][2 * half], sum[n][2 * half + 1]);
            } else {
                if (left > 0) store(to + n * 8, sum[n][2 * half]);
                if (left > 1) store(to + n * 8 + 1, sum[n][2 * half + 1]);
            }
        }
    }
}
#endif

#ifdef INPUT_GRADIENT
// Rows are (channel, column of the kernel), columns (row of the image, column of the convolution's
// outputs), the depth (row of the kernel, output channel). These sums are then added along the rows
// of the image. ROW is the used width of the convolution's outputs, and PLANE numbers lie between
// its channels; rows of zeros take the place of the stride. In the sums BETWEEN zeros separate the
// rows, and KEPT is the distance of two (channel, column of the kernel).
constexpr int ROWS = C * KERNEL_W;
constexpr int COLUMNS = H * ROW;
constexpr int CHANNEL_STEPS = (OUT + 7) / 8;
constexpr int STEPS = KERNEL_H * CHANNEL_STEPS;
constexpr int GROUPS_M = ((ROWS + 15) / 16 + TILES_M - 1) / TILES_M;
constexpr int GROUPS_N = ((COLUMNS + 7) / 8 + TILES_N - 1) / TILES_N;
constexpr int ABOVE = (KERNEL_H - 1) * DILATION_H;  // rows of zeros
constexpr bool IN_PAIRS = ROW % 2 == 0 && BETWEEN % 2 == 0;

__device__ float weight_of_input(const Number *weight, int row, int step, int channel) {
    int i = step / CHANNEL_STEPS, o = step % CHANNEL_STEPS * 8 + channel;
    int place = (o * C + row / KERNEL_W) * PLACES + i * KERNEL_W + row % KERNEL_W;
    return row < ROWS && o < OUT ? rounded(number(weight[place])) : 0;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    kernel(const Number *__restrict__ weight, const Number *__restrict__ gradient,
           const signed char *__restrict__ which, Number *__restrict__ out, int examples) {
    float *images = memory, *sums = images + EXAMPLES * IMAGE;
    float4 *factors = (float4 *)(sums + EXAMPLES * ROWS * KEPT);  // GROUPS_M * TILES_M x STEPS x 32
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, t = lane % 4;
    long long run = blockIdx.y;
    weight += run * OUT * C * PLACES;
    fill_with_zeros(images, EXAMPLES * (IMAGE + ROWS * KEPT));
    keep_factors(factors, GROUPS_M * TILES_M, STEPS, [&](int row, int step, int half, int own) {
        return weight_of_input(weight, row, step, own + 4 * half);
    });
    __syncthreads();
    for (int first = blockIdx.x * EXAMPLES; first < examples; first += gridDim.x * EXAMPLES) {
        int count = min(EXAMPLES, examples - first);
        long long from = (run * examples + first) * OUT * WINDOWS;
        constexpr int BATCH = 4;
        unsigned total = count * OUT * WINDOWS;
        for (unsigned begin = threadIdx.x; begin < total; begin += THREADS * BATCH) {
            float values[BATCH];
            int positions[BATCH];
#pragma unroll
            for (int b = 0; b < BATCH; b++) {
                unsigned k = begin + b * THREADS;
                if (k < total) values[b] = number(gradient[from + k]);
                positions[b] = k < total && SELECTS ? which[from + k] : 0;
            }
#pragma unroll
            for (int b = 0; b < BATCH; b++) {
                unsigned k = begin + b * THREADS, window = k % WINDOWS, line = k / WINDOWS;
                if (k >= total) break;
                float value = rounded(values[b]);
                float *image = images + line / OUT * IMAGE + line % OUT * PLANE;
#pragma unroll
                for (int down = 0; down < POOL; down++) {
                    int y = (window / WINDOWS_W * POOL + down) * STRIDE_H + ABOVE, p = POOL * down;
                    float *to = image + y * ROW + window % WINDOWS_W * POOL;
                    if (y >= H + PAD_H + ABOVE) continue;
                    if (POOL == 1)
                        *to = positions[b] == 0 ? value : 0;
                    else
                        *(float2 *)to = make_float2(positions[b] == p ? value : 0,
                                                    positions[b] == p + 1 ? value : 0);
                }
            }
        }
        __syncthreads();
        for (int unit = warp; unit < count * GROUPS_M * GROUPS_N; unit += WARPS) {
            int example = unit / (GROUPS_M * GROUPS_N), group_m = unit / GROUPS_N % GROUPS_M;
            int first_column = unit % GROUPS_N * TILES_N * 8;
            const float *image = images + example * IMAGE + t * PLANE + first_column + group;
            float sum[TILES_M][TILES_N][4] = {};
#pragma unroll 1
            for (int i = 0; i < KERNEL_H; i++) {
                const float *shifted = image + (PAD_H + (KERNEL_H - 1 - i) * DILATION_H) * ROW;
                const float4 *factor =
                    factors + (group_m * TILES_M * STEPS + i * CHANNEL_STEPS) * 32 + lane;
#pragma unroll
                for (int step = 0; step < CHANNEL_STEPS; step++) {
                    float4 a[TILES_M];
#pragma unroll
                    for (int m = 0; m < TILES_M; m++) a[m] = factor[(m * STEPS + step) * 32];
#pragma unroll
                    for (int n = 0; n < TILES_N; n++) {
                        float b0 = shifted[step * 8 * PLANE + n * 8];
                        float b1 = shifted[(step * 8 + 4) * PLANE + n * 8];
#pragma unroll
                        for (int m = 0; m < TILES_M; m++) multiply(sum[m][n], a[m], b0, b1);
                    }
                }
            }
            float *to = sums + (example * ROWS + group_m * TILES_M * 16 + group) * KEPT;
#pragma unroll
            for (int n = 0; n < TILES_N; n++) {
                unsigned column = first_column + n * 8 + 2 * t;
                float *at = to + column / ROW * (ROW + BETWEEN) + column % ROW + BETWEEN;
                float *after = column % ROW + 1 < ROW ? at + 1 : at + 1 + BETWEEN;
#pragma unroll
                for (int m = 0; m < TILES_M * 2; m++) {
                    if (group_m * TILES_M * 16 + m * 8 + group >= ROWS || column >= COLUMNS)
                        continue;
                    float *own = sum[m / 2][n] + m % 2 * 2;
                    if (IN_PAIRS) {
                        *(float2 *)(at + m * 8 * KEPT) = make_float2(own[0], own[1]);
                    } else {
                        at[m * 8 * KEPT] = own[0];
                        if (column + 1 < COLUMNS) after[m * 8 * KEPT] = own[1];
                    }
                }
            }
        }
        __syncthreads();
        for (unsigned k = threadIdx.x; k < count * C * H * W; k += THREADS) {
            unsigned x = k % W, y = k / W % H, line = k / (H * W);  // line: (example, channel)
            const float *row = sums + line * KERNEL_W * KEPT + y * (ROW + BETWEEN) + BETWEEN;
            float value = 0;
#pragma unroll
            for (int j = 0; j < KERNEL_W; j++) {
                int there = int(x) + PAD_W - j * DILATION_W;
                // Without a stride and padding the zeros between the rows are at both ends.
                if (PAD_W == 0 && STRIDE_W == 1)
                    value += row[j * KEPT + there];
                else if (there >= 0 && there % STRIDE_W == 0 && there / STRIDE_W < ROW)
                    value += row[j * KEPT + there / STRIDE_W];
            }
            store(out + (run * examples + first) * C * H * W + k, value);
        }
    }
}
#endif
