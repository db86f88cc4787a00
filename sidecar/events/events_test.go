package events_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/likenessdb/likeness/internal/powerloss"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/events"
	"github.com/likenessdb/likeness/sidecar/experiment"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		os.Exit(child(dir))
	}
	goleak.VerifyTestMain(m)
}

// clock is a time that a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

var allFields = []string{events.FieldVector, events.FieldText, events.FieldUser, events.FieldFilter}

func open(t testing.TB, dir string, o events.RouteOptions) *events.Route {
	t.Helper()
	if o.Keep == nil {
		o.Keep = allFields
	}
	r, err := events.OpenRoute(dir, "products", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, r) })
	return r
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func closed(t testing.TB, r *events.Route) {
	t.Helper()
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func someImpression(answer events.AnswerID) *events.Impression {
	return &events.Impression{
		Answer: answer, Vector: []float32{1, -0.5, 0}, Text: "card", User: "ann", Version: "v", Status: rerank.StatusExact,
		Gap: 0, Filter: events.HashFilter(`{"must":[]}`), First: 11, Narrowed: true, Arm: experiment.Candidate,
		Items: []events.Item{{rerank.UintID(7), 1.5, experiment.Control}, {rerank.IntID(-1), 1, experiment.Candidate}, {rerank.TextID("7"), float32(math.Inf(-1)), experiment.Neither}},
	}
}

func click(answer events.AnswerID, item uint64) events.Feedback {
	return events.Feedback{Answer: answer, Item: rerank.UintID(item), Kind: "click", Weight: 1}
}

func feed(t testing.TB, r *events.Route, all ...events.Feedback) events.Receipt {
	t.Helper()
	receipt, err := r.Feed(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	return receipt
}

// read returns the events of a folder.
func read(t testing.TB, dir string) (shown []*events.Impression, chosen []*events.Feedback) {
	t.Helper()
	damaged, err := events.Read(dir, events.Visitor{
		Impression: func(m *events.Impression) error { shown = append(shown, m); return nil },
		Feedback:   func(f *events.Feedback) error { chosen = append(chosen, f); return nil },
	})
	if err != nil || damaged > 0 {
		t.Fatalf("%d places are damaged: %v", damaged, err)
	}
	return shown, chosen
}

func files(t testing.TB, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.events"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestWhatIsKeptComesBack writes one of each and reads them after Close.
func TestWhatIsKeptComesBack(t *testing.T) {
	dir, now := t.TempDir(), newClock()
	r := open(t, dir, events.RouteOptions{Share: 1, Log: events.LogOptions{Now: now.Now}})
	answer := events.AnswerID{Call: r.NewCall(), Part: 3}
	want := someImpression(answer)
	r.Show(want)
	chosen := events.Feedback{ID: "e1", Answer: answer, Item: rerank.TextID("7"), Kind: "purchase", Weight: 2.5, Time: now.Now().Add(-time.Second)}
	if got := feed(t, r, chosen); got.Accepted != 1 || got.Repeated != 0 || len(got.Refused) > 0 {
		t.Errorf("%+v", got)
	}
	closed(t, r)
	m, f := read(t, dir)
	if len(m) != 1 || !reflect.DeepEqual(m[0], want) {
		t.Errorf("impressions: %+v, want %+v", m, want)
	}
	if len(f) != 1 || !reflect.DeepEqual(*f[0], chosen) {
		t.Errorf("feedback: %+v, want %+v", f, chosen)
	}
	if s := r.Stats(); s.Impressions != 1 || s.Feedback != 1 || s.Dropped != 0 || s.Accepted != 1 || s.Segments != 1 || s.Bytes == 0 {
		t.Errorf("%+v", s)
	}
}

// TestFields: a route keeps the fields that it names, and hashes those that it says.
func TestFields(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, events.RouteOptions{Share: 1, Keep: []string{events.FieldUser, events.FieldText}, Hash: []string{events.FieldUser}})
	for range 2 {
		r.Show(someImpression(events.AnswerID{Call: r.NewCall()}))
	}
	closed(t, r)
	shown, _ := read(t, dir)
	if len(shown) != 2 {
		t.Fatalf("%d impressions", len(shown))
	}
	m := shown[0]
	if m.Vector != nil || m.Filter != 0 || m.Text != "card" || m.User == "" || strings.Contains(m.User, "ann") || m.User != shown[1].User {
		t.Errorf("%+v", m)
	}
}

// TestShare: a share of the answers is kept, and feedback on the others is refused as such.
func TestShare(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, events.RouteOptions{Share: 0.25})
	const calls = 4000
	kept := 0
	for range calls {
		answer := events.AnswerID{Call: r.NewCall()}
		if answer.Call.Kept() {
			kept++
		} else if got := feed(t, r, click(answer, 1)); len(got.Refused) != 1 || got.Refused[0].Reason != events.ReasonNotKept {
			t.Fatalf("%+v", got)
		}
	}
	if kept < calls/5 || kept > calls*3/10 {
		t.Errorf("%d of %d calls are kept, want a quarter", kept, calls)
	}
}

// TestRepeatedFeedback: an event counts once, also after a restart, and by its id or else by
// answer, item and kind.
func TestRepeatedFeedback(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, events.RouteOptions{Share: 1})
	answer := events.AnswerID{Call: r.NewCall()}
	named := click(answer, 1)
	named.ID = "e"
	other := click(answer, 2)
	other.ID = "e"
	if got := feed(t, r, click(answer, 1), click(answer, 1), named, other, click(answer, 2)); got.Accepted != 5 || got.Repeated != 2 {
		t.Errorf("%+v", got)
	}
	closed(t, r)
	r = open(t, dir, events.RouteOptions{Share: 1})
	bought := click(answer, 1)
	bought.Kind = "purchase"
	if got := feed(t, r, named, click(answer, 2), bought); got.Accepted != 3 || got.Repeated != 2 {
		t.Errorf("after a restart: %+v", got)
	}
	closed(t, r)
	if _, f := read(t, dir); len(f) != 4 {
		t.Errorf("%d events", len(f))
	}
}

