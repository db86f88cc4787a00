// Package hosted implements gpu.Machine in plain Go. It rounds wherever a device's kernels
// round, so that code on top of a Machine can be tested without a device. It is slow.
package hosted

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/likenessdb/likeness/gpu"
	"github.com/likenessdb/likeness/gpu/kernels"
	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/mol"
)

// Machine must be used by one goroutine, like every gpu.Machine. The zero Machine has no
// memory.
type Machine struct {
	// Memory is the size of its memory in bytes.
	Memory int64
	// Batch and Keep are Facts.MaxBatch and Facts.MaxKeep. 0 means 32 and 16,384.
	Batch, Keep int
	// Launched, if not nil, is called with the jobs of every Run, which fails with the
	// error that it returns.
	Launched func(jobs []gpu.Job) error

	used int64
}

var _ gpu.Machine = (*Machine)(nil)

// Facts implements gpu.Machine.
func (m *Machine) Facts() (gpu.Facts, error) {
	return gpu.Facts{
		Name: "plain Go", Driver: "none", Memory: m.Memory, Free: m.Memory - m.used, Processors: 1, Capability: "0.0",
		MaxBatch: cmp.Or(m.Batch, 32), MaxKeep: cmp.Or(m.Keep, 16384),
	}, nil
}

// ModelBytes implements gpu.Machine.
func (m *Machine) ModelBytes(n *gpu.Network) int64 {
	if n.MoL == nil {
		return 0
	}
	return 4 * int64(len(n.MoL.First.Data)+len(n.MoL.Second.Data))
}

// TableBytes implements gpu.Machine.
func (m *Machine) TableBytes(n *gpu.Network, capacity int) int64 {
	return 4 * int64(capacity) * int64(n.Features)
}

func (m *Machine) reserve(bytes int64) error {
	if bytes > m.Memory-m.used {
		return fmt.Errorf("%w: %d bytes of %d are free", device.ErrMemory, m.Memory-m.used, m.Memory)
	}
	m.used += bytes
	return nil
}

// Used returns the memory of all models and tables.
func (m *Machine) Used() int64 { return m.used }

// LoadModel implements gpu.Machine.
func (m *Machine) LoadModel(n *gpu.Network) (gpu.Model, error) {
	if err := m.reserve(m.ModelBytes(n)); err != nil {
		return nil, err
	}
	l := &network{machine: m, network: n}
	if n.MoL != nil {
		l.first, l.second = roundMatrix(n.MoL.First), roundMatrix(n.MoL.Second)
	}
	return l, nil
}

// NewTable implements gpu.Machine.
func (m *Machine) NewTable(of gpu.Model, capacity int) (gpu.Table, error) {
	n := of.(*network)
	if err := m.reserve(m.TableBytes(n.network, capacity)); err != nil {
		return nil, err
	}
	return &table{of: n, all: rerank.NewMatrix(capacity, n.network.Features)}, nil
}

// Close implements gpu.Machine.
func (m *Machine) Close() error { return nil }

// network is a loaded model. first and second are its layers rounded to float16.
type network struct {
	machine       *Machine
	network       *gpu.Network
	first, second rerank.Matrix
}

// Approximates implements gpu.Model. It supports every model.
func (n *network) Approximates() bool { return true }

// Free implements gpu.Model.
func (n *network) Free() error {
	n.machine.used -= n.machine.ModelBytes(n.network)
	return nil
}

type table struct {
	of    *network
	all   rerank.Matrix
	rows  int
	alive []uint32
}

func (t *table) Write(first int, rows rerank.Matrix) error {
	copy(t.all.Slice(first, first+rows.Rows).Data, rows.Data)
	return nil
}

func (t *table) Patch(numbers []uint32, rows rerank.Matrix) error {
	for i, row := range numbers {
		copy(t.all.Row(int(row)), rows.Row(i))
	}
	return nil
}

