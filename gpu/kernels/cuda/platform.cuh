// What the kernels use of a GPU. There are two builds of one source: for the device,
// where each of these is an instruction or two, and, with EMULATED, for g++ and the
// emulator of ../emulator, which has functions of the same names.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16; // also the bits of a float16
typedef unsigned int u32;
typedef unsigned long long u64;

#ifdef EMULATED
#include "../emulator/emulator.h"
#else

#define KERNEL extern "C" __global__ void
#define BLOCK(threads, resident) __launch_bounds__(threads, resident)
#define SHARED(name) extern __shared__ __align__(128) u8 name[]
#define DEVICE static __device__ __forceinline__
#define MEMBER __device__ __forceinline__

// c += a·b: a is 16 rows of 16, b 16 rows of 8, c 16 rows of 8 (PTX: mma.m16n8k16).
// Of c a lane has columns 2t and 2t+1 of row g, then of row g+8; t = lane%4, g = lane/4.
DEVICE void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// load_matrices reads four matrices of 8 rows of 16 bytes; lane l has the address of
// row l%8 of matrix l/8, and gets bytes 4t to 4t+3 of row g of each.
DEVICE void load_matrices(u32 (&r)[4], const u16 *row) {
  u32 at = (u32)__cvta_generic_to_shared(row);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}

// copy_async begins to copy 16 bytes to shared memory; commit ends a group of copies,
// and wait_copies<N> waits for all groups of this thread but the last N.
DEVICE void copy_async(void *shared, const void *global) {
  u32 to = (u32)__cvta_generic_to_shared(shared);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}
DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DEVICE void wait_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

DEVICE u32 two_halves(float low, float high) {
  u32 d;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}
DEVICE float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEVICE float fast_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEVICE float fast_root(float x) {
  float y;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEVICE float fast_tanh(float x) { // to 2⁻¹¹ of it
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

DEVICE void sync_warp() { __syncwarp(); }

DEVICE float shuffle_xor(float v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
DEVICE u32 shuffle_xor(u32 v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
DEVICE u32 shuffle_from(u32 v, int lane) { return __shfl_sync(0xffffffffu, v, lane); }

DEVICE u32 bits_of(float x) { return __float_as_uint(x); }
DEVICE float float_of(u32 bits) { return __uint_as_float(bits); }
DEVICE int leading_zeros(u64 x) { return __clzll((long long)x); }
DEVICE u64 clock_cycles() { return (u64)clock64(); }

// Sixteen bytes, which are read at once.
struct __align__(16) Sixteen {
  u32 x, y, z, w;
};

#endif

DEVICE u16 to_half(float x) { return (u16)two_halves(x, 0.f); }

DEVICE u32 low(u64 x) { return (u32)x; }

// finite_bits: the bits of a float whose exponent is not all ones.
DEVICE bool finite_bits(u32 bits) { return (bits & 0x7f800000u) != 0x7f800000u; }

// Which entries a block scores: see Pairs in kernels.go.
struct Pairs {
  const u32 *rows;
  float *scores; // of the first entry
  u32 first, count;
  u32 query, queries; // the first query of the block, and how many

  MEMBER u64 row(u32 i) const { return rows ? rows[i] : (u64)first + i; }
};

// block_pairs: with starts, the entries of query blockIdx.y.
DEVICE Pairs block_pairs(const u32 *rows, const u32 *starts, float *scores, u64 first, u64 count, u64 queries) {
  if (!starts) return Pairs{0, scores, low(first), low(count), 0, low(queries)};
  u32 q = blockIdx.y, begin = starts[q], end = starts[q + 1];
  return Pairs{rows + begin, scores + begin, 0, end - begin, q, 1};
}
