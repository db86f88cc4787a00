// Package kernels contains the GPU kernels as PTX, with the kernels' names, the geometry of
// their launches, and the order of their parameters. It runs nothing and needs no GPU.
// README.md says how the kernels are built and tested.
//
// A table on the device consists of up to three arrays: the feature rows in float32, which
// the Exact and Dot kernels read, and, for shapes with tensor-core kernels, the components
// in float16 and the item's part of the gates in float32, which RowsPack derives from the
// rows.
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
package kernels
