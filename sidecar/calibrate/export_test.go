package calibrate

import (
	"context"
	"time"
)

// AuditDrawn audits the answers that were drawn, in place of Run, and lets every route draw the next one
// by itself. It returns how many there were.
func (a *Auditor) AuditDrawn(ctx context.Context, routes Holder) (n int) {
	for ; ; n++ {
		select {
		case d := <-a.queue:
			a.audit(ctx, routes, d)
		default:
			for _, next := range a.nextSelf {
				next.Store(1)
			}
			return n
		}
	}
}

// ScanAt reads a collection whose scan is due at the given time, in place of Run, and takes the result. It reports
// whether there was one. An earlier scan delays none.
func (a *Auditor) ScanAt(ctx context.Context, routes Holder, now time.Time) bool {
	clear(a.nextScan)
	if !a.scanOneDue(ctx, routes, now) {
		return false
	}
	a.takeScan(routes, <-a.scanned)
	return true
}
