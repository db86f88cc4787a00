package follow

import "time"

const (
	// passRest is the least time between two passes that nobody requested.
	passRest = time.Second
	// saveEvery bounds how much of a pass is lost when the process ends.
	saveEvery = 5 * time.Second
	// maxDiffering is how many differing rows may wait before a pass goes on.
	maxDiffering = 4 * readRows
)

// pass is a comparison of all rows that repairs what differs. It settles the writes
// that name no rows.
type pass struct {
	began time.Time
	// full: the pass compares every row of the collection. Otherwise it only looks for derived
	// rows that the collection lacks.
	full bool
	// complete: this process began the pass, at its first row.
	complete bool
	routes   []*derivation // nil until the first page is read
	stage    int
	cursor   string
	drift    []Drift // by route
	nextPage time.Time
	saved    time.Time                 // when the position was last saved in the record
	writes   []*write                  // the writes that the pass settles
	requests []chan<- map[string]Drift // the callers of Reconcile that wait for this pass
}

// resumedPass returns the pass that the last process left unfinished, or nil if it left none.
func resumedPass(at *place, now time.Time) *pass {
	if at == nil {
		return nil
	}
	return &pass{began: now, full: true, stage: at.Stage, cursor: at.Cursor}
}

// start sets the routes that a pass compares. A resumed pass adds to the drift that was counted
// before. If the routes now have another number of stages, the place says nothing, and the pass begins
// at the first row.
func (p *pass) start(routes []*derivation, resumed *place) {
	p.routes, p.drift = routes, make([]Drift, len(routes))
	if resumed == nil || p.complete {
		return
	}
	if resumed.Stages != stagesOf(routes) {
		p.stage, p.cursor = 0, ""
		return
	}
	for i, d := range routes {
		p.drift[i] = resumed.Drift[d.route.Name]
	}
}

// stagesOf returns the number of stages of a comparison with routes.
func stagesOf(routes []*derivation) int { return len((&comparison{routes: routes}).stages()) }

// place returns the position from which the next process resumes the pass. It is nil for a
// pass that is not full: that is quick, and its writes are in the journal.
func (p *pass) place() *place {
	if !p.full {
		return nil
	}
	return &place{Stage: p.stage, Stages: stagesOf(p.routes), Cursor: p.cursor, Drift: p.driftByRoute()}
}

func (p *pass) driftByRoute() map[string]Drift {
	out := map[string]Drift{}
	for i, d := range p.routes {
		out[d.route.Name] = p.drift[i]
	}
	return out
}

// acknowledges reports whether the pass ends a dispute about foreign writes: an operator
// asked for it, it found no further one, and no row is suspected any more.
func (p *pass) acknowledges(f *Foreign, suspects []suspect) bool {
	return f != nil && len(p.requests) > 0 && f.Last.Before(p.began) && len(suspects) == 0
}

// addPage counts a page. It sets when the next page may be read, at rate rows a
// second; 0: at once.
func (p *pass) addPage(found page, now time.Time, rate int) {
	for i := range p.drift {
		p.drift[i].add(found.drift[i])
	}
	p.cursor = found.cursor
	p.nextPage = nextPageAt(p.nextPage, now, found.rows, rate)
}

// nextPageAt returns when the page after one of so many rows may be read that was due
// at the time due. Time that was lost is not made up for.
func nextPageAt(due, now time.Time, rows, rate int) time.Time {
	if due.Before(now) {
		due = now
	}
	if rate > 0 {
		due = due.Add(time.Duration(float64(rows) / float64(rate) * float64(time.Second)))
	}
	return due
}

// unfit reports whether a route's table cannot hold some row.
func (p *pass) unfit() bool {
	for _, d := range p.drift {
		if d.Unfit > 0 {
			return true
		}
	}
	return false
}

// schedule has the facts that decide when a pass is due and how much it compares.
type schedule struct {
	underWay  bool // a pass was begun, and has not ended
	requested bool // Reconcile was called
	draining  bool // nothing is to be begun
	onRequest bool // passes are begun by requests alone
	interval  time.Duration
	full      time.Time // when a full pass last ended
	ended     time.Time // when a pass of any kind last ended
	missed    gap
	writes    []*write // that wait for a pass
	// rowsChanged: some of the writes may have changed rows, not only removed them.
	rowsChanged bool
}

// due returns when a pass is due; not ok: nothing calls for one.
func (s schedule) due() (at time.Time, ok bool) {
	if s.draining || s.onRequest && !s.underWay && !s.requested {
		return at, false
	}
	if s.underWay || s.requested {
		return time.Time{}, true
	}
	sooner := func(t time.Time) {
		if !ok || t.Before(at) {
			at, ok = t, true
		}
	}
	if s.interval > 0 {
		sooner(s.full.Add(s.interval))
	}
	if s.missed.isOpen() {
		sooner(s.missed.last)
	}
	for _, w := range s.writes {
		sooner(w.readable)
	}
	if earliest := s.ended.Add(passRest); ok && at.Before(earliest) {
		at = earliest
	}
	return at, ok
}

// isFull reports whether a pass that begins now has to compare every row.
func (s schedule) isFull(now time.Time) bool {
	intervalOver := s.interval > 0 && !now.Before(s.full.Add(s.interval))
	return s.missed.isOpen() || s.requested || s.rowsChanged || intervalOver
}

// addUnreported adds the drift that a pass found to the drift of earlier passes that Reconcile has
// not returned yet. Rows and Unfit count the last pass alone.
func addUnreported(found, unreported map[string]Drift) map[string]Drift {
	sum := map[string]Drift{}
	for name, d := range found {
		total := d
		total.add(unreported[name])
		total.Rows, total.Unfit = d.Rows, d.Unfit
		sum[name] = total
	}
	return sum
}
