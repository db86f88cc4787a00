package routing

import (
	"context"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/sidecar/route"
)

// schemaFor is how long a collection's fields are used before they are read again.
const schemaFor = 30 * time.Second

// fieldsOf returns the vector fields of a route's collection that its clients search, read with the caller's rights, again
// if they are old. It returns the Pass or Degraded of a failed read.
func (c *coverage) fieldsOf(ctx context.Context, rt *route.Route) ([]adapters.VectorField, error) {
	d, _, err := c.schemas.Load(rt.Collection, func() (adapters.Description, error) {
		if c.store.Describe == nil {
			return adapters.Description{}, Pass("metric")
		}
		d, err := c.store.Describe.Describe(adapters.AsCaller(ctx), rt.Collection)
		if err != nil {
			return d, failed(ctx, c.log, rt, err)
		}
		return d, nil
	})
	return SearchedFields(rt, d), err
}

// checkMetric returns the Pass of fields whose clients do not expect higher scores first, as
// similarities have them.
func (c *coverage) checkMetric(ctx context.Context, rt *route.Route) error {
	fields, err := c.fieldsOf(ctx, rt)
	if err != nil {
		return err
	}
	if why := AlwaysPasses(rt, fields); why != "" {
		return why
	}
	return nil
}

// routeName returns the name of the route for a client's vector field. A route without a field serves
// the collection's unnamed or only vector. The collection's schema says how clients name that
// vector.
func (c *coverage) routeName(ctx context.Context, collection, vector string) (name string, err error) {
	if name = c.names.fields[field{collection, vector}]; name != "" && vector != "" {
		return name, nil
	}
	unnamed := c.names.fields[field{collection, ""}]
	if unnamed == "" {
		return "", Pass("vector")
	}
	rt, err := c.find(unnamed)
	if err != nil {
		return "", Degraded{Reason: "failed"} // the route is gone
	}
	fields, err := c.fieldsOf(ctx, rt)
	if err != nil {
		return "", err
	}
	if f, ok := route.FindField(fields, ""); !ok || f.Name != vector {
		return "", Pass("vector")
	}
	return unnamed, nil
}

// SearchedFields returns those fields of a collection among which a route's field is: the fields of
// several vectors a row, if the route scores by one.
func SearchedFields(rt *route.Route, d adapters.Description) []adapters.VectorField {
	if rt.Vectors != "" {
		return d.MaxSim
	}
	return d.Fields
}

// AlwaysPasses returns the Pass of a route that can answer no search of the database's clients, or
// "" if it can answer some. fields are the SearchedFields of its collection.
func AlwaysPasses(rt *route.Route, fields []adapters.VectorField) Pass {
	f, ok := route.FindField(fields, rt.ItemField())
	switch {
	case rt.Owner != "":
		return "owner"
	case !ok:
		return "vector"
	case f.Metric != adapters.InnerProduct && f.Metric != adapters.Cosine:
		return "metric"
	}
	return ""
}
