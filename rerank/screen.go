package rerank

// Screener is implemented by an Encoded that can rule items out for less than
// Score costs.
type Screener interface {
	// Screens is the number of bounds that pay for such items, the cheapest and
	// loosest first; 0: none does.
	Screens(items Items) int
	// Screen writes a bound of φ of every item to dst, level < Screens: no less
	// than what Score gives, with the rounding of both. The bound of an item
	// whose components are not finite is not finite, and never −Inf. It returns
	// ErrItems.
	Screen(level int, dst []float32, items Items) error
}
