package client

import (
	"time"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// Certificate says how far an answer can be from the exact one.
type Certificate struct {
	// Status is "exact" (proved), "calibrated" (it rests on what was measured: Calibration or Measured) or "unknown".
	Status string
	// Proof is how an exact answer was proved: "inner_product", "table_scan", "bound_closed" or "exhausted".
	Proof string
	// Gap is the most by which a missing item can exceed the K-th score, Bound the upper bound of any item that was
	// not scored, KthScore the K-th score; nil where they are not known.
	Gap, Bound, KthScore *float32
	// Epsilon is the rounding error of store and scoring, in units of the score.
	Epsilon float32
	// Calibration is the audited promise that the answer carries, nil without one; Uncalibrated says why not.
	Calibration  *Calibration
	Uncalibrated string
	// Tied: an item that is not in the answer may score as much as the K-th, and the store
	// chose between them.
	Tied bool
	// Measured is what the answer of a scan on a device rests on where it was not proved; nil otherwise.
	Measured *MeasuredError
	// Stop is what ended the search for more candidates: "gap_reached", "fixed_depth", "deadline", "depth_limit",
	// "exhausted" or "no_bound".
	Stop          string
	Depth, Rounds int
	// Candidates are the items that were scored.
	Candidates int64
}

// Exact reports whether the answer was proved to be the exact one.
func (c Certificate) Exact() bool { return c.Status == "exact" }

// Calibration is an audited promise: recall at K is at least Recall for a Share of the
// queries, with the probability 1 - Alpha, as found from so many Queries.
type Calibration struct {
	Recall, Share, Alpha float64
	Queries              int64
	K                    int
	Depth, AverageDepth  int
	Made                 time.Time
}

// MeasuredError is twice the greatest error of rounding that was seen on so many Pairs of a
// query and an item: the answer is the exact one if no other item's score was off by more.
type MeasuredError struct {
	Pairs int64
	Error float32
}

// fromCertificate converts a certificate. An answer without one proves nothing.
func fromCertificate(m *likenessv1.Certificate) Certificate {
	if m == nil {
		return Certificate{}
	}
	c := Certificate{
		Status: word(m.GetStatus(), "CERTIFICATE_STATUS_"), Proof: word(m.GetProof(), "PROOF_"), Stop: word(m.GetStop(), "STOP_"),
		Gap: m.Gap, Bound: m.Bound, KthScore: m.KthScore, Epsilon: m.GetEpsilon(),
		Calibration: fromCalibration(m.GetCalibration()), Uncalibrated: m.GetUncalibrated(), Tied: m.GetTied(),
		Depth: int(m.GetDepth()), Rounds: int(m.GetRounds()), Candidates: m.GetCandidates(),
	}
	if e := m.GetMeasured(); e != nil {
		c.Measured = &MeasuredError{Pairs: e.GetPairs(), Error: e.GetError()}
	}
	return c
}

func fromCalibration(m *likenessv1.Calibration) *Calibration {
	if m == nil {
		return nil
	}
	return &Calibration{
		Recall: m.GetRecall(), Share: m.GetShare(), Alpha: m.GetAlpha(), Queries: m.GetQueries(), K: int(m.GetK()),
		Depth: int(m.GetDepth()), AverageDepth: int(m.GetAverageDepth()), Made: m.GetMade().AsTime(),
	}
}
