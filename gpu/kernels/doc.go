// Package kernels contains the GPU kernels as PTX, with the kernels' names, the geometry of
// their launches, and the order of their parameters. It runs nothing and needs no GPU.
//
//	tools/gpu.sh kernels     # kernels.ptx by a pinned NVRTC (CUDA 12.0, compute capability 8.0 and above); --check compares
//	go test ./gpu/kernels    # g++ against emulator/: every kernel against the CPU
//	tools/gpu.sh fake        # a libcuda.so.1 of the same kernels, on which the plugin runs unchanged
//
// No kernel has run on a GPU yet. What is said of time is counted in the compiled code or
// worked out on paper.
//
// # Kernels
//
//   - rows_pack: float32 feature rows to a table, for uploads and patches; rows_move
//     copies rows of an array, for compaction
//   - mol_weights, queries_pack: layers and query vectors to float16, once a model and
//     once a batch
//   - mol_scan_PxXxDxH: MoL of all rows, up to 32 queries at once, on tensor cores; with
//     Limits upper bounds of it. mol_rescore_PxXxDxH: the same of rows that each query names
//   - mol_exact: MoL in float32, any shape, in the order of the CPU's sums: the fallback,
//     and the last word on survivors
//   - dot_screen, dot_rows: one inner product a row (dot, bilinear, RBE, rows of max-sim,
//     MoL with query gates), on tensor cores with upper bounds of it, and in float32
//   - top_k: the best K of every part of the scores, ties by row, under bitmaps, with the
//     best score that was left out
//
// # Data
//
// A table on the device consists of up to three arrays: the feature rows in float32, which
// mol_exact and dot_rows read, and, for tensor cores, the components in float16 and the
// item's part of the gates in float32, which rows_pack derives from the rows.
//
// A query consists of three float32 arrays: Components (f_i·(1/τ), P_Q rows of D numbers),
// Bias (the start value of each gate), and Factor (the factor of the item's part of each
// gate). Pairs are in the order i·P_X + j; the tensor-core kernels use another order
// internally.
//
// Scores are φ in float32, and not finite if a feature is not finite. Row numbers are
// uint32 and less than Absent.
//
// # MoL on tensor cores
//
// A warp scores 32 items for one query. Items are the rows of a 16×8×16 product, query
// components its eight columns. The sums that a lane holds are, rounded to half, the
// operand of the next product, so logits, hidden layer and gates stay in registers, in the
// pair order j·P_Q + i. With P_Q = 4 two queries fill the columns, and lanes two apart
// exchange what belongs to the other's query.
//
//   - resident: layers, queries and a tile of items lie in shared memory; the next tile is
//     copied meanwhile. One group of queries is scanned by the kernel for rescoring, whose
//     warps differ in items.
//   - streamed (D = 768): 64 columns of a component at a time; the logits of 32 queries
//     wait in registers.
//
// # What limits it
//
// Special functions, 16 a clock and multiprocessor. For 32 items and one query (P_Q = P_X
// = 8, D = 32, H = 128), in a lane's instructions:
//
//   - hidden layer: tanh, silu(x) = h + h·tanh(h), h = x/2: 128
//   - gates: two exponentials and one reciprocal for two SiLUs: 96
//   - softmax: 64 + 4
//   - an upper bound of φ: two roots, an exponential, a reciprocal: 4
//   - all (456 with an exponential and a reciprocal for every SiLU): 296
//
// That is 592 clocks. About 2,500 instructions are issued at four a clock, 630 clocks, so
// issue is the limit by a little. On paper 674,044 items for 32 queries take 1.8 ms on 132
// multiprocessors at 1.755 GHz. No kernel spills (ptxas 12.4, sm_90; 238 registers a
// thread at most). Untried: exponentials of gates in pairs of halves; wgmma; more than
// four warps a multiprocessor.
//
// # Precision
//
// Operands are float16; sums, items' gates, gates and softmax float32. By the
// manufacturer: tanh 2⁻¹¹ of itself (HiddenError), exponential 2⁻²², reciprocal 2⁻²³ (with
// the rounding of arguments below GateError). With Limits the score gives way to an upper
// bound of φ (package bound). A row with a feature that is not finite scores what is not
// finite; components of 65,520 and more become infinite halves (RowsPackArgs.Largest).
//
// In the emulator (tanh of eleven bits) scores of testdata/golden/mol are within 0.0092 of
// the CPU's, of scores up to 11; mol_exact agrees within 2·10⁻⁶ of the largest score. The
// order of the hardware's sums is not documented; the emulator's is by columns.
//
// # Tests
//
// cuda/ has two builds: PTX for the device, and an emulator. make gpu runs the devices'
// kit, every shape, and a whole sidecar on the fake driver (emulator/driver.cpp), leaves
// out each barrier in turn (TestBarriers), checks that the pinned compiler makes this PTX
// of the sources, and assembles it for sm_80, sm_90, sm_100 and sm_120. Faults of the PTX,
// races between blocks or lanes, the hardware's rounding and speed do not show.
//
// # A further shape
//
// P_Q is 4 or 8; P_X even, for P_Q = 4 a multiple of four; D a multiple of 32, H of 16. Add
// a line to generated in mol.go, two to cuda/kernels.cu, two to emulator/kernels.h, and a
// case to tensor_test.go; run tools/gpu.sh kernels. It should not spill, and ScanQueries
// should be 16 at least. A device with too little shared memory for a shape (most with 99
// KiB a block) scores it by mol_exact, as all other shapes.
package kernels
