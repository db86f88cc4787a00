package gate_test

import (
	"maps"

	"github.com/likenessdb/likeness/internal/turns"
	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/search"
)

// options are the options of a gate with one route, products.
type options struct {
	MaxSearches int
	Adaptive    bool
	Limits      map[string]gate.Limit
	Turns       *turns.Turns
	Refused     func(route string, reason gate.Reason)
}

func (o options) limits() gate.Limits {
	routes := map[string]gate.Limit{"products": {}}
	maps.Copy(routes, o.Limits)
	return gate.Limits{MaxSearches: o.MaxSearches, Adaptive: o.Adaptive, Routes: routes}
}

// admitting is a searcher behind a gate, as in the sidecar.
type admitting struct {
	search.Admitted
	*gate.Gate
}

func admit(s search.Searcher, o options) *admitting {
	g := gate.New(gate.Options{Limits: o.limits(), Processors: o.Turns, Refused: o.Refused})
	return &admitting{Admitted: search.Admitted{Searcher: s, By: g}, Gate: g}
}

// Adjust replaces the limits of the gate.
func (a *admitting) Adjust(o options) { a.SetLimits(o.limits()) }

// gateOf returns a gate that lets so many bytes of messages in.
func gateOf(bytes int64) *gate.Gate { return gate.New(gate.Options{ReceivedBytes: bytes}) }
