// MoL on tensor cores. A warp scores 32 items for one query at a time: two tiles of 16
// items as the rows of a product, whose columns are eight query components. What the
// product leaves in a lane's registers is, rounded to half, an operand of the next
// product, so that logits, hidden layer and gates never leave registers. That wants
// pairs in the order j·P_Q + i, in which weights, biases and the items' gates are put.
// With four components a query, two queries are the columns, and two lanes exchange
// what belongs to the other's.
#pragma once
#include "platform.cuh"

#define UNROLL _Pragma("unroll")

static const float log2e = 1.44269504f;

// half_silu is silu(2h) = h + h·tanh(h): one special function, to 2⁻¹¹ of |h|. So what is
// activated is made half as large: the hidden layer by its weights, gates by theirs and by
// what queries add.
DEVICE float half_silu(float h) { return fmaf(h, fast_tanh(h), h); }

// Layers are a model's, and what queries add to the gates, in shared memory. Rows of
// halves are 16 bytes longer than they are: load_matrices then finds eight of them in
// different banks.
template <int L, int H> struct Layers {
  enum { first_row = L + 8, second_row = H + 8, gate_row = L + 8 };
  u16 *first, *second;               // [H][first_row], [L][second_row]
  float *first_bias, *bias, *factor; // [H], [query][L] twice

  // end is the memory behind, for some queries.
  MEMBER u8 *place(u8 *memory, u32 queries) {
    first = (u16 *)memory, second = first + H * first_row;
    first_bias = (float *)(second + L * second_row);
    bias = first_bias + H, factor = bias + queries * L;
    return (u8 *)(factor + queries * L);
  }

  MEMBER void load(const u16 *weights, u32 threads) {
    for (u32 i = threadIdx.x; i < H * L / 8; i += threads) {
      copy_async(first + i / (L / 8) * first_row + i % (L / 8) * 8, weights + i * 8);
      copy_async(second + i / (H / 8) * second_row + i % (H / 8) * 8, weights + H * L + i * 8);
    }
    for (u32 i = threadIdx.x; i < H / 4; i += threads) copy_async(first_bias + i * 4, (const float *)(weights + 2 * H * L) + i * 4);
  }

  // load_queries brings bias and factor of the block's queries into the order of pairs;
  // half of them where gates are activated.
  MEMBER void load_queries(const float *all_bias, const float *all_factor, u32 first_query, u32 queries, bool silu, u32 pq, u32 threads) {
    const u32 px = L / pq;
    for (u32 i = threadIdx.x; i < queries * L; i += threads) {
      const u32 l = i % L, to = i / L * L + l % px * pq + l / px;
      const float share = silu ? .5f : 1.f;
      bias[to] = share * all_bias[first_query * L + i];
      factor[to] = all_factor ? share * all_factor[first_query * L + i] : 0.f;
    }
  }
};

// Gating says what a gate is: with the items' part or without, activated or not.
struct Gating {
  bool items, silu;
};

// Limits of a query say how far above its score φ can lie: Limits in mol.go.
struct Limits {
  float base, all, all_norm, each, each_norm;
};

// quad_sums adds v over four lanes: lane t of them gets the sum of v[t].
DEVICE float quad_sums(const float (&v)[4]) {
  const bool upper = threadIdx.x & 2, odd = threadIdx.x & 1;
  float a = shuffle_xor(upper ? v[0] : v[2], 2) + (upper ? v[2] : v[0]);
  float b = shuffle_xor(upper ? v[1] : v[3], 2) + (upper ? v[3] : v[1]);
  return shuffle_xor(odd ? a : b, 1) + (odd ? b : a);
}

