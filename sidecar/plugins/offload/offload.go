// Package offload has a route's table scored by a device plugin: it loads model and
// table there, keeps them in step with the table, and asks for the best rows.
//
// Nothing waits for a device. A search that meets one that is loading, behind or
// gone is told so at once and scores for itself; loading and patching go on in the
// background.
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

// Sentinel errors of a call; the search scores for itself.
var (
	// ErrNotReady: model and table are not loaded, or the device is not to be asked again.
	ErrNotReady = errors.New("device not ready")
	// ErrStale: the table was written, and the device does not have all of it yet.
	ErrStale = errors.New("device behind the table")
)

// Options are what a Scorer needs; only Logger and CallTimeout may be left out.
type Options struct {
	// Plugin, Route and the route's Version are for names, logs and metrics.
	Plugin, Route, Version string
	Conn                   grpc.ClientConnInterface
	Model                  *model.Model
	// Table returns the table as it is now, held for the caller, who calls its Release;
	// nil once it is closed.
	Table func() *table.Table
	// CallTimeout bounds a call for a search without a deadline; 0 is 5 s.
	CallTimeout time.Duration
	Logger      *slog.Logger
}

// State is what a Scorer is doing.
type State string

// The states.
const (
	Loading State = "loading" // model or table are not on the device yet
	Ready   State = "ready"   // it is asked
	Broken  State = "broken"  // its scores were wrong; it is not asked until it was started again
)

// Status says how a device does for a route.
type Status struct {
	Route, Version, Plugin string
	State                  State
	// Detail is why it is not ready, or the last error; for people.
	Detail string
	// Rows on the device.
	Rows int
	// Loads and Patches of the table.
	Loads, Patches int64
	// Answers by what became of them, one of Outcomes.
	Answers map[string]int64
}

// What can become of a question to a device.
const (
	Used         = "used"
	NotReady     = "not_ready"    // it was not asked
	Stale        = "stale"        // it was not asked, or had another version
	Failed       = "failed"       // an error, or out of time
	Undecided    = "undecided"    // what it left out may belong to the answer
	Contradicted = "contradicted" // it is wrong
)

// Outcomes are all of them.
func Outcomes() []string {
	return []string{Used, NotReady, Stale, Failed, Undecided, Contradicted}
}

// Scorer scores a route's table on a device. It is safe for concurrent use.
type Scorer struct {
	o      Options
	client *device.Client
	prefix string // of the names of this process
	model  device.Version

	usable  atomic.Pointer[copied] // nil: not to be asked
	counts  map[string]*atomic.Int64
	loads   atomic.Int64
	patches atomic.Int64
	slow    atomic.Int64 // calls, one after the other, that a short deadline ended

	kick   chan struct{} // something is to be done
	stop   context.CancelFunc
	ended  chan struct{}
	mu     sync.Mutex
	detail string
	broken error // what contradicted
}

var _ score.Device = (*Scorer)(nil)

// copied is a table as the device has it.
type copied struct {
	device.Version
	of    *table.Table // only compared and never read: it may have been released
	rows  int
	alive []uint16 // a bit a row, sixteen at a time
	maxK  int
}

// New begins to load the table in the background. The caller calls Close, before the
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

// instance tells the tables of two sidecars on one device apart.
func instance() string {
	b := make([]byte, 4)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

func (s *Scorer) name() string { return s.o.Route + "#" + s.prefix }

// Close ends what goes on and frees what the device has, if it still answers.
func (s *Scorer) Close() error {
	s.stop()
	<-s.ended
	return nil
}

// Status of now.
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

// Rescore implements score.Device. It returns ErrNotReady, ErrStale, or the
// error of the call. Rows keep their numbers and contents while a table is written:
// a device that is behind, or ahead, does for the rows that it has.
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

// Scan implements score.Device. It returns ErrNotReady, ErrStale, or the error of
// the call.
func (s *Scorer) Scan(ctx context.Context, t *table.Table, q rerank.Query, within *scan.Bitmap, k int) (score.Selection, error) {
	c, err := s.usableCopy(t, k)
	if err == nil && c.of != t {
		err = s.behind(fmt.Errorf("%w: it is being written", ErrStale))
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

// usableCopy is what the device has of a table, if it can be asked for k rows of it.
func (s *Scorer) usableCopy(t *table.Table, k int) (*copied, error) {
	c := s.usable.Load()
	switch {
	case c == nil:
		s.count(NotReady)
		return nil, ErrNotReady
	case !t.SameNumbers(c.of):
		return nil, s.behind(fmt.Errorf("%w: it has another table", ErrStale))
	case c.maxK > 0 && k > c.maxK:
		s.count(NotReady)
		return nil, fmt.Errorf("%w: %d rows are asked for, and it gives %d at most", ErrNotReady, k, c.maxK)
	}
	return c, nil
}

func (s *Scorer) ask(c *copied, q rerank.Query, k int) device.Ask {
	return device.Ask{Model: s.model, Table: c.Version, Query: q, K: k}
}

// selection makes one of what a call returned.
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

// behind counts a call that came before the rows that it needs, and fetches them.
func (s *Scorer) behind(err error) error {
	s.count(Stale)
	s.wake()
	return err
}

// A device that did not answer in time is at fault if it had patience, or that often.
const (
	patience = 100 * time.Millisecond
	maxSlow  = 3
)

// failed keeps others from asking a device that has just failed, until it was looked at.
// The end of a search says nothing of it.
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
	if !late && !errors.Is(err, device.ErrRequest) && !errors.Is(err, device.ErrBusy) { // of this query alone
		s.drop(c, err)
	}
	return err
}

// drop ends the use of a copy, if that is what is used.
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
			s.o.Logger.Error("device broken: its scores are wrong, and it is not asked until it was started again", "error", err)
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

// wake makes run look at the device.
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
