package qdrant

import (
	"context"

	"github.com/qdrant/go-client/qdrant"

	"github.com/likenessdb/likeness/adapters"
)

// Identify reads all aliases. A name is either an alias or a collection, because
// Qdrant does not allow both.
func (s *Store) Identify(ctx context.Context, name string) (adapters.Identity, error) {
	answer, err := call(ctx, s, "aliases", name, func(ctx context.Context, c *qdrant.GrpcClient) (*qdrant.ListAliasesResponse, error) {
		return c.Collections().ListAliases(ctx, &qdrant.ListAliasesRequest{})
	})
	if err != nil {
		return adapters.Identity{}, err
	}
	id := adapters.Identity{Collection: name}
	for _, a := range answer.GetAliases() {
		if a.GetAliasName() == name {
			id.Collection = a.GetCollectionName()
		}
	}
	for _, a := range answer.GetAliases() {
		if a.GetCollectionName() == id.Collection {
			id.Aliases = append(id.Aliases, a.GetAliasName())
		}
	}
	return id, nil
}
