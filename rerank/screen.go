package rerank

// Screener is implemented by an Encoded that can rule out items more cheaply than Score.
type Screener interface {
	// Screens returns how many levels of bounds exist for such items. Level 0 is the
	// cheapest and loosest. 0 means that Screen cannot be used.
	Screens(items Items) int
	// Screen writes an upper bound of every item's score, and of its φ without rounding, to
	// dst, for a level < Screens; the bound includes the rounding of Screen and of Score. loss bounds how far the given
	// rows lie from the rows that Score would read, and how long they are. Screen need not
	// tighten a bound that is already below reach. An item whose components are not finite
	// gets NaN or +Inf. Screen returns ErrItems.
	Screen(level int, dst []float32, items Items, loss Loss, reach float32) error
}

// BatchScreener is implemented by a Similarity that screens the same items for several
// queries in one pass, so that each item is read once.
type BatchScreener interface {
	// ScreenBatch writes a bound of item i's score for queries[q] to dst[q·n+i], n =
	// items.Len(), as Screen of that query does with reach[q]. All queries must have been
	// encoded by this similarity. ScreenBatch returns ErrQuery for a query of another
	// similarity, and ErrItems.
	ScreenBatch(level int, dst []float32, queries []Encoded, items Items, loss Loss, reach []float32) error
}
