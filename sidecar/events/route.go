package events

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/likenessdb/likeness/internal/half"
)

// Fields of an impression that a route keeps only if RouteOptions.Keep lists them.
const (
	FieldVector = "vector"
	FieldText   = "text"
	FieldUser   = "user"
	FieldFilter = "filter" // a hash of it
)

// RouteOptions say what a route keeps.
type RouteOptions struct {
	// Share of the answers whose impressions are kept.
	Share float64
	// Keep lists the fields that are kept. Hash lists the kept fields that a keyed hash replaces:
	// FieldText or FieldUser.
	Keep, Hash []string
	// KeyFile holds the key of answer ids and hashes, at least 16 bytes; "" for a key of the log's own.
	KeyFile string
	Log     LogOptions
}

// Route keeps the events of one route. It is safe for concurrent use. A nil Route keeps nothing.
type Route struct {
	log      *Log
	watcher  atomic.Pointer[Watcher]
	keys     *keyring
	share    float64
	keep     map[string]keeping
	now      func() time.Time
	refused  [reasons]atomic.Int64
	accepted atomic.Int64
}

// keeping says in which form a field is kept. The zero value drops the field.
type keeping uint8

const (
	plainly keeping = iota + 1
	hashed
)

// OpenRoute opens the events of a route in dir. The error says why they cannot be used: the key file,
// or an error of OpenLog. The route is open all the same, keeps nothing, and tries again until they can
// be used.
func OpenRoute(dir, name string, o RouteOptions) (*Route, error) {
	log, err := OpenLog(dir, o.Log)
	r := &Route{log: log, keys: newKeyring(name, dir, o.KeyFile, log.o.Now), share: o.Share, keep: map[string]keeping{}, now: log.o.Now}
	for _, field := range o.Keep {
		if r.keep[field] = plainly; slices.Contains(o.Hash, field) {
			r.keep[field] = hashed
		}
	}
	_, unread := r.keys.signer()
	return r, errors.Join(err, unread)
}

// Watcher is told of the events of a route. Its methods are called concurrently. They must not block, or
// keep their arguments.
type Watcher interface {
	// Shown is told of an impression that is kept, in the form in which it is kept.
	Shown(m *Impression)
	// Fed is told of feedback that is durable. Some of it may have been known already.
	Fed(all []Feedback)
}

// Watch tells a watcher of later events, in place of the watcher before; nil tells nobody.
func (r *Route) Watch(w Watcher) {
	if w == nil {
		r.watcher.Store(nil)
		return
	}
	r.watcher.Store(&w)
}

// NewCall returns an id for a call that is being answered. Its Kept says whether Show has to be
// called. The id is zero while the route's key cannot be read.
func (r *Route) NewCall() CallID { return r.newCall(r.share) }

// NewKeptCall is NewCall for a call whose answers are kept, whatever the route's share.
func (r *Route) NewKeptCall() CallID { return r.newCall(1) }

func (r *Route) newCall(share float64) CallID {
	s, err := r.keys.signer()
	if err != nil {
		return CallID{}
	}
	return s.newCall(r.now(), share)
}

// Show records an impression whose Answer has an id of NewCall or NewKeptCall. It does nothing unless the id is
// marked as kept. Show may change the Text, User and Vector of m, and does not refer to m
// afterwards.
func (r *Route) Show(m *Impression) {
	if !m.Answer.Call.Kept() {
		return
	}
	m.Time = r.now()
	if r.keep[FieldVector] == 0 {
		m.Vector = nil
	}
	if r.keep[FieldFilter] == 0 {
		m.Filter = 0
	}
	m.Text = r.kept(FieldText, m.Text)
	if len(m.User) > maxUser {
		m.User = m.User[:maxUser]
	}
	m.User = r.kept(FieldUser, m.User)
	if !r.log.Show(m) {
		return
	}
	if w := r.watcher.Load(); w != nil {
		(*w).Shown(m)
	}
}

// kept returns the text of a field as the route keeps it: unchanged, hashed, or empty.
func (r *Route) kept(field, text string) string {
	switch {
	case text == "" || r.keep[field] == 0:
		return ""
	case r.keep[field] == plainly:
		return text
	}
	s, err := r.keys.signer()
	if err != nil {
		return ""
	}
	return s.pseudonym(text)
}

// HashFilter returns the hash of a filter for Impression.Filter, 0 for an empty filter.
func HashFilter(filter string) uint64 {
	if filter == "" {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(filter))
	return max(h.Sum64(), 1)
}

// Reason says why feedback was refused.
type Reason int

// The reasons.
const (
	ReasonUnknown Reason = iota
	ReasonNotKept
	ReasonExpired
	ReasonInvalid
	reasons
)

// String returns the reason as a constant of the API.
func (r Reason) String() string {
	return [reasons]string{"ANSWER_UNKNOWN", "ANSWER_NOT_KEPT", "ANSWER_EXPIRED", "FIELD_INVALID"}[r]
}

