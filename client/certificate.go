package client

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// Certificate says how far an answer can be from the exact one.
type Certificate struct {
	// Status is "exact" (proved), "snapshot" (proved of the data as of AsOf),
	// "calibrated" (supported by measurements: see Calibration or Measured) or
	// "unknown".
	Status string
	// Proof says how an exact answer was proved: "inner_product", "table_scan",
	// "bound_closed" or "exhausted".
	Proof string
	// Gap is the most by which a missing item can exceed the K-th score. Bound is an
	// upper bound on the score of any item that was not scored. KthScore is the K-th
	// score. Each is nil if unknown.
	Gap, Bound, KthScore *float32
	// Epsilon bounds the rounding error of the store and of scoring, in units of the
	// score.
	Epsilon float32
	// Calibration is the audited promise that the answer carries, or nil. Uncalibrated
	// says why it is nil.
	Calibration  *Calibration
	Uncalibrated string
	// Tied means that an item outside the answer may score as much as the K-th, and the
	// store chose between them.
	Tied bool
	// Ordered means that rounding decided neither the rows nor their order. An exact
	// answer that is not Ordered may hold other items, or the same in another order,
	// whose scores differ by at most 2·Epsilon.
	Ordered bool
	// Measured is the measured rounding error on which an unproved scan on a device
	// rests, or nil.
	Measured *MeasuredError
	// AsOf belongs to a snapshot: every write before this time is shown, later ones may
	// be missing. It is zero if the time is not known.
	AsOf time.Time
	// RowsVerified belongs to a snapshot: the score of every returned item was compared
	// with the vector that the database holds now, and is right.
	RowsVerified bool
	// Stop says what ended the search for more candidates: "gap_reached",
	// "fixed_depth", "deadline", "depth_limit", "exhausted" or "no_bound".
	Stop          string
	Depth, Rounds int
	// Candidates counts the items that were scored.
	Candidates int64
}

// Exact reports whether the answer was proved to be exact. A snapshot is not.
func (c Certificate) Exact() bool { return c.Status == "exact" }

// Calibration is an audited promise: for a Share of the queries, recall at K is at
// least Recall, with probability 1 − Alpha. It was measured on Queries queries.
type Calibration struct {
	Recall, Share, Alpha float64
	Queries              int64
	K                    int
	Depth, AverageDepth  int
	Made                 time.Time
	// Excluding means that the promise is for searches that exclude items, and otherwise
	// for those that do not.
	Excluding bool
}

// MeasuredError is twice the greatest rounding error seen on Pairs pairs of a query
// and an item. The answer is exact unless some other item's score had a greater error.
type MeasuredError struct {
	Pairs int64
	Error float32
}

// fromCertificate converts a certificate. An answer without a certificate proves
// nothing.
func fromCertificate(m *likenessv1.Certificate) Certificate {
	if m == nil {
		return Certificate{}
	}
	c := Certificate{
		Status: word(m.GetStatus(), "CERTIFICATE_STATUS_"), Proof: word(m.GetProof(), "PROOF_"), Stop: word(m.GetStop(), "STOP_"),
		Gap: m.Gap, Bound: m.Bound, KthScore: m.KthScore, Epsilon: m.GetEpsilon(),
		Calibration: fromCalibration(m.GetCalibration()), Uncalibrated: m.GetUncalibrated(), Tied: m.GetTied(), Ordered: m.GetOrdered(),
		Depth: int(m.GetDepth()), Rounds: int(m.GetRounds()), Candidates: m.GetCandidates(), RowsVerified: m.GetRowsVerified(), AsOf: fromTime(m.GetAsOf()),
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
		Depth: int(m.GetDepth()), AverageDepth: int(m.GetAverageDepth()), Made: fromTime(m.GetMade()),
		Excluding: m.GetExcluding(),
	}
}

// fromTime converts a time. A time that is not set is the zero time.
func fromTime(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
