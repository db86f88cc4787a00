// Rows of a table, weights and queries, put where and as the other kernels want them.
#pragma once
#include "platform.cuh"

// rows_pack: a warp a row. A gate that is not finite becomes NaN, so that the tensor-core
// kernels see it: they take −Inf for a weight of 0.
KERNEL BLOCK(256, 4) rows_pack(const float *source, const u32 *numbers, float *rows, u16 *halves, float *gates, u32 *largest,
                               u64 count, u64 first, u64 features, u64 width, u64 stride, u64 pairs_query, u64 pairs_item) {
  const u32 lane = threadIdx.x % 32, pq = low(pairs_query), px = low(pairs_item), pairs = pq * px;
  u32 top = 0;
  for (u64 r = blockIdx.x * 8u + threadIdx.x / 32; r < count; r += gridDim.x * 8u) {
    u64 to = numbers ? numbers[r] : first + r;
    for (u32 c = lane; c < features; c += 32) {
      float x = source[r * features + c];
      if (rows) rows[to * features + c] = x;
      if (c < width) {
        if (!halves) continue;
        halves[to * stride + c] = to_half(x);
        u32 size = bits_of(x) & 0x7fffffffu;
        if (finite_bits(size) && size > top) top = size;
      } else if (gates) {
        u32 l = c - low(width);
        gates[to * pairs + l % px * pq + l / px] = finite_bits(bits_of(x)) ? x : float_of(0x7fc00000u);
      }
    }
    if (halves)
      for (u64 c = width + lane; c < stride; c += 32) halves[to * stride + c] = 0;
  }
  for (int m = 16; m > 0; m /= 2) {
    u32 other = shuffle_xor(top, m);
    if (other > top) top = other;
  }
  if (lane == 0 && top > 0) atomicMax(largest, top);
}

// rows_move: a warp a row.
KERNEL BLOCK(256, 4) rows_move(u32 *to, const u32 *from, const u32 *targets, const u32 *sources, u64 count, u64 words) {
  for (u64 r = blockIdx.x * 8u + threadIdx.x / 32; r < count; r += gridDim.x * 8u) {
    u64 target = targets ? targets[r] : r, source = sources ? sources[r] : r;
    for (u64 c = threadIdx.x % 32; c < words; c += 32) to[target * words + c] = from[source * words + c];
  }
}

// mol_weights: a thread an element of either layer. A layer whose output is activated
// makes half of it (half_silu); of the second that is so with silu.
KERNEL BLOCK(256, 4) mol_weights(const float *first, const float *bias, const float *second, u16 *out,
                                 u64 pairs_query, u64 pairs_item, u64 width, u64 silu) {
  const u32 pq = low(pairs_query), px = low(pairs_item), pairs = pq * px, hidden = low(width);
  const u32 at = blockIdx.x * 256u + threadIdx.x, all = hidden * pairs;
  if (at >= all) return;
  u32 h = at / pairs, l = at % pairs, p = l % px * pq + l / px;
  out[h * pairs + p] = to_half(.5f * first[at]);
  out[all + p * hidden + h] = to_half((silu ? .5f : 1.f) * second[l * hidden + h]);
  if (at < hidden) ((float *)(out + 2 * all))[at] = .5f * bias[at];
}

// queries_pack: a thread a number.
KERNEL BLOCK(256, 4) queries_pack(const float *components, u16 *out, u64 rows, u64 padded, u64 dim, u64 stride) {
  const u64 at = blockIdx.x * 256u + threadIdx.x, row = at / stride, column = at % stride;
  if (row < padded) out[at] = row < rows && column < dim ? to_half(components[row * dim + column]) : (u16)0;
}
