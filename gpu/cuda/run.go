//go:build cuda

package cuda

import (
	"errors"
	"math"
	"slices"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/likenessdb/likeness/gpu"
	"github.com/likenessdb/likeness/gpu/kernels"
	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/rerank/mol"
)

// Run implements gpu.Machine. Each launch takes as many jobs as the kernels support.
func (m *Machine) Run(jobs []gpu.Job) ([]gpu.Survivors, error) {
	clear(m.clock.phases[:])
	out := make([]gpu.Survivors, 0, len(jobs))
	for len(jobs) > 0 {
		t := jobs[0].Table.(*table)
		n := min(len(jobs), m.batch(t, &jobs[0]))
		found, err := m.run(t, jobs[:n])
		if errors.Is(err, device.ErrMemory) || errors.Is(err, gpu.ErrRefused) { // what was enqueued before still reads memory that the next launch would overwrite
			err = errors.Join(err, judged("waiting for a launch that was given up", m.stream.Synchronize()))
		}
		if err != nil {
			return nil, err
		}
		out, jobs = append(out, found...), jobs[n:]
	}
	return out, nil
}

// batch returns how many jobs like j fit one launch.
func (m *Machine) batch(t *table, j *gpu.Job) int {
	n := maxBatch
	if j.Way != gpu.Exact && j.Rows == nil && !t.of.of.InnerProduct() {
		n = min(n, shapeOf(t.of.of.MoL).ScanQueries(m.shared))
	}
	if j.Rows == nil {
		return n
	}
	return max(1, min(n, int(m.options.Scores/4)/max(len(j.Rows), 1)))
}

// launch is the state of some jobs with the same table and way while the kernels process
// them.
type launch struct {
	m       *Machine
	t       *table
	jobs    []gpu.Job
	keep    int // greatest Keep of all jobs
	longest int // greatest number of rows of a job
	some    bool

	pairs                    kernels.Pairs
	components, bias, factor uint64
	scales, limits           uint64
	halves                   uint64 // components in float16
	live, bitmaps            uint64
}

