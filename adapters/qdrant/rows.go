package qdrant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/qdrant/go-client/qdrant"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// Greatest number of rows in a reading call, and of bytes of vectors, which are also
// limited to a quarter of the message limit.
const (
	batchRows  = 8192
	batchBytes = 32 << 20
	endCursor  = "end"
)

// Fetch reads points by id, or by the owner in their payload. A missing vector becomes NaNs.
func (s *Store) Fetch(ctx context.Context, r adapters.FetchRequest) (adapters.Rows, error) {
	consistency, err := readConsistency(r.Consistency)
	if err != nil {
		return adapters.Rows{}, err
	}
	sel := selection{collection: r.Collection, names: r.Vectors, owner: r.Owner, payload: r.Payload, payloadFields: r.PayloadFields, consistency: consistency}
	rows := adapters.Rows{}
	err = s.withInfo(ctx, r.Collection, func(in *info) (err error) {
		if sel.fields, err = in.resolve(r.Vectors); err != nil {
			return err
		}
		if r.Owner != "" {
			rows, err = s.fetchOwned(ctx, sel, r.IDs)
		} else {
			rows, err = s.fetchByID(ctx, sel, r.IDs)
		}
		return err
	})
	return rows, err
}

// selection says which parts of a row to read.
type selection struct {
	collection    string
	names         []string
	fields        []*field
	owner         string
	payload       bool
	payloadFields []string
	consistency   *qdrant.ReadConsistency
}

func (s selection) withPayload() *qdrant.WithPayloadSelector {
	switch {
	case s.payload && len(s.payloadFields) == 0:
		return qdrant.NewWithPayload(true)
	case s.payload && s.owner != "":
		return qdrant.NewWithPayloadInclude(append(slices.Clone(s.payloadFields), s.owner)...)
	case s.payload:
		return qdrant.NewWithPayloadInclude(s.payloadFields...)
	case s.owner != "":
		return qdrant.NewWithPayloadInclude(s.owner)
	default:
		return qdrant.NewWithPayload(false)
	}
}

// isMulti reports whether the one field that is read has several vectors a row.
func (s selection) isMulti() bool { return len(s.fields) == 1 && s.fields[0].MaxSim }

// usualVectors is how many vectors of a row the first call expects in a field with several.
const usualVectors = 64

// maxNumbers bounds the vectors that a fetch from a field with several vectors a row returns: 1 GiB.
const maxNumbers = 1 << 28

// shrinks halves the batch if the answer to a call for a number of rows was too large because
// rows have more vectors than expected, and reports whether to call again.
func (s selection) shrinks(batch *int, rows int, err error) bool {
	limit := (*adapters.LimitError)(nil)
	if !s.isMulti() || rows < 2 || !errors.As(err, &limit) || limit.Limit != messageLimit {
		return false
	}
	*batch = rows / 2
	return true
}

// numbersOf returns how many numbers a point has in a field with several vectors a row.
func (s selection) numbersOf(p *qdrant.RetrievedPoint) int {
	if !s.isMulti() {
		return 0
	}
	n := 0
	for _, piece := range multiVectors(p.GetVectors(), s.fields[0].Name) {
		n += len(piece)
	}
	return n
}

// batchOf returns the number of rows in a call.
func (s *Store) batchOf(fields []*field) int {
	row := 64
	for _, f := range fields {
		vectors := 1
		if f.MaxSim {
			vectors = usualVectors
		}
		row += 4*f.Dim*vectors + len(f.Name) + 16
	}
	return max(1, min(batchRows, min(batchBytes, s.options.Limits.MaxMessageBytes/4)/row))
}

// fetchByID reads points by id, in the requested order.
func (s *Store) fetchByID(ctx context.Context, sel selection, ids []rerank.ID) (adapters.Rows, error) {
	points, place, err := distinctPoints(ids)
	if err != nil {
		return adapters.Rows{}, err
	}
	if sel.payload || sel.isMulti() {
		return s.fetchPoints(ctx, sel, points, place)
	}
	return s.fetchVectors(ctx, sel, points, place)
}

// distinctPoints returns the points that ids name, each once. place maps an id, as Qdrant spells it, to
// the index of its point.
func distinctPoints(ids []rerank.ID) (points []*qdrant.PointId, place map[rerank.ID]int, err error) {
	points, place = make([]*qdrant.PointId, 0, len(ids)), make(map[rerank.ID]int, len(ids))
	for _, id := range ids {
		p, err := pointID(id)
		if err != nil {
			return nil, nil, err
		}
		if _, twice := place[idOf(p)]; !twice {
			place[idOf(p)] = len(points)
			points = append(points, p)
		}
	}
	return points, place, nil
}

