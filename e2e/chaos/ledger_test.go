package chaos_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// verdict classifies the outcome of a call.
type verdict string

const (
	right   verdict = "right"
	flagged verdict = "flagged" // the answer says that it may be wrong
	refused verdict = "refused" // an error
	wrong   verdict = "wrong"   // neither right nor flagged nor an error
)

// ledger counts the faults and the sidecars' answers.
type ledger struct {
	mu       sync.Mutex
	injected map[string]int
	answers  map[string]map[verdict]int // by lane
	wrongs   []string
	late     []string        // answers long after the deadline of a running sidecar
	over     []time.Duration // by how much answers of the API missed their timeout
	slowest  []string        // those that missed it by a second, and the faults at that time
	noticed  []time.Duration // after which time half-open links were given up, from the first bytes sent into them
	active   map[string]int  // running faults by lane
	broken   []string        // running faults
	mixed    map[string]bool // lanes with overlapping faults, until they are right again
	waiting  map[string]*healing
	healed   map[string]*recovery // by fault
	overlaps int
}

// healing is a fault that has ended, and from which a lane has not recovered yet.
type healing struct {
	fault string
	since time.Time
	alone bool
}

// recovery holds the times that lanes took to be right again after a fault: alone if it was the
// only fault, mixed if a lane also had another one.
type recovery struct{ alone, mixed []time.Duration }

func newLedger() *ledger {
	return &ledger{injected: map[string]int{}, answers: map[string]map[verdict]int{}, active: map[string]int{}, mixed: map[string]bool{},
		waiting: map[string]*healing{}, healed: map[string]*recovery{}}
}

func (l *ledger) inject(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.injected[what]++
}

// answer records a call of a lane.
func (l *ledger) answer(lane string, began time.Time, v verdict, detail string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.answers[lane] == nil {
		l.answers[lane] = map[verdict]int{}
	}
	l.answers[lane][v]++
	if v == wrong && len(l.wrongs) < 20 {
		l.wrongs = append(l.wrongs, lane+": "+detail)
	}
	if h := l.waiting[lane]; v == right && h != nil && began.After(h.since) {
		of := l.healed[h.fault]
		if of == nil {
			of = &recovery{}
			l.healed[h.fault] = of
		}
		if took := time.Since(h.since); h.alone {
			of.alone = append(of.alone, took)
		} else {
			of.mixed = append(of.mixed, took)
		}
		delete(l.waiting, lane)
		delete(l.mixed, lane)
	}
}

// overdue records by how much an answer missed its timeout.
func (l *ledger) overdue(lane string, by time.Duration, fits bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = append(l.over, by)
	if by > time.Second && len(l.slowest) < 30 {
		l.slowest = append(l.slowest, fmt.Sprintf("%s by %v (%s)", lane, by.Round(time.Millisecond), strings.Join(l.broken, ", ")))
	}
	if !fits && len(l.late) < 20 {
		l.late = append(l.late, fmt.Sprintf("%s: %v after its timeout", lane, by))
	}
}

// notice records after which time a half-open link was given up.
func (l *ledger) notice(after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noticed = append(l.noticed, after)
}

// hurt records that a fault begins on these lanes. Recoveries that are under way become mixed.
func (l *ledger) hurt(fault string, lanes []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = append(l.broken, fault)
	for _, lane := range lanes {
		if l.active[lane]++; l.active[lane] > 1 {
			l.mixed[lane] = true
		}
		if l.waiting[lane] != nil {
			l.mixed[lane] = true
			delete(l.waiting, lane)
			l.overlaps++
		}
	}
}

// heal records that a fault on these lanes is over. half names the lanes with half-open links that
// were not given up yet: their fault is over only in name.
func (l *ledger) heal(fault string, lanes, half []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := slices.Index(l.broken, fault); at >= 0 {
		l.broken = slices.Delete(l.broken, at, at+1)
	}
	for _, lane := range lanes {
		if l.active[lane]--; l.active[lane] > 0 {
			l.overlaps++
			continue
		}
		l.waiting[lane] = &healing{fault, time.Now(), !l.mixed[lane] && (fault == halfOpenLink || !slices.Contains(half, lane))}
	}
}

