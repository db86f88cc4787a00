// Package offload scores a route's table on a device plugin. It loads the model and the
// table on the device, keeps them up to date, and requests the best rows.
//
// Searches never wait for a device. If the device is loading, behind or gone, a search gets
// an error at once and scores by itself. Loading and patching continue in the background.
package offload

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/scan"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/search/score"
)

// Sentinel errors of a call. After any of them, the search scores by itself.
var (
	// ErrNotReady: model and table are not loaded, or the device is not used after a
	// failure.
	ErrNotReady = errors.New("device not ready")
	// ErrStale: the device does not have the latest writes to the table yet.
	ErrStale = errors.New("device behind the table")
)

// Options configures a Scorer. Only Logger and CallTimeout are optional.
type Options struct {
	// Plugin, Route and the route's Version appear in names, logs and metrics.
	Plugin, Route, Version string
	Conn                   grpc.ClientConnInterface
	Model                  *model.Model
	// Table returns the current table, held for the caller, who must call its Release. It
	// returns nil after the table was closed.
	Table func() *table.Table
	// CallTimeout limits a call. 0 means 5 s.
	CallTimeout time.Duration
	Logger      *slog.Logger
}

// State is the state of a Scorer.
type State string

// The states.
const (
	Loading State = "loading" // the model or the table is not on the device yet
	Ready   State = "ready"   // the device is in use
	Broken  State = "broken"  // the device returned wrong scores; it is not used until it restarts
)

// Status describes the state of a device for one route.
type Status struct {
	Route, Version, Plugin string
	State                  State
	// Detail is the reason why the device is not ready, or the last error, for people.
	Detail string
	// Rows is the number of rows on the device.
	Rows int
	// Loads and Patches count the uploads of the table.
	Loads, Patches int64
	// Answers counts calls by outcome, one of Outcomes.
	Answers map[string]int64
}

// The outcomes of a call to a device.
const (
	Used         = "used"
	NotReady     = "not_ready"    // the device was not called
	Stale        = "stale"        // the device was not called because it is behind, or it had another version
	Failed       = "failed"       // an error or a timeout
	Undecided    = "undecided"    // rows that the device left out may belong to the answer
	Contradicted = "contradicted" // the device's scores are wrong
)

// Outcomes returns all outcomes.
func Outcomes() []string {
	return []string{Used, NotReady, Stale, Failed, Undecided, Contradicted}
}

// Scorer scores a route's table on a device. It is safe for concurrent use.
type Scorer struct {
	o      Options
	client *device.Client
	prefix string // distinguishes this process's tables on the device
	model  device.Version

	usable  atomic.Pointer[copied] // the table on the device; nil if the device must not be used
	counts  map[string]*atomic.Int64
	loads   atomic.Int64
	patches atomic.Int64
	slow    atomic.Int64 // consecutive calls that exceeded a short deadline

	kick   chan struct{} // receives a value when the device should be checked
	stop   context.CancelFunc
	ended  chan struct{}
	mu     sync.Mutex
	detail string
	broken error // the contradiction that was found, if any
}

var _ score.Device = (*Scorer)(nil)

// copied describes the copy of a table on the device.
type copied struct {
	device.Version
	of    *table.Table // only for comparison, never read: it may have been released
	rows  int
	alive []uint16 // a bit per row, sixteen rows per element
	maxK  int
}

