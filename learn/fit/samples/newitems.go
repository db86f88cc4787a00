package samples

import "slices"

// lastShare is the share of the pairs, the latest, that says how much traffic new items get.
const lastShare = 0.1

// ColdTraffic estimates which share of the traffic to come looks for items without logs.
// Where the log has times, it is the share of the pairs in the latest tenth of the log whose
// item had no pair before. Otherwise it is the share of the pairs whose item has no other pair,
// Good and Turing's estimate (Good 1953): had such a pair come last, its item would have been
// new. The share of items without pairs says little, because the log's own traffic has favourites.
func (l *Log) ColdTraffic() float64 {
	if share, known := l.newItemsShare(); known {
		return share
	}
	return l.singlePairsShare()
}

// singlePairsShare returns the share of the pairs whose item has no other pair.
func (l *Log) singlePairsShare() float64 {
	pairs := make([]int, l.Items.Rows)
	for _, items := range l.Relevant {
		for _, x := range items {
			pairs[x]++
		}
	}
	var single int
	for _, n := range pairs {
		if n == 1 {
			single++
		}
	}
	return float64(single) / float64(max(1, l.Counts.Pairs))
}

// newItemsShare returns the share of the latest pairs whose item is new. It is not known
// without times, or if all pairs have one time.
func (l *Log) newItemsShare() (share float64, known bool) {
	if l.Times == nil {
		return 0, false
	}
	times := make([]int64, 0, l.Counts.Pairs)
	for q, items := range l.Relevant {
		for range items {
			times = append(times, l.Times[q])
		}
	}
	slices.Sort(times)
	from := times[min(len(times)-1, int(float64(len(times))*(1-lastShare)))]
	if from == times[0] {
		return 0, false
	}
	before := make([]bool, l.Items.Rows)
	for q, items := range l.Relevant {
		for _, x := range items {
			before[x] = before[x] || l.Times[q] < from
		}
	}
	var late, fresh int
	for q, items := range l.Relevant {
		if len(items) == 0 || l.Times[q] < from {
			continue
		}
		for _, x := range items {
			late++
			if !before[x] {
				fresh++
			}
		}
	}
	return float64(fresh) / float64(late), true
}
