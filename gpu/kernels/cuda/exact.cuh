// MoL of any shape in float32, in the order of the CPU's sums (package rerank/mol).
#pragma once
#include "platform.cuh"

DEVICE float exact_silu(float x) {
  if (x > 700.f) return x;
  if (!(x > -700.f)) return x * 0.f; // NaN stays, and −Inf becomes it
  return (float)((double)x / (1. + exp(-(double)x)));
}

// exact_layer writes out = bias + weights·in for the items of a tile: an output is one
// sum in the order of the inputs, and a thread makes four of one item. finish(item,
// output, sum) is what is kept of it. strides are from one item to the next.
template <class Finish>
DEVICE void exact_layer(float *out, u32 out_stride, const float *in, u32 in_stride, const float *weights, const float *bias,
                        u32 outputs, u32 inputs, u32 tile, Finish finish) {
  for (u32 at = threadIdx.x; at < (outputs + 3) / 4 * tile; at += blockDim.x) {
    const u32 item = at % tile, first = at / tile * 4;
    float sum[4];
    const float *row[4];
#pragma unroll
    for (u32 r = 0; r < 4; r++) {
      u32 o = first + r < outputs ? first + r : outputs - 1;
      sum[r] = bias[o];
      row[r] = weights + (u64)o * inputs;
    }
    for (u32 k = 0; k < inputs; k++) {
      const float x = in[item * in_stride + k];
#pragma unroll
      for (u32 r = 0; r < 4; r++) sum[r] = fmaf(row[r][k], x, sum[r]);
    }
#pragma unroll
    for (u32 r = 0; r < 4; r++)
      if (first + r < outputs) out[item * out_stride + first + r] = finish(item, first + r, sum[r]);
  }
}

// exact_logits adds up ⟨f_i, g_j⟩/τ, 32 columns of both sides at once.
DEVICE void exact_logits(float *logits, float *items, float *query, const float *table, const float *components, Pairs p, u32 from,
                         u32 tile, u32 pq, u32 px, u32 dim, u64 features) {
  const u32 pairs = pq * px;
  for (u32 at = threadIdx.x; at < tile * pairs; at += blockDim.x) logits[at / pairs * (pairs + 1) + at % pairs] = 0.f;
  for (u32 begin = 0; begin < dim; begin += 32) {
    const u32 columns = dim - begin < 32 ? dim - begin : 32;
    __syncthreads(); // the columns before are used up; the logits are zero
    for (u32 at = threadIdx.x; at < tile * px * 32; at += blockDim.x) {
      u32 c = at % 32, item = at / 32 / px, j = at / 32 % px;
      if (c < columns && from + item < p.count)
        items[at / 32 * 33 + c] = table[p.row(from + item) * features + (u64)j * dim + begin + c];
    }
    for (u32 at = threadIdx.x; at < pq * 32; at += blockDim.x)
      if (at % 32 < columns) query[at / 32 * 33 + at % 32] = components[(u64)(at / 32) * dim + begin + at % 32];
    __syncthreads();
    for (u32 at = threadIdx.x; at < tile * pairs; at += blockDim.x) {
      const u32 item = at / pairs, pair = at % pairs;
      const float *f = query + pair / px * 33, *g = items + (item * px + pair % px) * 33;
      float sum = logits[item * (pairs + 1) + pair];
      for (u32 c = 0; c < columns; c++) sum = fmaf(f[c], g[c], sum);
      logits[item * (pairs + 1) + pair] = sum;
    }
  }
}

// exact_mix writes φ = Σ softmax(gates)·logits of the items of a tile. Whatever is not
// finite makes it not finite.
DEVICE void exact_mix(const float *logits, float *gates, float *tops, Pairs p, u32 query, u32 from, u32 tile, u32 pairs) {
  const u32 stride = pairs + 1;
  if (threadIdx.x < tile) {
    float top = gates[threadIdx.x * stride];
    for (u32 l = 1; l < pairs; l++) top = fmaxf(top, gates[threadIdx.x * stride + l]);
    tops[threadIdx.x] = top;
  }
  __syncthreads();
  for (u32 at = threadIdx.x; at < tile * pairs; at += blockDim.x) {
    float *g = gates + at / pairs * stride + at % pairs;
    const float d = *g - tops[at / pairs];
    *g = (float)exp((double)d) + d * 0.f;
  }
  __syncthreads();
  if (threadIdx.x >= tile || from + threadIdx.x >= p.count) return;
  float sum = 0.f, mixed = 0.f;
  for (u32 l = 0; l < pairs; l++) {
    const float e = gates[threadIdx.x * stride + l];
    sum += e;
    mixed = fmaf(e, logits[threadIdx.x * stride + l], mixed);
  }
  p.scores[(u64)query * p.count + from + threadIdx.x] = mixed / sum;
}

// mol_exact: a block scores tile items for query blockIdx.y at once. first and second
// may be 0: there is no such layer.
KERNEL BLOCK(256, 2) mol_exact(const float *table, const float *first, const float *first_bias, const float *second,
                               const float *components, const float *bias, const float *factor, const u32 *rows,
                               const u32 *starts, float *scores, u64 first_row, u64 count, u64 queries, u64 silu,
                               u64 pairs_query, u64 pairs_item, u64 dimension, u64 width, u64 features, u64 tile_items) {
  SHARED(shared);
  const u32 pq = low(pairs_query), px = low(pairs_item), pairs = pq * px, dim = low(dimension), hidden = low(width), tile = low(tile_items);
  float *logits = (float *)shared, *gates = logits + tile * (pairs + 1), *layer = gates + tile * (pairs + 1);
  float *tops = layer + tile * hidden + tile, *items = tops, *query = items + tile * px * 33; // tops are written later
  const Pairs p = block_pairs(rows, starts, scores, first_row, count, queries);
  const u32 q = blockIdx.y, own = starts ? 0 : q; // the query, and where its scores are
  bias += (u64)q * pairs, factor += (u64)q * pairs, components += (u64)q * pq * dim;
  const u64 behind = (u64)px * dim;
  for (u64 at = blockIdx.x; at * tile < p.count; at += gridDim.x) {
    const u32 from = low(at * tile);
    exact_logits(logits, items, query, table, components, p, from, tile, pq, px, dim, features);
    __syncthreads();
    const float *in = logits;
    u32 inputs = second ? pairs : 0, stride = pairs + 1;
    if (second && hidden > 0) {
      exact_layer(layer, hidden + 1, logits, stride, first, first_bias, hidden, pairs, tile,
                  [](u32, u32, float x) { return exact_silu(x); });
      in = layer, inputs = hidden, stride = hidden + 1;
      __syncthreads();
    }
    exact_layer(gates, pairs + 1, in, stride, second, bias, pairs, inputs, tile, [&](u32 item, u32 l, float x) {
      if (features > behind && from + item < p.count) x = fmaf(factor[l], table[p.row(from + item) * features + behind + l], x);
      return silu ? exact_silu(x) : x;
    });
    __syncthreads();
    exact_mix(logits, gates, tops, p, own, from, tile, pairs);
    __syncthreads(); // before the next tile's columns take the place of the tops
  }
}