func (s *Store) getPoints(ctx context.Context, sel selection, ids []*qdrant.PointId) *qdrant.GetPoints {
	return &qdrant.GetPoints{
		CollectionName:  sel.collection,
		Ids:             ids,
		WithPayload:     sel.withPayload(),
		WithVectors:     vectorsSelector(sel.fields),
		ReadConsistency: sel.consistency,
		Timeout:         s.timeoutSeconds(ctx),
	}
}

// fetchVectors is fetchByID without payloads. Because queries wait for it, it decodes
// the vectors from the wire directly into their places.
func (s *Store) fetchVectors(ctx context.Context, sel selection, asked []*qdrant.PointId, place map[rerank.ID]int) (adapters.Rows, error) {
	rows := adapters.Rows{IDs: make([]rerank.ID, len(asked)), Vectors: make([]rerank.Matrix, len(sel.fields))}
	for i, p := range asked {
		rows.IDs[i] = idOf(p)
	}
	for i, f := range sel.fields {
		rows.Vectors[i] = rerank.NewMatrix(len(asked), f.Dim)
	}
	found := make([]bool, len(asked))
	for part := range slices.Chunk(asked, s.batchOf(sel.fields)) {
		answer := newReply(false, "", sel.fields)
		_, err := call(ctx, s, "fetch", sel.collection, func(ctx context.Context, c *qdrant.GrpcClient) (*reply, error) {
			return answer, c.Conn().Invoke(ctx, qdrant.Points_Get_FullMethodName, s.getPoints(ctx, sel, part), answer, s.wire)
		})
		for _, p := range answer.points {
			at, ok := place[answer.idOf(p.id)]
			if err != nil || !ok {
				continue
			}
			found[at] = true
			for i := range sel.fields {
				answer.copyVector(rows.Vectors[i].Row(at), p, i)
			}
		}
		answer.release()
		if err != nil {
			return adapters.Rows{}, err
		}
	}
	return dropAbsent(rows, found), nil
}

// dropAbsent removes the places of points that do not exist.
func dropAbsent(rows adapters.Rows, found []bool) adapters.Rows {
	n := 0
	for i, there := range found {
		if !there {
			continue
		}
		if rows.IDs[n] = rows.IDs[i]; n < i {
			for _, m := range rows.Vectors {
				copy(m.Row(n), m.Row(i))
			}
		}
		n++
	}
	rows.IDs = rows.IDs[:n]
	for i := range rows.Vectors {
		rows.Vectors[i] = rows.Vectors[i].Slice(0, n)
	}
	return rows
}

// fetchPoints is fetchByID with payloads, or of a field with several vectors a row.
func (s *Store) fetchPoints(ctx context.Context, sel selection, asked []*qdrant.PointId, place map[rerank.ID]int) (adapters.Rows, error) {
	points := make([]*qdrant.RetrievedPoint, len(asked))
	numbers := 0
	for rest, batch := asked, s.batchOf(sel.fields); len(rest) > 0; {
		part := rest[:min(batch, len(rest))]
		answer, err := call(ctx, s, "fetch", sel.collection, func(ctx context.Context, c *qdrant.GrpcClient) (*qdrant.GetResponse, error) {
			return c.Points().Get(ctx, s.getPoints(ctx, sel, part))
		})
		if sel.shrinks(&batch, len(part), err) {
			continue
		}
		if err != nil {
			return adapters.Rows{}, err
		}
		rest = rest[len(part):]
		for _, p := range answer.GetResult() {
			if at, ok := place[idOf(p.GetId())]; ok {
				points[at] = p
				numbers += sel.numbersOf(p)
			}
		}
		if numbers > maxNumbers {
			return adapters.Rows{}, &adapters.LimitError{Limit: "vectors of one fetch, in numbers", Value: int64(numbers), Max: maxNumbers,
				Remedy: "score fewer candidates (depth), or keep the vectors in a table, which likeness index builds"}
		}
	}
	return sel.convertPoints(slices.DeleteFunc(points, func(p *qdrant.RetrievedPoint) bool { return p == nil }))
}

// fetchOwned scrolls over the rows of the owners, 1,000 owners at a time.
func (s *Store) fetchOwned(ctx context.Context, sel selection, owners []rerank.ID) (adapters.Rows, error) {
	place := map[rerank.ID]int{}
	for i, id := range owners {
		if _, twice := place[id]; !twice {
			place[id] = i
		}
	}
	var found []*qdrant.RetrievedPoint
	for part := range slices.Chunk(owners, 1000) {
		filter := ownedBy(sel.owner, part)
		err := s.scroll(ctx, sel, filter, s.batchOf(sel.fields), nil, func(points []*qdrant.RetrievedPoint, _ *qdrant.PointId) error {
			for _, p := range points {
				owner, ok := ownerOf(p.GetPayload(), sel.owner)
				if _, asked := place[owner]; ok && asked {
					found = append(found, p)
				}
			}
			return nil
		})
		if err != nil {
			return adapters.Rows{}, err
		}
	}
	slices.SortFunc(found, func(a, b *qdrant.RetrievedPoint) int {
		ao, _ := ownerOf(a.GetPayload(), sel.owner)
		bo, _ := ownerOf(b.GetPayload(), sel.owner)
		if d := place[ao] - place[bo]; d != 0 {
			return d
		}
		return idOf(a.GetId()).Compare(idOf(b.GetId()))
	})
	found = slices.CompactFunc(found, func(a, b *qdrant.RetrievedPoint) bool { return idOf(a.GetId()) == idOf(b.GetId()) })
	return sel.convertPoints(found)
}

