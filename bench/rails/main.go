// Command rails compares likeness's scores of a RAILS checkpoint with PyTorch's. train.py leaves the
// checkpoint, items, queries and PyTorch's scores in a folder; `likeness model import` writes the
// model beside them (train.py has the commands).
//
//	go run ./bench/rails -dir DIR
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench/rails:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("rails", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("dir", "", "folder of train.py's files and of model.safetensors")
	if err := flags.Parse(args); err != nil {
		return err
	}
	m, err := model.Open(filepath.Join(*dir, "model.safetensors"))
	if err != nil {
		return err
	}
	var files [3]rerank.Matrix
	for i, name := range []string{"items.npy", "queries.npy", "scores.npy"} {
		if files[i], err = read(filepath.Join(*dir, name)); err != nil {
			return err
		}
	}
	c, err := compare(m, files[0], files[1], files[2])
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%d queries x %d items, scores from %.3f to %.3f\ngreatest difference %.2g, mean %.2g\nsame first ten for %d of %d queries\n",
		files[1].Rows, files[0].Rows, c.lowest, c.highest, c.greatest, c.mean, c.sameTen, files[1].Rows)
	return err
}

// read copies a matrix from a file.
func read(path string) (rerank.Matrix, error) {
	m, err := npy.Open(path)
	if err != nil {
		return rerank.Matrix{}, err
	}
	defer m.Close()
	return rerank.Matrix{Rows: m.Rows, Cols: m.Cols, Data: slices.Clone(m.Data)}, nil
}

// comparison says how far likeness's scores are from the reference's.
type comparison struct {
	greatest, mean  float64
	lowest, highest float64 // of the reference's scores
	sameTen         int     // queries whose first ten items are the same, in any order
}

// compare scores all items for every query. Row q of want has the reference's scores for query q.
func compare(m *model.Model, items, queries, want rerank.Matrix) (comparison, error) {
	c := comparison{lowest: math.Inf(1), highest: math.Inf(-1)}
	if want.Rows != queries.Rows || want.Cols != items.Rows {
		return c, fmt.Errorf("scores of %d queries for %d items, want %d and %d", want.Rows, want.Cols, queries.Rows, items.Rows)
	}
	features := rerank.NewMatrix(items.Rows, m.Spec().Features)
	if err := m.EncodeItems(features, items); err != nil {
		return c, err
	}
	got := make([]float32, items.Rows)
	for q := range queries.Rows {
		e, err := m.Encode(rerank.Query{Vector: queries.Row(q)})
		if err != nil {
			return c, err
		}
		if err := e.Score(got, rerank.Items{Features: features}); err != nil {
			return c, err
		}
		for i, x := range want.Row(q) {
			d := math.Abs(float64(got[i]) - float64(x))
			c.greatest, c.mean = max(c.greatest, d), c.mean+d/float64(len(want.Data))
			c.lowest, c.highest = min(c.lowest, float64(x)), max(c.highest, float64(x))
		}
		if slices.Equal(firstTen(got), firstTen(want.Row(q))) {
			c.sameTen++
		}
	}
	return c, nil
}

// firstTen returns the rows of the ten highest scores, ascending.
func firstTen(scores []float32) (rows []int) {
	top := rerank.NewTopK(10)
	for row, score := range scores {
		top.Push(rerank.Scored{ID: rerank.UintID(uint64(row)), Score: score, Index: row})
	}
	for _, s := range top.Sorted() {
		rows = append(rows, s.Index)
	}
	slices.Sort(rows)
	return rows
}
