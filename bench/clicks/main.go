// Command clicks measures how much position bias costs a fit, and how much the correction brings
// back. Simulated people click in lists of ten topics, which cosine ranked, for 20,000 answers to
// BANKING77's training questions; a fit learns from the clicks; MRR@10 of the 3,080 test questions
// judges it by their true topics:
//
//	go run ./bench/clicks -out docs/benchmarks/clicks.json
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/likenessdb/likeness/examples/banking77"
	"github.com/likenessdb/likeness/learn/clicks"
	"github.com/likenessdb/likeness/learn/fit"
	fitbilinear "github.com/likenessdb/likeness/learn/fit/bilinear"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
	"github.com/likenessdb/likeness/rerank/npy"
)

const (
	places = 10  // of a list, and of MRR@10
	clip   = 100 // as `likeness fit` has it
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// report is the JSON that is committed.
type report struct {
	Answers int     `json:"answers"`
	Noise   float64 `json:"noise"`
	// Swapped is the share of the answers in which two random places are swapped.
	Swapped float64 `json:"swapped"`
	Cosine  float64 `json:"cosine"`
	// Unbiased is the MRR@10 of the plain fit to clicks of people who look everywhere, UnbiasedLooks of
	// the fit that knows what was shown.
	Unbiased      float64   `json:"unbiased"`
	UnbiasedLooks float64   `json:"unbiased_looks"`
	Runs          []outcome `json:"runs"`
}

// outcome compares two fits to the same clicks.
type outcome struct {
	Browsing  clicks.Browsing `json:"browsing"`
	Severity  float64         `json:"severity"`
	Clicks    int             `json:"clicks"`
	Naive     float64         `json:"naive"`
	Corrected float64         `json:"corrected"`
	Method    clicks.Method   `json:"method"`
	// Propensities is the estimated curve.
	Propensities  []float64 `json:"propensities"`
	EffectiveSize float64   `json:"effective_size"`
}

func run(ctx context.Context, args []string, progress io.Writer) error {
	flags := flag.NewFlagSet("clicks", flag.ContinueOnError)
	data := flags.String("data", "examples/data/banking77", "folder of BANKING77")
	out := flags.String("out", "docs/benchmarks/clicks.json", "JSON file to write")
	r := report{}
	flags.IntVar(&r.Answers, "answers", 20_000, "answers that people see")
	flags.Float64Var(&r.Noise, "noise", 0.1, "chance that an irrelevant topic is clicked once looked at")
	flags.Float64Var(&r.Swapped, "swapped", 0.3, "share of the answers in which two random places are swapped")
	if err := flags.Parse(args); err != nil {
		return err
	}
	t, err := openTask(*data)
	if err != nil {
		return err
	}
	if r.Cosine, err = t.mrr(&fitbilinear.Fitted{}); err != nil {
		return err
	}
	unknown := &clicks.Curve{Method: clicks.Uncorrected, Propensities: []float64{1}}
	everywhere := &clicks.Curve{Method: clicks.Harvesting, Propensities: []float64{1}}
	all := t.show(r, clicks.Person{Browsing: clicks.ByPosition, Noise: r.Noise}, 1)
	if r.Unbiased, err = t.learn(ctx, unknown.Correct(all, t.questions.Rows, clip)); err != nil {
		return err
	}
	if r.UnbiasedLooks, err = t.learn(ctx, everywhere.Correct(all, t.questions.Rows, clip)); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(progress, "cosine %.4f, unbiased %.4f, and knowing what was shown %.4f\n", r.Cosine, r.Unbiased, r.UnbiasedLooks)
	for _, b := range []clicks.Browsing{clicks.ByPosition, clicks.Cascade} {
		for _, severity := range []float64{0.5, 1, 2} {
			answers := t.show(r, clicks.Person{Browsing: b, Severity: severity, Noise: r.Noise}, 2)
			curve := clicks.Estimator{Queries: t.questions, Items: t.topics}.Estimate(answers)
			corrected := curve.Correct(answers, t.questions.Rows, clip)
			o := outcome{Browsing: b, Severity: severity, Method: curve.Method, Propensities: curve.Propensities, EffectiveSize: corrected.EffectiveSize}
			for _, a := range answers {
				for _, w := range a.Weights {
					o.Clicks += int(w)
				}
			}
			if o.Naive, err = t.learn(ctx, unknown.Correct(answers, t.questions.Rows, clip)); err != nil {
				return err
			}
			if o.Corrected, err = t.learn(ctx, corrected); err != nil {
				return err
			}
			_, _ = fmt.Fprintf(progress, "%s, severity %g: %d clicks, naive %.4f, corrected %.4f\n", b, severity, o.Clicks, o.Naive, o.Corrected)
			r.Runs = append(r.Runs, o)
		}
	}
	text, err := json.MarshalIndent(r, "", "  ")
	return errors.Join(err, os.WriteFile(*out, append(text, '\n'), 0o644))
}

// task is BANKING77: training questions that people ask, and test questions that judge.
type task struct {
	topics, questions, tests rerank.Matrix
	right, rightOfTests      []int32
	lists                    [][]int32 // the first topics by cosine of each question
}

func openTask(dir string) (*task, error) {
	t := &task{}
	var err error
	if t.topics, _, err = read(dir, "items"); err != nil {
		return nil, err
	}
	if t.questions, t.right, err = read(dir, "train"); err != nil {
		return nil, err
	}
	if t.tests, t.rightOfTests, err = read(dir, "test"); err != nil {
		return nil, err
	}
	scores := rerank.NewMatrix(t.questions.Rows, t.topics.Rows)
	linalg.Multiply(scores, t.questions, false, t.topics, true)
	for q := range t.questions.Rows {
		row, order := scores.Row(q), make([]int32, t.topics.Rows)
		for i := range order {
			order[i] = int32(i)
		}
		slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(row[b], row[a]) })
		t.lists = append(t.lists, order[:places])
	}
	return t, nil
}

