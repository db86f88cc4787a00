package rerank

// Screener is implemented by an Encoded that can rule items out for less than
// Score costs.
type Screener interface {
	// Screens is the number of bounds that there are for such items, the cheapest
	// and loosest first; 0: none.
	Screens(items Items) int
	// Screen writes a bound of φ of every item to dst, for a level < Screens: no
	// less than what Score gives, with the rounding of both. loss says how far the
	// rows lie from those that Score would get, and how long they are. An item
	// whose bound is below reach needs no tighter one. The bound of an item whose
	// components are not finite is NaN or +Inf. It returns ErrItems.
	Screen(level int, dst []float32, items Items, loss Loss, reach float32) error
}