// reasonOf returns the Reason for an error of check.
func reasonOf(err error) Reason {
	switch {
	case errors.Is(err, ErrUnknownAnswer):
		return ReasonUnknown
	case errors.Is(err, ErrNotKept):
		return ReasonNotKept
	case errors.Is(err, ErrExpired):
		return ReasonExpired
	default:
		return ReasonInvalid
	}
}

// Refusal is feedback that was not accepted.
type Refusal struct {
	Index  int // index in the batch
	Reason Reason
	Err    error
}

// Receipt counts the accepted and the refused events of a batch of feedback.
type Receipt struct {
	Accepted int // events on disk, including the repeated ones
	Repeated int // events that were on disk before
	Refused  []Refusal
}

// Feed keeps a batch of feedback, and returns when it is durable. It refuses single events with a
// Refusal, and the whole batch with the errors of Log.Feed. It sets the Time of events without one.
func (r *Route) Feed(ctx context.Context, all []Feedback) (Receipt, error) {
	var out Receipt
	s, err := r.keys.signer()
	if err != nil {
		return out, fmt.Errorf("%w: %w", ErrDisk, err)
	}
	now := r.now()
	good := make([]Feedback, 0, len(all))
	for i := range all {
		f := all[i]
		if f.Time.IsZero() {
			f.Time = now
		}
		if err := r.check(s, &f, now); err != nil {
			reason := reasonOf(err)
			r.refused[reason].Add(1)
			out.Refused = append(out.Refused, Refusal{i, reason, err})
			continue
		}
		good = append(good, f)
	}
	repeated, err := r.log.Feed(ctx, good)
	if err != nil {
		return Receipt{}, err
	}
	if w := r.watcher.Load(); w != nil {
		(*w).Fed(good)
	}
	out.Accepted, out.Repeated = len(good), repeated
	r.accepted.Add(int64(len(good)))
	return out, nil
}

// ahead is how far in the future the time of feedback may lie, because a client's clock can be fast.
const ahead = 5 * time.Minute

// check returns why an event is refused: ErrFeedback for an invalid field, otherwise an error
// about its answer.
func (r *Route) check(s *signer, f *Feedback, now time.Time) error {
	switch {
	case f.Item.IsZero():
		return fmt.Errorf("%w: item is missing", ErrFeedback)
	case f.Kind == "" || len(f.Kind) > MaxKind || !utf8.ValidString(f.Kind):
		return fmt.Errorf("%w: kind has %d bytes; give a word of 1 to %d, such as click", ErrFeedback, len(f.Kind), MaxKind)
	case len(f.ID) > MaxEventID:
		return fmt.Errorf("%w: event_id has %d bytes, at most %d", ErrFeedback, len(f.ID), MaxEventID)
	case math.IsNaN(f.Weight) || f.Weight < 0 || f.Weight > math.MaxFloat32:
		return fmt.Errorf("%w: weight is %v; give 0 to %g", ErrFeedback, f.Weight, math.MaxFloat32)
	case f.Time.After(now.Add(ahead)):
		return fmt.Errorf("%w: time is %s, which is to come; leave it out for now", ErrFeedback, f.Time.UTC().Format(time.RFC3339))
	}
	if err := s.check(f.Answer); err != nil {
		return err
	}
	return r.log.Keeps(f.Answer.Call.Time())
}

// RouteStats says what a route has kept and refused since it was opened.
type RouteStats struct {
	Stats
	Accepted int64
	Refused  map[Reason]int64
}

// Stats returns the counts since OpenRoute.
func (r *Route) Stats() RouteStats {
	out := RouteStats{Stats: r.log.Stats(), Accepted: r.accepted.Load(), Refused: map[Reason]int64{}}
	if _, err := r.keys.signer(); err != nil && out.Failed == nil {
		out.Failed = fmt.Errorf("%w: %w", ErrDisk, err)
	}
	for i := range r.refused {
		out.Refused[Reason(i)] = r.refused[i].Load()
	}
	return out
}

// Close writes what waits, and closes the files.
func (r *Route) Close() error { return r.log.Close() }

// Book holds the routes that keep events, by name. A nil Book has none.
type Book map[string]*Route

// Route returns the events of a route, or nil if it keeps none.
func (b Book) Route(name string) *Route { return b[name] }

// Stats returns the state of each route.
func (b Book) Stats() map[string]RouteStats {
	out := map[string]RouteStats{}
	for name, r := range b {
		out[name] = r.Stats()
	}
	return out
}

// Close closes all routes.
func (b Book) Close() error {
	var failed []error
	for _, r := range b {
		failed = append(failed, r.Close())
	}
	return errors.Join(failed...)
}

// QueryKey identifies the query of an impression that was read from a file. Queries with equal
// vectors have equal keys; without vectors, those with equal texts. It is 0 for an impression with
// neither.
func (m *Impression) QueryKey() uint64 {
	h := fnv.New64a()
	switch {
	case len(m.Vector) > 0:
		var b [2]byte
		for _, x := range m.Vector {
			binary.LittleEndian.PutUint16(b[:], half.ToFloat16(x))
			_, _ = h.Write(b[:])
		}
	case m.Text != "":
		_, _ = h.Write([]byte(m.Text))
	default:
		return 0
	}
	return max(h.Sum64(), 1)
}