// read reads vectors and the topic of each.
func read(dir, name string) (rerank.Matrix, []int32, error) {
	m, err := npy.Open(filepath.Join(dir, name+"_vectors.npy"))
	if err != nil {
		return rerank.Matrix{}, nil, err
	}
	rows, err := banking77.Rows(filepath.Join(dir, name+".jsonl"))
	if err != nil {
		return rerank.Matrix{}, nil, errors.Join(err, m.Close())
	}
	copied := rerank.Matrix{Rows: m.Rows, Cols: m.Cols, Data: slices.Clone(m.Data)}
	topics := make([]int32, len(rows))
	for r := range copied.Rows {
		rerank.Normalise(copied.Row(r))
		topics[r] = int32(rows[r].Item)
	}
	return copied, topics, m.Close()
}

// show shows the lists of random questions to people, some with two places swapped.
func (t *task) show(r report, p clicks.Person, seed uint64) []clicks.Answer {
	rng := rand.New(rand.NewPCG(seed, 0xc11c))
	answers := make([]clicks.Answer, r.Answers)
	for n := range answers {
		q := rng.IntN(t.questions.Rows)
		list := slices.Clone(t.lists[q])
		if rng.Float64() < r.Swapped {
			i, j := rng.IntN(places), rng.IntN(places)
			list[i], list[j] = list[j], list[i]
		}
		answers[n] = p.Answer(int32(q), list, func(item int32) bool { return item == t.right[q] }, rng)
	}
	return answers
}

// learn fits the choices, as `likeness fit bilinear` does, and returns MRR@10 of the test questions.
func (t *task) learn(ctx context.Context, c *clicks.Corrected) (float64, error) {
	d := fit.Data{Items: t.topics, Queries: t.questions}.Corrected(c, true)
	fitted, err := fitbilinear.Fit(ctx, d, fitbilinear.DefaultOptions())
	if err != nil {
		return 0, err
	}
	return t.mrr(fitted)
}

// mrr returns MRR@10 of the test questions by a fitted form, or by cosine if it has no tensors.
func (t *task) mrr(f *fitbilinear.Fitted) (float64, error) {
	var similarity *bilinear.Similarity
	if f.Tensors != nil {
		var err error
		if similarity, err = bilinear.New(f.Config, f.Tensors); err != nil {
			return 0, err
		}
	}
	scores, sum := make([]float32, t.topics.Rows), 0.0
	for q, right := range t.rightOfTests {
		if similarity == nil {
			for x := range scores {
				scores[x] = float32(linalg.Dot(t.tests.Row(q), t.topics.Row(x)))
			}
		} else {
			e, err := similarity.Encode(rerank.Query{Vector: t.tests.Row(q)})
			if err != nil {
				return 0, err
			}
			if err := e.Score(scores, rerank.Items{Features: t.topics}); err != nil {
				return 0, err
			}
		}
		rank := 1
		for _, v := range scores {
			if v > scores[right] {
				rank++
			}
		}
		if rank <= places {
			sum += 1 / float64(rank)
		}
	}
	return sum / float64(len(t.rightOfTests)), nil
}
