// Runs one launch of a kernel: the case comes from standard input, what became of its
// arrays goes to standard output. Integers are 8 bytes, little-endian.
//
//   case:    length of the name, name, grid x, grid y, threads, shared bytes, reverse,
//            barrier to leave out, count of parameters, and each: 0 and a value;
//            1, the length of an array, its bytes; or 2 and how many arrays: one of
//            their addresses, which are only read
//   answer:  count of barriers that were reached, then of each array its bytes
//
// An array ends where a page does that must not be touched, or up to 15 bytes before
// it, which must keep their value.
#include "kernels.h"

#include <cstdio>
#include <cstdlib>
#include <csignal>
#include <list>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace {

void read_bytes(void *to, size_t n) {
  if (n > 0 && fread(to, 1, n, stdin) != n) exit(65);
}

u64 read_number() {
  u64 v;
  read_bytes(&v, 8);
  return v;
}

struct Array {
  u8 *at = nullptr;
  size_t bytes = 0, slack = 0;
};

const u8 guard = 0x5a;

Array read_array() {
  Array a;
  a.bytes = read_number();
  a.slack = (16 - a.bytes % 16) % 16;
  const size_t page = sysconf(_SC_PAGESIZE), whole = (a.bytes + a.slack + page - 1) / page * page;
  u8 *map = (u8 *)mmap(nullptr, whole + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(map, page, PROT_NONE), mprotect(map + page + whole, page, PROT_NONE);
  memset(map + page, guard, whole);
  a.at = map + page + whole - a.slack - a.bytes;
  read_bytes(a.at, a.bytes);
  return a;
}

void check_guards(const Array &a) {
  const size_t page = sysconf(_SC_PAGESIZE);
  for (size_t i = 0; i < a.slack; i++)
    if (a.at[a.bytes + i] != guard) emulator::fail("a write behind the end of an array");
  for (u8 *p = (u8 *)((uintptr_t)a.at / page * page); p < a.at; p++)
    if (*p != guard) emulator::fail("a write before the start of an array");
}

void outside(int) {
  const char text[] = "emulator: an address outside every array\n";
  if (write(2, text, sizeof text - 1) < 0) _exit(71);
  _exit(70);
}

} // namespace

int main() {
  static u8 stack[64 << 10]; // of the handler: a fiber's is small
  stack_t other = {};
  other.ss_sp = stack, other.ss_size = sizeof stack;
  sigaltstack(&other, nullptr);
  struct sigaction action = {};
  action.sa_handler = outside, action.sa_flags = SA_ONSTACK;
  sigaction(SIGSEGV, &action, nullptr), sigaction(SIGBUS, &action, nullptr);

  std::string name(read_number(), ' ');
  read_bytes(name.data(), name.size());
  Index grid = {(u32)read_number(), 0};
  grid.y = (u32)read_number();
  const u32 threads = (u32)read_number();
  const size_t shared = read_number();
  emulator::options.reverse = read_number() != 0, emulator::options.skip = (int)read_number();
  std::vector<u64> values(read_number());
  std::vector<Array> arrays;
  std::list<std::vector<u64>> addresses;
  for (u64 &v : values) switch (read_number()) {
    case 0:
      v = read_number();
      break;
    case 1:
      arrays.push_back(read_array());
      v = (u64)arrays.back().at;
      break;
    default:
      addresses.emplace_back(read_number());
      for (u64 &address : addresses.back()) {
        const Array a = read_array();
        address = a.bytes > 0 ? (u64)a.at : 0;
      }
      v = (u64)addresses.back().data();
    }
  const emulator::Kernel *kernel = emulator::find(name.c_str());
  if (!kernel || kernel->parameters != values.size()) {
    fprintf(stderr, "emulator: no kernel %s of %zu parameters\n", name.c_str(), values.size());
    return 64;
  }
  std::vector<void *> parameters;
  for (u64 &v : values) parameters.push_back(&v);
  emulator::launch(grid, threads, shared, [&] { kernel->run(parameters.data()); });

  const u64 barriers = emulator::barriers.size();
  fwrite(&barriers, 8, 1, stdout);
  for (const Array &a : arrays) {
    check_guards(a);
    fwrite(a.at, 1, a.bytes, stdout);
  }
  return 0;
}
