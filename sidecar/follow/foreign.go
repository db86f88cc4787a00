package follow

import (
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/route"
)

// Foreign says that rows of a collection were written past this process.
type Foreign struct {
	// Since is when the first of the rows was found, Last when the last one was, Rows how
	// many were found, and ID names one of them.
	Since time.Time `json:"since"`
	Last  time.Time `json:"last"`
	Rows  int64     `json:"rows"`
	ID    string    `json:"id"`
}

// foreignWrites finds the rows that no write of this process explains among the rows that
// a pass finds to differ. Its caller holds a lock.
type foreignWrites struct {
	// own has the rows that writes of this process named since the pass began.
	own map[rerank.ID]struct{}
	// unnamed: a write of this process may have changed rows that it did not name, so that
	// a differing row proves nothing.
	unnamed  bool
	suspects []suspect
}

// suspect is a row that differs, until it is known whether a write of this process changed it.
type suspect struct {
	id    rerank.ID
	found time.Time
}

// maxSuspects is the most suspects that are kept. A single one is enough for a dispute.
const maxSuspects = 1000

// begin starts anew for a pass. queued are the rows that writes of this process still
// wait for.
func (f *foreignWrites) begin(queued map[rerank.ID]*row, unnamed bool) {
	f.own, f.unnamed, f.suspects = make(map[rerank.ID]struct{}, len(queued)), unnamed, nil
	for id := range queued {
		f.own[id] = struct{}{}
	}
}

// explain notes a write of this process that the database carried out.
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

// suspect notes rows that differ.
func (f *foreignWrites) suspect(ids []rerank.ID, now time.Time) {
	for _, id := range ids {
		if _, explained := f.own[id]; !explained && !f.unnamed && len(f.suspects) < maxSuspects {
			f.suspects = append(f.suspects, suspect{id, now})
		}
	}
}

// convict returns the suspects that no write of this process can explain any more: every
// write that was on its way when the row was found has ended since. onItsWay is when the
// oldest write was seen that has not ended; zero: every write has.
func (f *foreignWrites) convict(onItsWay time.Time) (foreign []rerank.ID) {
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

// findForeign disputes that all writes pass through this process if a row was written by
// another. missesPeers says that a write of another sidecar may not have been seen. The caller
// holds the lock.
func (s *syncer) findForeign(now time.Time, missesPeers bool) {
	if len(s.foreign.suspects) == 0 || !s.doubts.none() || missesPeers {
		return
	}
	found := s.foreign.convict(s.backlog.oldestOnItsWay())
	if len(found) == 0 {
		return
	}
	if s.record.Foreign == nil {
		s.record.Foreign = &Foreign{Since: now.UTC(), ID: found[0].String()}
		if s.declaresProxy() {
			s.log.Warn("follow: foreign writes found, answers are certified as snapshots: a client writes past this proxy, against writes: proxy",
				"id", found[0].String(), "rows", len(found), "remedy", "send all writes through this proxy and run `likeness reconcile`, or remove writes: proxy")
		}
	}
	f := *s.record.Foreign // a copy: the record is written without the lock
	f.Rows, f.Last = f.Rows+int64(len(found)), now.UTC()
	s.record.Foreign = &f
}

// declaresProxy reports whether the operator declares that all writes to the collection
// pass through this process.
func (s *syncer) declaresProxy() bool {
	for _, d := range s.routes {
		if d.route.Writes == route.WritesProxy {
			return true
		}
	}
	return false
}

// Sight implements route.Freshness. Where the operator declares that all writes pass through
// the sidecars that share a journal, the writes of the others are in the backlog before Sight
// returns.
func (s *syncer) Sight() route.Sight {
	s.mu.Lock()
	declares := s.declaresProxy()
	s.mu.Unlock()
	var problem error
	if declares {
		problem = s.lookAtPeers(peerPatience)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := sight(s.record, s.interval, time.Now())
	if problem != nil && out.Disputed == "" {
		out.Disputed = route.DisputePeers
	}
	return out
}

// sight says what the derived data shows, from the last comparison of all rows.
func sight(r record, interval time.Duration, now time.Time) route.Sight {
	out := route.Sight{AsOf: r.Complete}
	switch {
	case r.Foreign != nil:
		out.Disputed = route.DisputeForeign
	case !now.Before(r.Complete.Add(detectionWindow(interval))):
		out.Disputed = route.DisputeUnchecked
	}
	return out
}

// detectionWindow returns the longest time for which a write past this process can go
// unnoticed: a comparison of all rows that began before the write is believed no longer. It
// leaves a comparison as much time as there is between two of them.
func detectionWindow(interval time.Duration) time.Duration { return 2 * interval }
