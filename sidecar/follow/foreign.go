package follow

import (
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/route"
)

// Foreign says that rows of a collection were written past this process.
type Foreign struct {
	// Since is when the first foreign row was found, Last when the last one was. Rows counts them,
	// and ID is one of them.
	Since time.Time `json:"since"`
	Last  time.Time `json:"last"`
	Rows  int64     `json:"rows"`
	ID    string    `json:"id"`
}

// foreignWrites finds foreign rows: rows that a pass finds to differ though no write of this
// process can be the reason. The caller of its methods holds a lock.
type foreignWrites struct {
	// own has the rows that writes of this process named since the pass began.
	own map[rerank.ID]struct{}
	// unnamed: a write of this process may have changed rows whose ids are not known, so that a
	// differing row proves nothing.
	unnamed  bool
	suspects []suspect
}

// suspect is a row that was found to differ. It is foreign unless a write of this process explains
// it.
type suspect struct {
	id    rerank.ID
	found time.Time
}

// maxSuspects bounds the suspects that are remembered. A single foreign row is enough for a
// dispute.
const maxSuspects = 1000

// begin starts the search for foreign rows of a pass. queued holds the rows that wait to be read
// after writes of this process.
func (f *foreignWrites) begin(queued map[rerank.ID]*row, unnamed bool) {
	f.own, f.unnamed, f.suspects = make(map[rerank.ID]struct{}, len(queued)), unnamed, nil
	for id := range queued {
		f.own[id] = struct{}{}
	}
}

// explain notes a write that the database carried out for this process or another sidecar: its rows
// are not foreign.
func (f *foreignWrites) explain(w journal.Write) {
	if namesNoRows(w) || len(f.own)+len(w.IDs) > maxRows {
		f.unnamed, f.own, f.suspects = true, nil, nil
		return
	}
	for _, id := range w.IDs {
		if f.own != nil {
			f.own[id] = struct{}{}
		}
	}
}

// suspect notes rows that a pass found to differ.
func (f *foreignWrites) suspect(ids []rerank.ID, now time.Time) {
	for _, id := range ids {
		if _, explained := f.own[id]; !explained && !f.unnamed && len(f.suspects) < maxSuspects {
			f.suspects = append(f.suspects, suspect{id, now})
		}
	}
}

// takeForeign removes and returns the suspects that are foreign: no write of this process named them,
// and every write that was on its way when they were found has ended. onItsWay is when the oldest
// write began that has not ended; zero if all have ended.
func (f *foreignWrites) takeForeign(onItsWay time.Time) (foreign []rerank.ID) {
	kept := f.suspects[:0]
	for _, s := range f.suspects {
		_, explained := f.own[s.id]
		switch {
		case explained:
		case onItsWay.IsZero() || onItsWay.After(s.found):
			foreign = append(foreign, s.id)
		default:
			kept = append(kept, s)
		}
	}
	f.suspects = kept
	return foreign
}

// findForeign records the suspects that turned out to be foreign, which disputes the operator's
// declaration that all writes pass through this process. missesPeers says that writes of another
// sidecar may not have been seen. The caller holds the lock.
func (s *syncer) findForeign(now time.Time, missesPeers bool) {
	if len(s.ledger.foreign.suspects) == 0 || !s.doubts.none() || missesPeers {
		return
	}
	found := s.ledger.foreign.takeForeign(s.ledger.backlog.oldestOnItsWay())
	if len(found) == 0 {
		return
	}
	if s.passes.record.Foreign == nil {
		s.passes.record.Foreign = &Foreign{Since: now.UTC(), ID: found[0].String()}
		if s.ledger.declaresProxy() {
			s.log.Warn("follow: foreign writes found, answers are certified as snapshots: a client writes past this proxy, against writes: proxy",
				"id", found[0].String(), "rows", len(found), "remedy", "send all writes through this proxy and run `likeness reconcile`, or remove writes: proxy")
		}
	}
	f := *s.passes.record.Foreign // a copy: the record is written without the lock
	f.Rows, f.Last = f.Rows+int64(len(found)), now.UTC()
	s.passes.record.Foreign = &f
}

// Horizon implements route.Freshness: it says up to when the derived data shows every write. If the operator
// declares that all writes pass through proxies, Horizon first waits until this sidecar has read the writes that
// the other sidecars journalled. Horizon is disputed if it cannot read them in time.
func (s *syncer) Horizon() route.Horizon {
	s.mu.Lock()
	declares := s.ledger.declaresProxy()
	s.mu.Unlock()
	var problem error
	if declares {
		problem = s.peers.awaitRead(peerPatience)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := horizonOf(s.passes.record, s.passes.interval, time.Now())
	if problem != nil && out.Disputed == "" {
		out.Disputed = route.DisputePeers
	}
	return out
}

// horizonOf says how far derived data can be trusted, given the last comparison of all rows.
func horizonOf(r record, interval time.Duration, now time.Time) route.Horizon {
	out := route.Horizon{AsOf: r.Complete}
	switch {
	case r.Foreign != nil:
		out.Disputed = route.DisputeForeign
	case !now.Before(r.Complete.Add(detectionWindow(interval))):
		out.Disputed = route.DisputeUnchecked
	}
	return out
}

// detectionWindow returns the longest time for which a foreign write can go unnoticed: answers are
// trusted for this long after the last full comparison began. A comparison may take as long as the
// interval between two of them.
func detectionWindow(interval time.Duration) time.Duration { return 2 * interval }
