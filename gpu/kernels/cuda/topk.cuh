// The best entries of every part of a query's scores.
#pragma once
#include "platform.cuh"

static const u32 absent = 0xffffffffu;

struct TopKStats {
  float next;
  u32 kept, scored, not_finite;
};

// topk_key orders scores: 0 is one that is not finite.
DEVICE u32 topk_key(float score) {
  u32 b = bits_of(score);
  if (!finite_bits(b)) return 0;
  if (b == 0x80000000u) b = 0; // −0 is 0
  return b >> 31 ? ~b : b | 0x80000000u;
}

DEVICE float topk_score(u32 key) {
  if (key == 0) return float_of(0xff800000u);
  return float_of(key >> 31 ? key & 0x7fffffffu : ~key);
}

// TopKEntries are those of a part. An entry's place in the order is a number of 64
// bits, the key of its score above the complement of its row, and the greater is the
// better.
struct TopKEntries {
  const float *scores;
  const u32 *rows, *live, *bitmap;
  u32 first, begin, end;

  MEMBER u32 row(u32 i) const { return rows ? rows[i] : first + i; }

  MEMBER bool counts(u32 r) const {
    return r != absent && (!live || live[r / 32] >> r % 32 & 1) && (!bitmap || bitmap[r / 32] >> r % 32 & 1);
  }

  // each calls take(i, place) for the entries of this thread that count. A thread reads
  // four entries at a time, so that it waits for memory once in four.
  template <class Take> MEMBER void each(Take take) const {
    enum { at_once = 4 };
    for (u32 i = begin + threadIdx.x; i < end; i += at_once * blockDim.x) {
      float score[at_once];
      u32 number[at_once];
#pragma unroll
      for (u32 k = 0; k < at_once; k++) {
        const u32 at = i + k * blockDim.x < end ? i + k * blockDim.x : i;
        score[k] = scores[at], number[k] = row(at);
      }
#pragma unroll
      for (u32 k = 0; k < at_once; k++)
        if (i + k * blockDim.x < end && counts(number[k])) take(i + k * blockDim.x, (u64)topk_key(score[k]) << 32 | (u32)~number[k]);
    }
  }
};

// TopKBlock is a block's shared memory.
struct TopKBlock {
  u64 greatest, least; // place of an entry
  u32 bins[256];
  u32 scored, not_finite;
  u32 digit, above, inside; // what topk_digit found
  u32 slots, equals, next;
};

DEVICE u32 warp_sum(u32 x) {
  for (int m = 16; m > 0; m /= 2) x += shuffle_xor(x, m);
  return x;
}

DEVICE u32 warp_greatest(u32 x) {
  for (int m = 16; m > 0; m /= 2) {
    const u32 y = shuffle_xor(x, m);
    if (y > x) x = y;
  }
  return x;
}

DEVICE u64 warp_pick(u64 x, bool greatest) {
  for (int m = 16; m > 0; m /= 2) {
    u64 y = (u64)shuffle_xor((u32)(x >> 32), m) << 32 | shuffle_xor((u32)x, m);
    if ((y > x) == greatest) x = y;
  }
  return x;
}

// topk_count counts the entries and finds the first and the last place.
DEVICE void topk_count(TopKBlock &s, const TopKEntries &e) {
  u32 scored = 0, not_finite = 0;
  u64 greatest = 0, least = ~(u64)0;
  e.each([&](u32, u64 p) {
    scored++;
    if (p >> 32 == 0) not_finite++;
    if (p > greatest) greatest = p;
    if (p < least) least = p;
  });
  scored = warp_sum(scored), not_finite = warp_sum(not_finite);
  greatest = warp_pick(greatest, true), least = warp_pick(least, false);
  if (threadIdx.x % 32 != 0) return;
  atomicAdd(&s.scored, scored), atomicAdd(&s.not_finite, not_finite);
  atomicMax(&s.greatest, greatest), atomicMin(&s.least, least);
}