// TestEventIDsCountWithinAnAnswer: nobody can use up the ids of events on other people's answers.
func TestEventIDsCountWithinAnAnswer(t *testing.T) {
	r := open(t, t.TempDir(), events.RouteOptions{Share: 1})
	defer closed(t, r)
	guessed, honest := click(events.AnswerID{Call: r.NewCall()}, 1), click(events.AnswerID{Call: r.NewCall()}, 2)
	guessed.ID, honest.ID = "order-811", "order-811"
	feed(t, r, guessed)
	if got := feed(t, r, honest); got.Accepted != 1 || got.Repeated != 0 {
		t.Errorf("%+v", got)
	}
}

// TestWindow: more events than the window holds push out the oldest.
func TestWindow(t *testing.T) {
	r := open(t, t.TempDir(), events.RouteOptions{Share: 1, Log: events.LogOptions{Window: 3}})
	answer := events.AnswerID{Call: r.NewCall()}
	for i := range 4 {
		feed(t, r, click(answer, uint64(i)))
	}
	if got := feed(t, r, click(answer, 1), click(answer, 3), click(answer, 0)); got.Repeated != 2 {
		t.Errorf("%+v", got)
	}
}

// TestRefusedFeedback: each refusal says which event and why; the others are kept.
func TestRefusedFeedback(t *testing.T) {
	dir, now := t.TempDir(), newClock()
	r := open(t, dir, events.RouteOptions{Share: 1, Log: events.LogOptions{Now: now.Now, Retention: 24 * time.Hour}})
	old := events.AnswerID{Call: r.NewCall()}
	now.pass(25 * time.Hour)
	answer := events.AnswerID{Call: r.NewCall()}
	stranger := open(t, t.TempDir(), events.RouteOptions{Share: 1, Log: events.LogOptions{Now: now.Now}})
	changed := func(change func(f *events.Feedback)) events.Feedback {
		f := click(answer, 1)
		change(&f)
		return f
	}
	cases := []struct {
		f    events.Feedback
		want events.Reason
		says string
	}{
		{click(events.AnswerID{Call: stranger.NewCall()}, 1), events.ReasonUnknown, "events.key_file"},
		{click(events.AnswerID{}, 1), events.ReasonUnknown, "products"},
		{changed(func(f *events.Feedback) { f.Answer.Call[15] ^= 1 }), events.ReasonUnknown, "products"},
		{changed(func(f *events.Feedback) { f.Answer.Call[7] ^= 1 }), events.ReasonUnknown, "products"},
		{click(old, 1), events.ReasonExpired, "events.retention is 24h"},
		{changed(func(f *events.Feedback) { f.Kind = "" }), events.ReasonInvalid, "kind"},
		{changed(func(f *events.Feedback) { f.Kind = strings.Repeat("k", 65) }), events.ReasonInvalid, "65"},
		{changed(func(f *events.Feedback) { f.ID = strings.Repeat("k", 129) }), events.ReasonInvalid, "event_id"},
		{changed(func(f *events.Feedback) { f.Item = rerank.ID{} }), events.ReasonInvalid, "item"},
		{changed(func(f *events.Feedback) { f.Weight = math.NaN() }), events.ReasonInvalid, "weight"},
		{changed(func(f *events.Feedback) { f.Weight = -1 }), events.ReasonInvalid, "weight"},
		{changed(func(f *events.Feedback) { f.Time = now.Now().Add(6 * time.Minute) }), events.ReasonInvalid, "time"},
	}
	batch := []events.Feedback{click(answer, 1)}
	for _, c := range cases {
		batch = append(batch, c.f)
	}
	got := feed(t, r, batch...)
	if got.Accepted != 1 || len(got.Refused) != len(cases) {
		t.Fatalf("%+v", got)
	}
	for i, c := range cases {
		if r := got.Refused[i]; r.Index != i+1 || r.Reason != c.want || !strings.Contains(r.Err.Error(), c.says) {
			t.Errorf("case %d: %+v: %v, want %v with %q", i, r, r.Err, c.want, c.says)
		}
	}
	counted := map[events.Reason]int64{events.ReasonUnknown: 4, events.ReasonExpired: 1, events.ReasonInvalid: 7, events.ReasonNotKept: 0}
	if s := r.Stats(); s.Accepted != 1 || !maps.Equal(s.Refused, counted) {
		t.Errorf("%d events and %v are counted, want 1 and %v", s.Accepted, s.Refused, counted)
	}
}

