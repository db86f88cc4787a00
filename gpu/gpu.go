// Package gpu implements device.Device on a Machine: it keeps models and tables in a
// device's memory, gathers the queries of concurrent requests into launches, and returns
// answers that are proved. It does not depend on a driver: package cuda implements Machine
// for NVIDIA devices, and package hosted in plain Go, for tests.
//
// A query goes through these steps:
//
//	1 bounded  bound the scores of all rows, computed from float16; keep a list of the best bounds
//	2 exact    score the K' best rows of the list in float32
//	3 certify  check that no other row can belong to the answer; otherwise score more of the list, or keep a longer one
//
// Each step is a job. It is launched together with jobs of other queries. Before a model is
// used, the same steps score made-up rows, and their scores are compared with the CPU's.
package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/rerank"
)

// Options are the optional parameters of a Device.
type Options struct {
	// Memory limits the bytes of all models and tables. 0 means the device's free memory at
	// the start, less Reserve.
	Memory int64
	// Reserve is memory left for launches and the driver. 0 means a sixteenth of the free
	// memory, at most 512 MiB.
	Reserve int64
	// MaxK limits the rows of one answer. 0 means 4,096.
	MaxK int
	// Gather limits how long a query waits for others to share its launch. At low load it
	// does not wait. 0 means 200 µs; a negative value disables waiting.
	Gather time.Duration
	// Queue limits the number of waiting queries. 0 means 1,024.
	Queue int
	// Measured, if not 0, allows an answer to rest on a measured error if no bound closes.
	// The error must have been measured on at least that many pairs of query and row. Such
	// answers say so (device.Best.Measured). If Measured is 0, all rows are scored in
	// float32 instead.
	Measured int
	// Patience limits the time of one launch or copy. After that the device counts as lost.
	// 0 means 30 s.
	Patience time.Duration
	// Version is the program's version, for Describe.
	Version string
	Logger  *slog.Logger
}

func (o *Options) fill(f *Facts) {
	if o.Reserve == 0 {
		o.Reserve = min(512<<20, f.Free/16)
	}
	if o.Memory == 0 {
		o.Memory = max(0, f.Free-o.Reserve)
	}
	if o.MaxK == 0 {
		o.MaxK = 4096
	}
	o.MaxK = min(o.MaxK, f.MaxKeep-1)
	if o.Gather == 0 {
		o.Gather = 200 * time.Microsecond
	}
	if o.Queue == 0 {
		o.Queue = 1024
	}
	if o.Patience == 0 {
		o.Patience = 30 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// Device answers queries on a Machine. It is safe for concurrent use.
type Device struct {
	options Options
	facts   Facts
	queue   *queue
	owner   *owner

	mu      sync.Mutex
	models  map[device.Version]*loaded
	tables  map[device.Version]*table
	refused map[device.Version]error // models that the machine cannot score, and why
	used    int64
}

var _ device.Device = (*Device)(nil)

// New starts a goroutine on a thread of its own, which calls open and owns the machine. The
// caller must call Close.
func New(open func() (Machine, error), o Options) (*Device, error) {
	d := &Device{models: map[device.Version]*loaded{}, tables: map[device.Version]*table{}, refused: map[device.Version]error{}}
	d.queue = newQueue()
	d.owner = newOwner(d.queue)
	started := make(chan error, 1)
	go d.owner.run(open, func(f Facts) {
		o.fill(&f)
		d.options, d.facts, d.owner.patience = o, f, o.Patience
		d.queue.limits(o.Queue, f.MaxBatch, max(0, o.Gather))
	}, started)
	if err := <-started; err != nil {
		return nil, err
	}
	d.options.Logger.Info("kernels loaded", "device", d.facts.Name, "from", d.facts.Kernels, "took", time.Duration(d.facts.LoadSeconds*float64(time.Second)).String(), "compiler", d.facts.CompilerLog)
	return d, nil
}

// Close ends running calls with device.ErrUnavailable and frees the machine. If a call of
// the machine never returns, the machine is left until the process ends.
func (d *Device) Close() error {
	d.owner.fail(fmt.Errorf("%w: it is being closed", device.ErrUnavailable))
	select {
	case <-d.owner.ended:
		return d.owner.closed
	case <-d.owner.stuck:
		return d.owner.err()
	}
}

// Lost returns a channel that is closed when the machine cannot be used any more. Err then
// gives the reason. The process should exit, so that its successor starts with a fresh
// context.
func (d *Device) Lost() <-chan struct{} { return d.owner.failed }

// Err returns the reason why Lost was closed, or nil.
func (d *Device) Err() error { return d.owner.err() }

// Facts returns the facts of the machine at the start.
func (d *Device) Facts() Facts { return d.facts }

// Describe implements device.Device.
func (d *Device) Describe(context.Context) (device.Description, error) {
	if err := d.owner.err(); err != nil {
		return device.Description{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return device.Description{
		Name:    fmt.Sprintf("%s, driver %s", d.facts.Name, d.facts.Driver),
		Version: d.options.Version, MaxK: d.options.MaxK,
		Kinds:  []rerank.Kind{rerank.KindDot, rerank.KindBilinear, rerank.KindMoL, rerank.KindMaxSim, rerank.KindRBE},
		Memory: d.options.Memory, Free: max(0, d.options.Memory-d.used),
		Models: device.Versions(d.models), Tables: device.Versions(d.tables),
	}, nil
}

// reserve counts memory as used before it is allocated. The caller holds mu.
func (d *Device) reserve(bytes int64) error {
	if bytes > d.options.Memory-d.used {
		return fmt.Errorf("%w: it needs %d bytes and %d of %d are free; unload another (%s), or raise --memory",
			device.ErrMemory, bytes, max(0, d.options.Memory-d.used), d.options.Memory, d.largestTables())
	}
	d.used += bytes
	return nil
}

// largestTables names the largest tables, for an error message. The caller holds mu.
func (d *Device) largestTables() string {
	const most = 3
	all := slices.SortedFunc(maps.Values(d.tables), func(a, b *table) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), strings.Compare(a.name, b.name))
	})
	if len(all) == 0 {
		return "no table is loaded"
	}
	var names []string
	for _, t := range all[:min(most, len(all))] {
		names = append(names, fmt.Sprintf("table %s has %d bytes", t.name, t.bytes))
	}
	if more := len(all) - most; more > 0 {
		names = append(names, fmt.Sprintf("%d more have less", more))
	}
	return strings.Join(names, ", ")
}

// withContextError adds the context's error to an error that it caused.
func withContextError(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		return errors.Join(ctx.Err(), err)
	}
	return err
}

// Waiting returns how many queries wait for a launch.
func (d *Device) Waiting() int { return d.queue.waiting() }
