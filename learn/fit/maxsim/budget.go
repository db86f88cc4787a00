package maxsim

import (
	"cmp"
	"math"
	"slices"
)

// Budgets divides a total of vectors among items, where item x has counts[x] queries, which were asked
// traffic[x] times together, and a share of traffic[x]^beta (MVG, eq. 6). Every item gets the whole part of its
// share; the largest remainders get one more, the first rows among equal ones. No item
// gets more vectors than it has queries: the surplus is divided among the others. The
// budgets add up to total, or to the number of queries if that is less.
func Budgets(counts []int, traffic []float64, beta float64, total int) []int {
	budgets := make([]int, len(counts))
	open := make([]int, 0, len(counts)) // items that can take more
	for x, n := range counts {
		if n > 0 {
			open = append(open, x)
		}
	}
	for total > 0 {
		full, rest := separateFull(open, counts, traffic, beta, total)
		if len(full) == 0 {
			break
		}
		for _, x := range full {
			budgets[x] = counts[x]
			total -= counts[x]
		}
		open = rest
	}
	roundShares(budgets, open, shareOut(open, traffic, beta, total), counts, total)
	return budgets
}

// shareOut returns the share of the total that each of the items has by its traffic.
func shareOut(items []int, traffic []float64, beta float64, total int) []float64 {
	s := make([]float64, len(items))
	var sum float64
	for i, x := range items {
		s[i] = math.Pow(traffic[x], beta)
		sum += s[i]
	}
	for i := range s {
		s[i] *= float64(total) / sum
	}
	return s
}

// separateFull separates the items whose share reaches their count from the others.
func separateFull(items, counts []int, traffic []float64, beta float64, total int) (full, rest []int) {
	for i, share := range shareOut(items, traffic, beta, total) {
		if share >= float64(counts[items[i]]) {
			full = append(full, items[i])
		} else {
			rest = append(rest, items[i])
		}
	}
	return full, rest
}

// roundShares rounds the shares, which are below the counts, to whole numbers that add
// up to the total: the largest remainders are rounded up.
func roundShares(budgets, items []int, shares []float64, counts []int, total int) {
	order := make([]int, len(items))
	for i, x := range items {
		budgets[x] = min(int(shares[i]), counts[x])
		total -= budgets[x]
		order[i] = i
	}
	remainder := func(i int) float64 { return shares[i] - math.Floor(shares[i]) }
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(remainder(b), remainder(a)), cmp.Compare(items[a], items[b]))
	})
	for _, i := range order[:min(len(order), max(total, 0))] {
		budgets[items[i]]++
	}
}