// New starts loading the table in the background. The caller must call Close before the
// table and the plugin are closed.
func New(o Options) *Scorer {
	if o.CallTimeout == 0 {
		o.CallTimeout = 5 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Logger = o.Logger.With("plugin", o.Plugin, "route", o.Route)
	ctx, cancel := context.WithCancel(context.Background())
	s := &Scorer{
		o: o, client: device.NewClient(o.Conn), prefix: instance(), stop: cancel,
		counts: map[string]*atomic.Int64{}, kick: make(chan struct{}, 1), ended: make(chan struct{}), detail: "not loaded yet",
	}
	s.model = device.Version{Name: s.name(), Version: o.Model.Version}
	for _, outcome := range Outcomes() {
		s.counts[outcome] = new(atomic.Int64)
	}
	go s.run(ctx)
	return s
}

// instance returns a random name part that distinguishes two sidecars on one device.
func instance() string {
	b := make([]byte, 4)
	_, _ = rand.Read(b) // cannot fail
	return hex.EncodeToString(b)
}

func (s *Scorer) name() string { return s.o.Route + "#" + s.prefix }

// Close stops all work and frees the memory on the device, if the device still answers.
func (s *Scorer) Close() error {
	s.stop()
	<-s.ended
	return nil
}

// Status returns the current status.
func (s *Scorer) Status() Status {
	out := Status{
		Route: s.o.Route, Version: s.o.Version, Plugin: s.o.Plugin, State: Loading,
		Loads: s.loads.Load(), Patches: s.patches.Load(), Answers: map[string]int64{},
	}
	for outcome, n := range s.counts {
		out.Answers[outcome] = n.Load()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out.Detail = s.detail
	if c := s.usable.Load(); c != nil {
		out.State, out.Rows = Ready, c.rows
	}
	if s.broken != nil {
		out.State, out.Detail = Broken, s.broken.Error()
	}
	return out
}

// Rescore implements score.Device. It returns ErrNotReady, ErrStale, or the error of the
// call. Rows keep their numbers and contents when a table is written. So a device that is
// behind or ahead can still score the rows that it has.
func (s *Scorer) Rescore(ctx context.Context, t *table.Table, q rerank.Query, items []int32, k int) (score.Selection, error) {
	c, err := s.usableCopy(t, k)
	if err != nil {
		return score.Selection{}, err
	}
	numbers := make([]uint32, len(items))
	for i, item := range items {
		if int(item) >= c.rows {
			return score.Selection{}, s.behind(fmt.Errorf("%w: row %d is not there yet", ErrStale, item))
		}
		numbers[i] = uint32(item)
	}
	if c.of != t {
		s.wake()
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.CallTimeout)
	defer cancel()
	began := time.Now()
	b, err := s.client.Rescore(ctx, s.ask(c, q, k), numbers)
	return s.selection(c, b, began, err)
}

// Scan implements score.Device. It returns ErrNotReady, ErrStale, or the error of the call.
func (s *Scorer) Scan(ctx context.Context, t *table.Table, q rerank.Query, within *scan.Bitmap, k int) (score.Selection, error) {
	c, err := s.usableCopy(t, k)
	if err == nil && c.of != t {
		err = s.behind(fmt.Errorf("%w: the table is being written", ErrStale))
	}
	if err != nil {
		return score.Selection{}, err
	}
	var bitmap []byte
	if within != nil {
		bitmap = within.Bytes(c.rows)
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.CallTimeout)
	defer cancel()
	began := time.Now()
	b, err := s.client.Scan(ctx, s.ask(c, q, k), bitmap)
	return s.selection(c, b, began, err)
}

// usableCopy returns the device's copy of a table, if the device can return k rows of it.
func (s *Scorer) usableCopy(t *table.Table, k int) (*copied, error) {
	c := s.usable.Load()
	switch {
	case c == nil:
		s.count(NotReady)
		return nil, ErrNotReady
	case !t.SameNumbers(c.of):
		return nil, s.behind(fmt.Errorf("%w: the device has another table", ErrStale))
	case c.maxK > 0 && k > c.maxK:
		s.count(NotReady)
		return nil, fmt.Errorf("%w: %d rows are asked for, and it gives %d at most", ErrNotReady, k, c.maxK)
	}
	return c, nil
}

func (s *Scorer) ask(c *copied, q rerank.Query, k int) device.Ask {
	return device.Ask{Model: s.model, Table: c.Version, Query: q, K: k}
}

// selection converts a device's reply into a Selection.
func (s *Scorer) selection(c *copied, b device.Best, began time.Time, err error) (score.Selection, error) {
	out := score.Selection{
		Items: make([]int32, len(b.Rows)), Scores: b.Scores, Epsilon: b.Epsilon, Next: b.Next, Scored: b.Scored, NotFinite: b.NotFinite,
		Measured: b.Measured, MeasuredError: b.MeasuredError,
	}
	for i, row := range b.Rows {
		if int64(row) >= int64(c.rows) {
			err = fmt.Errorf("%w: it chose row %d of %d", device.ErrFailed, row, c.rows)
		}
		out.Items[i] = int32(row)
	}
	if err != nil {
		return score.Selection{}, s.failed(c, time.Since(began), err)
	}
	s.slow.Store(0)
	return out, nil
}

// behind counts a call that needs rows the device does not have yet, and triggers an
// update.
func (s *Scorer) behind(err error) error {
	s.count(Stale)
	s.wake()
	return err
}

// A timeout counts as a failure of the device if it had at least `patience`, or after
// maxSlow timeouts in a row.
const (
	patience = 100 * time.Millisecond
	maxSlow  = 3
)

// failed counts a failed call. Unless only this query was at fault, it stops the use of the
// device until the device was checked. A cancelled search says nothing about the device.
func (s *Scorer) failed(c *copied, took time.Duration, err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, device.ErrNotLoaded):
		s.count(Stale)
	default:
		s.count(Failed)
	}
	late := errors.Is(err, context.DeadlineExceeded) && took < patience && s.slow.Add(1) < maxSlow
	if !late && !errors.Is(err, device.ErrRequest) && !errors.Is(err, device.ErrBusy) { // the failure concerns only this query
		s.drop(c, err)
	}
	return err
}

// drop stops the use of a copy, if it is still in use.
func (s *Scorer) drop(c *copied, err error) {
	if s.usable.CompareAndSwap(c, nil) {
		s.setDetail(err.Error())
		s.o.Logger.Warn("device not used", "error", err)
		s.wake()
	}
}

// Judge implements score.Device.
func (s *Scorer) Judge(err error) {
	switch {
	case err == nil:
		s.count(Used)
	case errors.Is(err, score.ErrContradicted):
		s.count(Contradicted)
		s.mu.Lock()
		s.broken = err
		s.mu.Unlock()
		if s.usable.Swap(nil) != nil {
			s.o.Logger.Error("device broken: wrong scores, not used until it restarts", "error", err)
		}
	default:
		s.count(Undecided)
	}
}

func (s *Scorer) count(outcome string) { s.counts[outcome].Add(1) }

func (s *Scorer) setDetail(detail string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.detail = detail
}

// wake makes run check the device.
func (s *Scorer) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

func (s *Scorer) file() ([]byte, error) {
	var b bytes.Buffer
	err := model.Encode(&b, s.o.Model)
	return b.Bytes(), err
}
