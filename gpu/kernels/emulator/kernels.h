// The kernels by name, with their parameters taken from where a launch has them.
#pragma once
#define EMULATED
#include "../cuda/kernels.cu"
#include "../cuda/limits.cu"

namespace emulator {

template <class... A, size_t... I> void call(void (*kernel)(A...), void **parameters, std::index_sequence<I...>) {
  static_assert(((sizeof(A) == 8) && ...), "every parameter has 8 bytes");
  kernel(*(A *)parameters[I]...);
}
template <class... A> void call(void (*kernel)(A...), void **parameters) { call(kernel, parameters, std::index_sequence_for<A...>{}); }
template <class... A> constexpr size_t count(void (*)(A...)) { return sizeof...(A); }

struct Kernel {
  const char *name;
  size_t parameters;
  void (*run)(void **parameters);
};

#define ENTRY(name) {#name, count(name), [](void **p) { call(name, p); }}
static const Kernel kernels[] = {
    ENTRY(dot_rows), ENTRY(dot_screen), ENTRY(mol_exact), ENTRY(mol_weights), ENTRY(queries_pack), ENTRY(rows_move), ENTRY(rows_pack), ENTRY(top_k),
    ENTRY(mol_scan_8x8x32x128), ENTRY(mol_rescore_8x8x32x128),
    ENTRY(mol_scan_8x4x64x128), ENTRY(mol_rescore_8x4x64x128),
    ENTRY(mol_scan_8x4x128x128), ENTRY(mol_rescore_8x4x128x128),
    ENTRY(mol_scan_4x4x64x128), ENTRY(mol_rescore_4x4x64x128),
    ENTRY(mol_scan_4x4x768x128), ENTRY(mol_rescore_4x4x768x128),
    ENTRY(limit_fma), ENTRY(limit_exp2), ENTRY(limit_reciprocal), ENTRY(limit_tanh), ENTRY(limit_tensor), ENTRY(limit_read),
};
#undef ENTRY

inline const Kernel *find(const char *name) {
  for (const Kernel &k : kernels)
    if (strcmp(k.name, name) == 0) return &k;
  return nullptr;
}

} // namespace emulator
