package adapters

// Abilities holds the optional interfaces of a store. A nil field means that the store
// lacks the ability. Whoever opens a store calls AbilitiesOf once and passes the
// result on, because a decorator that embeds the store would hide its abilities.
type Abilities struct {
	Fetch      Fetcher
	Scan       Scanner
	Partition  Partitioner
	Describe   Describer
	Count      Counter
	Write      Writer
	Delete     Deleter
	Alias      Aliaser
	Identify   Identifier
	Inspect    Inspector
	CheckWrite WriteChecker
	Match      Matcher
	Exclude    Excluder
}

// AbilitiesOf finds the optional interfaces of a store, or of a value with only some
// of a store's interfaces. For nil every field is nil.
func AbilitiesOf(s any) Abilities {
	var a Abilities
	a.Fetch, _ = s.(Fetcher)
	a.Scan, _ = s.(Scanner)
	a.Partition, _ = s.(Partitioner)
	a.Describe, _ = s.(Describer)
	a.Count, _ = s.(Counter)
	a.Write, _ = s.(Writer)
	a.Delete, _ = s.(Deleter)
	a.Alias, _ = s.(Aliaser)
	a.Identify, _ = s.(Identifier)
	a.Inspect, _ = s.(Inspector)
	a.CheckWrite, _ = s.(WriteChecker)
	a.Match, _ = s.(Matcher)
	a.Exclude, _ = s.(Excluder)
	return a
}
