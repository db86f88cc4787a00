// Scores that are one inner product, in float32.
#pragma once
#include "platform.cuh"

// dot_tiles takes 128 rows at once, a row a thread, a piece of 32 columns after the
// other through shared memory, and N queries, of which those that are not there
// multiply what lies in their place and write nothing.
template <int N>
DEVICE void dot_tiles(const float *table, const float *vectors, const float *scales, Pairs p, u64 width, float *rows, float *piece) {
  const u32 tid = threadIdx.x, warp = tid / 32, lane = tid % 32;
  for (u64 tile = blockIdx.x; tile * 128 < p.count; tile += gridDim.x) {
    const u64 mine = tile * 128 + tid;
    float sum[N];
#pragma unroll
    for (int q = 0; q < N; q++) sum[q] = 0.f;
    for (u64 from = 0; from < width; from += 32) {
      const u32 columns = width - from < 32 ? (u32)(width - from) : 32;
      __syncthreads(); // the piece before is used up
      if (lane < columns) {
#pragma unroll 8
        for (u32 r = warp; r < 128; r += 4)
          if (tile * 128 + r < p.count) rows[r * 33 + lane] = table[p.row(low(tile * 128 + r)) * width + from + lane];
        for (u32 q = warp; q < p.queries; q += 4) piece[q * 32 + lane] = vectors[(p.query + q) * width + from + lane];
      }
      __syncthreads();
      if (mine >= p.count) continue;
      for (u32 c = 0; c < columns; c++) {
        const float x = rows[tid * 33 + c];
#pragma unroll
        for (int q = 0; q < N; q++) sum[q] = fmaf(x, piece[q * 32 + c], sum[q]);
      }
    }
    if (mine >= p.count) continue;
#pragma unroll
    for (u32 q = 0; q < N; q++)
      if (q < p.queries) p.scores[(u64)q * p.count + mine] = sum[q] * scales[p.query + q];
  }
}

KERNEL BLOCK(128, 3) dot_rows(const float *table, const float *vectors, const float *scales, const u32 *rows, const u32 *starts,
                              float *scores, u64 first, u64 count, u64 queries, u64 width) {
  SHARED(shared);
  float *tile = (float *)shared, *piece = tile + 128 * 33;
  const Pairs p = block_pairs(rows, starts, scores, first, count, queries);
  if (p.queries <= 1) dot_tiles<1>(table, vectors, scales, p, width, tile, piece);
  else if (p.queries <= 8) dot_tiles<8>(table, vectors, scales, p, width, tile, piece);
  else dot_tiles<32>(table, vectors, scales, p, width, tile, piece);
}
