// Runs CUDA kernels on a CPU, for tests. The threads of a block are coroutines that take turns; a
// thread gives up its turn where it must wait for others. Shared memory starts as not-a-number.
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

using std::max;
using std::min;

#define EMULATED
#define __device__ static inline
#define __global__ static
#define __launch_bounds__(...)

struct float2 {
    float x, y;
};
struct float4 {
    float x, y, z, w;
};
struct Three {
    int x, y, z;
};
static float2 make_float2(float x, float y) { return {x, y}; }
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

static float __uint_as_float(unsigned bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}
static unsigned __float_as_uint(float value) {
    unsigned bits;
    memcpy(&bits, &value, 4);
    return bits;
}

static Three threadIdx, blockIdx, gridDim;
static std::vector<float> shared, letters;  // letters: eight numbers of each thread for its warp
#define memory (shared.data())

enum Wait { NOTHING, WARP, BLOCK };
struct Thread {
    ucontext_t context;
    std::vector<char> stack;
    bool done;
    Wait wait;
};
static std::vector<Thread> threads;
static ucontext_t turns;
static int current;

static void wait_for(Wait others) {
    threads[current].wait = others;
    swapcontext(&threads[current].context, &turns);
}
static void __syncthreads() { wait_for(BLOCK); }
static void __syncwarp() { wait_for(WARP); }

static float __shfl_xor_sync(unsigned, float value, int mask) {
    int own = threadIdx.x;
    letters[own * 8] = value;
    wait_for(WARP);
    float found = letters[(own ^ mask) * 8];
    wait_for(WARP);
    return found;
}

static float rounded(float value) { return value; }

static void multiply(float (&sum)[4], const float4 &a, float b0, float b1) {
    int own = threadIdx.x, warp = own / 32 * 32, group = own % 32 / 4, t = own % 4;
    float sent[] = {a.x, a.y, a.z, a.w, b0, b1};
    memcpy(&letters[own * 8], sent, sizeof sent);
    wait_for(WARP);
    for (int e = 0; e < 4; e++) {
        double total = sum[e];
        for (int k = 0; k < 8; k++) {
            const float *first = &letters[(warp + group * 4 + k % 4) * 8];
            const float *second = &letters[(warp + (2 * t + e % 2) * 4 + k % 4) * 8];
            total += (double)first[k / 4 * 2 + e / 2] * second[4 + k / 4];
        }
        sum[e] = total;
    }
    wait_for(WARP);
}

template <class Body>
static void start(Three grid, int count, int words, Body body) {
    static Body *running;
    running = &body;
    gridDim = grid;
    letters.assign(count * 8, 0);
    threads.resize(count);
    for (int block = 0; block < grid.x * grid.y * grid.z; block++) {
        blockIdx = {block % grid.x, block / grid.x % grid.y, block / grid.x / grid.y};
        shared.assign(words, NAN);
        for (Thread &thread : threads) {
            thread.stack.resize(1 << 16);
            thread.done = false;
            getcontext(&thread.context);
            thread.context.uc_stack = {thread.stack.data(), 0, thread.stack.size()};
            thread.context.uc_link = &turns;
            makecontext(
                &thread.context,
                (void (*)()) +
                    [] {
                        (*running)();
                        threads[current].done = true;
                    },
                0);
        }
        for (bool left = true; left;) {
            left = false;
            for (int warp = 0; warp < count; warp += 32) {
                for (bool again = true; again;) {  // until the whole warp waits for the block
                    again = false;
                    for (current = warp; current < warp + 32; current++) {
                        if (threads[current].done) continue;
                        threadIdx = {current, 0, 0};
                        swapcontext(&turns, &threads[current].context);
                        left |= !threads[current].done;
                        again |= !threads[current].done && threads[current].wait == WARP;
                    }
                }
            }
        }
    }
}
