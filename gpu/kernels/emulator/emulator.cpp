#define EMULATED
#include "../cuda/platform.cuh"

#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <unistd.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace emulator {

Options options;
std::vector<std::pair<const char *, int>> barriers;
Index block, grid;
u32 block_threads;

namespace {

const size_t stack_bytes = 64 << 10;

// Switching is a few instructions on amd64; elsewhere it is left to ucontext.
#if defined(__x86_64__)
struct Context {
  void *stack;
};
extern "C" void emulator_switch(void **save, void *to);
asm(R"(
.text
.type emulator_switch, @function
emulator_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.size emulator_switch, .-emulator_switch
)");
void prepare(Context &c, u8 *stack, void (*run)()) {
  void **top = (void **)(stack + stack_bytes) - 2; // as if run had been called: 16 bytes, less 8
  top[0] = (void *)run, top[1] = nullptr;
  c.stack = top - 6;
}
void change(Context &from, Context &to) { emulator_switch(&from.stack, to.stack); }
#else
struct Context {
  ucontext_t c;
};
void prepare(Context &c, u8 *stack, void (*run)()) {
  getcontext(&c.c);
  c.c.uc_stack.ss_sp = stack, c.c.uc_stack.ss_size = stack_bytes;
  makecontext(&c.c, run, 0);
}
void change(Context &from, Context &to) { swapcontext(&from.c, &to.c); }
#endif

enum State { ready, at_warp, at_barrier, done };

struct Copy {
  void *to;
  u8 bytes[16];
};

struct Fiber {
  Context context;
  State state;
  std::vector<std::vector<Copy>> groups; // committed and pending, the oldest first
  std::vector<Copy> open;
};

struct Warp {
  int arrived = 0;
  void (*operation)(Part (&)[32]) = nullptr;
  Part parts[32];
};

std::vector<Fiber> fibers;
std::vector<Warp> warps;
std::vector<u8 *> stacks;
Context scheduler;
const std::function<void()> *body;
u32 current, waiting, finished;
u8 *memory;
size_t memory_bytes;

void run() {
  (*body)();
  fibers[current].state = done;
  finished++;
  change(fibers[current].context, scheduler);
  abort();
}

void pause(State s) {
  fibers[current].state = s;
  change(fibers[current].context, scheduler);
}

// run_warp runs lanes until none is ready, and reports whether any was.
bool run_warp(u32 w) {
  bool any = false;
  for (bool busy = true; busy;) {
    busy = false;
    for (u32 i = 0; i < 32; i++) {
      current = w * 32 + (options.reverse ? 31 - i : i);
      if (fibers[current].state != ready) continue;
      any = busy = true;
      change(scheduler, fibers[current].context);
    }
  }
  if (warps[w].arrived > 0) fail("an operation of a warp that not all of its lanes reach");
  return any;
}

// release lets a block go on whose threads all wait.
void release() {
  if (waiting == 0 || waiting + finished < block_threads) return;
  if (finished > 0) fail("a barrier that some threads never reach");
  waiting = 0;
  for (Fiber &f : fibers) f.state = ready;
}

void run_block() {
  memset(memory, 0xff, memory_bytes);
  waiting = finished = 0;
  warps.assign(block_threads / 32, Warp{});
  for (u32 i = 0; i < block_threads; i++) {
    fibers[i].state = ready;
    fibers[i].groups.clear(), fibers[i].open.clear();
    prepare(fibers[i].context, stacks[i], run);
  }
  while (finished < block_threads) {
    bool any = false;
    for (size_t w = 0; w < warps.size(); w++) any |= run_warp(options.reverse ? warps.size() - 1 - w : w);
    release();
    if (!any) fail("threads that wait for each other");
  }
}

float half_value(u32 bits) {
  u16 b = (u16)bits;
  _Float16 h;
  memcpy(&h, &b, 2);
  return (float)h;
}

} // namespace

u32 thread() { return current; }
u8 *shared_memory() { return memory; }

void fail(const char *what) {
  fprintf(stderr, "emulator: block (%u, %u), thread %u: %s\n", block.x, block.y, current, what);
  exit(70);
}

void check_shared(const void *p, size_t bytes, size_t alignment, const char *what) {
  const u8 *b = (const u8 *)p;
  if ((uintptr_t)p % alignment == 0 && b >= memory && b + bytes <= memory + memory_bytes) return;
  char text[200];
  snprintf(text, sizeof text, "%s at byte %td of %zu of shared memory, alignment %zu", what, b - memory, memory_bytes, alignment);
  fail(text);
}

