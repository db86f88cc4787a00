package gpu

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/likenessdb/likeness/gpu/kernels"
	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/rerank/mol"
	"github.com/likenessdb/likeness/rerank/scan"
)

// exactOnly is a model whose rows cannot be approximated.
type exactOnly struct{ scripted }

func (*exactOnly) Approximates() bool { return false }

// TestBegin: a search begins with the cheapest step that can end it.
func TestBegin(t *testing.T) {
	bounds := &kernels.Limits{}
	for name, c := range map[string]struct {
		k, count, mostKept int
		limits             *kernels.Limits
		skip               int64 // searches that are to skip the bounds
		wanted, measured   int   // pairs
		exact, overflow    bool
		rows               []uint32
		mol                bool
		stage              stage
		keep               int
		skipAfter          int64
	}{
		"bounds close":             {k: 3, count: 5000, mostKept: 1024, limits: bounds, stage: bounded, keep: 64},
		"twice K, in powers of 2":  {k: 40, count: 5000, mostKept: 1024, limits: bounds, stage: bounded, keep: 128},
		"and no more than needed":  {k: 64, count: 5000, mostKept: 1024, limits: bounds, stage: bounded, keep: 128},
		"few rows":                 {k: 3, count: 128, mostKept: 1024, limits: bounds, stage: exactAll, keep: 64},
		"a row more":               {k: 3, count: 129, mostKept: 1024, limits: bounds, stage: bounded, keep: 64},
		"more than are kept":       {k: 600, count: 5000, mostKept: 1024, limits: bounds, stage: exactAll, keep: 2048},
		"no float16":               {k: 3, count: 5000, mostKept: 1024, limits: bounds, exact: true, stage: exactAll, keep: 64},
		"a number beyond float16":  {k: 3, count: 5000, mostKept: 1024, limits: bounds, overflow: true, stage: exactAll, keep: 64},
		"no bounds":                {k: 3, count: 5000, mostKept: 1024, stage: exactAll, keep: 64},
		"named rows of a MoL":      {k: 3, count: 5000, mostKept: 1024, limits: bounds, rows: []uint32{1}, mol: true, stage: bounded, keep: 64},
		"and of an inner product":  {k: 3, count: 5000, mostKept: 1024, limits: bounds, rows: []uint32{1}, stage: exactAll, keep: 64},
		"no bounds, to measure":    {k: 3, count: 5000, mostKept: 1024, wanted: 10, measured: 9, stage: sampleApproximate, keep: 64},
		"no bounds, measured":      {k: 3, count: 5000, mostKept: 1024, wanted: 10, measured: 10, stage: approximate, keep: 64},
		"bounds that did not help": {k: 3, count: 5000, mostKept: 1024, limits: bounds, skip: 2, stage: exactAll, keep: 64, skipAfter: 1},
	} {
		var m Model = &scripted{}
		if c.exact {
			m = &exactOnly{}
		}
		n := &Network{}
		if c.mol {
			n.MoL = &mol.Network{}
		}
		tb := &table{rows: c.count, overflow: c.overflow, model: &loaded{onMachine: m, network: n}, rounding: &rounding{mostKept: c.mostKept, wantedPairs: c.wanted, count: c.measured}}
		tb.skipBounds.Store(c.skip)
		s := &search{ctx: t.Context(), table: tb, k: c.k, count: c.count, rows: c.rows, limits: c.limits, done: make(chan struct{})}
		if s.begin(); s.stage != c.stage || s.keep != c.keep || tb.skipBounds.Load() != c.skipAfter {
			t.Errorf("%s: it begins with step %d, keeps %d and %d searches skip the bounds; want %d, %d and %d",
				name, s.stage, s.keep, tb.skipBounds.Load(), c.stage, c.keep, c.skipAfter)
		}
	}
}

// TestAnswersOfAMachine: a launch that comes back with another number of answers fails its
// searches; one whose error is final ends the device.
func TestAnswersOfAMachine(t *testing.T) {
	for name, c := range map[string]struct {
		answers []Survivors
		err     error
		want    error
		lost    bool
	}{
		"none":         {nil, nil, device.ErrFailed, false},
		"one of two":   {make([]Survivors, 1), nil, device.ErrFailed, false},
		"three of two": {make([]Survivors, 3), nil, device.ErrFailed, false},
		"an error":     {nil, errors.New("odd"), device.ErrFailed, false},
		"a final one":  {nil, ErrLost, device.ErrUnavailable, true},
	} {
		q := newQueue()
		q.limits(10, 2, 0)
		o := newOwner(q)
		o.patience = time.Hour
		tb := &table{rows: 10, model: &loaded{onMachine: &scripted{}}, onMachine: &scripted{}, rounding: &rounding{mostKept: 64}}
		batch := []*search{{ctx: t.Context(), table: tb, k: 1, stage: exactAll, done: make(chan struct{})}, {ctx: t.Context(), table: tb, k: 1, stage: exactAll, done: make(chan struct{})}}
		o.launch(&answering{answers: c.answers, err: c.err}, batch)
		for i, s := range batch {
			select {
			case <-s.done:
			default:
				t.Fatalf("%s: search %d goes on", name, i)
			}
			if !errors.Is(s.err, c.want) || (o.err() != nil) != c.lost {
				t.Errorf("%s: search %d ends with %v, want %v; the device with %v", name, i, s.err, c.want, o.err())
			}
		}
	}
}

// answering is a machine with given answers.
type answering struct {
	scripted
	answers []Survivors
	err     error
	closed  bool
}

func (m *answering) Run([]Job) ([]Survivors, error) { return m.answers, m.err }
func (m *answering) Close() error                   { m.closed = true; return errors.New("closed twice") }