func (m *Machine) run(t *table, jobs []gpu.Job) ([]gpu.Survivors, error) {
	l := &launch{m: m, t: t, jobs: jobs, some: jobs[0].Rows != nil, longest: t.count}
	if l.some {
		l.longest = 0
	}
	for i := range jobs {
		l.keep, l.longest = max(l.keep, jobs[i].Keep), max(l.longest, len(jobs[i].Rows))
	}
	if err := m.clock.pass(began, m.stream); err != nil {
		return nil, err
	}
	if err := l.send(); err != nil {
		return nil, err
	}
	out := make([]gpu.Survivors, len(jobs))
	for i := range out {
		out[i].Next = float32(math.Inf(-1))
	}
	if l.some {
		return out, l.piece(out, 0, l.longest)
	}
	step := max(1, int(m.options.Scores/4)/len(jobs))
	if step < t.count { // whole tiles
		step = max(1024, step/1024*1024)
	}
	for first := 0; first < t.count; first += step {
		if err := l.piece(out, first, min(step, t.count-first)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// queries contains the inputs of a launch's queries, concatenated.
type queries struct {
	components, bias, factor, scales []float32
	limits                           []float32
	rows, starts                     []uint32
	bitmaps                          [][]uint32
}

func (l *launch) collect() (q queries) {
	total := 0
	for i := range l.jobs {
		j := &l.jobs[i]
		switch n := l.t.of.of; {
		case !n.InnerProduct():
			q.add(n.MoL, j)
		case j.Way == gpu.Exact:
			q.components, q.scales = append(q.components, j.Query.Vectors.Data...), append(q.scales, j.Query.Scale)
		default:
			q.addComponents(j)
		}
		if l.some {
			q.starts = append(q.starts, uint32(total))
			q.rows = append(q.rows, j.Rows...)
			total += len(j.Rows)
		}
		switch limits := j.Limits.Numbers(); {
		case j.Way != gpu.Bounded:
		case l.t.of.of.InnerProduct():
			q.limits = append(q.limits, j.Limits.Base)
		default:
			q.limits = append(q.limits, limits[:]...)
		}
		q.bitmaps = append(q.bitmaps, j.Bitmap)
	}
	if l.some {
		q.starts = append(q.starts, uint32(total))
	}
	return q
}

// add appends a query of a MoL in the format of the kernels: components over τ, the start
// value of each gate, and the factor of the item's part of each gate.
func (q *queries) add(n *mol.Network, j *gpu.Job) {
	q.addComponents(j)
	for p := range n.PairsQuery * n.PairsItem {
		bias, factor := float32(0), float32(1)
		if n.SecondBias != nil {
			bias = n.SecondBias[p]
		}
		switch {
		case j.Query.Gates == nil:
		case n.Combination == mol.GLUSiLU:
			factor = j.Query.Gates[p]
		default:
			bias += j.Query.Gates[p]
		}
		q.bias, q.factor = append(q.bias, bias), append(q.factor, factor)
	}
}

// addComponents appends a query's vectors over τ.
func (q *queries) addComponents(j *gpu.Job) {
	for _, x := range j.Query.Vectors.Data {
		q.components = append(q.components, x*j.Query.Scale)
	}
}

// send copies the queries to the device and prepares them.
func (l *launch) send() error {
	q, a, m := l.collect(), &l.m.queries, l.m
	size := aligned(4*len(q.components)) + aligned(4*len(q.bias)) + aligned(4*len(q.factor)) + aligned(4*len(q.scales)) + aligned(4*len(q.limits)) +
		aligned(4*len(q.rows)) + aligned(4*len(q.starts)) + aligned(8*len(l.jobs))
	filtered := false
	for _, b := range q.bitmaps {
		size += aligned(4 * len(b))
		filtered = filtered || b != nil
	}
	n := l.t.of.of
	approximate := l.jobs[0].Way != gpu.Exact
	halves := 0
	switch {
	case !approximate:
	case n.InnerProduct():
		halves = aligned(kernels.ScreenBytes(n.Features, len(l.jobs)))
	default:
		halves = aligned(shapeOf(n.MoL).QueriesBytes(len(l.jobs)))
	}
	if err := a.reset(size + halves); err != nil {
		return err
	}
	l.components, l.bias, l.factor, l.scales = put(a, q.components), put(a, q.bias), put(a, q.factor), put(a, q.scales)
	l.limits = put(a, q.limits)
	l.pairs = kernels.Pairs{Rows: put(a, q.rows), Starts: put(a, q.starts), Queries: uint64(len(l.jobs))}
	if l.t.some && !l.some { // a job's bitmap already excludes dead rows; other jobs of the launch may have no bitmap
		l.live = uint64(l.t.live.at)
	}
	if filtered {
		at := make([]uint64, len(l.jobs))
		for i, b := range q.bitmaps {
			at[i] = put(a, b)
		}
		l.bitmaps = put(a, at)
	}
	if err := a.send(m.stream); err != nil {
		return err
	}
	if !approximate {
		return nil
	}
	l.halves = uint64(a.on.at) + uint64(a.used)
	how, args := l.packing()
	args.Components, args.Out = l.components, l.halves
	return m.launch(how, args)
}

// packing returns the launch that rounds the queries to float16.
func (l *launch) packing() (kernels.Launch, kernels.QueriesArgs) {
	if n := l.t.of.of; !n.InnerProduct() {
		return shapeOf(n.MoL).Queries(len(l.jobs))
	}
	return kernels.ScreenQueries(l.t.of.of.Features, len(l.jobs))
}

// piece scores a range of the table, or the rows that the jobs name, ranks them, and merges
// the best into the answers.
func (l *launch) piece(out []gpu.Survivors, first, count int) error {
	m := l.m
	entries := int64(count) * int64(len(l.jobs))
	if l.some {
		entries = 0
		for i := range l.jobs {
			entries += int64(len(l.jobs[i].Rows))
		}
	}
	if err := m.scores.grow("scores", 4*max(entries, 1)); err != nil {
		return err
	}
	l.pairs.Scores, l.pairs.First, l.pairs.Count = uint64(m.scores.at), uint64(first), uint64(count)
	if l.some {
		l.pairs.Count = 0
	}
	if err := m.clock.pass(sent, m.stream); err != nil {
		return err
	}
	if err := l.score(count); err != nil {
		return err
	}
	if err := m.clock.pass(scored, m.stream); err != nil {
		return err
	}
	kept, err := l.rank(first, count)
	if err != nil {
		return err
	}
	if err := m.clock.pass(ranked, m.stream); err != nil {
		return err
	}
	return l.fetch(out, kept)
}

// score launches the kernel that computes φ.
func (l *launch) score(count int) error {
	n, t := l.t.of.of, l.t
	if n.InnerProduct() {
		return l.scoreInnerProduct(count)
	}
	shape, silu := shapeOf(n.MoL), uint64(0)
	if n.MoL.Combination == mol.GLUSiLU {
		silu = 1
	}
	if l.jobs[0].Way != gpu.Exact {
		how := shape.Scan(count, len(l.jobs), l.m.facts.Processors)
		if l.some {
			how = shape.Rescore(count, len(l.jobs), l.m.facts.Processors)
		}
		return l.m.launch(how, kernels.TensorArgs{
			Halves: uint64(t.halves.at), Gates: uint64(t.gates.at), Weights: uint64(t.of.weights.at),
			Components: l.halves, Bias: l.bias, Factor: l.factor, Limits: l.limits, Pairs: l.pairs, SiLU: silu,
		})
	}
	how, tile, err := shape.ExactScan(count, len(l.jobs), l.m.shared)
	if l.some {
		how, tile, err = shape.ExactRescore(count, len(l.jobs), l.m.shared)
	}
	if err != nil {
		return err
	}
	return l.m.launch(how, kernels.ExactArgs{
		Table: uint64(t.rows.at), First: uint64(t.of.first.at), FirstBias: uint64(t.of.bias.at), Second: uint64(t.of.second.at),
		Components: l.components, Bias: l.bias, Factor: l.factor, Pairs: l.pairs, SiLU: silu,
		PairsQuery: uint64(shape.PairsQuery), PairsItem: uint64(shape.PairsItem), Dim: uint64(shape.Dim), Hidden: uint64(shape.Hidden),
		Features: uint64(n.Features), Tile: uint64(tile),
	})
}

// scoreInnerProduct launches the kernel that computes a φ that is one inner product.
func (l *launch) scoreInnerProduct(count int) error {
	n, t := l.t.of.of, l.t
	if l.jobs[0].Way != gpu.Exact {
		how := kernels.ScreenScan(count, len(l.jobs), l.m.facts.Processors)
		if l.some {
			how = kernels.ScreenRescore(count, len(l.jobs), l.m.facts.Processors)
		}
		return l.m.launch(how, kernels.ScreenArgs{
			Halves: uint64(t.halves.at), Vectors: l.halves, Above: l.limits, Pairs: l.pairs, Width: uint64(kernels.ScreenWidth(n.Features)),
		})
	}
	how := kernels.DotScan(count, len(l.jobs))
	if l.some {
		how = kernels.DotRescore(count, len(l.jobs))
	}
	return l.m.launch(how, kernels.DotArgs{
		Table: uint64(t.rows.at), Vectors: l.components, Scales: l.scales, Pairs: l.pairs, Width: uint64(n.Features),
	})
}

// ranks is the location of the output of the last top_k launch.
type ranks struct {
	scores, rows, stats cu.DevicePtr
	keep                int // entries per query
}

const statsBytes = 16

// rank launches top_k repeatedly until one part is left.
func (l *launch) rank(first, count int) (ranks, error) {
	m := l.m
	var last ranks
	for i, s := range kernels.TopKPlan(count, len(l.jobs), l.keep) {
		entries := int64(len(l.jobs)) * int64(s.Parts) * int64(s.Keep)
		out, stats := &m.ranked[i%2], &m.stats[i%2]
		if err := out.grow("ranks", 8*entries); err != nil {
			return last, err
		}
		if err := stats.grow("ranks", statsBytes*int64(len(l.jobs))*int64(s.Parts)); err != nil {
			return last, err
		}
		args := kernels.TopKArgs{
			OutScores: uint64(out.at), OutRows: uint64(out.at) + uint64(4*entries), OutStats: uint64(stats.at),
			Count: uint64(s.Entries), Part: uint64(s.Part), Keep: uint64(s.Keep),
		}
		if i == 0 {
			args.Scores, args.Rows, args.Starts, args.First = l.pairs.Scores, l.pairs.Rows, l.pairs.Starts, uint64(first)
			args.Live, args.Bitmaps = l.live, l.bitmaps
		} else {
			args.Scores, args.Rows = uint64(last.scores), uint64(last.rows)
			args.InStats, args.InParts = uint64(last.stats), uint64(s.Entries/s.Keep)
		}
		if err := m.launch(s.Launch, args); err != nil {
			return last, err
		}
		last = ranks{out.at, out.at + cu.DevicePtr(4*entries), stats.at, s.Keep}
	}
	return last, nil
}

// fetch copies the ranked entries to the host and merges them into the answers.
func (l *launch) fetch(out []gpu.Survivors, r ranks) error {
	m, n := l.m, len(l.jobs)*r.keep
	raw, err := m.answers.room(8*n + statsBytes*len(l.jobs))
	if err != nil {
		return err
	}
	scores, rows, stats := raw[:4*n], raw[4*n:8*n], raw[8*n:]
	for _, c := range []struct {
		to   []byte
		from cu.DevicePtr
	}{{scores, r.scores}, {rows, r.rows}, {stats, r.stats}} {
		if err := judged("fetching answers", cu.MemcpyDtoHAsync(unsafe.Pointer(&c.to[0]), c.from, int64(len(c.to)), m.stream)); err != nil {
			return err
		}
	}
	if err := m.clock.pass(fetched, m.stream); err != nil {
		return err
	}
	if err := judged("waiting for answers", m.stream.Synchronize()); err != nil {
		return err
	}
	if err := m.clock.read(); err != nil {
		return err
	}
	for q := range out {
		numbers := numbersOf[uint32](stats[q*statsBytes:][:statsBytes])
		s := kernels.TopKStats{Next: numbersOf[float32](stats[q*statsBytes:][:4])[0], Scored: numbers[2], NotFinite: numbers[3]}
		merge(&out[q], l.jobs[q].Keep, numbersOf[float32](scores)[q*r.keep:][:r.keep], numbersOf[uint32](rows)[q*r.keep:][:r.keep], s)
	}
	return nil
}

// merge adds the best entries of a piece to the best of the previous pieces.
func merge(out *gpu.Survivors, keep int, scores []float32, rows []uint32, s kernels.TopKStats) {
	out.Rows, out.Scores = slices.Grow(out.Rows, len(rows)), slices.Grow(out.Scores, len(rows))
	for i, row := range rows {
		if row != kernels.Absent {
			out.Rows, out.Scores = append(out.Rows, row), append(out.Scores, scores[i])
		}
	}
	if finite(s.Next) {
		out.Next = max(out.Next, s.Next)
	}
	out.Cut(keep)
	out.Scored, out.NotFinite = out.Scored+int(s.Scored), out.NotFinite+int(s.NotFinite)
}

func finite(x float32) bool { return x-x == 0 }
