package calibrate

import "context"

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