func (t *table) CopyFrom(from gpu.Table, rows int) error {
	copy(t.all.Data, from.(*table).all.Slice(0, rows).Data)
	return nil
}

func (t *table) Resize(rows int, alive []uint32) error {
	t.rows, t.alive = rows, slices.Clone(alive)
	return nil
}

func (t *table) Free() error {
	t.of.machine.used -= t.of.machine.TableBytes(t.of.network, t.all.Rows)
	return nil
}

// Run implements gpu.Machine.
func (m *Machine) Run(jobs []gpu.Job) ([]gpu.Survivors, error) {
	if m.Launched != nil {
		if err := m.Launched(jobs); err != nil {
			return nil, err
		}
	}
	out := make([]gpu.Survivors, len(jobs))
	for i := range jobs {
		out[i] = jobs[i].Table.(*table).run(&jobs[i])
	}
	return out, nil
}

func (t *table) run(j *gpu.Job) gpu.Survivors {
	rows := j.Rows
	if rows == nil {
		rows = t.scannedRows(j.Bitmap)
	}
	q := newQuery(t.of, j)
	out := gpu.Survivors{Scored: len(rows), Next: float32(math.Inf(-1))}
	found := make([]entry, len(rows))
	for i, row := range rows {
		found[i] = entry{row, q.score(t.all.Row(int(row)))}
		if !finite(found[i].score) {
			out.NotFinite++
		}
	}
	slices.SortFunc(found, compareEntries)
	if len(found) > j.Keep {
		if next := found[j.Keep].score; finite(next) {
			out.Next = next
		}
		found = found[:j.Keep]
	}
	for _, e := range found {
		out.Rows, out.Scores = append(out.Rows, e.row), append(out.Scores, e.score)
	}
	return out
}

// scannedRows returns the rows that a scan visits.
func (t *table) scannedRows(bitmap []uint32) []uint32 {
	if bitmap == nil {
		bitmap = t.alive
	}
	rows := make([]uint32, 0, t.rows)
	for i := range t.rows {
		if bitmap == nil || bitmap[i/32]>>(i%32)&1 != 0 {
			rows = append(rows, uint32(i))
		}
	}
	return rows
}

type entry struct {
	row   uint32
	score float32
}

func finite(x float32) bool { return x-x == 0 }

func compareEntries(a, b entry) int {
	if fa, fb := finite(a.score), finite(b.score); fa != fb {
		if fa {
			return -1
		}
		return 1
	} else if fa && a.score != b.score {
		return cmp.Compare(b.score, a.score)
	}
	return cmp.Compare(a.row, b.row)
}

// roundMatrix rounds a matrix to float16.
func roundMatrix(m rerank.Matrix) rerank.Matrix {
	return rerank.Matrix{Rows: m.Rows, Cols: m.Cols, Data: round(m.Data)}
}

func round(v []float32) []float32 {
	if len(v) == 0 {
		return nil
	}
	p := rerank.Packing{Format: rerank.FormatFloat16, Cols: len(v)}
	words := make([]uint32, p.RowWords())
	p.Pack(words, v)
	out := make([]float32, len(v))
	p.Unpack(out, words, 1)
	return out
}

// query is a job's query, prepared for scoring.
type query struct {
	of            *gpu.Network
	rough         bool
	o             rerank.Operands
	limits        *kernels.Limits // nil if the job has no limits
	components    rerank.Matrix   // over τ
	first, second rerank.Matrix
}

func newQuery(t *network, j *gpu.Job) *query {
	q := &query{of: t.network, rough: j.Way != gpu.Exact, o: j.Query}
	if j.Way == gpu.Bounded {
		q.limits = &j.Limits
	}
	n := t.network.MoL
	q.components = rerank.NewMatrix(j.Query.Vectors.Rows, j.Query.Vectors.Cols)
	for i, x := range j.Query.Vectors.Data {
		q.components.Data[i] = x * j.Query.Scale
	}
	if q.rough {
		q.components = roundMatrix(q.components)
	}
	switch {
	case n == nil:
	case q.rough:
		q.first, q.second = t.first, t.second
	default:
		q.first, q.second = n.First, n.Second
	}
	return q
}

