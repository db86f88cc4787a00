package routing

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/telemetry"
)

// inShadow limits the concurrent comparisons. Beyond it samples are dropped, so that no caller's
// credentials are kept waiting.
const inShadow = 8

// shadow returns the share of the call's searches that are compared, and the route that sets it.
func (c *call[A]) shadow() (share float64, route string) {
	for _, r := range c.routes {
		if s := r.Shadow.Share; s > share {
			share, route = s, r.Name
		}
	}
	return share, route
}

// beside serves the database's order, and compares a sample with the rescored order in the
// background.
func (c *call[A]) beside(ctx context.Context, share float64, route string) Outcome[A] {
	o := Outcome[A]{Status: "shadow; route=" + route}
	c.outcomes.record.Proxied(c.routeNamesOf(), "shadow", "")
	if rand.Float64() >= share {
		return o
	}
	if !c.shadows.TryAcquire(1) {
		c.outcomes.record.ShadowFailed(route, "busy")
		return o
	}
	o.Answered = true
	if c.own != nil {
		o.Answer = *c.own
	} else {
		o.Answer = c.x.Original(ctx, true)
	}
	later, letGo := context.WithCancel(context.WithoutCancel(ctx)) // keeps the caller's credentials for this one comparison
	stop := context.AfterFunc(c.background.closing, letGo)
	c.background.Go(func() {
		defer c.shadows.Release(1)
		defer letGo()
		defer stop()
		c.compare(later, route, o.Answer)
	})
	return o
}

// compare rescores a call that was answered, and records how the first rows differ.
func (c *call[A]) compare(ctx context.Context, route string, served A) {
	own, ok := c.x.IDs(served)
	if !ok {
		c.outcomes.record.ShadowFailed(route, "answer")
		return
	}
	c.times = times{}
	s := c.rescore(ctx)
	other, ok := [][]rerank.ID(nil), false
	if s.err == nil {
		other, ok = c.x.IDs(s.answer)
	}
	if !ok || len(other) != len(own) {
		c.outcomes.record.ShadowFailed(route, reasonOf(s.err))
		return
	}
	for i := range own {
		if !c.isLaterPage(i) { // later pages lack the first rows
			c.outcomes.record.Shadowed(route, telemetry.Comparison{
				At: time.Now(), Served: own[i], Rescored: other[i], Overlap: overlap(own[i], other[i]), RankBiased: rankBiasedOverlap(own[i], other[i]),
			})
		}
	}
}

// isLaterPage reports whether list i of an answer starts after the first row. If searches are
// stages of a list, it is unknown which list, so that an offset of any search counts.
func (c *call[A]) isLaterPage(i int) bool {
	for j, s := range c.asked.Searches {
		if s.Offset > 0 && (j == i || s.Staged || c.asked.Searches[i].Staged) {
			return true
		}
	}
	return false
}

// reasonOf returns the reason of a Pass or a Degraded. For a nil error it says that the answer has
// another form.
func reasonOf(err error) string {
	var p Pass
	var d Degraded
	switch {
	case errors.As(err, &p):
		return string(p)
	case errors.As(err, &d):
		return d.Reason
	}
	return "answer"
}

// overlap returns the share of the longer list's items that are in both lists. It is 1 for two
// empty lists.
func overlap(a, b []rerank.ID) float64 {
	most := max(len(a), len(b))
	if most == 0 {
		return 1
	}
	return float64(agreement(a, b, most)) / float64(most)
}

func agreement(a, b []rerank.ID, depth int) (n int) {
	in := make(map[rerank.ID]bool, depth)
	for _, id := range a[:min(depth, len(a))] {
		in[id] = true
	}
	for _, id := range b[:min(depth, len(b))] {
		if in[id] {
			n++
		}
	}
	return n
}

// persistence is the parameter p of rank-biased overlap. With it the first ten rows have 86 % of
// the weight.
const persistence = 0.9

// rankBiasedOverlap returns RBO_ext of two lists, from 0 to 1: their overlap at every depth,
// weighted by powers of p and extrapolated beyond the last row (Webber, Moffat and Zobel, 2010,
// equation 32 for lists of one length). It is 1 for two empty lists.
func rankBiasedOverlap(a, b []rerank.ID) float64 {
	k := max(len(a), len(b))
	if k == 0 {
		return 1
	}
	sum, x := 0.0, 0
	inA, inB := map[rerank.ID]bool{}, map[rerank.ID]bool{}
	for d := range k {
		if d < len(a) {
			inA[a[d]] = true
			if inB[a[d]] {
				x++
			}
		}
		if d < len(b) {
			inB[b[d]] = true
			if inA[b[d]] {
				x++
			}
		}
		sum += float64(x) / float64(d+1) * math.Pow(persistence, float64(d+1))
	}
	return float64(x)/float64(k)*math.Pow(persistence, float64(k)) + (1-persistence)/persistence*sum
}

// ramped reports whether `ramp` leaves the call to the database. It hashes the vectors, their
// field and the filter, so that all pages of a query get the same decision, in every
// sidecar.
func (c *call[A]) ramped() bool {
	passing := 0
	for _, r := range c.routes {
		passing = max(passing, r.PassPercent())
	}
	if passing == 0 {
		return false
	}
	h := sha256.New()
	for _, s := range c.asked.Searches {
		_ = binary.Write(h, binary.LittleEndian, s.Query) // writing to a hash cannot fail
		_ = binary.Write(h, binary.LittleEndian, s.Vectors.Data)
		_, _ = h.Write([]byte(s.Vector + "\x00" + s.Filter + "\x00"))
	}
	return int(binary.LittleEndian.Uint64(h.Sum(nil))%100) >= 100-passing
}