void barrier(const char *file, int line) {
  size_t n = 0;
  while (n < barriers.size() && (barriers[n].second != line || strcmp(barriers[n].first, file) != 0)) n++;
  if (n == barriers.size()) barriers.push_back({file, line});
  if ((int)n + 1 == options.skip) return;
  waiting++;
  pause(at_barrier);
}

void together(const Part &part, void (*operation)(Part (&)[32])) {
  Warp &w = warps[current / 32];
  if (w.arrived > 0 && w.operation != operation) fail("lanes of a warp that do different things");
  w.operation = operation;
  w.parts[current % 32] = part;
  if (++w.arrived < 32) return pause(at_warp);
  w.arrived = 0;
  operation(w.parts);
  for (u32 i = current / 32 * 32; i < current / 32 * 32 + 32; i++) fibers[i].state = ready;
}

void start_copy(void *to, const void *from) {
  check_shared(to, 16, 16, "cp.async");
  if ((uintptr_t)from % 16 != 0) fail("cp.async from an address that is no multiple of 16");
  Copy c = {to, {}};
  memcpy(c.bytes, from, 16);
  memset(to, 0xff, 16);
  fibers[current].open.push_back(c);
}

void commit_copies() {
  Fiber &f = fibers[current];
  f.groups.push_back(std::move(f.open));
  f.open.clear();
}

void wait_copies(int pending) {
  if (options.skip == -1) return;
  Fiber &f = fibers[current];
  while ((int)f.groups.size() > pending) {
    for (const Copy &c : f.groups.front()) memcpy(c.to, c.bytes, 16);
    f.groups.erase(f.groups.begin());
  }
}

// add returns x + y nearly as inaccurately as the hardware may (package bound, s): the last
// of its 24 bits is dropped, which takes 2⁻²³ of the sum, and rounding 2⁻²⁴.
static float add(float x, float y) { return float_of(bits_of(x + y) & ~1u); }

void multiply(Part (&parts)[32]) {
  float a[16][16], b[16][8];
  for (int l = 0; l < 32; l++) {
    const int g = l / 4, t = l % 4;
    for (int e = 0; e < 2; e++)
      for (int upper = 0; upper < 2; upper++) {
        a[g][upper * 8 + 2 * t + e] = half_value(parts[l].a[upper * 2] >> 16 * e);
        a[g + 8][upper * 8 + 2 * t + e] = half_value(parts[l].a[upper * 2 + 1] >> 16 * e);
        b[upper * 8 + 2 * t + e][g] = half_value(parts[l].b[upper] >> 16 * e);
      }
  }
  for (int l = 0; l < 32; l++)
    for (int i = 0; i < 4; i++) {
      const int row = l / 4 + i / 2 * 8, column = l % 4 * 2 + i % 2;
      float sum = parts[l].sums[i];
      for (int k = 0; k < 16; k++) sum = add(sum, a[row][k] * b[k][column]);
      parts[l].sums[i] = sum;
    }
}

void load_matrices(Part (&parts)[32]) {
  for (int l = 0; l < 32; l++)
    for (int m = 0; m < 4; m++) memcpy((u32 *)parts[l].out + m, (const u8 *)parts[m * 8 + l / 4].in + l % 4 * 4, 4);
}

void launch(Index g, u32 threads, size_t shared, const std::function<void()> &kernel) {
  if (threads == 0 || threads % 32 != 0 || threads > 1024) {
    fprintf(stderr, "emulator: a block of %u threads\n", threads);
    exit(70);
  }
  fibers.resize(threads);
  while (stacks.size() < threads)
    stacks.push_back((u8 *)mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  // The memory ends where a page does that must not be touched.
  const size_t page = sysconf(_SC_PAGESIZE), rounded = (shared + 127) / 128 * 128, whole = (rounded + page - 1) / page * page;
  u8 *map = (u8 *)mmap(nullptr, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(map + whole, page, PROT_NONE);
  memory = map + whole - rounded, memory_bytes = shared;
  grid = g, block_threads = threads, body = &kernel;
  for (block.y = 0; block.y < g.y; block.y++)
    for (block.x = 0; block.x < g.x; block.x++) run_block();
  munmap(map, whole + page);
}

} // namespace emulator
