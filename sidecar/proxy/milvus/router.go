// Package milvus answers searches of Milvus's clients by a learned similarity,
// where a route covers them, says of every other one why it passes, and recognises
// their writes.
package milvus

import (
	"context"
	"time"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/internal/recent"
	"github.com/likenessdb/likeness/sidecar/proxy/rawgrpc"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
)

// The numbers of the fields with the names of database and collection, which are the same in all
// requests.
const (
	databaseField   = 2
	collectionField = 3
)

// shapeFor is how long a schema is used before it is read again.
const shapeFor = 30 * time.Second

// Router answers searches of Milvus's clients. It is safe for concurrent use.
type Router struct {
	*routing.Router
	database string                      // the store's database
	shapes   recent.Cache[string, shape] // by collection
	releases releases
}

// shape is the part of a collection's schema that the router needs.
type shape struct {
	primary string
	vectors []string
	level   commonpb.ConsistencyLevel
}

// New returns a router for the searches of a store's database; "" names the default database.
func New(r *routing.Router, database string) *Router {
	return &Router{Router: r, database: database, shapes: recent.Cache[string, shape]{Keep: shapeFor}}
}

// Intercept returns the interceptors of the methods that search, and of those that
// write if writes are followed.
func (r *Router) Intercept(upstream *rawgrpc.Upstream) map[string]rawgrpc.Interceptor {
	out := r.writes(upstream)
	for _, method := range []string{milvuspb.MilvusService_Search_FullMethodName, milvuspb.MilvusService_HybridSearch_FullMethodName} {
		out[method] = rawgrpc.Interceptor{Ignores: r.ignores, Answer: func(ctx context.Context, request []byte) rawgrpc.Reply {
			target, ok := r.covered(ctx, request)
			if !ok {
				return rawgrpc.Reply{}
			}
			return routing.Reply(ctx, r.Router, target, &call{Router: r, upstream: upstream, method: method, target: target, raw: request}, denies)
		}}
	}
	return out
}

// ignores reports whether a search is known to address a collection without a route.
func (r *Router) ignores(request []byte) bool {
	name, _ := routing.Text(request, collectionField)
	return r.Names.Ignores(name)
}

// covered returns the collection that a request addresses, and whether it has a route. The request
// names the database, or else the connection does.
func (r *Router) covered(ctx context.Context, request []byte) (target routing.Target, ok bool) {
	if !r.ours(ctx, request) {
		return target, false
	}
	name, _ := routing.Text(request, collectionField)
	return r.Names.Target(ctx, name)
}

// canonicalName gives the default database, which has two names, a single one.
func canonicalName(database string) string {
	if database == "default" {
		return ""
	}
	return database
}

// searchedField returns the vector field of a search. A search may omit the name if the collection
// has only one vector field.
func searchedField(asked string, of shape) string {
	if asked == "" && len(of.vectors) == 1 {
		return of.vectors[0]
	}
	return asked
}

// shape returns a collection's schema, read as the caller or as an earlier one.
func (r *Router) shape(ctx context.Context, upstream *rawgrpc.Upstream, collection string, m *milvuspb.SearchRequest) (shape, error) {
	s, _, err := r.shapes.Load(collection, func() (shape, error) {
		answer, err := r.describe(ctx, upstream, collection, m)
		return shapeOf(answer), err
	})
	return s, err
}

func shapeOf(answer *milvuspb.DescribeCollectionResponse) shape {
	s := shape{level: answer.GetConsistencyLevel()}
	for _, f := range answer.GetSchema().GetFields() {
		if f.GetIsPrimaryKey() {
			s.primary = f.GetName()
		}
		switch f.GetDataType() { //nolint:exhaustive // the other types are no vectors
		case schemapb.DataType_FloatVector, schemapb.DataType_BinaryVector, schemapb.DataType_Float16Vector,
			schemapb.DataType_BFloat16Vector, schemapb.DataType_SparseFloatVector, schemapb.DataType_Int8Vector:
			s.vectors = append(s.vectors, f.GetName())
		}
	}
	return s
}

// describe asks the database for a collection's schema, as the caller of a search.
func (r *Router) describe(ctx context.Context, upstream *rawgrpc.Upstream, collection string, m *milvuspb.SearchRequest) (*milvuspb.DescribeCollectionResponse, error) {
	request, err := proto.Marshal(&milvuspb.DescribeCollectionRequest{DbName: m.GetDbName(), CollectionName: collection})
	if err != nil {
		return nil, routing.Pass("malformed")
	}
	message, _, _, err := upstream.Call(ctx, milvuspb.MilvusService_DescribeCollection_FullMethodName, request)
	answer := &milvuspb.DescribeCollectionResponse{}
	if err != nil || proto.Unmarshal(message, answer) != nil || failed(answer.GetStatus()) {
		return nil, routing.Pass("collection") // the database's answer to the search will say it
	}
	return answer, nil
}

// failed reports whether a status is an error. Older servers set only one of the codes.
func failed(s *commonpb.Status) bool {
	return s.GetCode() != 0 || s.GetErrorCode() != commonpb.ErrorCode_Success //nolint:staticcheck // as above
}