// TestSharedKey: sidecars with one key take each other's ids, for the same route only.
func TestSharedKey(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	one, two := open(t, t.TempDir(), events.RouteOptions{Share: 1, KeyFile: key}), open(t, t.TempDir(), events.RouteOptions{Share: 1, KeyFile: key})
	answer := events.AnswerID{Call: one.NewCall()}
	if got := feed(t, two, click(answer, 1)); got.Accepted != 1 {
		t.Errorf("%+v", got)
	}
	other, err := events.OpenRoute(t.TempDir(), "other", events.RouteOptions{Share: 1, KeyFile: key})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, other)
	if got := feed(t, other, click(answer, 1)); len(got.Refused) != 1 {
		t.Errorf("another route: %+v", got)
	}
	for _, bad := range []string{key + "-missing", os.DevNull} {
		r, err := events.OpenRoute(t.TempDir(), "other", events.RouteOptions{KeyFile: bad})
		if err == nil || !strings.Contains(err.Error(), "events.key_file") {
			t.Errorf("%s: %v", bad, err)
		}
		closed(t, r)
	}
}

// TestAnswerIDs: an id reads as it is written, and nothing else reads as one.
func TestAnswerIDs(t *testing.T) {
	r := open(t, t.TempDir(), events.RouteOptions{Share: 1})
	for _, part := range []uint16{0, 1, 65535} {
		a := events.AnswerID{Call: r.NewCall(), Part: part}
		if got, err := events.ParseAnswerID(a.String()); err != nil || got != a {
			t.Errorf("%s: %v, %v", a, got, err)
		}
		if since := time.Since(a.Call.Time()); since < -time.Second || since > time.Minute {
			t.Errorf("answered %s ago", since)
		}
	}
	id := events.AnswerID{Call: r.NewCall()}.String()
	for _, bad := range []string{"", "x", id + ".0x", id + ".01", id + ".65536", id + ".-1", id + ".", id[1:], id + "A", strings.Repeat("!", 32)} {
		if a, err := events.ParseAnswerID(bad); err == nil {
			t.Errorf("%q reads as %v", bad, a)
		}
	}
}