// topk_digit finds the bin that holds the need-th entry from above: its number, how
// many are above it, and how many inside. The first warp does it.
DEVICE void topk_digit(TopKBlock &s, u32 need) {
  const u32 lane = threadIdx.x, top = 255 - 8 * lane; // a lane has eight bins
  u32 mine = 0;
  for (u32 b = 0; b < 8; b++) mine += s.bins[top - b];
  u32 through = mine; // in bins from the last to mine
  for (u32 d = 1; d < 32; d *= 2) {
    u32 before = shuffle_from(through, lane >= d ? lane - d : lane);
    if (lane >= d) through += before;
  }
  u32 above = through - mine;
  if (above >= need || through < need) return;
  for (u32 b = 0;; b++) {
    const u32 inside = s.bins[top - b];
    if (above + inside >= need) {
      s.digit = top - b, s.above = above, s.inside = inside;
      return;
    }
    above += inside;
  }
}

// top_k: radix selection, eight bits at a time from the first bit in which places
// differ. A thread block has a part.
KERNEL BLOCK(256, 4) top_k(const float *scores, const u32 *rows, const u32 *starts, const u32 *live, const u64 *bitmaps,
                           float *out_scores, u32 *out_rows, TopKStats *out_stats, const TopKStats *in_stats, u64 in_parts,
                           u64 first, u64 count, u64 part, u64 keep) {
  SHARED(shared);
  TopKBlock &s = *(TopKBlock *)shared;
  const u32 tid = threadIdx.x, q = blockIdx.y, wanted = low(keep);
  const u64 base = starts ? starts[q] : q * count, entries = starts ? starts[q + 1] - starts[q] : count;
  const u64 begin = blockIdx.x * part, end = begin + part;
  const TopKEntries e = {scores + base, rows ? rows + base : 0, live, bitmaps ? (const u32 *)bitmaps[q] : 0, low(first),
                         low(begin < entries ? begin : entries), low(end < entries ? end : entries)};
  if (tid == 0) s.greatest = 0, s.least = ~(u64)0, s.scored = s.not_finite = s.slots = s.equals = s.next = 0;
  __syncthreads();
  topk_count(s, e);
  __syncthreads();

  const u32 scored = s.scored;
  u64 prefix = 0, mask = 0; // places whose bits of mask are above prefix are kept, and
  u32 need = wanted;        // need of those whose bits are prefix
  if (scored > wanted) {
    u32 open = 64 - (s.greatest == s.least ? 64 : leading_zeros(s.greatest ^ s.least)); // bits to decide
    mask = open == 64 ? 0 : ~(u64)0 << open;
    prefix = s.greatest & mask;
    for (bool whole = false; open > 0 && !whole;) {
      const u32 bits = open < 8 ? open : 8;
      open -= bits;
      s.bins[tid] = 0;
      __syncthreads();
      e.each([&](u32, u64 p) {
        if ((p & mask) == prefix) atomicAdd(&s.bins[p >> open & ((1u << bits) - 1)], 1u);
      });
      __syncthreads();
      if (tid < 32) topk_digit(s, need);
      __syncthreads();
      prefix |= (u64)s.digit << open;
      mask = ~(u64)0 << open;
      need -= s.above;
      whole = s.inside == need;
    }
  }

  const u64 place = ((u64)q * gridDim.x + blockIdx.x) * wanted;
  u32 next = 0; // the best key of this thread that is left out
  e.each([&](u32 i, u64 p) {
    const u64 m = p & mask;
    if (m > prefix || (m == prefix && atomicAdd(&s.equals, 1u) < need)) {
      const u32 slot = atomicAdd(&s.slots, 1u);
      out_scores[place + slot] = e.scores[i], out_rows[place + slot] = ~low(p);
    } else if ((u32)(p >> 32) > next) {
      next = (u32)(p >> 32);
    }
  });
  next = warp_greatest(next);
  if (tid % 32 == 0) atomicMax(&s.next, next);
  __syncthreads();
  for (u32 i = s.slots + tid; i < wanted; i += blockDim.x) out_scores[place + i] = float_of(0xff800000u), out_rows[place + i] = absent;
  if (tid != 0) return;
  TopKStats stats = {topk_score(s.next), s.slots, s.scored, s.not_finite};
  if (in_stats) {
    stats.scored = stats.not_finite = 0;
    for (u64 i = 0; blockIdx.x == 0 && i < in_parts; i++) {
      const TopKStats &in = in_stats[q * in_parts + i];
      stats.scored += in.scored, stats.not_finite += in.not_finite;
      if (in.next > stats.next) stats.next = in.next;
    }
  }
  out_stats[(u64)q * gridDim.x + blockIdx.x] = stats;
}