func dot(a, b []float32) (sum float32) {
	for k, x := range a {
		sum += x * b[k]
	}
	return sum
}

func (q *query) score(row []float32) float32 {
	n := q.of.MoL
	if q.of.InnerProduct() {
		return q.innerProduct(row)
	}
	items, gates := row[:n.PairsItem*n.Dim], row[n.PairsItem*n.Dim:]
	if q.rough {
		items = round(items)
	}
	logits := make([]float32, n.PairsQuery*n.PairsItem)
	for l := range logits {
		j := l % n.PairsItem
		logits[l] = dot(q.components.Row(l/n.PairsItem), items[j*n.Dim:][:n.Dim])
	}
	return q.mix(n, logits, q.gates(n, logits), gates)
}

// innerProduct returns φ of a model without gates or, if there are limits, an upper bound of
// φ.
func (q *query) innerProduct(row []float32) float32 {
	if !q.rough {
		return dot(q.o.Vectors.Data, row) * q.o.Scale
	}
	score := dot(q.components.Data, round(row))
	if q.limits == nil {
		return score
	}
	return score + q.limits.Base
}

// gates computes the logits' part of the gates.
func (q *query) gates(n *mol.Network, logits []float32) []float32 {
	in := logits
	if q.rough {
		in = round(in)
	}
	if q.first.Rows > 0 {
		in = layer(q.first, n.FirstBias, in)
		for i, x := range in {
			in[i] = q.silu(x)
		}
		if q.rough {
			in = round(in)
		}
	}
	if q.second.Rows == 0 {
		return make([]float32, len(logits))
	}
	return layer(q.second, n.SecondBias, in)
}

func layer(w rerank.Matrix, bias, x []float32) []float32 {
	out := make([]float32, w.Rows)
	for r := range out {
		out[r] = dot(w.Row(r), x) + bias[r]
	}
	return out
}

func silu(x float32) float32 { return float32(float64(x) / (1 + math.Exp(-float64(x)))) }

// roughSiLU is silu by a tangent of eleven bits, as tensor-core kernels compute it.
func roughSiLU(x float32) float32 {
	bits := math.Float32bits(float32(math.Tanh(float64(x) / 2)))
	h, tangent := x/2, math.Float32frombits((bits+0xfff+bits>>13&1)&^0x1fff)
	return float32(math.FMA(float64(h), float64(tangent), float64(h)))
}

func (q *query) silu(x float32) float32 {
	if q.rough {
		return roughSiLU(x)
	}
	return silu(x)
}

// mix returns Σ softmax(z)·λ, or, if there are limits, an upper bound of φ.
func (q *query) mix(n *mol.Network, logits, z, item []float32) float32 {
	top := float32(math.Inf(-1))
	for l := range z {
		var queryPart, itemPart float32
		if q.o.Gates != nil {
			queryPart = q.o.Gates[l]
		}
		if n.ItemGates {
			itemPart = item[l]
		}
		if n.Combination == mol.GLUSiLU {
			z[l] = q.silu(z[l] + queryPart*itemPart)
		} else {
			z[l] += queryPart + itemPart
		}
		top = max(top, z[l])
	}
	var sum, mixed float32
	for l, x := range z {
		z[l] = float32(math.Exp(float64(x - top)))
		sum, mixed = sum+z[l], mixed+z[l]*logits[l]
	}
	score := mixed / sum
	if q.limits == nil {
		return score
	}
	var squares float64
	for l, w := range z {
		d := float64(w) / float64(sum) * (float64(logits[l]) - float64(score))
		squares += d * d
	}
	return q.limits.Upper(float64(score), rerank.Norm(logits), math.Sqrt(squares))
}
