package qdrant

import (
	"context"
	"fmt"
	"math/big"
	"math/bits"

	"github.com/google/uuid"
	"github.com/qdrant/go-client/qdrant"

	"github.com/likenessdb/likeness/adapters"
)

// Cut divides the ids into ranges of equal width. If the collection has numeric ids,
// it divides the numbers between the least and the greatest, which it finds with about
// seventy searches for one id; otherwise it divides all UUIDs. Parts differ in size if
// ids are dense in some places. Beside numbers, all UUIDs belong to the last part.
func (s *Store) Cut(ctx context.Context, collection string, parts int) ([]string, error) {
	if parts < 1 {
		return nil, fmt.Errorf("%w: %d parts", adapters.ErrStore, parts)
	}
	first, err := s.firstFrom(ctx, collection, nil)
	if err != nil {
		return nil, err
	}
	cuts := make([]string, parts-1)
	if _, text := first.GetPointIdOptions().(*qdrant.PointId_Uuid); text {
		width := new(big.Int).Lsh(big.NewInt(1), 128)
		for i := range cuts {
			at := new(big.Int).Mul(width, big.NewInt(int64(i+1)))
			at.Div(at, big.NewInt(int64(parts)))
			var u uuid.UUID
			at.FillBytes(u[:])
			cuts[i] = writeCursor(qdrant.NewID(u.String()))
		}
		return cuts, nil
	}
	least := first.GetNum() // 0 for an empty collection, whose parts are all empty
	greatest, err := s.greatestNumber(ctx, collection, least)
	if err != nil {
		return nil, err
	}
	for i := range cuts {
		cuts[i] = writeCursor(qdrant.NewIDNum(numberAt(least, greatest, i+1, parts)))
	}
	return cuts, nil
}

// numberAt returns the number that is so many parts, of all, behind the least.
func numberAt(least, greatest uint64, part, parts int) uint64 {
	high, low := bits.Mul64(greatest-least, uint64(part))
	at, _ := bits.Div64(high, low, uint64(parts))
	return least + at
}

// greatestNumber returns the greatest numeric id. least must be a numeric id of the
// collection.
func (s *Store) greatestNumber(ctx context.Context, collection string, least uint64) (uint64, error) {
	for step := uint64(1) << 63; step > 0; step >>= 1 {
		if least+step < least {
			continue
		}
		id, err := s.firstFrom(ctx, collection, qdrant.NewIDNum(least+step))
		if err != nil {
			return 0, err
		}
		if _, number := id.GetPointIdOptions().(*qdrant.PointId_Num); number {
			least = id.GetNum()
		}
	}
	return least, nil
}

// firstFrom returns the first id that is not before at, or nil.
func (s *Store) firstFrom(ctx context.Context, collection string, at *qdrant.PointId) (*qdrant.PointId, error) {
	answer, err := call(ctx, s, "cut", collection, func(ctx context.Context, c *qdrant.GrpcClient) (*qdrant.ScrollResponse, error) {
		return c.Points().Scroll(ctx, &qdrant.ScrollPoints{
			CollectionName: collection, Offset: at, Limit: qdrant.PtrOf(uint32(1)), Timeout: s.timeoutSeconds(ctx),
			WithPayload: qdrant.NewWithPayload(false), WithVectors: qdrant.NewWithVectors(false),
		})
	})
	if err != nil || len(answer.GetResult()) == 0 {
		return nil, err
	}
	return answer.GetResult()[0].GetId(), nil
}

var _ adapters.Partitioner = (*Store)(nil)