// bounds replaces scores of items by upper bounds of φ: of item m·16 + r·8 + g scores[2m + r],
// and p are its gates, which add up to sums[2m + r]. Each of four lanes does one of them.
template <int L>
DEVICE void bounds(const float (&logits)[2][L / 8][4], const float (&p)[2][L / 8][4], const float (&scores)[4], const float (&sums)[4],
                   const Limits &limits, float *out, int valid) {
  const int N = L / 8, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  float squares[4], apart[4]; // of the logits, and of how far gates hold them from the score
  UNROLL for (int i = 0; i < 4; i++) {
    squares[i] = apart[i] = 0.f;
    UNROLL for (int n = 0; n < N; n++) UNROLL for (int e = 0; e < 2; e++) {
      const float x = logits[i / 2][n][i % 2 * 2 + e], d = p[i / 2][n][i % 2 * 2 + e] * (x - scores[i]);
      squares[i] = fmaf(x, x, squares[i]);
      apart[i] = fmaf(d, d, apart[i]);
    }
  }
  const float score = t & 2 ? (t & 1 ? scores[3] : scores[2]) : (t & 1 ? scores[1] : scores[0]);
  const float sum = t & 2 ? (t & 1 ? sums[3] : sums[2]) : (t & 1 ? sums[1] : sums[0]);
  const float norm = fast_root(quad_sums(squares));
  const float spread = fmaf(norm, 0x1p-16f, fast_root(quad_sums(apart) + 1e-30f) * fast_reciprocal(sum));
  const float gate = fmaf(limits.each_norm, norm, limits.each);
  const float growth = fast_exp2(log2e * gate * fmaf(gate, 1.f / 24.f, 1.5f));
  const float above = fmaf(fmaf(limits.all_norm, norm, limits.all) * growth, spread, score + limits.base);
  const int item = t / 2 * 16 + t % 2 * 8 + g;
  // fminf takes what is a number; a score that is not finite stays.
  if (item < valid) out[item] = finite_bits(bits_of(score)) ? fminf(above, fmaf(norm, 1.0001f, limits.base)) : score;
}

// mix_gates makes scores of gates: z are the gates without the items' part, which it ends
// and replaces by their exponentials, of which sums are the sums. WHOLE: gating is known to
// be the usual, all of it.
template <int L, int H, bool WHOLE>
DEVICE void mix_gates(const float (&logits)[2][L / 8][4], float (&z)[2][L / 8][4], const Layers<L, H> &w, u32 query, const float *gates,
                      Gating gating, float (&scores)[4], float (&sums)[4]) {
  const int N = L / 8, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const float *factor = w.factor + query * L + 2 * t;
  UNROLL for (int m = 0; m < 2; m++) UNROLL for (int r = 0; r < 2; r++) {
    const int item = m * 16 + r * 8 + g;
    const float *gate = gates + item * w.gate_row + 2 * t;
    float top = float_of(0xff800000u);
    UNROLL for (int n = 0; n < N; n++) {
      float &x = z[m][n][r * 2], &y = z[m][n][r * 2 + 1];
      if (WHOLE || gating.items) x = fmaf(factor[n * 8], gate[n * 8], x), y = fmaf(factor[n * 8 + 1], gate[n * 8 + 1], y);
      if (WHOLE || gating.silu) x = half_silu(x), y = half_silu(y);
      top = fmaxf(top, fmaxf(x, y));
    }
    top = fmaxf(top, shuffle_xor(top, 1)), top = fmaxf(top, shuffle_xor(top, 2));
    float sum = 0.f, mixed = 0.f;
    UNROLL for (int n = 0; n < N; n++) UNROLL for (int e = 0; e < 2; e++) {
      float &p = z[m][n][r * 2 + e];
      p = fast_exp2(fmaf(p, log2e, -log2e * top)); // NaN where a gate is +Inf
      sum += p;
      mixed = fmaf(p, logits[m][n][r * 2 + e], mixed);
    }
    sum += shuffle_xor(sum, 1), mixed += shuffle_xor(mixed, 1);
    sum += shuffle_xor(sum, 2), mixed += shuffle_xor(mixed, 2);
    scores[m * 2 + r] = mixed * fast_reciprocal(sum), sums[m * 2 + r] = sum;
  }
}