// TestSizeAndRetention: files are bounded, the oldest events go first, and feedback on answers that
// are gone is refused.
func TestSizeAndRetention(t *testing.T) {
	dir, now := t.TempDir(), newClock()
	o := events.RouteOptions{Share: 1, Log: events.LogOptions{Now: now.Now, Size: 64 << 10, Retention: 48 * time.Hour, Flush: time.Hour}}
	r := open(t, dir, o)
	first := events.AnswerID{Call: r.NewCall()}
	var last events.AnswerID
	for i := range 400 {
		now.pass(time.Second)
		last = events.AnswerID{Call: r.NewCall()}
		r.Show(someImpression(last))
		feed(t, r, click(last, uint64(i)))
		if size := r.Stats().Bytes; size > o.Log.Size {
			t.Fatalf("%d bytes after %d answers, limit %d", size, i+1, o.Log.Size)
		}
	}
	closed(t, r)
	size := int64(0)
	for _, name := range files(t, dir) {
		is, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		size += is.Size()
	}
	if size != r.Stats().Bytes || size < o.Log.Size/2 {
		t.Errorf("%d bytes, counted are %d, limit %d", size, r.Stats().Bytes, o.Log.Size)
	}
	shown, chosen := read(t, dir)
	if len(shown) < 100 || len(shown) == 400 || shown[len(shown)-1].Answer != last || len(chosen) < 100 {
		t.Errorf("%d impressions, %d events", len(shown), len(chosen))
	}
	r = open(t, dir, o)
	if got := feed(t, r, click(first, 1), click(last, 1000)); got.Accepted != 1 || len(got.Refused) != 1 || !strings.Contains(got.Refused[0].Err.Error(), "events.size") {
		t.Errorf("%+v", got)
	}
	now.pass(49 * time.Hour)
	feed(t, r, click(events.AnswerID{Call: r.NewCall()}, 1))
	feed(t, r, click(events.AnswerID{Call: r.NewCall()}, 1))
	closed(t, r)
	if shown, chosen := read(t, dir); len(shown) != 0 || len(chosen) != 2 {
		t.Errorf("after the retention: %d impressions, %d events", len(shown), len(chosen))
	}
}

