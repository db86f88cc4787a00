package qdrant

import (
	"context"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/sidecar/journal"
	"github.com/likenessdb/likeness/sidecar/proxy/rawgrpc"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
)

// rowWrites are the methods that change rows of the collection in field 1, and
// wait with field 2.
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

// waitField is that of all of rowWrites.
const waitField = 2

// writes returns the interceptors of the methods that write.
func (r *Router) writes() map[string]rawgrpc.Interceptor {
	out := map[string]rawgrpc.Interceptor{}
	if !r.Follows() {
		return out
	}
	for method, m := range rowWrites {
		out[method] = r.following(func(b []byte) (w routing.Writing) {
			name, _ := routing.Text(b, 1)
			return routing.Writing{Kind: m.kind, Collections: []string{name}, Read: func(context.Context, adapters.Identity) routing.Rows {
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

// following lets a request go on, and the follower know of it.
func (r *Router) following(read func(b []byte) routing.Writing) rawgrpc.Interceptor {
	return func(ctx context.Context, request []byte) rawgrpc.Reply {
		ended := r.Begin(ctx, func() routing.Writing { return read(request) })
		if ended == nil {
			return rawgrpc.Reply{}
		}
		return rawgrpc.Reply{Ended: func(_ []byte, err error) { ended(answered(err), nil) }}
	}
}

// answered: an error is the database's own, and not that of a call that was cut.
func answered(err error) bool {
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Unknown:
		return false
	}
	return true
}

// readCollection reads a request that makes or drops the collection in field 1.
func readCollection(b []byte) routing.Writing {
	name, _ := routing.Text(b, 1)
	return ofCollection(name)
}

// ofCollection is a write that makes, drops or replaces a collection as a whole.
func ofCollection(name string) routing.Writing {
	return routing.Writing{Kind: journal.Collection, Collections: []string{name}, Renamed: []string{name}}
}

func readAliases(b []byte) routing.Writing {
	m := &qdrant.ChangeAliases{}
	w := routing.Writing{Kind: journal.Collection}
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

// readCluster reads a change of a cluster, of which only few change rows.
func readCluster(b []byte) routing.Writing {
	m := &qdrant.UpdateCollectionClusterSetupRequest{}
	if routing.Decode(b, m) == nil && m.GetOperation() != nil &&
		m.GetDeleteShardKey() == nil && m.GetReplicatePoints() == nil {
		return routing.Writing{}
	}
	name, _ := routing.Text(b, 1)
	return routing.Writing{Kind: journal.Upsert, Collections: []string{name}}
}