// mix makes scores of logits: of 32 items for one query, in the layout of two products'
// sums, L/8 each. gates has the items' part of them. out has the scores of the items, or
// with limits, of the block's queries, upper bounds of φ; valid of the items exist.
template <int L, int H>
DEVICE void mix(const float (&logits)[2][L / 8][4], const Layers<L, H> &w, u32 query, const float *gates, Gating gating, const Limits *limits,
                float *out, int valid) {
  const int N = L / 8, lane = threadIdx.x % 32, t = lane % 4;
  u32 a[2][N / 2][4]; // the logits as rows of the next product
  UNROLL for (int m = 0; m < 2; m++) UNROLL for (int n = 0; n < N; n++) {
    a[m][n / 2][n % 2 * 2] = two_halves(logits[m][n][0], logits[m][n][1]);
    a[m][n / 2][n % 2 * 2 + 1] = two_halves(logits[m][n][2], logits[m][n][3]);
  }
  float z[2][N][4];
  const float *bias = w.bias + query * L + 2 * t;
  UNROLL for (int n = 0; n < N; n++) UNROLL for (int m = 0; m < 2; m++) UNROLL for (int e = 0; e < 4; e++) z[m][n][e] = bias[n * 8 + e % 2];

  // Sixteen of the hidden layer at a time: made, activated, and multiplied again. Two rounds
  // in a row save most moves of sums from one register to another.
  const int row = lane % 8 + lane / 16 * 8, column = lane / 8 % 2 * 8; // of a lane's matrix row
#pragma unroll 2
  for (int h0 = 0; h0 < H; h0 += 16) {
    float h[2][2][4];
    UNROLL for (int m = 0; m < 2; m++) UNROLL for (int n = 0; n < 2; n++) UNROLL for (int e = 0; e < 4; e++)
      h[m][n][e] = w.first_bias[h0 + n * 8 + 2 * t + e % 2];
    const u16 *first = w.first + (h0 + row) * w.first_row + column;
    UNROLL for (int k = 0; k < N / 2; k++) {
      u32 b[4];
      load_matrices(b, first + k * 16);
      UNROLL for (int m = 0; m < 2; m++) multiply(h[m][0], a[m][k], b[0], b[1]), multiply(h[m][1], a[m][k], b[2], b[3]);
    }
    u32 active[2][4];
    UNROLL for (int m = 0; m < 2; m++) UNROLL for (int n = 0; n < 2; n++) {
      float(&x)[4] = h[m][n];
      active[m][n * 2] = two_halves(half_silu(x[0]), half_silu(x[1]));
      active[m][n * 2 + 1] = two_halves(half_silu(x[2]), half_silu(x[3]));
    }
    const u16 *second = w.second + row * w.second_row + h0 + column;
    UNROLL for (int n = 0; n < N; n += 2) {
      u32 b[4];
      load_matrices(b, second + n * 8 * w.second_row);
      UNROLL for (int m = 0; m < 2; m++) multiply(z[m][n], active[m], b[0], b[1]), multiply(z[m][n + 1], active[m], b[2], b[3]);
    }
  }

  float scores[4], sums[4];
  if (gating.items && gating.silu) mix_gates<L, H, true>(logits, z, w, query, gates, gating, scores, sums);
  else mix_gates<L, H, false>(logits, z, w, query, gates, gating, scores, sums);
  if (limits) bounds<L>(logits, z, scores, sums, limits[query], out, valid);
  else if (t == 0)
    UNROLL for (int i = 0; i < 4; i++) {
      const int item = i * 8 + lane / 4;
      if (item < valid) out[item] = scores[i];
    }
}

