package experiment

import (
	"fmt"
	"math"
	"time"
)

// Guards are limits that stop an experiment, whoever is better. A limit of 0 never stops it.
type Guards struct {
	// LatencyP99 is the latency that one answer in a hundred may exceed.
	LatencyP99 time.Duration
	// Degraded, Empty and Errors are the greatest shares of the answers.
	Degraded, Empty, Errors float64
}

// Observed counts answers of the candidate.
type Observed struct {
	// Answers counts all requests, failed ones too.
	Answers int `json:"answers"`
	// Slow counts answers slower than Guards.LatencyP99.
	Slow     int `json:"slow"`
	Degraded int `json:"degraded"`
	Empty    int `json:"empty"`
	Errors   int `json:"errors"`
}

// mostSlow is the share of answers that may exceed the latency at the 99th percentile.
const mostSlow = 0.01

// chance is the chance below which a count is no accident: a candidate exactly at its limit is stopped
// in one look of 10,000.
const chance = 1e-4

// Check returns why the experiment has to stop, or nothing. A share exceeds its limit if it does so
// beyond chance (by the binomial tail), so that one bad answer among ten stops nothing.
func (g Guards) Check(o Observed) (reasons []string) {
	check := func(what string, count int, limit float64) {
		if limit > 0 && tail(count, o.Answers, limit) < chance {
			reasons = append(reasons, fmt.Sprintf("%s: %d of %d answers (%.2f %%), limit %.2f %%",
				what, count, o.Answers, 100*float64(count)/float64(o.Answers), 100*limit))
		}
	}
	if g.LatencyP99 > 0 {
		check("slower than "+g.LatencyP99.String(), o.Slow, mostSlow)
	}
	check("degraded", o.Degraded, g.Degraded)
	check("empty", o.Empty, g.Empty)
	check("errors", o.Errors, g.Errors)
	return reasons
}

// tail returns the chance of so many events or more among n, each with a chance p.
func tail(count, n int, p float64) float64 {
	if p >= 1 || float64(count) <= float64(n)*p {
		return 1
	}
	logGamma := func(x int) float64 {
		v, _ := math.Lgamma(float64(x) + 1)
		return v
	}
	term := math.Exp(logGamma(n) - logGamma(count) - logGamma(n-count) + float64(count)*math.Log(p) + float64(n-count)*math.Log1p(-p))
	sum := 0.0
	for k := count; k <= n && term > sum*1e-12; k++ {
		sum += term
		term *= float64(n-k) / float64(k+1) * p / (1 - p)
	}
	return sum
}
