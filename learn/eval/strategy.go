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

// Stored is a first stage that is none of the model's: the query itself against
// the stored vectors, as the database searches without likeness.
const Stored rerank.Strategy = "stored"

// Trial is one way to find candidates.
type Trial struct {
	Name         string // as it was written
	Strategy     rerank.Strategy
	Depth        int
	AverageDepth int
	Weights      rerank.Weights
	Head         string
}

// TrialSyntax explains ParseTrials to people.
const TrialSyntax = "per_embedding:DEPTH, average:DEPTH[:gates], combined:DEPTH:AVERAGE_DEPTH[:gates], " +
	"distilled:DEPTH[:HEAD], stored:DEPTH, scan"

// ParseTrials reads a comma-separated list of trials in TrialSyntax. It returns
// ErrInput with the part that is wrong.
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
	case rerank.PerEmbedding, rerank.Average, rerank.Distilled, Stored:
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
	return t, t.option(fields[depths:])
}

// option reads what follows the depths.
func (t *Trial) option(fields []string) error {
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
		return fmt.Errorf("%q is too much", value)
	}
	return nil
}

// StoredTrials are searches of the stored vectors at depths from k up to all items.
func StoredTrials(k, items int) []Trial {
	var trials []Trial
	for _, depth := range []int{k, 2 * k, 5 * k, 10 * k, 20 * k, 50 * k} {
		if depth < items {
			trials = append(trials, Trial{Name: fmt.Sprintf("%s:%d", Stored, depth), Strategy: Stored, Depth: depth})
		}
	}
	return trials
}

// Outcome is what a trial found.
type Outcome struct {
	Name     string          `json:"-"`
	Strategy rerank.Strategy `json:"strategy"`
	Depth    int             `json:"depth,omitempty"`
	// Candidates is the mean number of items that were scored.
	Candidates float64 `json:"candidates"`
	// FirstStageRecall is the mean share of the exact learned top K that was found.
	FirstStageRecall float64 `json:"first_stage_recall"`
	// Exact is the share of answers whose certificate says exact.
	Exact float64 `json:"exact"`
	// Metrics of the answers.
	Metrics Metrics `json:"metrics"`
	// Loss is Method.Metric of the exact ranking less that of the answers: what the
	// candidates lack. Gain is that of the answers less the baseline's.
	Loss Paired  `json:"first_stage_loss"`
	Gain *Paired `json:"gain,omitempty"`
	// Milliseconds of a search, the store's time included, at full load of the machine.
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
}

// Strategies are outcomes in the order asked; in JSON, an object by name.
type Strategies []Outcome

// MarshalJSON keeps the order.
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
