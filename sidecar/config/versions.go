package config

import "reflect"

// VersionNames lists the route's versions by name.
func (r Route) VersionNames() []string { return mapKeys(reflect.ValueOf(r.Versions)) }

// CandidateBeside returns the version to try while another one is in service: the experiment's candidate
// or, once that is in service itself, the version that Active names. The two take turns.
func (r Route) CandidateBeside(inService string) string {
	if r.Experiment.Candidate == inService {
		return r.Active
	}
	return r.Experiment.Candidate
}

// At returns the route as it stands in one version: keys that the version sets replace
// the keys of the route, and the result has no versions. A route without versions has a
// single version, named "".
func (r Route) At(version string) (at Route, ok bool) {
	if version == "" && len(r.Versions) == 0 {
		return r, true
	}
	v, ok := r.Versions[version]
	if !ok {
		return Route{}, false
	}
	overlay(reflect.ValueOf(&r).Elem(), reflect.ValueOf(v))
	r.Versions, r.Active = nil, ""
	return r, true
}

// RouteAt returns a route as it stands in one version, ready to be served: it has its
// name, and the limits of the process in place of limits that it leaves open.
func (c *Config) RouteAt(route, version string) (Route, bool) {
	r, ok := c.Routes[route].At(version)
	r.Name = route
	if r.MaxK == 0 {
		r.MaxK = c.Limits.MaxK
	}
	if r.MaxDepth == 0 {
		r.MaxDepth = c.Limits.MaxDepth
	}
	return r, ok
}

// WithLive returns the policy with the values of next for all keys that can change while
// a route is served. The other keys, which wait for an activation or a restart, stay.
func (p Policy) WithLive(next Policy) Policy {
	replaceLive(reflect.ValueOf(&p).Elem(), reflect.ValueOf(next))
	return p
}

// overlay replaces the keys of dst by the keys of the same name that are set in src.
func overlay(dst, src reflect.Value) {
	own := map[string]reflect.Value{}
	for f := range fields(src.Type()) {
		key, _ := keyOf(f)
		own[key] = src.FieldByIndex(f.Index)
	}
	for f := range fields(dst.Type()) {
		key, _ := keyOf(f)
		if v, ok := own[key]; ok && !v.IsZero() {
			dst.FieldByIndex(f.Index).Set(v)
		}
	}
}

// replaceLive replaces the keys of dst that are live by the keys of src, which has the
// same type.
func replaceLive(dst, src reflect.Value) {
	for f := range fields(dst.Type()) {
		to, from := dst.FieldByIndex(f.Index), src.FieldByIndex(f.Index)
		switch {
		case isSection(f.Type):
			replaceLive(to, from)
		case effectOf(f) == EffectLive:
			to.Set(from)
		}
	}
}