// ownedBy returns the filter for rows whose owner is one of the ids.
func ownedBy(name string, owners []rerank.ID) *qdrant.Filter {
	f := &qdrant.Filter{Should: ownerConditions(name, owners)}
	if f.Should == nil { // which would select every row
		f.Should = []*qdrant.Condition{qdrant.NewMatchKeywords(name)}
	}
	return f
}

// ownerConditions returns a condition for each type of owner, number and text. A row of one of the
// owners fulfils one of them.
func ownerConditions(field string, owners []rerank.ID) (conditions []*qdrant.Condition) {
	var numbers []int64
	var texts []string
	for _, id := range owners {
		if n, ok := id.Int64(); ok {
			numbers = append(numbers, n)
		} else if s, ok := id.Text(); ok {
			texts = append(texts, s)
		}
	}
	if numbers != nil {
		conditions = append(conditions, qdrant.NewMatchInts(field, numbers...))
	}
	if texts != nil {
		conditions = append(conditions, qdrant.NewMatchKeywords(field, texts...))
	}
	return conditions
}

// scroll pages over all points, starting at an id.
func (s *Store) scroll(ctx context.Context, sel selection, filter *qdrant.Filter, batch int, from *qdrant.PointId, yield func([]*qdrant.RetrievedPoint, *qdrant.PointId) error) error {
	for {
		answer, err := call(ctx, s, "scan", sel.collection, func(ctx context.Context, c *qdrant.GrpcClient) (*qdrant.ScrollResponse, error) {
			return c.Points().Scroll(ctx, &qdrant.ScrollPoints{
				CollectionName:  sel.collection,
				Filter:          filter,
				Offset:          from,
				Limit:           qdrant.PtrOf(uint32(batch)),
				WithPayload:     sel.withPayload(),
				WithVectors:     vectorsSelector(sel.fields),
				ReadConsistency: sel.consistency,
				Timeout:         s.timeoutSeconds(ctx),
			})
		})
		if sel.shrinks(&batch, batch, err) {
			continue
		}
		if err != nil {
			return err
		}
		next := answer.GetNextPageOffset()
		if err := checkProgress(from, next); err != nil {
			return fmt.Errorf("qdrant at %s, collection %q: %w", s.options.Address, sel.collection, err)
		}
		from = next
		if len(answer.GetResult()) > 0 {
			if err := yield(answer.GetResult(), from); err != nil {
				return err
			}
		}
		if from == nil {
			return nil
		}
	}
}

// checkProgress returns ErrStore if a page begins no later than the page before it, so that a scan of a
// broken server ends. from and next are nil for the first page, and after the last.
func checkProgress(from, next *qdrant.PointId) error {
	if from == nil || next == nil || idOf(next).Compare(idOf(from)) > 0 {
		return nil
	}
	return fmt.Errorf("%w: the page after %s begins at %s, not later", adapters.ErrStore, idOf(from), idOf(next))
}

// Scan pages over the points in the order of their ids. It sees a point written after
// the cursor, but not a point written before it.
func (s *Store) Scan(ctx context.Context, r adapters.ScanRequest, yield func(adapters.Rows, string) error) error {
	filter, err := parseFilter(r.Filter)
	if err != nil {
		return err
	}
	from, err := readCursor(r.Cursor)
	if err != nil {
		return err
	}
	sel := selection{collection: r.Collection, names: r.Vectors, owner: r.Owner, payload: r.Payload, payloadFields: r.PayloadFields}
	err = s.withInfo(ctx, r.Collection, func(in *info) (err error) {
		sel.fields, err = in.resolve(r.Vectors)
		return err
	})
	if err != nil || r.Cursor == endCursor {
		return err
	}
	batch := s.batchOf(sel.fields)
	if r.Batch > 0 {
		batch = min(r.Batch, batch)
	}
	until, err := readCursor(r.Until)
	if err != nil {
		return err
	}
	ended := errors.New("the part ends here")
	err = s.scroll(ctx, sel, filter, batch, from, func(points []*qdrant.RetrievedPoint, next *qdrant.PointId) error {
		if points, next = pointsBefore(until, points, next); len(points) == 0 {
			return ended
		}
		rows, err := sel.convertPoints(points)
		if err != nil {
			return err
		}
		if err := yield(rows, writeCursor(next)); err != nil || next != nil {
			return err
		}
		return ended
	})
	if err == ended { //nolint:errorlint // it is this one
		return nil
	}
	return err
}

