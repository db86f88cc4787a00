// Package kernels contains the GPU kernels as PTX and as cubins (PTX that is assembled for one
// generation of devices), with the kernels' names, the geometry of their launches, and the
// order of their parameters. It runs nothing and needs no GPU.
//
//	tools/gpu.sh kernels     # kernels.ptx by a pinned NVRTC (CUDA 12.0, compute capability 8.0 and above); --check compares
//	tools/gpu.sh assemble    # cubins/ of the PTX, for sm_80, 86, 89, 90, 100 and 120; the tag cubins embeds them
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
//     copied meanwhile.
//   - single, for rescoring and for scans of one group of queries: each warp has items of its
//     own and waits for no other. It copies the next components while it makes gates.
//   - streamed (D = 768): 64 columns of a component at a time; the logits of 32 queries
//     wait in registers.
//
// # What limits it
//
// A multiprocessor issues four instructions a clock, evaluates 16 special functions, and
// moves 128 bytes of shared memory. These are the clocks of one for 32 items and a query,
// on the way of all gates and bounds, as `tools/gpu.sh clocks` counts them in the code that
// ptxas 12.8 makes for sm_90. Tensor cores are given twice: 4 and 8 clocks a product and
// quarter of a multiprocessor.
//
//	scan         issue  special functions  tensor cores  shared memory  replay
//	4x4x64x128     241                336       64 – 128            128    507 –   599
//	8x4x64x128     355                400      160 – 320            346    709 –   925
//	8x4x128x128    368                400      192 – 384            482    757 – 1,022
//	8x8x32x128     548                528      288 – 576            506  1,028 – 1,259
//
// The special functions of 8x8x32x128, in a lane's instructions: 128 tangents of the hidden
// layer and 64 of gates (silu(x) = h + h·tanh(h), h = x/2), 64 exponentials and 4
// reciprocals of the softmax, 4 for the bound of φ: 264. With an exponential for each gate
// and a reciprocal for two in place of tangents they were 296.
//
// Latency comes on top: eight warps, as registers allow (255 a thread), do not fill what
// they wait for. The last column replays the code in order, with latencies guessed low and
// high: 674,044 items of 8x8x32 for 32 queries take 3.0 to 3.7 ms on 132 multiprocessors at
// 1.755 GHz. Twelve warps would take 2.5 to 3.2 ms by the same replay (-warps 12), but keep
// 46 numbers a thread outside registers, for which the cache has no room: not taken. One
// query reads 517 MB, 0.155 ms at 3.35 TB/s; with its four warps a multiprocessor (-warps 4
// -queries 1) the replay takes 0.14 to 0.19 ms, while the next tile is read.
//
// dot_screen reads 2·F bytes a row once, for 32 queries: 350,000 rows of 768 are 0.16 ms at
// 3.35 TB/s. Issue (about 290 instructions for 32 rows and 64 columns) is 0.04 ms of that,
// shared memory 0.06. Nothing of this section was measured. Untried: wgmma and TMA;
// exponentials of gates in pairs of halves.
//
// # Precision
//
// Operands are float16; sums, items' gates, gates and softmax float32. By the
// manufacturer: tanh 2⁻¹¹ of itself (SiLUError), exponential 2⁻²², reciprocal 2⁻²³ (with
// the rounding of arguments below ExponentialError). With Limits the score gives way to an upper
// bound of φ (package bound). A row with a feature that is not finite scores what is not
// finite; components of 65,520 and more become infinite halves (RowsPackArgs.Largest).
//
// In the emulator (tanh of eleven bits, sums of products truncated to 23) scores of
// testdata/golden/mol are within 0.014 of the CPU's, of scores up to 11; mol_exact agrees
// within 2·10⁻⁶ of the largest score. The order of the hardware's sums is not documented;
// the emulator's is by columns.
//
// # Tests
//
// cuda/ has two builds: PTX for the device, and an emulator. make gpu runs the devices'
// kit, every shape, and a whole sidecar on the fake driver (emulator/driver.cpp), leaves
// out each barrier in turn (TestBarriers), checks that the pinned compiler makes this PTX
// of the sources, and assembles it. Faults of the PTX,
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