// mix_group makes the scores of a group: one query of eight components, or two of four,
// of which queries exist. logits[m][j] are the sums of the product of items' component j.
template <int PQ, int PX, int H>
DEVICE void mix_group(const float (&logits)[2][PX][4], const Layers<PQ * PX, H> &w, u32 query, u32 queries, const float *gates, Gating gating,
                      const Limits *limits, float *out, u64 stride, int valid) {
  if constexpr (PQ == 8) {
    mix<PQ * PX, H>(logits, w, query, gates, gating, limits, out + query * stride, valid);
  } else {
    // A lane of t < 2 has pairs of the first query, the lane two above it the same of the
    // second. One keeps the even j of its own and gives the odd, the other the reverse.
    const bool lower = threadIdx.x % 4 < 2;
    float own[2][PX / 2][4], other[2][PX / 2][4]; // logits of the first query, of the second
    UNROLL for (int m = 0; m < 2; m++) UNROLL for (int n = 0; n < PX / 2; n++) UNROLL for (int e = 0; e < 4; e++) {
      const float even = logits[m][2 * n][e], odd = logits[m][2 * n + 1][e];
      const float got = shuffle_xor(lower ? odd : even, 2);
      own[m][n][e] = lower ? even : got;
      other[m][n][e] = lower ? got : odd;
    }
#pragma unroll 1
    for (u32 q = query; q < query + 2 && q < queries; q++) {
      mix<PQ * PX, H>(own, w, q, gates, gating, limits, out + q * stride, valid);
      UNROLL for (int m = 0; m < 2; m++) UNROLL for (int n = 0; n < PX / 2; n++) UNROLL for (int e = 0; e < 4; e++) own[m][n][e] = other[m][n][e];
    }
  }
}

// TensorArguments are the parameters of the kernels, in the order of TensorArgs.
struct TensorArguments {
  const u16 *halves;
  const float *gates;
  const u16 *weights, *components;
  const float *bias, *factor;
  const Limits *all_limits; // 0: none
  Pairs pairs;
  bool silu;

  MEMBER Gating gating() const { return Gating{gates != 0, silu}; }
  MEMBER const Limits *limits() const { return all_limits ? all_limits + pairs.query : 0; }
};

// load_gates begins to bring the items' part of the gates of a tile.
template <int L> DEVICE void load_gates(float *to, const TensorArguments &a, u32 tile, u32 items, u32 threads) {
  if (!a.gates) return;
  for (u32 i = threadIdx.x; i < items * (L / 4); i += threads) {
    u32 item = i / (L / 4), at = tile * items + item;
    if (at >= a.pairs.count) at = a.pairs.count - 1;
    copy_async(to + item * (L + 8) + i % (L / 4) * 4, a.gates + a.pairs.row(at) * L + i % (L / 4) * 4);
  }
}

// query_row is where component row r of the block's queries lies: where a block has one
// query of four components, the group's other half repeats it.
template <int PQ> DEVICE u64 query_row(const Pairs &p, u32 r) { return (u64)p.query * PQ + (p.rows ? r % PQ : r); }

// multiply_group makes the logits of 32 items, whose halves lie one after the other, and of
// a group of queries.
template <int PX, int D> DEVICE void multiply_group(float (&logits)[2][PX][4], const u16 *items, u32 item_row, const u16 *queries, u32 query_width) {
  const u32 lane = threadIdx.x % 32;
  const u16 *rows = items + lane % 16 * item_row + lane / 16 * 8;
  u32 b[D / 32][4];
  UNROLL for (int k = 0; k < D / 32; k++) load_matrices(b[k], queries + lane % 8 * query_width + lane / 8 * 8 + k * 32);
  UNROLL for (int m = 0; m < 2; m++) UNROLL for (int j = 0; j < PX; j++) {
    float(&c)[4] = logits[m][j];
    c[0] = c[1] = c[2] = c[3] = 0.f;
    UNROLL for (int k = 0; k < D / 16; k++) {
      u32 x[4];
      load_matrices(x, rows + m * 16 * item_row + j * D + k * 16);
      multiply(c, x, b[k / 2][k % 2 * 2], b[k / 2][k % 2 * 2 + 1]);
    }
  }
}