// pointsBefore keeps the points before until, where a part ends. A nil until keeps all
// points.
func pointsBefore(until *qdrant.PointId, points []*qdrant.RetrievedPoint, next *qdrant.PointId) ([]*qdrant.RetrievedPoint, *qdrant.PointId) {
	if until == nil {
		return points, next
	}
	end := idOf(until)
	n, _ := slices.BinarySearchFunc(points, end, func(p *qdrant.RetrievedPoint, id rerank.ID) int { return idOf(p.GetId()).Compare(id) })
	if n < len(points) || next != nil && idOf(next).Compare(end) >= 0 {
		next = nil
	}
	return points[:n], next
}

// Match lists the ids of the rows that match a filter, in the order of the ids.
func (s *Store) Match(ctx context.Context, collection, filter string) ([]rerank.ID, error) {
	ids := []rerank.ID{}
	err := s.Scan(ctx, adapters.ScanRequest{Collection: collection, Filter: filter}, func(rows adapters.Rows, _ string) error {
		ids = append(ids, rows.IDs...)
		return nil
	})
	return ids, err
}

// writeCursor encodes the id of the next point as JSON.
func writeCursor(next *qdrant.PointId) string {
	if next == nil {
		return endCursor
	}
	text, _ := idOf(next).MarshalJSON() // never fails
	return string(text)
}

func readCursor(cursor string) (*qdrant.PointId, error) {
	if cursor == "" || cursor == endCursor {
		return nil, nil
	}
	var id rerank.ID
	if err := id.UnmarshalJSON([]byte(cursor)); err != nil {
		return nil, fmt.Errorf("%w: the cursor %q is not one of a Qdrant scan", adapters.ErrStore, cursor)
	}
	return pointID(id)
}

// convertPoints converts points.
func (s selection) convertPoints(points []*qdrant.RetrievedPoint) (adapters.Rows, error) {
	rows := adapters.Rows{IDs: make([]rerank.ID, len(points)), Vectors: make([]rerank.Matrix, len(s.fields))}
	if s.isMulti() {
		if err := s.readMulti(&rows, points); err != nil {
			return rows, err
		}
	} else {
		for i, f := range s.fields {
			rows.Vectors[i] = rerank.NewMatrix(len(points), f.Dim)
		}
	}
	if s.payload {
		rows.Payloads = make([]json.RawMessage, len(points))
	}
	for i, p := range points {
		rows.IDs[i] = idOf(p.GetId())
		if rows.Starts == nil {
			for j, f := range s.fields {
				copyVector(rows.Vectors[j].Row(i), p.GetVectors(), f.Name)
			}
		}
		if s.owner != "" {
			owner, ok := ownerOf(p.GetPayload(), s.owner)
			if !ok {
				return rows, noOwner(s.collection, rows.IDs[i], s.owner)
			}
			rows.Owners = append(rows.Owners, owner)
		}
		if !s.payload {
			continue
		}
		if s.owner != "" && len(s.payloadFields) > 0 && !slices.Contains(s.payloadFields, s.owner) {
			delete(p.GetPayload(), s.owner)
		}
		rows.Payloads[i] = payloadJSON(p.GetPayload())
	}
	return rows, nil
}

// readMulti reads the vectors of a field with several vectors a row.
func (s selection) readMulti(rows *adapters.Rows, points []*qdrant.RetrievedPoint) error {
	f := s.fields[0]
	if s.owner != "" {
		return fmt.Errorf("%w: vector %q of collection %q has several vectors a row, which are read by id alone; leave out the owner %q", adapters.ErrUnsupported, f.Name, s.collection, s.owner)
	}
	m := rerank.Matrix{Cols: f.Dim}
	rows.Starts = make([]int32, 1, len(points)+1)
	for _, p := range points {
		for _, piece := range multiVectors(p.GetVectors(), f.Name) {
			m.Data = append(m.Data, piece...)
		}
		m.Rows = len(m.Data) / f.Dim
		if len(m.Data) != m.Rows*f.Dim {
			return fmt.Errorf("%w: point %s of collection %q has no whole vectors of %d elements in %q", adapters.ErrStore, idOf(p.GetId()), s.collection, f.Dim, f.Name)
		}
		rows.Starts = append(rows.Starts, int32(m.Rows))
	}
	rows.Vectors[0] = m
	return nil
}
