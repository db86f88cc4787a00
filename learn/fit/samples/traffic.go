package samples

import "crypto/sha256"

// AskedOf returns how often query q was asked, as far as the log tells.
func (l *Log) AskedOf(q int32) float64 {
	if l.Asked != nil {
		return l.Asked[q]
	}
	most := 0.0
	for i := range l.Relevant[q] {
		most = max(most, float64(l.Weight(q, i)))
	}
	return most
}

// AskedInAll returns how often the queries were asked together.
func (l *Log) AskedInAll(queries []int32) float64 {
	var sum float64
	for _, q := range queries {
		sum += l.AskedOf(q)
	}
	return sum
}

// RepeatShare estimates the share of later traffic that asks again what the log has: 1 less
// the share of the log's traffic that was asked a single time (Good 1953). Queries with equal
// vectors are one.
func (l *Log) RepeatShare() float64 {
	asked, total, once := map[[sha256.Size]byte]float64{}, 0.0, 0.0
	for q, items := range l.Relevant {
		if len(items) > 0 {
			n := l.AskedOf(int32(q))
			key := l.hashQuery(q, 0)
			total += n
			switch before := asked[key]; {
			case before == 0 && n <= 1:
				once += n
			case before > 0 && before <= 1:
				once -= before
			}
			asked[key] += n
		}
	}
	if total == 0 {
		return 0
	}
	return max(0, 1-once/total)
}
