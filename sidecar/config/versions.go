package config

import (
	"cmp"
	"reflect"
)

// VersionNames lists the route's versions by name.
func (r Route) VersionNames() []string { return mapKeys(reflect.ValueOf(r.Versions)) }

// At is the route as a version of it stands: the version's keys that are not
// empty in place of the route's, and no versions. A route without versions has
// one, named "".
func (r Route) At(version string) (at Route, ok bool) {
	if version == "" && len(r.Versions) == 0 {
		return r, true
	}
	v, ok := r.Versions[version]
	if !ok {
		return Route{}, false
	}
	r.Model = cmp.Or(v.Model, r.Model)
	r.Table = cmp.Or(v.Table, r.Table)
	r.Companion = cmp.Or(v.Companion, r.Companion)
	r.Placement = cmp.Or(v.Placement, r.Placement)
	r.Strategy = cmp.Or(v.Strategy, r.Strategy)
	r.Depth = cmp.Or(v.Depth, r.Depth)
	r.AverageDepth = cmp.Or(v.AverageDepth, r.AverageDepth)
	r.Weights = cmp.Or(v.Weights, r.Weights)
	r.Head = cmp.Or(v.Head, r.Head)
	r.Versions, r.Active = nil, ""
	return r, true
}