// resident keeps whole items in shared memory, and takes one group of queries after
// the other: WI warps side by side over items, WQ over groups. With two stages the next
// tile is brought while one is scored.
template <int PQ, int PX, int D, int H, int WI, int WQ, int STAGES> DEVICE void resident(u8 *memory, const TensorArguments &a) {
  const int L = PQ * PX, threads = 32 * WI * WQ, items = 32 * WI, item_row = PX * D + 8, query_width = D + 8;
  const int stage_bytes = items * (item_row * 2 + (L + 8) * 4);
  const u32 warp = threadIdx.x / 32, groups = (a.pairs.queries * PQ + 7) / 8;
  Layers<L, H> w;
  u16 *queries = (u16 *)w.place(memory, groups * 8 / PQ);
  u8 *stages = (u8 *)(queries + groups * 8 * query_width);

  auto load = [&](u32 tile, u32 stage) {
    u16 *to = (u16 *)(stages + stage * stage_bytes);
    for (u32 i = threadIdx.x; i < items * (PX * D / 8); i += threads) {
      u32 item = i / (PX * D / 8), at = tile * items + item;
      if (at >= a.pairs.count) at = a.pairs.count - 1;
      copy_async(to + item * item_row + i % (PX * D / 8) * 8, a.halves + a.pairs.row(at) * (PX * D) + i % (PX * D / 8) * 8);
    }
    load_gates<L>((float *)(to + items * item_row), a, tile, items, threads);
  };

  const u32 tiles = (a.pairs.count + items - 1) / items;
  if (blockIdx.x >= tiles) return;
  w.load(a.weights, threads);
  w.load_queries(a.bias, a.factor, a.pairs.query, a.pairs.queries, a.silu, PQ, threads);
  for (u32 i = threadIdx.x; i < groups * D; i += threads)
    copy_async(queries + i / (D / 8) * query_width + i % (D / 8) * 8, a.components + query_row<PQ>(a.pairs, i / (D / 8)) * D + i % (D / 8) * 8);
  load(blockIdx.x, 0);
  commit_copies();

  for (u32 tile = blockIdx.x, stage = 0; tile < tiles; tile += gridDim.x) {
    const u32 next = tile + gridDim.x;
    if (STAGES == 2) {
      if (next < tiles) load(next, stage ^ 1);
      commit_copies();
      wait_copies<1>();
    } else {
      wait_copies<0>();
    }
    __syncthreads();

    const u16 *mine = (const u16 *)(stages + stage * stage_bytes) + warp % WI * 32 * item_row;
    const float *gates = (const float *)(stages + stage * stage_bytes + items * item_row * 2) + warp % WI * 32 * (L + 8);
    const u32 first = tile * items + warp % WI * 32;
    for (u32 group = warp / WI; group < groups && first < a.pairs.count; group += WQ) {
      float logits[2][PX][4];
      multiply_group<PX, D>(logits, mine, item_row, queries + group * 8 * query_width, query_width);
      mix_group<PQ, PX, H>(logits, w, group * 8 / PQ, a.pairs.queries, gates, a.gating(), a.limits(), a.pairs.scores + first,
                           a.pairs.count, (int)(a.pairs.count - first));
    }

    __syncthreads(); // before the stage is written again
    if (STAGES == 2) {
      stage ^= 1;
    } else if (next < tiles) {
      load(next, 0);
      commit_copies();
    }
  }
}

