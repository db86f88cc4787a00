package milvus

import (
	"context"
	"errors"
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
	if len(id.Aliases) == 0 {
		if id.Aliases, err = s.listAliases(ctx, id.Collection); err != nil {
			return adapters.Identity{}, fmt.Errorf("collection %q: aliases: %w", name, err)
		}
	}
	for _, f := range d.GetSchema().GetFields() {
		if f.GetIsPrimaryKey() {
			id.Key, id.AutoKey = f.GetName(), f.GetAutoID()
		}
	}
	return id, nil
}

// listAliases lists a collection's aliases for milvus-lite, whose DescribeCollection leaves them out from
// version 3 on. It returns none if the server has no such call, or does not permit it: then it is another
// server, whose DescribeCollection names all aliases.
func (s *Store) listAliases(ctx context.Context, collection string) ([]string, error) {
	answer, err := s.raw.ListAliases(ctx, &milvuspb.ListAliasesRequest{DbName: s.options.Database, CollectionName: collection})
	if errors.Is(err, adapters.ErrUnsupported) || errors.Is(err, adapters.ErrRefused) {
		return nil, nil
	}
	return answer.GetAliases(), err
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
