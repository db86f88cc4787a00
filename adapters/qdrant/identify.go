package qdrant

import (
	"context"
	"fmt"
	"slices"

	"github.com/qdrant/go-client/qdrant"

	"github.com/likenessdb/likeness/adapters"
)

// identifyTries is how often Identify reads the names. Qdrant lists the aliases collection
// by collection, so that an alias which is switched meanwhile can be missing in the list.
const identifyTries = 3

// Identify reads all aliases and, if name is not an alias, all collections. Qdrant has no alias
// with the name of a collection. It returns ErrNotFound for a name that is neither, and ErrRefused
// for a collection that can be read but that the credentials do not list.
func (s *Store) Identify(ctx context.Context, name string) (adapters.Identity, error) {
	for range identifyTries {
		aliases, err := s.listAliases(ctx, name)
		if err != nil {
			return adapters.Identity{}, err
		}
		own := ""
		for _, a := range aliases {
			if a.GetAliasName() == name {
				own = a.GetCollectionName() // the last one is the newest
			}
		}
		if own == "" {
			collections, err := s.listCollections(ctx, name)
			if err != nil {
				return adapters.Identity{}, err
			}
			if !slices.Contains(collections, name) {
				continue
			}
			own = name
		}
		id := adapters.Identity{Collection: own}
		for _, a := range aliases {
			if a.GetCollectionName() == own {
				id.Aliases = append(id.Aliases, a.GetAliasName())
			}
		}
		return id, nil
	}
	return adapters.Identity{}, s.unlisted(ctx, name)
}

func (s *Store) listAliases(ctx context.Context, name string) ([]*qdrant.AliasDescription, error) {
	answer, err := call(ctx, s, "aliases", name, func(ctx context.Context, c *qdrant.GrpcClient) (*qdrant.ListAliasesResponse, error) {
		return c.Collections().ListAliases(ctx, &qdrant.ListAliasesRequest{})
	})
	return answer.GetAliases(), err
}

func (s *Store) listCollections(ctx context.Context, name string) (names []string, err error) {
	answer, err := call(ctx, s, "collections", name, func(ctx context.Context, c *qdrant.GrpcClient) (*qdrant.ListCollectionsResponse, error) {
		return c.Collections().List(ctx, &qdrant.ListCollectionsRequest{})
	})
	for _, c := range answer.GetCollections() {
		names = append(names, c.GetName())
	}
	return names, err
}

// Version asks the server's health check, which needs no key.
func (s *Store) Version(ctx context.Context) (string, error) {
	answer, err := call(ctx, s, "version", "", func(ctx context.Context, c *qdrant.GrpcClient) (*qdrant.HealthCheckReply, error) {
		return c.Qdrant().HealthCheck(ctx, &qdrant.HealthCheckRequest{})
	})
	return answer.GetVersion(), err
}

// Collections lists the collections, without aliases.
func (s *Store) Collections(ctx context.Context) ([]string, error) {
	names, err := s.listCollections(ctx, "")
	slices.Sort(names)
	return names, err
}

// unlisted returns the error of a name that is in no list.
func (s *Store) unlisted(ctx context.Context, name string) error {
	answer, err := call(ctx, s, "exists", name, func(ctx context.Context, c *qdrant.GrpcClient) (*qdrant.CollectionExistsResponse, error) {
		return c.Collections().CollectionExists(ctx, &qdrant.CollectionExistsRequest{CollectionName: name})
	})
	switch {
	case err != nil:
		return err
	case !answer.GetResult().GetExists():
		return fmt.Errorf("%w: qdrant at %s has no collection and no alias %q", adapters.ErrNotFound, s.options.Address, name)
	}
	return fmt.Errorf("%w: qdrant at %s lists %q neither as a collection nor as an alias; give the credentials read access to the collection's own name too",
		adapters.ErrRefused, s.options.Address, name)
}
