// Package mol implements the Mixture-of-Logits similarity (RAILS, section 2):
//
//	φ(q, x) = Σ_ij π_ij(q, x)·⟨f_i(q), g_j(x)⟩ / τ,  i < P_Q, j < P_X
//
// where the gates π are a softmax over all pairs. testdata/golden/README.md has the
// formulae with every clamp.
//
// An item's feature row is its components, c0 | c1 | …, followed by the item's part of the
// gates if the model has one.
//
// # The bounds of a scan
//
// A scan scores an item in float32 only if a bound of φ reaches the K-th best score so far
// (rerank.Screener), from full-precision rows where the table has them. Bounds are computed in
// the rows' format; u = 2⁻⁸ is the relative rounding of bfloat16, γ_n that of n float32
// roundings.
//
//   - Rows. table.Loss has, for every block b of the rows, the greatest ‖x̂_b − x_b‖ =: ℓ_b and
//     ‖x̂_b‖ =: N_b, measured when they were packed; ℓ = 0 where the packed rows themselves are
//     scored.
//   - Query. A vector v becomes one of bfloat16, v = v̂ + r, or a sum of two, v = v̂ + v̂′ + r;
//     ‖r‖ is computed, at most 2⁻⁸·‖v‖ or about 2⁻¹⁸·‖v‖. For rows of int8, v̂ and v̂′ are of
//     int8 instead, each with one scale; ‖r‖ is about ‖v‖/200 or ‖v‖/50,000. So |⟨v, x⟩ − computed| ≤ ‖v‖·ℓ + (‖r‖ +
//     3·γ_2D+2·‖v‖)·N, products of two bfloat16 being exact and sums rounded once a term. Of
//     all the f_i/τ = v_i together, the rows of V with rests R, the errors have a norm of at
//     most ‖V‖·ℓ + (‖R‖ + 3·γ_2D+2·‖V‖_F)·N for every g_j, ‖V‖ and ‖R‖ spectral norms. For one
//     inner product this is the whole bound (with ‖x‖ for N and 4 for 3, as the scoring rounds
//     as well).
//   - Largest logit. The gates are non-negative and sum to one: φ ≤ max l_ij ≤ max l̂_ij + δ, δ
//     the greatest of the above with v = f_i/τ and N_j. No gate is computed.
//   - Gates in bfloat16. With W₁, b₁, W₂ the logits' part of the gates, σ = 1.1 above the slope
//     of SiLU, ‖Δl‖ the norm of the logits' errors, ΔW the rounding of W, and spectral norms
//     bounded by (tr (WᵀW)⁶⁴)^(1/128): the hidden layer h is off by ‖Δh‖ ≤ σ·(‖W₁‖·(‖Δl‖ + ‖l −
//     l̃‖) + ‖ΔW₁‖·‖l̃‖ + γ-terms) + ρ·√n (n its width, ρ = 0.003 what a rougher SiLU is off,
//     the sigmoid by 32 lines: kernel.RoughSiLU), and the softmax's inputs by ‖Δ‖ ≤
//     σ·(‖W₂‖·(‖Δh‖ + ‖ĥ − h̃‖) + ‖ΔW₂‖·‖h̃‖ + γ-terms + the item part's ℓ), each by ‖Δ‖_∞ ≤ δ,
//     the same with the longest row for the norm of W₂ (the outer σ only for glu_silu, which
//     adds ρ to each and ρ times the root of their number to ‖Δ‖). What the logits are off goes
//     through both layers at once: SiLU's slopes lie within σ − ½ of ½, so ½·‖W₂·W₁‖ + (σ −
//     ½)·‖W₂·S⁻¹‖·‖S·W₁‖ stands for σ·‖W₂‖·‖W₁‖ where it is less, S any diagonal matrix. ‖l‖, ‖ĥ‖ and the errors of
//     rounding them to bfloat16, l̃ and h̃, are measured for each item (kernel.Extent,
//     kernel.Round, kernel.Narrow): without measuring, u·‖l‖ and u·‖ĥ‖ would be twice as much,
//     and ‖W₁‖·‖l‖ + ‖b₁‖ bounds ‖ĥ‖ three times as high. The scan first takes the greatest
//     values of a tile for all its items and, if that bound reaches the K-th score, each
//     item's own.
//   - From gates π̂ to gates π = softmax(z + Δ): since Σ π̂·(l − φ̂) = 0, |e^Δ − 1| ≤ |Δ|·(e^δ
//     − 1)/δ and Σ π̂·e^Δ ≥ e^−δ, φ − φ̂ = Σ π̂·(e^Δ − 1)·(l − φ̂) / Σ π̂·e^Δ ≤ e^δ·(e^δ −
//     1)/δ·‖Δ‖·‖π̂ ⊙ (l − φ̂)‖. The last factor is computed for every item with φ̂
//     (kernel.Weigh): small where gates are spread, nothing where they are concentrated.
//     Without the item it would be the whole range of the logits.
//   - Which bound. Items in bfloat16 have three: by the largest logit, and with gates by a
//     query of one or of two bfloat16 vectors. Items in other formats have the first and the
//     last. For items in int8, the first bound takes a query of one int8 vector, and serves a
//     whole batch in one pass. Only the items that it leaves get logits by two int8 vectors, and
//     gates. The scan times each bound, with the scoring that it leaves, on a few items. It
//     takes the cheapest, or none, and tries again as the K-th score rises. What a bound of rounded
//     rows leaves may get the last bound of its float32 rows, where the table has them.
//   - Both bounds of a MoL add the rounding of the two weighted means, 4·γ_{L+6}·‖l‖ for L
//     pairs. The gates' errors include the sums of their parts, the exponential and SiLU, on
//     both sides, so a bound holds for Score and for φ. Tests compare it with adversarial rows
//     in every format.
//   - A bound that is not a number rules nothing out: the item is scored, and counted as not
//     finite.
package mol
