package milvus

import (
	"context"
	"fmt"
	"slices"

	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"

	"github.com/likenessdb/likeness/adapters"
)

// Identify reads a collection's schema and aliases.
func (s *Store) Identify(ctx context.Context, name string) (adapters.Identity, error) {
	d, err := s.raw.DescribeCollection(ctx, &milvuspb.DescribeCollectionRequest{DbName: s.options.Database, CollectionName: name})
	if err != nil {
		return adapters.Identity{}, fmt.Errorf("collection %q: %w", name, err)
	}
	id := adapters.Identity{Collection: d.GetSchema().GetName(), Aliases: d.GetAliases()}
	for _, f := range d.GetSchema().GetFields() {
		if f.GetIsPrimaryKey() {
			id.Key, id.AutoKey = f.GetName(), f.GetAutoID()
		}
	}
	return id, nil
}

// Version returns the version that the server tells.
func (s *Store) Version(ctx context.Context) (string, error) {
	answer, err := s.raw.GetVersion(ctx, &milvuspb.GetVersionRequest{})
	return answer.GetVersion(), err
}

// Collections lists the collections of the database, without aliases.
func (s *Store) Collections(ctx context.Context) ([]string, error) {
	answer, err := s.raw.ShowCollections(ctx, &milvuspb.ShowCollectionsRequest{DbName: s.options.Database})
	names := slices.Clone(answer.GetCollectionNames())
	slices.Sort(names)
	return names, err
}
