// The kernels' platform on a CPU: a block's threads are fibers of one thread, and
// operations of a warp or a block are rendezvous. Blocks run one after the other.
//
// A warp runs until all its lanes wait at a barrier or are done, then the next warp:
// the schedule in which a missing barrier shows most. It runs in either order. Shared
// memory begins as 0xff bytes, which are NaN, and so does the target of an asynchronous
// copy from its start until it is waited for. Wrong alignment, addresses outside shared
// memory, and warps of which not all lanes take part end the program with a message.
//
// What it cannot show: rounding and special functions of the hardware, races between
// blocks or within a warp, and the speed.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define KERNEL extern "C" void
#define BLOCK(...)
#define DEVICE static inline
#define MEMBER inline
#define SHARED(name) u8 *name = emulator::shared_memory()
#define __syncthreads() emulator::barrier(__FILE__, __LINE__)

struct Index {
  u32 x, y;
};

namespace emulator {

// Options of all launches.
struct Options {
  bool reverse = false; // the last warp and the last lane first
  int skip = 0;         // leave out the barrier of this number; -1: waits for copies
};
extern Options options;

// Barriers that were reached, by file and line; their numbers count from 1.
extern std::vector<std::pair<const char *, int>> barriers;

// launch runs a kernel, which body calls with its parameters.
void launch(Index grid, u32 threads, size_t shared, const std::function<void()> &body);

// Of the fiber that runs.
u32 thread();
extern Index block, grid;
extern u32 block_threads;
u8 *shared_memory();
[[noreturn]] void fail(const char *what);
void check_shared(const void *p, size_t bytes, size_t alignment, const char *what);
void barrier(const char *file, int line);

// A lane's part of an operation of its warp.
struct Part {
  const void *in;
  void *out;
  float *sums;
  const u32 *a;
  u32 b[2];
  int lane;
};

// together waits for all lanes of the warp, the last of which runs operation for all.
void together(const Part &part, void (*operation)(Part (&)[32]));

void start_copy(void *to, const void *from);
void commit_copies();
void wait_copies(int pending);

void multiply(Part (&)[32]);
void load_matrices(Part (&)[32]);

template <class T> void exchange(Part (&parts)[32]) {
  T all[32];
  for (int l = 0; l < 32; l++) memcpy(&all[l], parts[l].in, sizeof(T));
  for (int l = 0; l < 32; l++) memcpy(parts[l].out, &all[parts[l].lane], sizeof(T));
}

template <class T> T exchange(T v, int lane) {
  T out;
  together(Part{&v, &out, nullptr, nullptr, {0, 0}, lane & 31}, exchange<T>);
  return out;
}

} // namespace emulator

#define threadIdx (Index{emulator::thread(), 0})
#define blockIdx (emulator::block)
#define gridDim (emulator::grid)
#define blockDim (Index{emulator::block_threads, 1})

inline void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  emulator::together(emulator::Part{nullptr, nullptr, c, a, {b0, b1}, 0}, emulator::multiply);
}
inline void load_matrices(u32 (&r)[4], const u16 *row) {
  emulator::check_shared(row, 16, 16, "ldmatrix");
  emulator::together(emulator::Part{row, r, nullptr, nullptr, {0, 0}, 0}, emulator::load_matrices);
}
inline void copy_async(void *shared, const void *global) { emulator::start_copy(shared, global); }
inline void commit_copies() { emulator::commit_copies(); }
template <int N> inline void wait_copies() { emulator::wait_copies(N); }

inline void sync_warp() { emulator::exchange(0, 0); }

inline float shuffle_xor(float v, int mask) { return emulator::exchange(v, (int)(emulator::thread() % 32) ^ mask); }
inline u32 shuffle_xor(u32 v, int mask) { return emulator::exchange(v, (int)(emulator::thread() % 32) ^ mask); }
inline u32 shuffle_from(u32 v, int lane) { return emulator::exchange(v, lane); }

inline u32 half_bits(float x) {
  _Float16 h = (_Float16)x;
  u16 bits;
  memcpy(&bits, &h, 2);
  return bits;
}
inline u32 two_halves(float low, float high) { return half_bits(low) | half_bits(high) << 16; }
inline u32 bits_of(float x) {
  u32 b;
  memcpy(&b, &x, 4);
  return b;
}
inline float float_of(u32 b) {
  float x;
  memcpy(&x, &b, 4);
  return x;
}
inline float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.f, x) : x; }
inline float fast_exp2(float x) { return flushed(exp2f(flushed(x))); }
inline float fast_reciprocal(float x) { return flushed(1.f / flushed(x)); }
inline float fast_root(float x) { return flushed(std::sqrt(flushed(x))); }
inline float fast_tanh(float x) { // rounded to eleven bits, as far off as the hardware's may be
  const float y = tanhf(x);
  return float_of((bits_of(y) + 0xfffu + (bits_of(y) >> 13 & 1)) & ~0x1fffu);
}
inline int leading_zeros(u64 x) { return x ? __builtin_clzll(x) : 64; }
inline u64 clock_cycles() { // one more each time
  static u64 now;
  return ++now;
}
struct alignas(16) Sixteen {
  u32 x, y, z, w;
};

template <class T> inline T atomicAdd(T *p, T v) {
  T old = *p;
  *p = old + v;
  return old;
}
template <class T> inline T atomicMax(T *p, T v) {
  T old = *p;
  if (v > old) *p = v;
  return old;
}
template <class T> inline T atomicMin(T *p, T v) {
  T old = *p;
  if (v < old) *p = v;
  return old;
}
