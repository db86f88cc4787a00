package qdrant

import (
	"context"
	"strings"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/proxy/rawgrpc"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
)

// rowWrites maps the methods that change rows of the collection in field 1.
var rowWrites = map[string]struct {
	kind journal.Kind
	read func(b []byte, t *touched)
}{
	qdrant.Points_Upsert_FullMethodName:           {journal.Upsert, readPoints[qdrant.UpsertPoints](3)},
	qdrant.Points_UpdateVectors_FullMethodName:    {journal.Vectors, readPoints[qdrant.UpdatePointVectors](3)},
	qdrant.Points_DeleteVectors_FullMethodName:    {journal.Vectors, readSelector[qdrant.DeletePointVectors]},
	qdrant.Points_DeleteVectorName_FullMethodName: {journal.Vectors, readAll},
	qdrant.Points_Delete_FullMethodName:           {journal.Delete, readSelector[qdrant.DeletePoints]},
	qdrant.Points_SetPayload_FullMethodName:       {journal.Payload, readSelector[qdrant.SetPayloadPoints]},
	qdrant.Points_OverwritePayload_FullMethodName: {journal.Payload, readSelector[qdrant.SetPayloadPoints]},
	qdrant.Points_DeletePayload_FullMethodName:    {journal.Payload, readSelector[qdrant.DeletePayloadPoints]},
	qdrant.Points_ClearPayload_FullMethodName:     {journal.Payload, readSelector[qdrant.ClearPayloadPoints]},
	qdrant.Points_UpdateBatch_FullMethodName:      {journal.Upsert, readBatch},
}

// waitField is the number of the field `wait` in all requests of rowWrites.
const waitField = 2

// methodsThatRead lists the methods that change neither rows nor names of collections. Some of them change
// settings, indexes or snapshots. A method that is neither here nor known to write may change anything.
func methodsThatRead() []string {
	return []string{
		qdrant.Qdrant_HealthCheck_FullMethodName,

		qdrant.Collections_Get_FullMethodName, qdrant.Collections_List_FullMethodName, qdrant.Collections_Update_FullMethodName,
		qdrant.Collections_CollectionExists_FullMethodName, qdrant.Collections_CollectionClusterInfo_FullMethodName,
		qdrant.Collections_ListCollectionAliases_FullMethodName, qdrant.Collections_ListAliases_FullMethodName,
		qdrant.Collections_CreateShardKey_FullMethodName, qdrant.Collections_ListShardKeys_FullMethodName,

		qdrant.Points_Get_FullMethodName, qdrant.Points_Scroll_FullMethodName, qdrant.Points_Count_FullMethodName, qdrant.Points_Facet_FullMethodName,
		qdrant.Points_Search_FullMethodName, qdrant.Points_SearchBatch_FullMethodName, qdrant.Points_SearchGroups_FullMethodName,
		qdrant.Points_SearchMatrixPairs_FullMethodName, qdrant.Points_SearchMatrixOffsets_FullMethodName,
		qdrant.Points_Query_FullMethodName, qdrant.Points_QueryBatch_FullMethodName, qdrant.Points_QueryGroups_FullMethodName,
		qdrant.Points_Recommend_FullMethodName, qdrant.Points_RecommendBatch_FullMethodName, qdrant.Points_RecommendGroups_FullMethodName,
		qdrant.Points_Discover_FullMethodName, qdrant.Points_DiscoverBatch_FullMethodName,
		qdrant.Points_CreateFieldIndex_FullMethodName, qdrant.Points_DeleteFieldIndex_FullMethodName, qdrant.Points_CreateVectorName_FullMethodName,

		qdrant.Snapshots_Create_FullMethodName, qdrant.Snapshots_List_FullMethodName, qdrant.Snapshots_Delete_FullMethodName,
		qdrant.Snapshots_CreateFull_FullMethodName, qdrant.Snapshots_ListFull_FullMethodName, qdrant.Snapshots_DeleteFull_FullMethodName,
	}
}

