// Scores that are one inner product, on tensor cores: a scan screens rows by upper bounds
// of φ, and scores in float32 (dot.cuh) what may belong to the answer.
#pragma once
#include "platform.cuh"

// screen_tiles scores 128 rows at once for up to 8·GROUPS queries. A warp has 32 rows, as
// two tiles of a product whose columns are eight queries. Rows and queries pass through
// shared memory, 64 columns at a time, so each row is read from the device's memory once;
// two pieces are on their way while a third is multiplied.
template <int GROUPS>
DEVICE void screen_tiles(u8 *memory, const u16 *halves, const u16 *vectors, const float *above, const Pairs &p, u32 width) {
  enum { rows = 128, columns = 64, row = columns + 8, stages = 3, stage_halves = (rows + 8 * GROUPS) * row };
  const u32 tid = threadIdx.x, warp = tid / 32, lane = tid % 32, chunk = tid % 8 * 8;
  const u32 groups = (p.queries + 7) / 8, tiles = (p.count + rows - 1) / rows, pieces = (width + columns - 1) / columns;
  if (blockIdx.x >= tiles) return;
  const u32 steps = (tiles - blockIdx.x + gridDim.x - 1) / gridDim.x * pieces; // of a tile and a piece
  u16 *stage = (u16 *)memory;

  // load begins to copy the next piece: of the tile from row load_tile·128 on, and of the
  // queries. A thread copies 16 bytes of every sixteenth row.
  u32 load_tile = blockIdx.x, load_piece = 0, load_stage = 0;
  auto load = [&] {
    const u32 from = load_piece * columns + chunk;
    u16 *to = stage + load_stage * stage_halves + tid / 8 * row + chunk;
    if (from < width) {
#pragma unroll
      for (u32 r = 0; r < rows; r += 16) {
        u32 at = load_tile * rows + r + tid / 8;
        if (at >= p.count) at = p.count - 1;
        copy_async(to + r * row, halves + p.row(at) * width + from);
      }
#pragma unroll 1
      for (u32 r = tid / 8; r < groups * 8; r += 16) // a block of one query that names its rows repeats it
        copy_async(to + (rows + r - tid / 8) * row, vectors + (u64)(p.query + (p.rows ? 0 : r)) * width + from);
    }
    load_stage = load_stage + 1 < stages ? load_stage + 1 : 0;
    if (++load_piece == pieces) load_piece = 0, load_tile += gridDim.x;
  };

  for (u32 s = 0; s + 1 < stages; s++) {
    if (s < steps) load();
    commit_copies();
  }
  float sums[GROUPS][2][4];
  for (u32 step = 0, tile = blockIdx.x, piece = 0, now = 0; step < steps; step++) {
    wait_copies<stages - 2>();
    __syncthreads(); // the piece is there for all, and the one before is used up
    if (step + stages - 1 < steps) load();
    commit_copies();

    if (piece == 0)
#pragma unroll
      for (int n = 0; n < GROUPS; n++)
#pragma unroll
        for (int i = 0; i < 8; i++) sums[n][i / 4][i % 4] = 0.f;
    const u16 *items = stage + now * stage_halves + (warp * 32 + lane % 16) * row + lane / 16 * 8;
    const u16 *queries = stage + now * stage_halves + (rows + lane % 8) * row + lane / 8 * 8;
#pragma unroll
    for (u32 k = 0; k < columns; k += 32) {
      if (piece * columns + k >= width) break;
      u32 a[2][2][4];
#pragma unroll
      for (int i = 0; i < 4; i++) load_matrices(a[i / 2][i % 2], items + i / 2 * 16 * row + k + i % 2 * 16);
#pragma unroll
      for (u32 n = 0; n < GROUPS; n++) {
        if (n >= groups) break;
        u32 b[4];
        load_matrices(b, queries + n * 8 * row + k);
#pragma unroll
        for (int m = 0; m < 2; m++) multiply(sums[n][m], a[m][0], b[0], b[1]), multiply(sums[n][m], a[m][1], b[2], b[3]);
      }
    }
    now = now + 1 < stages ? now + 1 : 0;
    if (++piece < pieces) continue;

    // A lane has rows g and g + 8 of each tile for queries 2t and 2t + 1 of each group.
#pragma unroll
    for (int n = 0; n < GROUPS; n++)
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const u32 q = n * 8 + lane % 4 * 2 + e;
        if (q >= p.queries) continue;
        const float base = above ? above[p.query + q] : 0.f;
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const u32 at = tile * rows + warp * 32 + i * 8 + lane / 4;
          if (at < p.count) p.scores[(u64)q * p.count + at] = sums[n][i / 2][i % 2 * 2 + e] + base;
        }
      }
    piece = 0, tile += gridDim.x;
  }
}

// dot_screen scores by halves of rows and vectors, whose rows have width numbers each: a
// multiple of 32. above is what makes a query's scores upper bounds of φ, or 0.
KERNEL BLOCK(128, 3) dot_screen(const u16 *halves, const u16 *vectors, const float *above, const u32 *rows, const u32 *starts,
                                float *scores, u64 first, u64 count, u64 queries, u64 width) {
  SHARED(shared);
  const Pairs p = block_pairs(rows, starts, scores, first, count, queries);
  if (p.queries <= 8) screen_tiles<1>(shared, halves, vectors, above, p, low(width));
  else screen_tiles<4>(shared, halves, vectors, above, p, low(width));
}
