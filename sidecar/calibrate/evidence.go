package calibrate

import "math"

// evidence returns an e-value against a promise about live answers: the capital of a bettor
// who bets that answers miss the recall more often than promised. With q₀ = 1 − Share, a
// bettor on q > q₀ multiplies the capital by q/q₀ for an answer that misses the recall, and
// by (1−q)/(1−q₀) for an answer that reaches it. While the promise holds, no bettor gains on
// average, whenever the capital is read. The e-value is the mean of bettors for several q, so
// that P(it ever reaches 1/α) ≤ α (Ville's inequality; Waudby-Smith and Ramdas,
// JRSS B 86, 2024, section 4, with a mixture of constant bets).
func evidence(audited, missed int, share float64) float64 {
	tolerated := 1 - share
	var sum float64
	for _, times := range bets {
		q := min(times*tolerated, 1-share/100) // above the tolerated share, whatever that is
		sum += math.Exp(float64(missed)*math.Log(q/tolerated) + float64(audited-missed)*math.Log((1-q)/share))
	}
	return min(sum/float64(len(bets)), math.MaxFloat64)
}

// bets lists the q of the bettors, as multiples of the tolerated share of misses.
var bets = [...]float64{1.25, 1.5, 2, 3, 5, 8, 12, 20}
