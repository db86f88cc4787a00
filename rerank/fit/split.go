package fit

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// split are the queries that a fit learns from and those that judge it. The
// rest of those with pairs straddle: they judge nothing, and what is fitted to
// the whole log has them again.
type split struct{ train, held, straddling []int32 }

// all are the queries with pairs.
func (s split) all() []int32 {
	return slices.Concat(s.train, s.held, s.straddling)
}

// split divides the queries with pairs, and counts. It returns ErrData.
func (p *problem) split(c Common) (split, error) {
	s := p.byQuery(c.HeldOut, c.Seed)
	if c.SplitBy == ByTime {
		s = p.byTime(c.HeldOut)
	}
	p.counts.HeldOutQueries, p.counts.StraddlingQueries = len(s.held), len(s.straddling)
	p.counts.StraddlingPairs = len(p.pairs(s.straddling, nil))
	if len(s.held) == 0 || len(s.train) == 0 {
		return s, fmt.Errorf("%w: of %d queries with pairs %d are left to learn from, %d to judge the fit and %d are on both sides; bring more queries or change the share held out (%g)",
			ErrData, p.counts.Queries, len(s.train), len(s.held), len(s.straddling), c.HeldOut)
	}
	return s, nil
}

// byQuery holds out about that share of the queries with pairs. A query's side
// is decided by its vector and the seed alone: equal vectors, which a log has of
// every repeated question, are never on both sides.
func (p *problem) byQuery(share float64, seed uint64) split {
	var s split
	for q, items := range p.relevant {
		if len(items) == 0 {
			continue
		}
		digest := p.queryDigest(q, seed)
		if float64(binary.LittleEndian.Uint64(digest[:])>>11)/(1<<53) < share {
			s.held = append(s.held, int32(q))
		} else {
			s.train = append(s.train, int32(q))
		}
	}
	return s
}

// byTime holds out the latest queries with pairs, about that share, and all that
// were asked in the same second as the first of them. A query of then whose
// vector was also asked before straddles.
func (p *problem) byTime(share float64) split {
	var s split
	var asked []int64
	for q, items := range p.relevant {
		if len(items) > 0 {
			asked = append(asked, p.times[q])
		}
	}
	if len(asked) == 0 {
		return s
	}
	slices.Sort(asked)
	from := asked[min(len(asked)-1, int(math.Round(float64(len(asked))*(1-share))))]
	before := map[[sha256.Size]byte]bool{}
	for q, items := range p.relevant {
		if len(items) > 0 && p.times[q] < from {
			s.train = append(s.train, int32(q))
			before[p.queryDigest(q, 0)] = true
		}
	}
	for q, items := range p.relevant {
		switch {
		case len(items) == 0 || p.times[q] < from:
		case before[p.queryDigest(q, 0)]:
			s.straddling = append(s.straddling, int32(q))
		default:
			s.held = append(s.held, int32(q))
		}
	}
	return s
}
