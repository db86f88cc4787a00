package events_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/likenessdb/likeness/internal/powerloss"
	"github.com/likenessdb/likeness/sidecar/events"
)

// TestPowerLoss loses power before every call to the disk, and after each batch of feedback: what was acknowledged is
// in the files that are left, once.
func TestPowerLoss(t *testing.T) {
	for _, loss := range powerloss.Losses() {
		t.Run(fmt.Sprint("loss ", loss), func(t *testing.T) {
			d, now, rng := powerloss.New(t), newClock(), rand.New(rand.NewPCG(uint64(loss), 5))
			dir := filepath.Join(d.Root(), "events")
			o := events.RouteOptions{Share: 1, Log: events.LogOptions{Now: now.Now, Age: time.Minute, Flush: time.Hour, Disk: d}}
			var mu sync.Mutex
			acknowledged := map[string]bool{}
			check := func(at string) {
				mu.Lock()
				defer mu.Unlock()
				want := maps.Clone(acknowledged)
				left := d.Lose(t, rng, loss)
				path, twice := filepath.Join(left.Root(), "events"), 0
				l, err := events.OpenLog(path, events.LogOptions{Disk: left})
				if err == nil {
					err = l.Close()
				}
				if err == nil {
					seen := map[string]bool{}
					_, err = events.Read(path, events.Visitor{Feedback: func(f *events.Feedback) error {
						if seen[f.ID] {
							twice++
						}
						seen[f.ID] = true
						delete(want, f.ID)
						return nil
					}})
				}
				if err != nil || len(want) > 0 || twice > 0 {
					t.Errorf("%s: acknowledged feedback is lost: %v; %d events are there twice; %v", at, want, twice, err)
				}
			}
			d.Before(check)
			r := open(t, dir, o)
			for i := range 20 { // a new file begins after every six
				if i == 10 {
					closed(t, r)
					r = open(t, dir, o)
				}
				answer := events.AnswerID{Call: r.NewCall()}
				r.Show(someImpression(answer))
				f := click(answer, 7)
				f.ID = fmt.Sprint("event ", i)
				feed(t, r, f)
				mu.Lock()
				acknowledged[f.ID] = true
				mu.Unlock()
				check("acknowledged " + f.ID)
				now.pass(10 * time.Second)
			}
			closed(t, r)
			d.Before(nil)
		})
	}
}
