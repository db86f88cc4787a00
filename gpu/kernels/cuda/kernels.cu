// All kernels of the module. The shapes are those of `generated` in ../mol.go.
#include "dot.cuh"
#include "exact.cuh"
#include "rows.cuh"
#include "screen.cuh"
#include "tensor.cuh"
#include "topk.cuh"

RESIDENT(mol_scan_8x8x32x128, 8, 8, 32, 128, 2, 4, 2, 1)
SINGLE(mol_rescore_8x8x32x128, 8, 8, 32, 128, 2, 2)
RESIDENT(mol_scan_8x4x64x128, 8, 4, 64, 128, 2, 4, 2, 1)
SINGLE(mol_rescore_8x4x64x128, 8, 4, 64, 128, 4, 2)
RESIDENT(mol_scan_8x4x128x128, 8, 4, 128, 128, 2, 4, 1, 1)
SINGLE(mol_rescore_8x4x128x128, 8, 4, 128, 128, 2, 2)
RESIDENT(mol_scan_4x4x64x128, 4, 4, 64, 128, 2, 4, 2, 1)
SINGLE(mol_rescore_4x4x64x128, 4, 4, 64, 128, 4, 2)
STREAMED(mol_scan_4x4x768x128, 4, 4, 768, 128, 1, 8, 64, 2, 1)
STREAMED(mol_rescore_4x4x768x128, 4, 4, 768, 128, 2, 1, 64, 1, 2)