// TestSince: Read opens no file that was complete before a time, and passes every event since.
func TestSince(t *testing.T) {
	dir, now := t.TempDir(), newClock()
	r := open(t, dir, events.RouteOptions{Share: 1, Log: events.LogOptions{Now: now.Now, Age: time.Minute}})
	var at []time.Time
	for range 4 { // each in a file of its own
		answer := events.AnswerID{Call: r.NewCall()}
		r.Show(someImpression(answer))
		at = append(at, now.Now())
		feed(t, r, click(answer, 7))
		now.pass(time.Minute)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.events"))
	if err != nil || len(files) != 4 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for i, since := range at {
		var seen []time.Time
		_, err := events.Read(dir, events.Visitor{Since: since, Impression: func(m *events.Impression) error {
			seen = append(seen, m.Time)
			return nil
		}})
		if err != nil || !slices.EqualFunc(seen[len(seen)-(4-i):], at[i:], time.Time.Equal) || len(seen) > 4-i+1 {
			t.Errorf("since %s: %s, %v", since, seen, err)
		}
		if i > 1 { // a file that is not opened may be damaged
			if err := os.WriteFile(files[i-2], []byte("rubbish"), 0o600); err != nil {
				t.Fatal(err)
			}
			if damaged, err := events.Read(dir, events.Visitor{Since: since}); damaged != 0 || err != nil {
				t.Errorf("since %s: %d places are damaged, %v", since, damaged, err)
			}
		}
	}
}

// TestTornTail: what a crash left incomplete is cut off, and the log goes on.
func TestTornTail(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, events.RouteOptions{Share: 1})
	answer := events.AnswerID{Call: r.NewCall()}
	feed(t, r, click(answer, 1))
	closed(t, r)
	whole, err := os.ReadFile(files(t, dir)[0])
	if err != nil {
		t.Fatal(err)
	}
	torn := slices.Concat(whole, whole[len(whole)-50:])
	if err := os.WriteFile(files(t, dir)[0], torn, 0o600); err != nil {
		t.Fatal(err)
	}
	r = open(t, dir, events.RouteOptions{Share: 1})
	if is, err := os.Stat(files(t, dir)[0]); err != nil || is.Size() != int64(len(whole)) {
		t.Errorf("%d bytes, want %d", is.Size(), len(whole))
	}
	feed(t, r, click(answer, 1), click(answer, 2))
	closed(t, r)
	if _, f := read(t, dir); len(f) != 2 {
		t.Errorf("%d events", len(f))
	}
	// A file whose making was interrupted.
	if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%020d.events", 9)), whole[:10], 0o600); err != nil {
		t.Fatal(err)
	}
	r = open(t, dir, events.RouteOptions{Share: 1})
	feed(t, r, click(answer, 3))
	closed(t, r)
	if _, f := read(t, dir); len(f) != 3 {
		t.Errorf("%d events", len(f))
	}
}

// TestUnfinishedFile: a crash between the making of a file and its first bytes takes no event of the file
// before it, whose feedback is still recognised when it is sent again.
func TestUnfinishedFile(t *testing.T) {
	dir, o := t.TempDir(), events.RouteOptions{Share: 1}
	r := open(t, dir, o)
	one := click(events.AnswerID{Call: r.NewCall()}, 7)
	feed(t, r, one)
	closed(t, r)
	if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%020d.events", 2)), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r = open(t, dir, o)
	if got := feed(t, r, one, click(one.Answer, 8)); got.Accepted != 2 || got.Repeated != 1 {
		t.Errorf("%+v", got)
	}
	closed(t, r)
	if _, chosen := read(t, dir); len(chosen) != 2 || chosen[0].Item != one.Item {
		t.Errorf("%d events are left: %+v", len(chosen), chosen)
	}
}

// TestUnusableFiles: a route whose key, folder or files cannot be used is open all the same. It refuses
// feedback with the reason, and without a key gives no ids. It works once the files can be used.
func TestUnusableFiles(t *testing.T) {
	for file, hasKey := range map[string]bool{"given": false, "events/key": false, "events/00000000000000000001.events": true, "events": true} {
		t.Run(file, func(t *testing.T) {
			root := t.TempDir()
			spoiled, given := filepath.Join(root, file), filepath.Join(root, "given")
			good := []byte("0123456789abcdef")
			spoil, repair := func() error { return os.MkdirAll(spoiled, 0o700) }, func() error { return os.Remove(spoiled) }
			if file == "events" { // a file in place of the folder
				spoil = func() error { return os.WriteFile(spoiled, good, 0o600) }
			}
			o := events.RouteOptions{Share: 1, Log: events.LogOptions{Flush: time.Millisecond}}
			if file == "given" || file == "events" {
				o.KeyFile = given
				repair = func() error { return errors.Join(os.Remove(spoiled), os.WriteFile(given, good, 0o600)) }
			}
			if file == "events" {
				must(t, os.WriteFile(given, good, 0o600))
			}
			must(t, spoil())
			now := &clock{now: time.Now()}
			o.Log.Now = now.Now
			r, err := events.OpenRoute(filepath.Join(root, "events"), "products", o)
			if r == nil || err == nil || !strings.Contains(err.Error(), spoiled) {
				t.Fatalf("%v, %v", r, err)
			}
			defer closed(t, r)
			answer := events.AnswerID{Call: r.NewCall()}
			if answer.IsZero() == hasKey {
				t.Errorf("the id is %s", answer)
			}
			if _, err := r.Feed(t.Context(), []events.Feedback{click(answer, 1)}); !errors.Is(err, events.ErrDisk) || !strings.Contains(err.Error(), spoiled) {
				t.Errorf("feedback: %v", err)
			}
			if s := r.Stats(); !errors.Is(s.Failed, events.ErrDisk) {
				t.Errorf("%+v", s)
			}
			must(t, repair())
			now.pass(2 * time.Second)
			for r.Stats().Failed != nil && t.Context().Err() == nil {
				<-time.After(time.Millisecond)
			}
			if got := feed(t, r, click(events.AnswerID{Call: r.NewCall()}, 1)); got.Accepted != 1 {
				t.Errorf("after the repair: %+v", got)
			}
		})
	}
}

