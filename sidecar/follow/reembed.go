package follow

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/derive"
	"github.com/likenessdb/likeness/sidecar/route"
)

// NewVector is an item's vector by the new model of a bridge.
type NewVector struct {
	ID     rerank.ID
	Vector []float32
	// Source is the derive.SourceDigest of the row whose text was embedded. If it is empty, the vector
	// belongs to whatever content the row has when the vector is written.
	Source string
}

// reembedding is a call of Reembed, which run carries out.
type reembedding struct {
	route   *route.Route
	vectors []NewVector
	done    chan reembedded
}

// reembedded is the outcome of a reembedding.
type reembedded struct {
	written int
	err     error
}

// Reembed writes new vectors of items to the companion of a route that embeds its items again, and
// returns how many it wrote. It leaves out items that were written or deleted since the source of their
// vector was read: between its own read of the rows and its write to the companion, no other write is
// followed, and writes that come meanwhile are followed afterwards. The ids are distinct. Reembed returns
// ErrRoute if the route is not followed, or if another version of it is followed by now; or ErrClosed, the
// store's error, or the context's error. After an error some or all of the vectors may have been written.
func (f *Follower) Reembed(ctx context.Context, r *route.Route, vectors []NewVector) (written int, err error) {
	s := f.syncers[r.Collection]
	if s == nil {
		return 0, fmt.Errorf("%w: collection %q has no data that is followed", ErrRoute, r.Collection)
	}
	job := &reembedding{route: r, vectors: vectors, done: make(chan reembedded, 1)}
	s.mu.Lock()
	s.reembeddings = append(s.reembeddings, job)
	s.signal()
	s.mu.Unlock()
	select {
	case out := <-job.done:
		return out.written, out.err
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-s.done:
		return 0, ErrClosed
	}
}

// reembed carries out the calls of Reembed that wait.
func (s *syncer) reembed(ctx context.Context) {
	s.mu.Lock()
	jobs, routes, dropped := s.reembeddings, s.ledger.routes, s.ledger.backlog.dropped
	s.reembeddings = nil
	s.mu.Unlock()
	for _, job := range jobs {
		written, err := job.run(ctx, s.reader, routes, dropped)
		job.done <- reembedded{written, err}
	}
}

// run writes the new vectors that a call of Reembed gave, if the routes still have its route.
func (job *reembedding) run(ctx context.Context, reader rowReader, routes []*derivation, dropped bool) (written int, err error) {
	i := slices.IndexFunc(routes, func(d *derivation) bool {
		return d.route.Name == job.route.Name && d.route.Companion == job.route.Companion && d.route.EmbedderName == job.route.EmbedderName && d.route.Reembeds()
	})
	if i < 0 {
		return 0, fmt.Errorf("%w: route %q does not embed items again into companion %q by embedder %q", ErrRoute, job.route.Name, job.route.Companion, job.route.EmbedderName)
	}
	d, byID, ids := routes[i], map[rerank.ID]NewVector{}, make([]rerank.ID, len(job.vectors))
	for i, v := range job.vectors {
		byID[v.ID], ids[i] = v, v.ID
	}
	have, err := reader.read(ctx, []*derivation{d}, ids, dropped)
	if err != nil {
		return 0, err
	}
	now, err := d.encode(have[0], have[0].Vectors[0])
	if err != nil {
		return 0, err
	}
	return d.writeNewVectors(ctx, now, byID)
}

// writeNewVectors writes the new vectors of those rows whose source is still the one that was embedded.
func (d *derivation) writeNewVectors(ctx context.Context, now rows, vectors map[rerank.ID]NewVector) (written int, err error) {
	spec := d.route.Model.Similarity.Spec()
	out, features := adapters.Rows{}, rerank.Matrix{Cols: spec.Features}
	for i, id := range now.ids {
		v, isAsked := vectors[id] // a store may spell an id in another way
		if !isAsked || v.Source != "" && v.Source != now.sources[i] {
			continue
		}
		if len(v.Vector) != spec.Features || rerank.CheckFinite("vector", v.Vector) != nil || rerank.Norm(v.Vector) == 0 {
			return 0, fmt.Errorf("%w: the new vector of item %s has %d elements, all zero or not all finite; model %s takes %d finite ones",
				adapters.ErrDimension, id, len(v.Vector), d.route.Model.Name, spec.Features)
		}
		features.Data = append(features.Data, v.Vector...)
		if features.Rows++; spec.Normalise {
			rerank.Normalise(features.Row(features.Rows - 1))
		}
		out.IDs = append(out.IDs, id)
		out.Payloads = append(out.Payloads, derive.Mark(payload(now.payloads, i), now.sources[i]))
	}
	if len(out.IDs) == 0 {
		return 0, nil
	}
	if err := d.open(ctx); err != nil {
		return 0, err
	}
	if out.Vectors, err = derive.Fields(d.deriver, d.fields, rerank.Items{Features: features}); err != nil {
		return 0, err
	}
	if err := d.store.Write.Write(ctx, d.route.Companion, d.schema, out); err != nil {
		return 0, fmt.Errorf("companion of route %q: %w", d.route.Name, err)
	}
	return len(out.IDs), nil
}

// keepNewVectors replaces, in rows that are about to be written to the companion, what the bridge makes
// of an item by the new vector that the companion has, if the item's source is still the same.
func (d *derivation) keepNewVectors(ctx context.Context, r rows, out *adapters.Rows) error {
	have, err := d.store.Fetch.Fetch(ctx, adapters.FetchRequest{
		Collection: d.route.Companion, IDs: r.ids, Vectors: d.fieldNames(), Payload: true, PayloadFields: []string{derive.SourceField},
		Consistency: d.consistency,
	})
	if err != nil {
		return err
	}
	place := make(map[rerank.ID]int, len(r.ids))
	for i, id := range r.ids {
		place[id] = i
	}
	out.Payloads = slices.Clone(out.Payloads)
	for at, id := range have.IDs {
		i := place[id]
		if !isMarked(have.Payloads[at], r.sources[i]) {
			continue
		}
		for f, m := range have.Vectors {
			copy(out.Vectors[f].Row(i), m.Row(at))
		}
		out.Payloads[i] = derive.Mark(out.Payloads[i], r.sources[i])
	}
	return nil
}

// isMarked reports whether a companion's payload says that the row holds a new vector of this source.
func isMarked(payload json.RawMessage, source string) bool { return derive.MarkOf(payload) == source }

func (d *derivation) fieldNames() []string {
	names := make([]string, len(d.fields))
	for i, f := range d.fields {
		names[i] = f.Name
	}
	return names
}
