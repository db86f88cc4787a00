// Package gpu is a device.Device on a Machine: models and tables in a device's
// memory, queries of concurrent requests gathered into launches, and answers that
// are proved. It knows no driver: package cuda is a Machine on one, package hosted
// one in plain Go, for tests.
//
// A query takes the steps
//
//	1 bounded  bound the scores of all its rows, from float16; keep the K' with the best bounds
//	2 exact    score those in float32
//	3 certify  nothing that was not kept can belong to the answer; else keep more
//
// and each step is a job that is launched together with those of other queries.
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

// Options are what a Device can do without.
type Options struct {
	// Memory is what models and tables may take together, in bytes; 0: what the device
	// has free at the start, without Reserve.
	Memory int64
	// Reserve is left for launches and for the driver; 0: a sixteenth of what is free, 512 MiB at most.
	Reserve int64
	// MaxK bounds the rows of one answer; 0: 4,096.
	MaxK int
	// Gather is the longest that a query waits for others to be launched with; at low
	// load it waits for none. 0: 200 µs; negative: never.
	Gather time.Duration
	// Queue bounds the queries that wait; 0: 1,024.
	Queue int
	// Measured, where not 0, lets an answer rest on an error that was measured on at
	// least so many pairs of query and row where no bound of it closes. Such answers say
	// so (device.Best.Measured). Without it all rows are scored in float32 then.
	Measured int
	// Patience is the longest that one launch or one copy may take; after that the device is
	// lost. 0: 30 s.
	Patience time.Duration
	// Version of the program, for Describe.
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

// Device scores on a Machine. It is safe for concurrent use.
type Device struct {
	options Options
	facts   Facts
	queue   *queue
	owner   *owner

	mu     sync.Mutex
	models map[device.Version]*loaded
	tables map[device.Version]*table
	used   int64
}

var _ device.Device = (*Device)(nil)

// New starts the goroutine that owns the machine, on a thread of its own: open is
// called there. The caller calls Close.
func New(open func() (Machine, error), o Options) (*Device, error) {
	d := &Device{models: map[device.Version]*loaded{}, tables: map[device.Version]*table{}}
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
	return d, nil
}

// Close ends calls under way with device.ErrUnavailable and frees the machine. A machine
// that does not come back is left to the end of the process.
func (d *Device) Close() error {
	d.owner.fail(fmt.Errorf("%w: it is being closed", device.ErrUnavailable))
	select {
	case <-d.owner.ended:
		return d.owner.closed
	case <-d.owner.stuck:
		return d.owner.err()
	}
}

// Lost is closed when the machine can do nothing more, Err says why: the process
// should end, so that a fresh one begins with a fresh context.
func (d *Device) Lost() <-chan struct{} { return d.owner.failed }

// Err is why Lost was closed.
func (d *Device) Err() error { return d.owner.err() }

// Facts of the machine, as of the start.
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

// reserve reserves memory before it is allocated; the caller holds mu.
func (d *Device) reserve(bytes int64) error {
	if bytes > d.options.Memory-d.used {
		return fmt.Errorf("%w: it needs %d bytes and %d of %d are free; unload another (%s), or raise --memory",
			device.ErrMemory, bytes, max(0, d.options.Memory-d.used), d.options.Memory, d.largestTables())
	}
	d.used += bytes
	return nil
}

// largestTables names the tables that take most, for people; the caller holds mu.
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

// withContextError adds the end of a call to what it led to.
func withContextError(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		return errors.Join(ctx.Err(), err)
	}
	return err
}

// Waiting is how many queries wait for a launch.
func (d *Device) Waiting() int { return d.queue.waiting() }
