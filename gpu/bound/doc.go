// Package bound bounds the error of scores that a device's kernels compute. Some of the
// bounds hold before any item is seen; the kernels combine them with an item's own logits
// and gates.
//
// In this package, "norm" is the Euclidean norm, or for matrices an upper bound of the
// spectral norm. W is a layer's weight matrix and Ŵ is W rounded to float16.
//
// # The formulae
//
// A scan writes an upper bound of φ: φ̂, its score by float16 operands with float32 sums,
// and what rounding may have taken. The K′ rows with the best bounds are scored in
// float32. An answer is proved once its last row scores more than the best bound that was
// not kept. This package computes the five numbers (kernels.Limits) of each query and
// table that the kernels need. Tests compare adversarial rows and weights with φ in
// float64 (go test ./gpu/bound -v) and with the CPU's (go test ./gpu/kernels -run
// TensorScan -v). None exceeds its bound.
//
// u = 2⁻¹¹ is the relative rounding of float16, 2⁻²⁵ the absolute one below its normal numbers, s
// = 2⁻²² the error of one addition of a tensor core, which may truncate, η = 2⁻¹² that of the
// hidden layer's SiLU in units of its argument, σ = 2⁻¹⁶ that of a gate's SiLU and of an
// exponential by the approximate instructions, 1.1 above the slope of SiLU. ‖·‖ of a matrix is its
// spectral norm, bounded by (tr (WᵀW)⁶⁴)^(1/128); ‖·‖_F ≥ ‖·‖. A hat is on what the kernels have.
// λ are the logits over τ, L of them, V the rows f_i/τ.
//
//   - Rows. While a table is uploaded, the greatest ‖ĝ_j − g_j‖ =: ℓ_j and the greatest norm N_j
//     of each component are measured. The item's part of the gates stays float32. A number that
//     is too large for float16 ends bounds for the table.
//   - Logits. Each is off by |λ̂ − λ| ≤ ‖v_i‖·ℓ_j + (‖v̂_i − v_i‖ + (D+4)·s·(‖v_i‖ + ‖v̂_i −
//     v_i‖))·N_j, at most D₁ of all. All of them together, since ⟨v_i, ĝ_j − g_j⟩ over i is
//     V·(ĝ_j − g_j): ‖λ̂ − λ‖ ≤ E with E² = Σ_j (‖V‖·ℓ_j + (‖V̂ − V‖ + (D+4)·s·(‖V‖_F + ‖V̂ −
//     V‖_F))·N_j)².
//   - Hidden layer. Its operands are off by e = E + u·‖λ̂‖ + √L·2⁻²⁵, and a = (1+u)·‖λ̂‖ +
//     √L·2⁻²⁵ is their norm. So ‖Δh‖ ≤ 1.1·(‖W₁‖·e + (‖ΔW₁‖ + (L+2)·s·‖Ŵ₁‖_F)·a + (L+2)·s·‖b₁‖) +
//     (η + u)·x + √H·2⁻²⁵, x = (‖W₁‖ + ‖ΔW₁‖ + (L+2)·s·‖Ŵ₁‖_F)·a + (1 + (L+2)·s)·‖b₁‖ being above
//     the norm of what is activated, and of the layer, since |silu(x)| ≤ |x|.
//   - Gates. The inputs of the softmax are off by ‖Δ‖ ≤ ‖W₂‖·‖Δh‖ + (‖ΔW₂‖ + (H+2)·s·‖Ŵ₂‖_F)·‖ĥ‖ +
//     float32 roundings, and each by the same with the longest row for the norm of W₂; times
//     1.1, and with σ·|z|, for glu_silu. Exponentials add 2σ and 2⁻²⁰·max |z| to each.
//   - All of this is a number and a multiple of the item's own ‖λ̂‖, several times less than what
//     is known before it is seen: ‖Δ‖ ≤ A + A′·‖λ̂‖ and each |Δ_p| ≤ δ = B + B′·‖λ̂‖.
//   - Score. For π = softmax(z) and π̂ = softmax(z + Δ), Σ π̂·(λ̂ − φ̂) = 0, so Σ π·λ̂ − φ̂ ≤
//     e^δ·(e^δ − 1)/δ·‖Δ‖·‖π̂ ⊙ (λ̂ − φ̂)‖, as for the CPU's screen (package mol). (e^δ − 1)/δ =
//     e^(δ/2)·sinh(δ/2)/(δ/2) ≤ e^(δ/2 + δ²/24). The kernels compute the last factor for every
//     item.
//
// φ ≤ φ̂ + D₁ + (A + A′·‖λ̂‖)·e^(3δ/2 + δ²/24)·(‖π̂ ⊙ (λ̂ − φ̂)‖ + 2⁻¹⁶·‖λ̂‖) + sums, and φ ≤ max
// λ ≤ ‖λ̂‖ + D₁.
//
// 2⁻¹⁶·‖λ̂‖ is for φ̂ in the last factor being rounded itself; the sums, of the softmax and of the
// bound, are (L+8)·2⁻²³·max|λ̂| and 2⁻²² of what ‖λ̂‖ can be. The five numbers have a thousandth
// on top, for the arithmetic that they are used in. Nothing is claimed where a logit or the hidden
// layer could exceed 65,000, of more than 120 pairs, and of one inner product, which is not
// approximated at all: it is read once in float32.
//
// Scores that are returned are float32 in the order of the CPU's sums. Their own error is
// γ_{d+2}·‖u‖·N for one inner product, which is proved, and 2·10⁻⁵ of the largest logit over τ
// where gates are computed, which is not: it is twice what the CPU's kernels keep, and what tests
// hold the kernels to.
package bound
