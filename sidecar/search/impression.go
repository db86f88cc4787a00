package search

import (
	"github.com/likenessdb/likeness/sidecar/events"
)

// keepImpression keeps what an answer shows, if its route keeps events. text is the query in words,
// as the caller gave it. It returns the answer's id, or "" without one.
func (e *Engine) keepImpression(r Request, text string, a *Answer) string {
	of := e.events.Route(r.Route)
	if of == nil {
		return ""
	}
	id := events.AnswerID{Call: of.NewCall()}
	if a.Experiment != "" {
		id.Call = of.NewKeptCall()
	}
	if id.IsZero() {
		return ""
	}
	if id.Call.Kept() {
		of.Show(&events.Impression{
			Answer: id, Vector: r.Query.Vector, Text: text, User: r.User, Version: a.Version, Status: a.Certificate.Status, Gap: a.Certificate.Gap,
			Degraded: a.Degraded != nil, Filter: events.HashFilter(r.Filter), Narrowed: !r.IsUnrestricted(), First: 1, Arm: a.Arm, Items: ShownItems(a.Hits),
		})
	}
	return id.String()
}

// ShownItems returns hits as an impression has them.
func ShownItems(hits []Hit) []events.Item {
	items := make([]events.Item, len(hits))
	for i, h := range hits {
		items[i] = events.Item{ID: h.ID, Score: h.Score, Arm: h.Arm}
	}
	return items
}
