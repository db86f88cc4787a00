package gpu_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/likenessdb/likeness/gpu"
	"github.com/likenessdb/likeness/gpu/hosted"
	"github.com/likenessdb/likeness/gpu/parity"
	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/rerank"
)

// errRegisters is what a driver says of a launch that it refuses.
var errRegisters = fmt.Errorf("%w: too few registers", gpu.ErrRefused)

// TestAModelIsRefusedBeforeItIsReady: a model is not loaded if the machine refuses one of its
// launches or gives other scores than the CPU, by whichever way. The reason is kept, and the
// machine scores other models.
func TestAModelIsRefusedBeforeItIsReady(t *testing.T) {
	m, err := parity.MoL(parity.Shape{PairsQuery: 2, PairsItem: 3, Dim: 8, Hidden: 4}, 1)
	must(t, err)
	w := worldOf(t, m, 300)
	for name, c := range map[string]struct {
		refuses func(jobs []gpu.Job) bool
		spoils  func(s *gpu.Survivors, way gpu.Way)
		says    string
	}{
		"refuses bounds":          {func(j []gpu.Job) bool { return j[0].Way == gpu.Bounded }, nil, "too few registers"},
		"refuses full batches":    {func(j []gpu.Job) bool { return len(j) == 32 }, nil, "too few registers"},
		"refuses single queries":  {func(j []gpu.Job) bool { return len(j) == 1 }, nil, "too few registers"},
		"refuses to rescore":      {func(j []gpu.Job) bool { return j[0].Rows != nil }, nil, "too few registers"},
		"nothing wrong":           {says: ""},
		"scores that are too low": {nil, func(s *gpu.Survivors, w gpu.Way) { lower(s, w == gpu.Exact) }, "the score"},
		"bounds that are too low": {nil, func(s *gpu.Survivors, w gpu.Way) { lower(s, w == gpu.Bounded) }, "the upper bound"},
		"a row less": {nil, func(s *gpu.Survivors, _ gpu.Way) {
			s.Rows, s.Scores = s.Rows[1:], s.Scores[1:]
		}, "66 of 67 rows"},
	} {
		t.Run(name, func(t *testing.T) {
			machine := &spoiling{spoils: c.spoils}
			machine.Memory = 64 << 20
			var launches atomic.Int64
			machine.Launched = func(jobs []gpu.Job) error {
				launches.Add(1)
				if c.refuses != nil && c.refuses(jobs) {
					return errRegisters
				}
				return nil
			}
			d := openOn(t, machine, gpu.Options{})
			err := d.LoadModel(t.Context(), w.at, w.file)
			if c.says == "" {
				must(t, err)
				return
			}
			if !errors.Is(err, device.ErrFailed) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "the CPU scores this model") {
				t.Fatalf("LoadModel returned %v, want a refusal because of %s", err, c.says)
			}
			before := launches.Load()
			if again := d.LoadModel(t.Context(), w.at, w.file); again == nil || !strings.Contains(again.Error(), c.says) || launches.Load() != before {
				t.Errorf("the second attempt returned %v after %d launches", again, launches.Load()-before)
			}
			machine.Launched, machine.spoils = nil, nil
			other := dotWorld(t, 20, 3)
			must(t, d.LoadModel(t.Context(), other.at, other.file))
			must(t, other.table(t.Context(), d, "a"))
			if _, err := d.Scan(t.Context(), other.ask("a", 2), nil); err != nil || d.Err() != nil {
				t.Errorf("another model: %v, the device: %v", err, d.Err())
			}
			must(t, d.Unload(t.Context(), []device.Version{other.at}, []device.Version{version("a")}))
			if about, err := d.Describe(t.Context()); err != nil || about.Free != about.Memory {
				t.Errorf("%d of %d bytes are free (%v)", about.Free, about.Memory, err)
			}
		})
	}
}

func lower(s *gpu.Survivors, some bool) {
	for i := range s.Scores {
		if some {
			s.Scores[i] -= 100
		}
	}
}

// spoiling is a machine whose answers are spoilt, if spoils is not nil.
type spoiling struct {
	hosted.Machine
	spoils func(s *gpu.Survivors, way gpu.Way)
}

func (m *spoiling) Run(jobs []gpu.Job) ([]gpu.Survivors, error) {
	out, err := m.Machine.Run(jobs)
	for i := range out {
		if m.spoils != nil {
			m.spoils(&out[i], jobs[i].Way)
		}
	}
	return out, err
}

// TestARefusedLaunchUnloadsItsModel: if the driver refuses a launch of a search, the search
// fails, model and table are unloaded, and the model is refused from then on. The device
// answers searches of other models.
func TestARefusedLaunchUnloadsItsModel(t *testing.T) {
	m := &hosted.Machine{Memory: 1 << 20}
	d := openOn(t, m, gpu.Options{})
	w, other := dotWorld(t, 20, 3), dotWorld(t, 20, 4)
	for name, of := range map[string]*world{"a": w, "other": other} {
		must(t, d.LoadModel(t.Context(), of.at, of.file))
		must(t, of.table(t.Context(), d, name))
	}
	m.Launched = func(jobs []gpu.Job) error {
		if jobs[0].Query.Vectors.Cols == 3 {
			return errRegisters
		}
		return nil
	}
	if _, err := d.Scan(t.Context(), w.ask("a", 2), nil); !errors.Is(err, device.ErrFailed) || !strings.Contains(err.Error(), "too few registers") {
		t.Errorf("Scan returned %v", err)
	}
	about, err := d.Describe(t.Context())
	if err != nil || len(about.Models) != 1 || len(about.Tables) != 1 || about.Models[0] != other.at {
		t.Errorf("the device has the models %v and the tables %v (%v), want those of the other model", about.Models, about.Tables, err)
	}
	if err := d.LoadModel(t.Context(), w.at, w.file); !errors.Is(err, device.ErrFailed) || !strings.Contains(err.Error(), "too few registers") {
		t.Errorf("LoadModel returned %v", err)
	}
	if _, err := d.Scan(t.Context(), other.ask("other", 2), nil); err != nil || d.Err() != nil {
		t.Errorf("another model: %v, the device: %v", err, d.Err())
	}
}

// TestCheckBounds: a bound that is too low is found after the model was loaded, too.
func TestCheckBounds(t *testing.T) {
	mol, err := parity.MoL(parity.Shape{PairsQuery: 2, PairsItem: 3, Dim: 8, Hidden: 4}, 1)
	must(t, err)
	w := worldOf(t, mol, 300)
	m := &spoiling{Machine: hosted.Machine{Memory: 64 << 20}}
	d := openOn(t, m, gpu.Options{})
	must(t, d.LoadModel(t.Context(), w.at, w.file))
	queries := []rerank.Query{w.query}
	if b, err := d.CheckBounds(t.Context(), w.at, w.rows, queries); err != nil || b.Pairs != 300 || b.Room <= 0 || b.Room >= 1 {
		t.Errorf("%+v, %v", b, err)
	}
	m.spoils = func(s *gpu.Survivors, way gpu.Way) {
		if way == gpu.Bounded {
			s.Scores[150] -= 100
		}
	}
	if _, err := d.CheckBounds(t.Context(), w.at, w.rows, queries); !errors.Is(err, device.ErrFailed) || !strings.Contains(err.Error(), "the upper bound") {
		t.Errorf("one bound of 300 that is too low: %v", err)
	}
	if _, err := d.CheckBounds(t.Context(), version("none"), w.rows, queries); !errors.Is(err, device.ErrNotLoaded) {
		t.Errorf("of a model that is not loaded: %v", err)
	}
}
