// Package mol implements the Mixture-of-Logits similarity (Retrieval with Learned
// Similarities, arXiv:2407.15462, section 2, equation 2; its code adds the temperature τ):
//
//	φ(q, x) = Σ_ij π_ij·l_ij,  l_ij = ⟨f_i(q), g_j(x)⟩ / τ,  i < P_Q, j < P_X
//
// The query has the components f_i and the item the components g_j, vectors of D numbers. Each of
// the L = P_Q·P_X pairs has a logit l_ij and a gate π_ij. The gates are a softmax over all pairs:
// they are not negative and sum to one. testdata/golden/README.md has the formulae with every clamp.
//
// An item's feature row is its components, c0 | c1 | …, followed by the item's part of the
// gates if the model has one.
//
// # Why a scan has bounds
//
// A scan looks for the K items of the greatest φ. Scoring an item costs L inner products and a
// small network. An upper bound of φ costs less, because the rows are read in a narrow format and
// the network runs in bfloat16. Where the bound is below the K-th best score so far, the item
// cannot be among the K best, and the scan leaves it out (rerank.Screener). The sections below
// derive the bounds. A hat marks what the scan computed: l̂ is a computed logit, l the true one.
// ‖·‖ is the Euclidean norm of a vector and the spectral norm of a matrix, the most by which the
// matrix can lengthen a vector; kernel.SpectralNorm bounds it by (tr (WᵀW)⁶⁴)^(1/128). γ_n bounds
// the relative error of n roundings in float32 (kernel.Gamma; Higham, Accuracy and Stability of
// Numerical Algorithms, section 3.1).
//
// # The error of a logit
//
// Write v for f_i/τ and x for g_j. The scan computes ⟨v̂, x̂⟩, both sides rounded:
//
//   - x̂ is the packed row. table.Loss has, for every component, the greatest ‖x̂ − x‖ =: ℓ and
//     ‖x̂‖ =: N of all rows, measured when they were packed. ℓ = 0 where the packed rows
//     themselves are scored.
//   - v̂ is one vector of bfloat16, or the sum of two. The rest r = v − v̂ is computed: ‖r‖ is at
//     most 2⁻⁸·‖v‖ for one and about 2⁻¹⁸·‖v‖ for two. For rows of int8, v̂ is of int8 with one
//     scale for each vector, and ‖r‖ about ‖v‖/200 or ‖v‖/50,000.
//
// As ⟨v, x⟩ − ⟨v̂, x̂⟩ = ⟨v, x − x̂⟩ + ⟨r, x̂⟩, the inequality of Cauchy and Schwarz gives
//
//	|l − l̂| ≤ ‖v‖·ℓ + ‖r‖·N + 3·γ_{2D+2}·‖v‖·N
//
// The last term is the rounding of the sums, here and in Score; a product of two bfloat16
// numbers is exact. For all i at once, let V have the rows v_i and R the rows r_i. The vector of
// the errors of one component j is V(x − x̂) + Rx̂ plus rounding, so its norm is at most
// ‖V‖·ℓ + ‖R‖·N + 3·γ_{2D+2}·‖V‖_F·N (F: Frobenius). The norm ‖Δl‖ of the errors of all L logits
// is the root of the sum of the squares over j.
//
// # Bound 1: the largest logit
//
// A weighted mean is at most its largest number:
//
//	φ ≤ max l ≤ max l̂ + the greatest error of a logit
//
// No gate is computed. This bound and the next also add 4·γ_{L+6}·‖l̂‖, what the weighted means of
// Score and of the bound may be rounded by, so they hold for the score as well as for φ.
//
// # Bound 2: gates in bfloat16
//
// The softmax's inputs are z = W₂·SiLU(W₁·l + b₁) + b₂ and the parts of the query and of the item;
// with glu_silu SiLU is applied to them once more. The scan computes gates π̂ from ẑ and
// φ̂ = Σ π̂·l̂. Two questions remain: how far is ẑ off, and how far is φ̂ off then?
//
// Errors of ẑ. The layers get l̃, which is l̂ in bfloat16, and weights whose rounding error is ΔW.
// The slope of SiLU is below σ = 1.1, so SiLU passes on at most σ times an error. The SiLU of the
// scan is itself off by ρ = 0.003 (kernel.RoughSiLU). The hidden layer h, n numbers, is off by
//
//	‖Δh‖ ≤ σ·(‖W₁‖·(‖Δl‖ + ‖l̂ − l̃‖) + ‖ΔW₁‖·‖l̃‖ + rounding) + ρ·√n
//
// and with h̃, which is ĥ in bfloat16, the softmax's inputs by
//
//	‖Δz‖ ≤ ‖W₂‖·(‖Δh‖ + ‖ĥ − h̃‖) + ‖ΔW₂‖·‖h̃‖ + rounding + the error of the item's part
//
// With glu_silu it is σ times that, and ρ·√L. The greatest error of one input, δ, is the same with
// the longest row of W₂ in place of ‖W₂‖, and ρ in place of ρ·√L.
//
// The errors of the logits go through both layers, and σ·‖W₂‖·‖W₁‖ is often too pessimistic for
// that. By the mean value theorem the layers multiply such an error by W₂·D·W₁, D a diagonal matrix
// of slopes of SiLU. The slopes lie within σ − ½ of ½, so for every diagonal matrix S
//
//	‖W₂·D·W₁‖ ≤ ½·‖W₂·W₁‖ + (σ − ½)·‖W₂·S⁻¹‖·‖S·W₁‖
//
// S balances the weights into and out of each hidden unit. The scan takes the lesser of the two.
//
// From ẑ to φ. If z = ẑ + Δ, then π = π̂·e^Δ / Σ π̂·e^Δ. Since Σ π̂·(l̂ − φ̂) = 0,
//
//	Σ π·l̂ − φ̂ = Σ π̂·(e^Δ − 1)·(l̂ − φ̂) / Σ π̂·e^Δ
//
// No Δ is above δ in size, so |e^Δ − 1| ≤ |Δ|·(e^δ − 1)/δ and the denominator is at least e^−δ. By
// Cauchy and Schwarz
//
//	φ ≤ φ̂ + e^δ·(e^δ − 1)/δ·‖Δz‖·‖π̂ ⊙ (l̂ − φ̂)‖ + the greatest error of a logit
//
// where ⊙ multiplies number by number. kernel.Weigh computes ‖π̂ ⊙ (l̂ − φ̂)‖ with φ̂ for every item.
// It is small where the gates are spread, and vanishes where one gate has all the weight. Without
// it, the whole range of the logits would take its place.
//
// ‖l̂‖, ‖ĥ‖, ‖l̂ − l̃‖ and ‖ĥ − h̃‖ are measured for each item (kernel.Extent, Round, Narrow): the
// worst cases are two to three times as great. The scan first bounds a tile of items together by
// the greatest of each. Where that bound reaches the K-th score, each item gets its own.
//
// # Which bound a scan takes
//
// Rows of bfloat16 have three bounds: by the largest logit, and by gates with a query of one or of
// two bfloat16 vectors. Rows of other formats have the first and the last. For rows of int8 the
// first takes a query of one int8 vector, for a whole batch of queries in one pass; only the items
// that it leaves get logits by two int8 vectors, and gates.
//
// The scan times each bound, with the scoring that it leaves, on a few items. It takes the
// cheapest, or none, and tries again as the K-th score rises. What a bound of rounded rows leaves
// may get the last bound of its float32 rows, where the table has them.
//
// A bound that is not a number rules nothing out: the item is scored, and counted as not finite.
// Tests compare the bounds with adversarial rows in every format.
package mol
