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
	"github.com/likenessdb/likeness/rerank"
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

// send writes the queries to pinned memory, copies them to the device, and prepares them.
func (l *launch) send() error {
	m, a, n := l.m, &l.m.queries, l.t.of.of
	approximate := l.jobs[0].Way != gpu.Exact
	halves := 0
	switch {
	case !approximate:
	case n.InnerProduct():
		halves = aligned(kernels.ScreenBytes(n.Features, len(l.jobs)))
	default:
		halves = aligned(shapeOf(n.MoL).QueriesBytes(len(l.jobs)))
	}
	c := l.count()
	if err := a.reset(c.bytes(len(l.jobs)) + halves); err != nil {
		return err
	}
	l.pack(c)
	if err := m.clock.pass(began, m.stream); err != nil {
		return err
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

// counts holds how many numbers the queries of a launch have, together.
type counts struct {
	components, scales, gates, limits, rows, starts int
	bitmaps                                         int // bytes, each bitmap aligned
}

func (l *launch) count() (c counts) {
	n := l.t.of.of
	for i := range l.jobs {
		j := &l.jobs[i]
		c.components += len(j.Query.Vectors.Data)
		if !n.InnerProduct() {
			c.gates += n.MoL.PairsQuery * n.MoL.PairsItem
		} else if j.Way == gpu.Exact {
			c.scales++
		}
		if j.Way == gpu.Bounded {
			c.limits += l.limitsOf(n)
		}
		c.rows += len(j.Rows)
		c.bitmaps += aligned(4 * len(j.Bitmap))
	}
	if l.some {
		c.starts = len(l.jobs) + 1
	}
	return c
}

// limitsOf returns how many numbers the limits of a query have.
func (l *launch) limitsOf(n *gpu.Network) int {
	if n.InnerProduct() {
		return 1
	}
	return len(new(kernels.Limits).Numbers())
}

func (c *counts) bytes(queries int) int {
	size := c.bitmaps + aligned(8*queries) // and the bitmaps' addresses
	for _, n := range []int{c.components, c.scales, c.gates, c.gates, c.limits, c.rows, c.starts} {
		size += aligned(4 * n)
	}
	return size
}

// pack writes the queries of all jobs to the arena.
func (l *launch) pack(c counts) {
	a, n := &l.m.queries, l.t.of.of
	var components, scales, bias, factor, limits []float32
	var rows, starts []uint32
	components, l.components = room[float32](a, c.components)
	scales, l.scales = room[float32](a, c.scales)
	bias, l.bias = room[float32](a, c.gates)
	factor, l.factor = room[float32](a, c.gates)
	limits, l.limits = room[float32](a, c.limits)
	rows, l.pairs.Rows = room[uint32](a, c.rows)
	starts, l.pairs.Starts = room[uint32](a, c.starts)
	l.pairs.Queries = uint64(len(l.jobs))
	if l.t.some && !l.some { // a job's bitmap already excludes dead rows; other jobs of the launch may have no bitmap
		l.live = uint64(l.t.live.at)
	}
	named := 0
	for i := range l.jobs {
		j := &l.jobs[i]
		components = components[packComponents(components, j, n.InnerProduct()):]
		switch {
		case !n.InnerProduct():
			done := packGates(bias, factor, n.MoL, &j.Query)
			bias, factor = bias[done:], factor[done:]
		case j.Way == gpu.Exact:
			scales[i] = j.Query.Scale
		}
		if j.Way == gpu.Bounded {
			numbers := j.Limits.Numbers() // of an inner product only the first, Base
			limits = limits[copy(limits, numbers[:l.limitsOf(n)]):]
		}
		if l.some {
			starts[i] = uint32(named)
			named += copy(rows[named:], j.Rows)
		}
	}
	if l.some {
		starts[len(l.jobs)] = uint32(named)
	}
	if c.bitmaps == 0 {
		return
	}
	var at []uint64
	at, l.bitmaps = room[uint64](a, len(l.jobs))
	for i := range l.jobs {
		at[i] = put(a, l.jobs[i].Bitmap)
	}
}

// packComponents writes a query's vectors over τ, or as they are for the exact score of an
// inner product, whose kernel applies the scale. It returns their length.
func packComponents(dst []float32, j *gpu.Job, innerProduct bool) int {
	if innerProduct && j.Way == gpu.Exact {
		return copy(dst, j.Query.Vectors.Data)
	}
	for i, x := range j.Query.Vectors.Data {
		dst[i] = x * j.Query.Scale
	}
	return len(j.Query.Vectors.Data)
}

// packGates writes the start value of each gate of a query and the factor of the item's part
// of it. It returns the number of gates.
func packGates(bias, factor []float32, n *mol.Network, o *rerank.Operands) int {
	pairs := n.PairsQuery * n.PairsItem
	for p := range pairs {
		bias[p], factor[p] = 0, 1
		if n.SecondBias != nil {
			bias[p] = n.SecondBias[p]
		}
		switch {
		case o.Gates == nil:
		case n.Combination == mol.GLUSiLU:
			factor[p] = o.Gates[p]
		default:
			bias[p] += o.Gates[p]
		}
	}
	return pairs
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
	shape := shapeOf(n.MoL)
	if l.jobs[0].Way != gpu.Exact {
		how := shape.Scan(count, len(l.jobs), l.m.facts.Processors)
		if l.some {
			how = shape.Rescore(count, len(l.jobs), l.m.facts.Processors)
		}
		return l.m.launch(how, kernels.TensorArgs{
			Halves: uint64(t.halves.at), Gates: uint64(t.gates.at), Weights: uint64(t.of.weights.at),
			Components: l.halves, Bias: l.bias, Factor: l.factor, Limits: l.limits, Pairs: l.pairs, SiLU: silu(n.MoL),
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
		Components: l.components, Bias: l.bias, Factor: l.factor, Pairs: l.pairs, SiLU: silu(n.MoL),
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
