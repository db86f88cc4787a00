// Package bound bounds the error of scores that a device's kernels compute. Some of the
// bounds hold before any item is seen; the kernels combine them with an item's own logits
// and gates.
//
// In this package, "norm" is the Euclidean norm, or for matrices an upper bound of the
// spectral norm. W is a layer's weight matrix and Ŵ is W rounded to float16.
//
// # The formulae
//
// A scan writes an upper bound of φ: φ̂, its score by float16 operands with float32 sums, plus
// the possible rounding error. The K′ rows with the best bounds are scored in float32. An
// answer is proved once its last row scores more than the best bound that was not kept. This
// package computes the five numbers (kernels.Limits) of each query and table that the kernels
// need. Tests compare adversarial rows and weights with φ in float64 (go test ./gpu/bound -v)
// and with the CPU's scores (go test ./gpu/kernels -run TensorScan -v). None exceeds its bound.
//
// The constants:
//
//   - u = 2⁻¹¹, the relative error of rounding to float16; 2⁻²⁵ is the absolute error below its
//     normal numbers.
//   - s = 2⁻²², the error of one addition in a tensor core, which may truncate.
//   - η = 2⁻¹² + 2⁻²², the error of SiLU, in the hidden layer and of gates, in units of its
//     argument.
//   - σ = 2⁻¹⁶, the error of an exponential by the approximate instruction.
//   - 1.1, more than the greatest slope of SiLU.
//
// ‖·‖ of a matrix is its spectral norm, bounded by (tr (WᵀW)⁶⁴)^(1/128); ‖·‖_F ≥ ‖·‖. A hat marks
// the values of the kernels. λ are the logits over τ, L of them, and V has the rows f_i/τ.
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
//     1.1, and with η·|z|, for glu_silu. Exponentials add 2σ and 2⁻²⁰·max |z| to each.
//   - So every bound is a constant plus a multiple of the item's own ‖λ̂‖: ‖Δ‖ ≤ A + A′·‖λ̂‖ and
//     each |Δ_p| ≤ δ = B + B′·‖λ̂‖. That is several times less than a bound for all items.
//   - Score. For π = softmax(z) and π̂ = softmax(z + Δ), Σ π̂·(λ̂ − φ̂) = 0, so Σ π·λ̂ − φ̂ ≤
//     e^δ·(e^δ − 1)/δ·‖Δ‖·‖π̂ ⊙ (λ̂ − φ̂)‖, as for the CPU's screen (package mol). (e^δ − 1)/δ =
//     e^(δ/2)·sinh(δ/2)/(δ/2) ≤ e^(δ/2 + δ²/24). The kernels compute the last factor for every
//     item.
//
// φ ≤ φ̂ + D₁ + (A + A′·‖λ̂‖)·e^(3δ/2 + δ²/24)·(‖π̂ ⊙ (λ̂ − φ̂)‖ + 2⁻¹⁶·‖λ̂‖) + sums, and φ ≤ max
// λ ≤ ‖λ̂‖ + D₁.
//
// The term 2⁻¹⁶·‖λ̂‖ covers the rounding of φ̂ in the last factor. "sums" covers the sums of the
// softmax, (L+8)·2⁻²³·max|λ̂|, and the sums of the bound, 2⁻²² of the greatest possible ‖λ̂‖. The
// five numbers are a thousandth larger, for the arithmetic of the kernels. There is no bound if a
// logit or the hidden layer could exceed 65,000, or for more than 120 pairs.
//
// Where φ is one inner product, it is the only logit: φ ≤ φ̂ + D₁ + sums, for the loss and the
// norm of whole rows.
//
// Returned scores are float32, in the order of the CPU's sums. Their error is γ_{d+2}·‖u‖·N for
// one inner product, which is proved. Where gates are computed it is 2·10⁻⁵ of the largest logit
// over τ, which is not proved: it is twice the limit that the CPU's kernels keep, and tests hold
// the device's kernels to it.
package bound