// single scores for one group of queries. Each of its WARPS has tiles of 32 items and memory
// of its own, and waits for no other warp: as soon as the logits of a tile are made, it
// begins to bring the components of its next tile, and behind the gates the gates of that.
template <int PQ, int PX, int D, int H, int WARPS> DEVICE void single(u8 *memory, const TensorArguments &a) {
  const int L = PQ * PX, threads = 32 * WARPS, item_row = PX * D + 8, query_width = D + 8, warp_bytes = 32 * (item_row * 2 + (L + 8) * 4);
  const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, tiles = (a.pairs.count + 31) / 32;
  Layers<L, H> w;
  u16 *queries = (u16 *)w.place(memory, 8 / PQ), *items = (u16 *)((u8 *)(queries + 8 * query_width) + warp * warp_bytes);
  float *gates = (float *)(items + 32 * item_row);

  // Both leave out a tile that there is not, but end a group of copies.
  auto load_items = [&](u32 tile) {
    for (u32 i = lane; i < 32 * (PX * D / 8) && tile < tiles; i += 32) {
      u32 item = i / (PX * D / 8), at = tile * 32 + item;
      if (at >= a.pairs.count) at = a.pairs.count - 1;
      copy_async(items + item * item_row + i % (PX * D / 8) * 8, a.halves + a.pairs.row(at) * (PX * D) + i % (PX * D / 8) * 8);
    }
    commit_copies();
  };
  auto load_gates = [&](u32 tile) {
    for (u32 i = lane; i < 32 * (L / 4) && tile < tiles && a.gates; i += 32) {
      u32 item = i / (L / 4), at = tile * 32 + item;
      if (at >= a.pairs.count) at = a.pairs.count - 1;
      copy_async(gates + item * (L + 8) + i % (L / 4) * 4, a.gates + a.pairs.row(at) * L + i % (L / 4) * 4);
    }
    commit_copies();
  };

  const u32 step = gridDim.x * WARPS;
  u32 tile = blockIdx.x * WARPS + warp;
  if (blockIdx.x * WARPS >= tiles) return;
  w.load(a.weights, threads);
  w.load_queries(a.bias, a.factor, a.pairs.query, a.pairs.queries, a.silu, PQ, threads);
  for (u32 i = threadIdx.x; i < D; i += threads)
    copy_async(queries + i / (D / 8) * query_width + i % (D / 8) * 8, a.components + query_row<PQ>(a.pairs, i / (D / 8)) * D + i % (D / 8) * 8);
  load_items(tile), load_gates(tile);
  wait_copies<1>();
  __syncthreads(); // layers and queries are there for all
  for (; tile < tiles; tile += step) {
    wait_copies<1>();
    sync_warp(); // the components are there for all lanes
    float logits[2][PX][4];
    multiply_group<PX, D>(logits, items, item_row, queries, query_width);
    sync_warp(); // and are used up
    load_items(tile + step);
    wait_copies<1>();
    sync_warp(); // the gates are there
    mix_group<PQ, PX, H>(logits, w, 0, a.pairs.queries, gates, a.gating(), a.limits(), a.pairs.scores + tile * 32, a.pairs.count,
                         (int)(a.pairs.count - tile * 32));
    sync_warp(); // and are used up
    load_gates(tile + step);
  }
}

