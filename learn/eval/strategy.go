package eval

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/likenessdb/likeness/rerank"
)

// Stored is a first stage that does not use the model: it searches the stored vectors
// with the query itself, as the database does without likeness.
const Stored rerank.Strategy = "stored"

// Trial is a first-stage strategy and its depths.
type Trial struct {
	Name         string // as the user wrote it
	Strategy     rerank.Strategy
	Depth        int
	AverageDepth int
	Weights      rerank.Weights
	Head         string
}

// TrialSyntax describes the syntax of ParseTrials for users.
const TrialSyntax = "per_embedding:DEPTH, average:DEPTH[:gates], combined:DEPTH:AVERAGE_DEPTH[:gates], " +
	"distilled:DEPTH[:HEAD], companion:DEPTH, stored:DEPTH, scan"

// ParseTrials reads a comma-separated list of trials in TrialSyntax. It returns
// ErrInput, naming the invalid part.
func ParseTrials(text string) ([]Trial, error) {
	var trials []Trial
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		t, err := parseTrial(part)
		if err != nil {
			return nil, fmt.Errorf("%w: strategy %q: %w; write %s", ErrInput, part, err, TrialSyntax)
		}
		if slices.ContainsFunc(trials, func(other Trial) bool { return other.Name == t.Name }) {
			return nil, fmt.Errorf("%w: strategy %q is given twice", ErrInput, part)
		}
		trials = append(trials, t)
	}
	return trials, nil
}

func parseTrial(text string) (Trial, error) {
	name, rest, _ := strings.Cut(text, ":")
	t := Trial{Name: text, Strategy: rerank.Strategy(name)}
	depths := 1
	switch t.Strategy {
	case rerank.Scan:
		depths = 0
	case rerank.Combined:
		depths = 2
	case rerank.PerEmbedding, rerank.Average, rerank.Distilled, rerank.Companion, Stored:
	default:
		return Trial{}, fmt.Errorf("%q is no strategy", name)
	}
	var fields []string
	if rest != "" {
		fields = strings.Split(rest, ":")
	}
	if len(fields) < depths {
		return Trial{}, fmt.Errorf("%d depths are missing", depths-len(fields))
	}
	for i, depth := range []*int{&t.Depth, &t.AverageDepth}[:depths] {
		n, err := strconv.Atoi(fields[i])
		if err != nil || n < 1 {
			return Trial{}, fmt.Errorf("depth %q is not a number from 1", fields[i])
		}
		*depth = n
	}
	return t, t.parseOption(fields[depths:])
}

// parseOption parses the fields after the depths.
func (t *Trial) parseOption(fields []string) error {
	if len(fields) == 0 {
		return nil
	}
	value := strings.Join(fields, ":")
	switch {
	case t.Strategy == rerank.Distilled:
		t.Head = value
	case t.Strategy == rerank.Average || t.Strategy == rerank.Combined:
		if value != string(rerank.GateWeights) && value != string(rerank.UniformWeights) {
			return fmt.Errorf("weights %q are neither gates nor uniform", value)
		}
		t.Weights = rerank.Weights(value)
	default:
		return fmt.Errorf("unexpected %q after the depths", value)
	}
	return nil
}

// StoredTrials returns searches of the stored vectors at depths from k up to all
// items.
func StoredTrials(k, items int) []Trial {
	var trials []Trial
	for _, depth := range []int{k, 2 * k, 5 * k, 10 * k, 20 * k, 50 * k} {
		if depth < items {
			trials = append(trials, Trial{Name: fmt.Sprintf("%s:%d", Stored, depth), Strategy: Stored, Depth: depth})
		}
	}
	return trials
}

// Outcome is the measured outcome of a trial.
type Outcome struct {
	Name     string          `json:"-"`
	Strategy rerank.Strategy `json:"strategy"`
	Depth    int             `json:"depth,omitempty"`
	// Candidates is the mean number of items that were scored.
	Candidates float64 `json:"candidates"`
	// FirstStageRecall is the mean share of the exact top K, by the learned
	// similarity, among the answers.
	FirstStageRecall float64 `json:"first_stage_recall"`
	// Exact is the share of answers whose certificate is exact.
	Exact float64 `json:"exact"`
	// Metrics holds the metrics of the answers.
	Metrics Metrics `json:"metrics"`
	// Loss is Method.Metric of the exact ranking minus Method.Metric of the answers,
	// which lack candidates. Gain is Method.Metric of the answers minus the
	// baseline's.
	Loss Paired  `json:"first_stage_loss"`
	Gain *Paired `json:"gain,omitempty"`
	// P50 is the median time of a search in milliseconds, including the store, on a
	// fully loaded machine.
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
}

// Strategies holds outcomes in the order of the trials. JSON shows them as an object
// by name.
type Strategies []Outcome

// sameRecall is the difference of recall below which the quicker of two strategies is taken.
const sameRecall = 0.01

// Quickest returns the strategy with the least median time among the strategies whose first-stage recall
// is within sameRecall of the best. It returns nil for no strategies.
func (s Strategies) Quickest() *Outcome {
	most := 0.0
	for _, o := range s {
		most = max(most, o.FirstStageRecall)
	}
	var found *Outcome
	for i := range s {
		if o := &s[i]; o.FirstStageRecall > most-sameRecall && (found == nil || o.P50 < found.P50) {
			found = o
		}
	}
	return found
}

// MarshalJSON writes the object's members in order.
func (s Strategies) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, outcome := range s {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(outcome.Name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(outcome)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