// TestForeignFile: a file of another version stays, and says so.
func TestForeignFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, fmt.Sprintf("%020d.events", 1))
	if err := os.WriteFile(path, []byte(strings.Repeat("x", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := events.OpenRoute(dir, "products", events.RouteOptions{})
	defer closed(t, r)
	if err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

// TestFullQueue: impressions that the disk cannot take are dropped and counted, and no call waits.
func TestFullQueue(t *testing.T) {
	r := open(t, t.TempDir(), events.RouteOptions{Share: 1, Log: events.LogOptions{Size: 8 << 10, Flush: time.Hour}})
	m := someImpression(events.AnswerID{Call: r.NewCall()})
	m.Items = slices.Repeat(m.Items[:1], 100) // more than the queue of 1 KiB
	r.Show(m)
	if s := r.Stats(); s.Dropped != 1 {
		t.Errorf("%+v", s)
	}
	many := slices.Repeat([]events.Feedback{click(m.Answer, 1)}, 100)
	if _, err := r.Feed(t.Context(), many); !errors.Is(err, events.ErrFull) {
		t.Errorf("%v", err)
	}
	closed(t, r)
	if _, err := r.Feed(t.Context(), many[:1]); !errors.Is(err, events.ErrClosed) {
		t.Errorf("%v", err)
	}
}

// TestRepeatedAfterARestart: an event that is sent again after a restart counts once, whatever file has it.
func TestRepeatedAfterARestart(t *testing.T) {
	now, dir := newClock(), t.TempDir()
	o := events.RouteOptions{Share: 1, Log: events.LogOptions{Now: now.Now, Age: time.Minute}}
	r := open(t, dir, o)
	answer := events.AnswerID{Call: r.NewCall()}
	first, second := click(answer, 1), click(answer, 2)
	feed(t, r, first)
	now.pass(time.Hour)
	feed(t, r, second)
	closed(t, r)
	if n := len(files(t, dir)); n != 2 {
		t.Fatalf("%d files", n)
	}
	r = open(t, dir, o)
	if got := feed(t, r, first, second); got.Repeated != 2 {
		t.Errorf("%+v", got)
	}
}

// TestLostImpressionsAreCounted: impressions that the disk did not take are counted as dropped, and none as written.
func TestLostImpressionsAreCounted(t *testing.T) {
	d := powerloss.New(t)
	l, err := events.OpenLog(d.Root(), events.LogOptions{Disk: d, Flush: time.Hour})
	must(t, err)
	d.Fail(func(string) error { return errors.New("the disk fails") })
	for n := range uint16(3) {
		l.Show(someImpression(events.AnswerID{Part: n}))
	}
	_ = l.Close()
	if s := l.Stats(); s.Dropped != 3 || s.Impressions != 0 || !errors.Is(s.Failed, events.ErrDisk) {
		t.Errorf("%+v", s)
	}
}
