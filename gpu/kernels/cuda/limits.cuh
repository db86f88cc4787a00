// What a device does at most: each kernel does one thing as fast as it can be done,
// and little beside. Of block 0 the clocks from its begin to its end are written.
#pragma once
#include "platform.cuh"

// chains: a thread advances so many numbers at once, each of which waits for its own
// last step only, and a block has 256 threads.
static const int chains = 8;

// Clocked writes how long a block took, when it ends.
struct Clocked {
  u64 *to, began;

  MEMBER void begin(u64 *clocks) {
    to = clocks;
    began = clock_cycles();
  }
  MEMBER void end() {
    __syncthreads();
    if (blockIdx.x == 0 && threadIdx.x == 0) *to = clock_cycles() - began;
  }
};

// advance takes all chains of a thread so many steps, and writes their sum.
template <class Step> DEVICE void advance(float *out, u64 *clocks, u64 rounds, Step step) {
  Clocked clocked;
  clocked.begin(clocks);
  float x[chains];
#pragma unroll
  for (int i = 0; i < chains; i++) x[i] = (float)(i + 1) * .125f;
  for (u64 r = 0; r < rounds; r++) {
#pragma unroll
    for (int n = 0; n < 8; n++) {
#pragma unroll
      for (int i = 0; i < chains; i++) x[i] = step(x[i]);
    }
  }
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < chains; i++) sum += x[i];
  out[(u64)blockIdx.x * blockDim.x + threadIdx.x] = sum;
  clocked.end();
}

// limit_fma: a multiply-add is also an instruction issued and little else. factor has
// the bits of a float32.
KERNEL BLOCK(256, 8) limit_fma(float *out, u64 *clocks, u64 rounds, u64 factor) {
  const float f = float_of(low(factor));
  advance(out, clocks, rounds, [f](float x) { return fmaf(x, f, f); });
}

KERNEL BLOCK(256, 8) limit_exp2(float *out, u64 *clocks, u64 rounds, u64) {
  advance(out, clocks, rounds, [](float x) { return fast_exp2(-x); });
}

KERNEL BLOCK(256, 8) limit_reciprocal(float *out, u64 *clocks, u64 rounds, u64) {
  advance(out, clocks, rounds, [](float x) { return fast_reciprocal(1.f + x); }); // without the sum there is nothing to do
}

KERNEL BLOCK(256, 8) limit_tanh(float *out, u64 *clocks, u64 rounds, u64) {
  advance(out, clocks, rounds, [](float x) { return fast_tanh(x); });
}

// limit_tensor: eight products of 16×16 by 16×8 a warp and round, of ones by factor, two
// halves.
KERNEL BLOCK(256, 4) limit_tensor(float *out, u64 *clocks, u64 rounds, u64 factor) {
  Clocked clocked;
  clocked.begin(clocks);
  const u32 ones = two_halves(1.f, 1.f), f = low(factor);
  const u32 a[4] = {ones, ones, ones, ones};
  float c[chains][4];
#pragma unroll
  for (int i = 0; i < chains; i++) {
#pragma unroll
    for (int e = 0; e < 4; e++) c[i][e] = 0.f;
  }
  for (u64 r = 0; r < rounds; r++) {
#pragma unroll
    for (int i = 0; i < chains; i++) multiply(c[i], a, f, f);
  }
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < chains; i++) {
#pragma unroll
    for (int e = 0; e < 4; e++) sum += c[i][e];
  }
  out[(u64)blockIdx.x * blockDim.x + threadIdx.x] = sum;
  clocked.end();
}

// limit_read reads count pieces of 16 bytes, and writes the sum of their words modulo
// 2³² for each thread.
KERNEL BLOCK(256, 8) limit_read(u32 *out, u64 *clocks, const Sixteen *from, u64 count) {
  Clocked clocked;
  clocked.begin(clocks);
  const u64 step = (u64)gridDim.x * blockDim.x;
  u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  const u64 thread = at;
  u32 sum = 0;
  for (; at + 3 * step < count; at += 4 * step) { // four of them on their way at once
    const Sixteen a = from[at], b = from[at + step], c = from[at + 2 * step], d = from[at + 3 * step];
    sum += a.x + a.y + a.z + a.w + b.x + b.y + b.z + b.w + c.x + c.y + c.z + c.w + d.x + d.y + d.z + d.w;
  }
  for (; at < count; at += step) {
    const Sixteen a = from[at];
    sum += a.x + a.y + a.z + a.w;
  }
  out[thread] = sum;
  clocked.end();
}