// writes returns the interceptors of the methods that write, and of those without an interceptor of
// their own.
func (r *Router) writes() map[string]rawgrpc.Interceptor {
	out := map[string]rawgrpc.Interceptor{}
	if r.Writes == nil {
		return out
	}
	r.Writes.InterceptOthers(out, methodsThatRead(), nil)
	for method, m := range rowWrites {
		out[method] = r.following(func(b []byte) (w routing.Writing) {
			name, _ := routing.Text(b, 1)
			several := method == qdrant.Points_UpdateBatch_FullMethodName && operations(b) > 1
			return routing.Writing{Kind: m.kind, Collections: []string{name}, Several: several, Read: func(context.Context, adapters.Identity) routing.Rows {
				t := &touched{kind: m.kind}
				m.read(b, t)
				return t.rows(waits(b))
			}}
		})
	}
	for method, read := range map[string]func(b []byte) routing.Writing{
		qdrant.Collections_Create_FullMethodName:                       readCollection,
		qdrant.Collections_Delete_FullMethodName:                       readCollection,
		qdrant.Collections_UpdateAliases_FullMethodName:                readAliases,
		qdrant.Collections_DeleteShardKey_FullMethodName:               readShardKey,
		qdrant.Collections_UpdateCollectionClusterSetup_FullMethodName: readCluster,
	} {
		out[method] = r.following(read)
	}
	return out
}

// following forwards a request and tells the follower of the write.
func (r *Router) following(read func(b []byte) routing.Writing) rawgrpc.Interceptor {
	return rawgrpc.Interceptor{MustRead: true, Answer: func(ctx context.Context, request []byte) rawgrpc.Reply {
		var several bool
		ended, outlives, err := r.Writes.Begin(ctx, func() routing.Writing {
			w := read(request)
			several = w.Several
			return w
		})
		switch {
		case err != nil:
			return rawgrpc.Reply{Err: status.Error(codes.Unavailable, err.Error())}
		case ended == nil:
			return rawgrpc.Reply{}
		}
		return rawgrpc.Reply{Outlives: outlives, Ended: func(_ []byte, err error) { ended(outcome(err, several), nil) }}
	}}
}

// outcome derives a write's outcome from the answer. An error that does not come from the database,
// such as a cut connection, counts as no answer.
func outcome(err error, several bool) routing.WriteOutcome {
	if err == nil {
		return routing.Answered
	}
	if rawgrpc.Unsent(err) || refused(status.Convert(err), several) {
		return routing.Refused
	}
	switch status.Code(err) { // all other codes are answers
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Unknown, codes.Internal:
		return routing.Unknown
	}
	return routing.Failed
}

// refused reports whether Qdrant says that it changed nothing. Its code alone does not say so: if
// one of several rows or operations is wrong or missing, Qdrant answers INVALID_ARGUMENT or
// NOT_FOUND after it has changed the rows before it.
func refused(s *status.Status, several bool) bool {
	switch s.Code() { // other codes leave it open
	case codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented:
		return true
	case codes.InvalidArgument:
		return strings.HasPrefix(s.Message(), "Validation error in ") ||
			!several && !strings.HasPrefix(s.Message(), "Wrong input: ") && !isPartialFailure(s.Message())
	case codes.NotFound:
		return !several && strings.HasPrefix(s.Message(), "Not found: Collection ")
	case codes.AlreadyExists:
		return !several
	}
	return false
}

// operations counts the operations of a batch.
func operations(b []byte) (n int) {
	routing.Fields(b, func(number protowire.Number, _ []byte) bool {
		if number == operationsField {
			n++
		}
		return n < 2
	})
	return n
}

// readCollection reads a request that creates or drops the collection in field 1.
func readCollection(b []byte) routing.Writing {
	name, _ := routing.Text(b, 1)
	return ofCollection(name)
}

// ofCollection returns a write that creates, drops or replaces a whole collection.
func ofCollection(name string) routing.Writing {
	return routing.Writing{Kind: journal.Collection, Collections: []string{name}, Renamed: []string{name}}
}

func readAliases(b []byte) routing.Writing {
	m := &qdrant.ChangeAliases{}
	w := routing.Writing{Kind: journal.Collection, Several: true}
	if routing.Decode(b, m) != nil {
		w.Everywhere = true
		return w
	}
	for _, a := range m.GetActions() {
		w.Renamed = append(w.Renamed, a.GetCreateAlias().GetAliasName(), a.GetDeleteAlias().GetAliasName(),
			a.GetRenameAlias().GetOldAliasName(), a.GetRenameAlias().GetNewAliasName())
	}
	return w
}

func readShardKey(b []byte) routing.Writing {
	name, _ := routing.Text(b, 1)
	return routing.Writing{Kind: journal.Delete, Collections: []string{name}}
}

// readCluster reads a change of a cluster. Of these, only dropping a shard key and replicating
// points change rows.
func readCluster(b []byte) routing.Writing {
	m := &qdrant.UpdateCollectionClusterSetupRequest{}
	if routing.Decode(b, m) == nil && m.GetOperation() != nil &&
		m.GetDeleteShardKey() == nil && m.GetReplicatePoints() == nil {
		return routing.Writing{}
	}
	name, _ := routing.Text(b, 1)
	return routing.Writing{Kind: journal.Upsert, Collections: []string{name}}
}
