package milvus

import (
	"context"
	"sync"
	"time"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/sidecar/proxy/rawgrpc"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
)

// loadStateWithin limits how long a LoadCollection waits for the state of its collection.
const loadStateWithin = time.Second

// releases counts the calls that release a part of a collection, or load only a part. The zero value is ready to use,
// and safe for concurrent use.
type releases struct {
	mu       sync.Mutex
	inFlight int
	begun    int
}

// begin counts a call that begins. The caller calls the returned function when it has ended.
func (r *releases) begin() (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inFlight++
	r.begun++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.inFlight--
	}
}

// now returns how many calls have begun, and whether all of them have ended.
func (r *releases) now() (begun int, allEnded bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.begun, r.inFlight == 0
}

// loading forwards a LoadCollection, which most clients send whenever they start. It counts as a write only if it may
// show rows that were not loaded: if a partition was not loaded, if it asks Milvus to look for new segments, or if a
// release goes on beside it.
func (r *Router) loading(upstream *rawgrpc.Upstream, write rawgrpc.Interceptor) rawgrpc.Interceptor {
	return rawgrpc.Interceptor{MustRead: true, Answer: func(ctx context.Context, request []byte) rawgrpc.Reply {
		begun, allEnded := r.releases.now()
		if !allEnded || !r.mayBeOurs(ctx, request, databaseField) || !isLoaded(ctx, upstream, request) {
			return write.Answer(ctx, request)
		}
		return rawgrpc.Reply{Ended: func(answer []byte, err error) {
			if now, _ := r.releases.now(); now == begun {
				return
			}
			if again := write.Answer(ctx, request); again.Ended != nil {
				again.Ended(answer, err)
			}
		}}
	}}
}

// releasing counts the calls of a method that releases, or loads only a part, while the database answers them.
func (r *Router) releasing(write rawgrpc.Interceptor) rawgrpc.Interceptor {
	return rawgrpc.Interceptor{MustRead: true, Answer: func(ctx context.Context, request []byte) rawgrpc.Reply {
		end := r.releases.begin()
		reply := write.Answer(ctx, request)
		ended := reply.Ended
		if ended == nil { // the write is refused, or changes no followed collection
			end()
			return reply
		}
		reply.Ended = func(answer []byte, err error) {
			end()
			ended(answer, err)
		}
		return reply
	}}
}

// isLoaded reports whether all partitions of the collection of a LoadCollection are loaded. It asks the database as
// the caller, and returns false if the database does not tell.
func isLoaded(ctx context.Context, upstream *rawgrpc.Upstream, request []byte) bool {
	load := &milvuspb.LoadCollectionRequest{}
	if routing.Decode(request, load) != nil || load.GetRefresh() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, loadStateWithin)
	defer cancel()
	parts, state := &milvuspb.ShowPartitionsResponse{}, &milvuspb.GetLoadStateResponse{}
	of := &milvuspb.ShowPartitionsRequest{DbName: load.GetDbName(), CollectionName: load.GetCollectionName()}
	if ask(ctx, upstream, milvuspb.MilvusService_ShowPartitions_FullMethodName, of, parts) != nil || failed(parts.GetStatus()) || len(parts.GetPartitionNames()) == 0 {
		return false
	}
	each := &milvuspb.GetLoadStateRequest{DbName: load.GetDbName(), CollectionName: load.GetCollectionName(), PartitionNames: parts.GetPartitionNames()}
	return ask(ctx, upstream, milvuspb.MilvusService_GetLoadState_FullMethodName, each, state) == nil && !failed(state.GetStatus()) &&
		state.GetState() == commonpb.LoadState_LoadStateLoaded
}

// ask calls a method of the database as the caller of ctx.
func ask(ctx context.Context, upstream *rawgrpc.Upstream, method string, request, answer proto.Message) error {
	b, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	message, _, _, err := upstream.Call(ctx, method, b)
	if err != nil {
		return err
	}
	return proto.Unmarshal(message, answer)
}