// TestTheOwnerOfAMachine: it closes the machine and keeps the error, and begins nothing for
// a caller that is gone.
func TestTheOwnerOfAMachine(t *testing.T) {
	m := &answering{}
	d, err := New(func() (Machine, error) { return m, nil }, Options{})
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	ran := false
	c := &command{gone, func(Machine) error { ran = true; return nil }, make(chan error, 1)}
	d.owner.command(m, c)
	if err := <-c.done; ran || !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that is gone: %v, begun %t", err, ran)
	}
	if err := d.Close(); err == nil || !m.closed {
		t.Errorf("Close returned %v; the machine is closed: %t", err, m.closed)
	}
}

// TestRowsOfAScan: a scan visits the rows that are alive and in its bitmap, and counts them.
func TestRowsOfAScan(t *testing.T) {
	const rows = 70
	set := func(rows ...int32) *scan.Bitmap {
		b := scan.NewBitmap(70)
		b.Add(rows...)
		return b
	}
	for name, c := range map[string]struct {
		alive, within *scan.Bitmap
		want          []int32 // nil: all, or all that are alive
		count         int
	}{
		"all rows":     {nil, nil, nil, rows},
		"those alive":  {set(1, 40, 69), nil, nil, 3},
		"a filter":     {nil, set(0, 8, 31, 32, 69), []int32{0, 8, 31, 32, 69}, 5},
		"both":         {set(1, 8, 40, 69), set(0, 8, 31, 69), []int32{8, 69}, 2},
		"none is left": {set(1), set(2), []int32{}, 0},
	} {
		var raw []byte
		if c.within != nil {
			raw = c.within.Bytes(rows)
		}
		words, count, err := (&table{rows: rows, alive: c.alive}).scanRows(raw)
		if err != nil || count != c.count || (words == nil) != (c.want == nil) {
			t.Errorf("%s: %d rows, %v, words %t", name, count, err, words != nil)
			continue
		}
		var got []int32
		for i := range int32(rows) {
			if words != nil && words[i/32]>>(i%32)&1 == 1 {
				got = append(got, i)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: rows %v, want %v", name, got, c.want)
		}
	}
}

// TestAliveAfterAPatch: written rows are alive, removed ones are not, others stay.
func TestAliveAfterAPatch(t *testing.T) {
	alive := func(rows int, without ...int) *scan.Bitmap {
		b := scan.NewBitmap(0).Grown(0, rows)
		for _, r := range without {
			b.Remove(r)
		}
		return b
	}
	for name, c := range map[string]struct {
		before  *scan.Bitmap
		rows    int // before and after
		after   int
		numbers []uint32
		removed []uint32
		dead    []int
	}{
		"the first to go":       {nil, 40, 40, nil, []uint32{3, 39}, []int{3, 39}},
		"others came":           {nil, 40, 45, []uint32{40, 41, 42, 43, 44}, []uint32{44}, []int{44}},
		"behind dead ones":      {alive(40, 7), 40, 45, []uint32{40, 41, 42, 43, 44}, nil, []int{7}},
		"one comes back":        {alive(40, 7, 8), 40, 40, []uint32{7}, nil, []int{8}},
		"written and then gone": {alive(40, 7), 40, 40, []uint32{7, 9}, []uint32{9}, []int{9}},
	} {
		tb := &table{rows: c.after, alive: c.before}
		tb.updateAlive(device.Patch{Numbers: c.numbers, Removed: c.removed}, c.rows)
		for r := range c.after {
			want := !slices.Contains(c.dead, r)
			if got := tb.words[r/32]>>(r%32)&1 == 1; got != want {
				t.Errorf("%s: row %d is alive: %t", name, r, got)
			}
		}
	}
	tb := &table{rows: 40}
	if tb.updateAlive(device.Patch{Numbers: []uint32{1}}, 40); tb.alive != nil || tb.words != nil {
		t.Error("where no row is dead there is a set of those alive")
	}
}

func TestRoundUp(t *testing.T) {
	for x, want := range map[float64]float32{0: 0, 1: 1, 1 + 1e-12: math.Nextafter32(1, 2), 1e300: math.MaxFloat32, math.Inf(1): math.MaxFloat32, math.MaxFloat32: math.MaxFloat32} {
		if got := roundUp(x); got != want {
			t.Errorf("%v is %v, want %v", x, got, want)
		}
	}
	if got := roundUp(math.NaN()); got != math.MaxFloat32 {
		t.Errorf("an error that is not a number is %v", got)
	}
}

// TestDefaults: a device promises no more rows than its kernels keep, and leaves memory for
// launches.
func TestDefaults(t *testing.T) {
	for name, c := range map[string]struct {
		given Options
		facts Facts
		maxK  int
		bytes int64
	}{
		"defaults":       {Options{}, Facts{Free: 1 << 30, MaxKeep: 8192}, 4096, 1<<30 - 1<<26},
		"much memory":    {Options{}, Facts{Free: 1 << 40, MaxKeep: 8192}, 4096, 1<<40 - 512<<20},
		"kernels' limit": {Options{MaxK: 5000, Memory: 7}, Facts{Free: 1 << 30, MaxKeep: 1024}, 1023, 7},
		"all reserved":   {Options{Reserve: 1 << 31}, Facts{Free: 1 << 30, MaxKeep: 8192}, 4096, 0},
	} {
		o := c.given
		if o.fill(&c.facts); o.MaxK != c.maxK || o.Memory != c.bytes || o.Gather != 200*time.Microsecond || o.Queue != 1024 || o.Patience != 30*time.Second {
			t.Errorf("%s: %+v, want %d rows and %d bytes", name, o, c.maxK, c.bytes)
		}
	}
}
