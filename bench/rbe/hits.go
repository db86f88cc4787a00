package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	fitrbe "github.com/likenessdb/likeness/learn/fit/rbe"
	"github.com/likenessdb/likeness/rerank"
)

// The models: CUR, regularised CUR, and CUR with perceptrons.
const (
	modelCUR    = "cur"
	modelLambda = "cur_lambda"
	modelNeural = "neural"
)

// supportCounts lists the sizes of S_I.
var supportCounts = []int{20, 50, 100}

// rbeOptions returns the options of the fits. HitRate is measured for (1, 1), (10, 10) and
// (100, 100).
func rbeOptions(seed uint64, m int) fitrbe.Options {
	o := fitrbe.DefaultOptions()
	o.Supports, o.Seed = m, seed
	o.Judged = []fitrbe.HitPair{{P: 1, T: 1}, {P: 10, T: 10}, {P: 100, T: 100}}
	return o
}

// trained returns the options with perceptrons.
func trained(o fitrbe.Options) fitrbe.Options {
	o.Hidden, o.Out = 128, 64
	return o
}

// cell is the stored result of one fit. Rates are for the pairs of rbeOptions.
type cell struct {
	Model    string           `json:"model"`
	Select   fitrbe.Selection `json:"select"`
	M        int              `json:"m"`
	Seed     uint64           `json:"seed"`
	Lambda   float64          `json:"lambda"`
	Rates    []float64        `json:"rates"`
	Error    float64          `json:"error"`
	Rounds   int              `json:"rounds"`
	Supports []int            `json:"supports"`
}

func (c cell) key() string { return fmt.Sprint(c.Model, c.Select, c.M, c.Seed) }

// split contains the queries from which the fits of a seed learn, for the reference
// implementation.
type split struct {
	Seed    uint64  `json:"seed"`
	Known   []int   `json:"known"`
	Options options `json:"options"`
}

type options struct {
	Hidden int     `json:"hidden"`
	Out    int     `json:"out"`
	Rate   float64 `json:"rate"`
	Batch  int     `json:"batch"`
	Rounds int     `json:"rounds"`
	Draws  int     `json:"draws"`
}

// hits fits every selection, number of supports and model, and stores the hit rates.
func (s settings) hits(ctx context.Context, stdout io.Writer) error {
	scores, err := matrix(s.file("judged.npy"))
	if err != nil {
		return err
	}
	tune, err := matrix(s.file("tune.npy"))
	if err != nil {
		return err
	}
	lines, err := openLines[cell](s.file("hits.jsonl"))
	if err != nil {
		return err
	}
	defer lines.Close()
	seen := map[string]bool{}
	for _, c := range lines.read {
		seen[c.key()] = true
	}
	for _, m := range supportCounts {
		if s.supports != 0 && m != s.supports {
			continue
		}
		lambda, err := bestLambda(ctx, tune, m)
		if err != nil {
			return err
		}
		for seed := range uint64(s.seeds) {
			for _, how := range fitrbe.Selections() {
				o := rbeOptions(seed+1, m)
				o.Select = how
				if err := s.fits(ctx, scores, o, lambda, seen, lines, stdout); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// fits trains the three models of a selection.
func (s settings) fits(ctx context.Context, scores rerank.Matrix, o fitrbe.Options, lambda float64, seen map[string]bool, to *lines[cell], stdout io.Writer) error {
	cells := [3]cell{{Model: modelCUR}, {Model: modelLambda, Lambda: lambda}, {Model: modelNeural}}
	for i := range cells {
		cells[i].Select, cells[i].M, cells[i].Seed = o.Select, o.Supports, o.Seed
	}
	if seen[cells[2].key()] {
		return nil
	}
	plain, err := fitrbe.Fit(ctx, scores, trained(o))
	if err != nil {
		return err
	}
	if !seen[fmt.Sprint("split", o.Seed)] {
		seen[fmt.Sprint("split", o.Seed)] = true
		t := trained(o)
		if err := to.append(split{o.Seed, plain.SupportQueries, options{t.Hidden, t.Out, t.Rate, t.Batch, t.Rounds, t.Draws}}); err != nil {
			return err
		}
	}
	o.Lambda = lambda
	regular, err := fitrbe.Fit(ctx, scores, o)
	if err != nil {
		return err
	}
	cells[0].fill(plain.Report.CUR)
	cells[1].fill(regular.Report.CUR)
	cells[2].fill(plain.Report.Chosen)
	cells[2].Rounds = plain.Report.Rounds
	for _, c := range cells {
		c.Supports = plain.SupportItems
		if err := to.append(c); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(stdout, "%s m=%d seed=%d %s %s: %.4f\n", s.ranker, c.M, c.Seed, c.Select, c.Model, c.Rates)
	}
	return nil
}

func (c *cell) fill(q fitrbe.Quality) {
	c.Error = q.Error
	for _, r := range q.HitRates {
		c.Rates = append(c.Rates, r.Mean)
	}
}

// bestLambda returns the λ with the best HitRate(100) on queries that no table uses.
func bestLambda(ctx context.Context, tune rerank.Matrix, m int) (float64, error) {
	best, at := -1.0, 0.0
	for _, lambda := range []float64{1, 10, 100, 1000, 10000} {
		o := rbeOptions(1, m)
		o.Lambda = lambda
		f, err := fitrbe.Fit(ctx, tune, o)
		if err != nil {
			return 0, err
		}
		if hit := f.Report.CUR.HitRates[2].Mean; hit > best {
			best, at = hit, lambda
		}
	}
	return at, nil
}

// lines is a growing file with one JSON object per line.
type lines[T any] struct {
	file *os.File
	read []T
}

func openLines[T any](path string) (*lines[T], error) {
	l := &lines[T]{}
	content, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	in := bufio.NewScanner(bytes.NewReader(content))
	in.Buffer(nil, 1<<24)
	for in.Scan() {
		var row T
		if err := json.Unmarshal(in.Bytes(), &row); err != nil {
			return nil, fmt.Errorf("%s: %w; remove its last line", path, err)
		}
		l.read = append(l.read, row)
	}
	l.file, err = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	return l, errors.Join(err, in.Err())
}

func (l *lines[T]) append(row any) error {
	b, err := json.Marshal(row)
	if err != nil {
		return err
	}
	_, err = l.file.Write(append(b, '\n'))
	return err
}

// Close closes the file.
func (l *lines[T]) Close() { _ = l.file.Close() }