// streamed brings items and queries COLUMNS of a component at a time, in two stages, and
// keeps the logits of all groups of the block in registers: WQ·GROUPS of them.
template <int PQ, int PX, int D, int H, int WI, int WQ, int COLUMNS, int GROUPS> DEVICE void streamed(u8 *memory, const TensorArguments &a) {
  const int L = PQ * PX, threads = 32 * WI * WQ, items = 32 * WI, piece = COLUMNS + 8, pieces = D / COLUMNS;
  const int item_rows = items * PX, query_rows = 8 * WQ * GROUPS, stage_halves = (item_rows + query_rows) * piece;
  const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, groups = (a.pairs.queries * PQ + 7) / 8;
  Layers<L, H> w;
  float *gates = (float *)w.place(memory, groups * 8 / PQ);
  u16 *stages = (u16 *)(gates + items * (L + 8));

  const u32 tiles = (a.pairs.count + items - 1) / items;
  if (blockIdx.x >= tiles) return;
  const u32 steps = (tiles - blockIdx.x + gridDim.x - 1) / gridDim.x * pieces; // of a tile and a piece

  auto load = [&](u32 step) {
    const u32 tile = blockIdx.x + step / pieces * gridDim.x, from = step % pieces * COLUMNS;
    u16 *to = stages + step % 2 * stage_halves;
    for (u32 i = threadIdx.x; i < item_rows * (COLUMNS / 8); i += threads) { // rows lie component by component
      u32 row = i / (COLUMNS / 8), at = tile * items + row % items;
      if (at >= a.pairs.count) at = a.pairs.count - 1;
      copy_async(to + row * piece + i % (COLUMNS / 8) * 8,
                 a.halves + a.pairs.row(at) * (PX * D) + row / items * D + from + i % (COLUMNS / 8) * 8);
    }
    to += item_rows * piece;
    for (u32 i = threadIdx.x; i < groups * COLUMNS; i += threads)
      copy_async(to + i / (COLUMNS / 8) * piece + i % (COLUMNS / 8) * 8,
                 a.components + query_row<PQ>(a.pairs, i / (COLUMNS / 8)) * D + from + i % (COLUMNS / 8) * 8);
    // With the second piece: the gates of the tile before are then used up.
    if (step % pieces == 1) load_gates<L>(gates, a, tile, items, threads);
  };

  w.load(a.weights, threads);
  w.load_queries(a.bias, a.factor, a.pairs.query, a.pairs.queries, a.silu, PQ, threads);
  load(0);
  commit_copies();
  float logits[GROUPS][2][PX][4];
  for (u32 step = 0; step < steps; step++) {
    if (step + 1 < steps) load(step + 1);
    commit_copies();
    wait_copies<1>();
    __syncthreads();

    if (step % pieces == 0)
      UNROLL for (int n = 0; n < GROUPS; n++) UNROLL for (int m = 0; m < 2; m++) UNROLL for (int j = 0; j < PX; j++)
        UNROLL for (int e = 0; e < 4; e++) logits[n][m][j][e] = 0.f;
    const u16 *rows = stages + step % 2 * stage_halves + (warp % WI * 32 + lane % 16) * piece + lane / 16 * 8;
    const u16 *queries = stages + step % 2 * stage_halves + (item_rows + warp / WI * GROUPS * 8 + lane % 8) * piece + lane / 8 * 8;
    UNROLL for (int k = 0; k < COLUMNS; k += 32) {
      u32 b[GROUPS][4];
      UNROLL for (int n = 0; n < GROUPS; n++) load_matrices(b[n], queries + n * 8 * piece + k);
      UNROLL for (int m = 0; m < 2; m++) UNROLL for (int j = 0; j < PX; j++) UNROLL for (int half = 0; half < 2; half++) {
        u32 x[4];
        load_matrices(x, rows + (j * items + m * 16) * piece + k + half * 16);
        UNROLL for (int n = 0; n < GROUPS; n++) multiply(logits[n][m][j], x, b[n][half * 2], b[n][half * 2 + 1]);
      }
    }

    const u32 first = (blockIdx.x + step / pieces * gridDim.x) * items + warp % WI * 32;
    if (step % pieces == pieces - 1 && first < a.pairs.count)
      UNROLL for (int n = 0; n < GROUPS; n++) {
        const u32 group = warp / WI * GROUPS + n;
        if (group < groups)
          mix_group<PQ, PX, H>(logits[n], w, group * 8 / PQ, a.pairs.queries, gates + warp % WI * 32 * (L + 8), a.gating(), a.limits(),
                               a.pairs.scores + first, a.pairs.count, (int)(a.pairs.count - first));
      }
    __syncthreads(); // before the stage is written again
  }
}

#define TENSOR_PARAMETERS                                                                                                      \
  const u16 *halves, const float *gates, const u16 *weights, const u16 *components, const float *bias, const float *factor,  \
      const Limits *limits, const u32 *rows, const u32 *starts, float *scores, u64 first, u64 count, u64 queries, u64 silu

#define TENSOR_BODY(scorer)                                                                                                   \
  SHARED(shared);                                                                                                              \
  scorer(shared, TensorArguments{halves, gates, weights, components, bias, factor, limits,                                     \
                                 block_pairs(rows, starts, scores, first, count, queries), silu != 0});

// A shape's kernels, as `generated` in mol.go has them.
#define RESIDENT(name, PQ, PX, D, H, WI, WQ, STAGES, AT_ONCE)                                                                 \
  KERNEL BLOCK(32 * WI * WQ, AT_ONCE) name(TENSOR_PARAMETERS) { TENSOR_BODY((resident<PQ, PX, D, H, WI, WQ, STAGES>)) }
#define SINGLE(name, PQ, PX, D, H, WARPS, AT_ONCE)                                                                              \
  KERNEL BLOCK(32 * WARPS, AT_ONCE) name(TENSOR_PARAMETERS) { TENSOR_BODY((single<PQ, PX, D, H, WARPS>)) }
#define STREAMED(name, PQ, PX, D, H, WI, WQ, COLUMNS, GROUPS, AT_ONCE)                                                        \
  KERNEL BLOCK(32 * WI * WQ, AT_ONCE) name(TENSOR_PARAMETERS) { TENSOR_BODY((streamed<PQ, PX, D, H, WI, WQ, COLUMNS, GROUPS>)) }
