package qdrant

import (
	"fmt"

	"github.com/qdrant/go-client/qdrant"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// canonicalID returns an id as Qdrant spells it: every UUID in lower case with hyphens. It returns
// ErrID for an id that Qdrant cannot have.
func canonicalID(id rerank.ID) (rerank.ID, error) {
	if _, isNumber := id.Uint64(); isNumber {
		return id, nil
	}
	text, _ := id.Text()
	canonical, ok := rerank.CanonicalUUID(text)
	if !ok {
		return id, fmt.Errorf("%w: %q; Qdrant's ids are numbers from 0 to 2^64−1 and UUIDs", adapters.ErrID, id)
	}
	return rerank.TextID(canonical), nil
}

// pointID converts an id to Qdrant's. It returns ErrID for an id that Qdrant cannot have.
func pointID(id rerank.ID) (*qdrant.PointId, error) {
	id, err := canonicalID(id)
	if err != nil {
		return nil, err
	}
	if n, ok := id.Uint64(); ok {
		return qdrant.NewIDNum(n), nil
	}
	text, _ := id.Text()
	return qdrant.NewIDUUID(text), nil
}

func idOf(p *qdrant.PointId) rerank.ID {
	if u, ok := p.GetPointIdOptions().(*qdrant.PointId_Uuid); ok {
		return rerank.TextID(u.Uuid)
	}
	return rerank.UintID(p.GetNum())
}

// ownerOf reads an item's id from a payload.
func ownerOf(payload map[string]*qdrant.Value, name string) (rerank.ID, bool) {
	switch v := payload[name].GetKind().(type) {
	case *qdrant.Value_IntegerValue:
		return rerank.IntID(v.IntegerValue), true
	case *qdrant.Value_StringValue:
		return rerank.TextID(v.StringValue), true
	}
	return rerank.ID{}, false
}

// ownerValue is the inverse of ownerOf. Qdrant stores integers as int64.
func ownerValue(id rerank.ID) (*qdrant.Value, error) {
	if n, ok := id.Int64(); ok {
		return qdrant.NewValueInt(n), nil
	}
	if s, ok := id.Text(); ok {
		return qdrant.NewValueString(s), nil
	}
	return nil, fmt.Errorf("%w: owner %q; Qdrant's payload holds integers below 2^63 and strings", adapters.ErrID, id)
}
