package routing

import (
	"context"
	"slices"

	"google.golang.org/grpc/metadata"

	"github.com/likenessdb/likeness/sidecar/events"
	"github.com/likenessdb/likeness/sidecar/search"
)

// UserHeader is the header in which a client may say for whom it asks. It is for events only.
const UserHeader = "likeness-user"

// keepImpressions keeps impressions of the answers of a call, if a route keeps events. It returns the
// part of the status text that names the call's id, or "". It leaves out searches of other routes than
// the first that keeps events, and a call whose searches are stages of one answer, because none of
// these searches is the answer.
func (c *call[A]) keepImpressions(ctx context.Context, all []Ranked) string {
	var of *events.Route
	name := ""
	for i, s := range c.asked.Searches {
		if s.Staged {
			return ""
		}
		if of == nil {
			name = all[i].Route
			of = c.events.Route(name)
		}
	}
	if of == nil {
		return ""
	}
	id := of.NewCall()
	if slices.ContainsFunc(all, func(r Ranked) bool { return r.experiment != "" }) {
		id = of.NewKeptCall()
	}
	if id.IsZero() {
		return ""
	}
	if id.Kept() {
		user := userOf(ctx)
		for i, s := range c.asked.Searches {
			if all[i].Route != name {
				continue
			}
			of.Show(&events.Impression{
				Answer: events.AnswerID{Call: id, Part: uint16(i)}, Vector: s.Query, User: user, Version: all[i].version,
				Status: all[i].Certificate, Gap: all[i].gap, Filter: events.HashFilter(s.Filter), Narrowed: s.Narrowed || s.Filter != "",
				First: int(s.Offset) + 1, Arm: all[i].arm, Items: search.ShownItems(all[i].page),
			})
		}
	}
	return "; answer=" + events.AnswerID{Call: id}.String()
}

// userOf returns the user that a client names.
func userOf(ctx context.Context) string {
	md, _ := metadata.FromOutgoingContext(ctx)
	if users := md.Get(UserHeader); len(users) > 0 {
		return users[0]
	}
	return ""
}