func (l *ledger) faults() (total int, table string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(l.injected)) {
		total += l.injected[what]
		fmt.Fprintf(&b, "%s %d; ", what, l.injected[what])
	}
	return total, strings.TrimSuffix(b.String(), "; ")
}

// verdicts formats the verdicts of all answers and of each lane.
func (l *ledger) verdicts() (all map[verdict]int, table string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all = map[verdict]int{}
	var b strings.Builder
	for _, lane := range slices.Sorted(maps.Keys(l.answers)) {
		of := l.answers[lane]
		for v, n := range of {
			all[v] += n
		}
		fmt.Fprintf(&b, "\n%-24s right %6d, flagged %6d, refused %6d, wrong %d", lane, of[right], of[flagged], of[refused], of[wrong])
	}
	return all, b.String()
}

// recoveries returns the times from the end of a fault to the first right answer, as text.
func (l *ledger) recoveries() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for _, fault := range slices.Sorted(maps.Keys(l.healed)) {
		of := l.healed[fault]
		fmt.Fprintf(&b, "\n%-24s %s; with others %s", fault, spread(of.alone), spread(of.mixed))
	}
	fmt.Fprintf(&b, "\nnot measured, as the next fault came before: %d", l.overlaps)
	return b.String()
}

// recovered returns the recoveries from one fault.
func (l *ledger) recovered(fault string) recovery {
	l.mu.Lock()
	defer l.mu.Unlock()
	if of := l.healed[fault]; of != nil {
		return recovery{slices.Clone(of.alone), slices.Clone(of.mixed)}
	}
	return recovery{}
}

func (r recovery) String() string {
	text := "right again after " + spread(r.alone)
	if len(r.mixed) > 0 {
		text += fmt.Sprintf("; %v at most (%d times) where another fault, or a half-open link, was not over", quantile(r.mixed, 1).Round(time.Millisecond), len(r.mixed))
	}
	return text
}

func spread(took []time.Duration) string {
	return fmt.Sprintf("%v in the median, %v at most (%d times)", quantile(took, .5).Round(time.Millisecond), quantile(took, 1).Round(time.Millisecond), len(took))
}

func (l *ledger) overrun() (n int, p50, p99 time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.over), quantile(l.over, .5), quantile(l.over, .99)
}

func quantile(took []time.Duration, p float64) time.Duration {
	if len(took) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(took))
	return sorted[max(int(math.Ceil(p*float64(len(sorted))))-1, 0)]
}

// unhealed returns the lanes that had a fault and no right answer since.
func (l *ledger) unhealed() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.waiting))
}

// A recovery counts as a fault's own only if the lane had no other fault to recover from.
func TestRecoveriesOfOneFault(t *testing.T) {
	lane := []string{"lane"}
	right := func(l *ledger) { l.answer("lane", time.Now().Add(time.Hour), right, "") }
	for name, c := range map[string]struct {
		do           func(l *ledger)
		alone, mixed int
	}{
		"alone": {func(l *ledger) {
			l.hurt("a", lane)
			l.heal("a", lane, nil)
		}, 1, 0},
		"begun during another": {func(l *ledger) {
			l.hurt("b", lane)
			l.hurt("a", lane)
			l.heal("b", lane, nil)
			l.heal("a", lane, nil)
		}, 0, 1},
		"begun before the lane was right again": {func(l *ledger) {
			l.hurt("b", lane)
			l.heal("b", lane, nil)
			l.hurt("a", lane)
			l.heal("a", lane, nil)
		}, 0, 1},
		"begun after it was": {func(l *ledger) {
			l.hurt("b", lane)
			l.heal("b", lane, nil)
			right(l)
			l.hurt("a", lane)
			l.heal("a", lane, nil)
		}, 1, 0},
		"with a half-open link left": {func(l *ledger) {
			l.hurt("a", lane)
			l.heal("a", lane, lane)
		}, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger()
			c.do(l)
			right(l)
			if r := l.recovered("a"); len(r.alone) != c.alone || len(r.mixed) != c.mixed {
				t.Errorf("%d alone, %d mixed, want %d and %d", len(r.alone), len(r.mixed), c.alone, c.mixed)
			}
		})
	}
}
