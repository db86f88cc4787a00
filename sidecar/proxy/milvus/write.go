package milvus

import (
	"context"
	"slices"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/proxy/rawgrpc"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/proxy/wire"
)

// columnsField is the field of an Insert or Upsert that holds the columns.
const columnsField = 5

// write is a method that changes one collection or one name: where its request names the database,
// and what the rest of it means.
type write struct {
	databaseField protowire.Number
	read          func(b []byte) routing.Writing
}

func methodsThatWrite() map[string]write {
	rows := write{databaseField, anyRow(journal.Upsert, collectionField)}
	return map[string]write{
		milvuspb.MilvusService_Insert_FullMethodName:               {databaseField, readRows(&milvuspb.InsertRequest{}, true)},
		milvuspb.MilvusService_Upsert_FullMethodName:               {databaseField, readRows(&milvuspb.UpsertRequest{}, false)},
		milvuspb.MilvusService_Delete_FullMethodName:               {databaseField, readDelete},
		milvuspb.MilvusService_Import_FullMethodName:               {7, anyRow(journal.Upsert, 1)},
		milvuspb.MilvusService_DropPartition_FullMethodName:        {databaseField, anyRow(journal.Delete, collectionField)},
		milvuspb.MilvusService_AddCollectionField_FullMethodName:   {databaseField, anyRow(journal.Payload, collectionField)},
		milvuspb.MilvusService_AlterCollection_FullMethodName:      rows, // a time to live
		milvuspb.MilvusService_AlterCollectionField_FullMethodName: rows,
		milvuspb.MilvusService_LoadCollection_FullMethodName:       rows, // a search finds the rows of loaded partitions alone
		milvuspb.MilvusService_ReleaseCollection_FullMethodName:    rows,
		milvuspb.MilvusService_LoadPartitions_FullMethodName:       rows,
		milvuspb.MilvusService_ReleasePartitions_FullMethodName:    rows,
		milvuspb.MilvusService_CreateCollection_FullMethodName:     {databaseField, readCollection},
		milvuspb.MilvusService_DropCollection_FullMethodName:       {databaseField, readCollection},
		milvuspb.MilvusService_CreateAlias_FullMethodName:          {databaseField, readName(4)},
		milvuspb.MilvusService_AlterAlias_FullMethodName:           {databaseField, readName(4)},
		milvuspb.MilvusService_DropAlias_FullMethodName:            {databaseField, readName(3)},
	}
}

// writes returns the interceptors of the methods that write, and of those without an interceptor of
// their own.
func (r *Router) writes(upstream *rawgrpc.Upstream) map[string]rawgrpc.Interceptor {
	out := map[string]rawgrpc.Interceptor{}
	if r.Writes == nil {
		return out
	}
	r.Writes.InterceptOthers(out, methodsThatRead(), outcomeOfOther)
	for method, w := range methodsThatWrite() {
		out[method] = r.following(func(ctx context.Context, b []byte) routing.Writing {
			if w.databaseField > 0 && !r.mayBeOurs(ctx, b, w.databaseField) {
				return routing.Writing{}
			}
			return w.read(b)
		})
	}
	out[milvuspb.MilvusService_RenameCollection_FullMethodName] = r.following(r.readRename)
	out[milvuspb.MilvusService_LoadCollection_FullMethodName] = r.loading(upstream, out[milvuspb.MilvusService_LoadCollection_FullMethodName])
	for _, method := range []string{milvuspb.MilvusService_ReleaseCollection_FullMethodName, milvuspb.MilvusService_ReleasePartitions_FullMethodName, milvuspb.MilvusService_LoadPartitions_FullMethodName} {
		out[method] = r.releasing(out[method])
	}
	return out
}

// following forwards a request and tells the follower of the write.
func (r *Router) following(read func(ctx context.Context, b []byte) routing.Writing) rawgrpc.Interceptor {
	return rawgrpc.Interceptor{MustRead: true, Answer: func(ctx context.Context, request []byte) rawgrpc.Reply {
		ended, outlives, err := r.Writes.Begin(ctx, func() routing.Writing { return read(ctx, request) })
		switch {
		case err != nil:
			return rawgrpc.Reply{Err: status.Error(codes.Unavailable, err.Error())}
		case ended == nil:
			return rawgrpc.Reply{}
		}
		return rawgrpc.Reply{Outlives: outlives, Ended: func(answer []byte, err error) { ended(outcome(answer, err), generatedIDs(answer, err)) }}
	}}
}

// outcome derives a write's outcome from the answer. An error that does not come from the database,
// such as a cut connection, counts as no answer.
func outcome(answer []byte, err error) routing.WriteOutcome {
	switch code := status.Code(err); code { // all other codes are answers
	case codes.OK:
		switch s := statusOf(answer); {
		case refuses(s):
			return routing.Refused
		case failed(s):
			return routing.Failed
		}
		return routing.Answered
	case codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented, codes.InvalidArgument:
		return routing.Refused
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Unknown, codes.Internal:
		if rawgrpc.Unsent(err) {
			return routing.Refused
		}
		return routing.Unknown
	}
	return routing.Failed
}

// statusOf returns the status of an answer: the answer itself, or the first field of a
// MutationResult. It returns nil for an answer without a status.
func statusOf(answer []byte) *commonpb.Status {
	whole, inner := &commonpb.Status{}, &milvuspb.MutationResult{}
	if proto.Unmarshal(answer, inner) == nil && failed(inner.GetStatus()) {
		return inner.GetStatus()
	}
	if proto.Unmarshal(answer, whole) == nil && failed(whole) {
		return whole
	}
	return nil
}

// refusing lists the codes by which Milvus says that it changed nothing: a quota is exhausted; a
// collection, partition, database, alias or field is missing or exists already; a parameter is
// wrong; or the caller lacks the right.
var refusing = []int32{7, 8, 9, 10, 100, 200, 800, 802, 1100, 1101, 1400, 1401, 1600, 1601, 1602, 1700, 1701, 1800}

// refuses reports whether Milvus says that it changed nothing. Older servers set only one of the
// codes.
func refuses(s *commonpb.Status) bool {
	if s.GetCode() != 0 {
		return slices.Contains(refusing, s.GetCode())
	}
	switch s.GetErrorCode() { //nolint:exhaustive,staticcheck // as above
	case commonpb.ErrorCode_CollectionNotExists, commonpb.ErrorCode_PermissionDenied, commonpb.ErrorCode_IllegalArgument,
		commonpb.ErrorCode_IllegalCollectionName, commonpb.ErrorCode_IllegalDimension:
		return true
	}
	return false
}

// deniedReplication is the code by which Milvus refuses a ReplicateMessage.
const deniedReplication = 1900

// outcomeOfOther derives the outcome of an unknown write from its answer.
func outcomeOfOther(answer []byte) routing.WriteOutcome {
	s := statusOf(answer)
	switch {
	case denies(answer), s.GetCode() == deniedReplication:
		return routing.Refused
	case failed(s):
		return routing.Failed
	}
	return routing.Answered
}

// denies reports whether an answer of Milvus refuses the caller.
func denies(answer []byte) bool {
	s, err := readStatus(answer)
	return err == nil && (s.GetCode() == 1400 || s.GetCode() == 1401 || s.GetErrorCode() == commonpb.ErrorCode_PermissionDenied) //nolint:staticcheck // as above
}

// readStatus reads the status of an answer to a search, and nothing else of it.
func readStatus(answer []byte) (*commonpb.Status, error) {
	const statusField = 1 // of SearchResults
	s := &commonpb.Status{}
	err := wire.Walk(answer, func(f wire.Field) error {
		if f.Number != statusField {
			return nil
		}
		b, err := f.Message()
		if err != nil {
			return err
		}
		return proto.UnmarshalOptions{Merge: true}.Unmarshal(b, s)
	})
	return s, err
}

// generatedIDs returns the ids that Milvus chose, from the answer to an Insert or Upsert
// that did not fail.
func generatedIDs(answer []byte, err error) []rerank.ID {
	m := &milvuspb.MutationResult{}
	if err != nil || proto.Unmarshal(answer, m) != nil || failed(m.GetStatus()) || len(m.GetErrIndex()) > 0 {
		return nil
	}
	return idsOf(m.GetIDs())
}

// ours reports whether a request certainly addresses the store's database.
func (r *Router) ours(ctx context.Context, request []byte) bool {
	return !slices.ContainsFunc(databases(ctx, request, databaseField), func(d string) bool { return !r.isOwn(d) })
}

// mayBeOurs reports whether a write may address the store's database, which a field of its request names.
func (r *Router) mayBeOurs(ctx context.Context, request []byte, field protowire.Number) bool {
	return slices.ContainsFunc(databases(ctx, request, field), r.isOwn)
}

// databases returns the databases that a request may address: the one that its field names, or else those that the
// connection names. Servers differ in which of several counts. No name, "", is the default database.
func databases(ctx context.Context, request []byte, field protowire.Number) []string {
	if named, _ := routing.Text(request, field); named != "" {
		return []string{named}
	}
	md, _ := metadata.FromOutgoingContext(ctx)
	if all := md.Get("dbname"); len(all) > 0 {
		return all
	}
	return []string{""}
}

func (r *Router) isOwn(database string) bool {
	return canonicalName(database) == canonicalName(r.database)
}

// readRows reads the ids of an Insert or Upsert. It skips the other columns, which make up
// most of a request.
func readRows(m proto.Message, insert bool) func(b []byte) routing.Writing {
	known, way := m.ProtoReflect().Descriptor().Fields(), adapters.WriteUpsert
	if insert {
		way = adapters.WriteInsert
	}
	return func(b []byte) routing.Writing {
		name, _ := routing.Text(b, collectionField)
		read := func(_ context.Context, of adapters.Identity) routing.Rows {
			if of.AutoKey && insert {
				return routing.Rows{Chosen: true}
			}
			ids, all := []rerank.ID(nil), of.Key == ""
			whole := routing.Fields(b, func(number protowire.Number, value []byte) bool {
				if number != columnsField || all {
					return known.ByNumber(number) != nil
				}
				column, ok := readColumn(value, of.Key)
				ids = append(ids, column...)
				return ok && len(ids) <= maxTouchedIDs
			})
			if all || !whole || len(ids) == 0 {
				return routing.Rows{All: true}
			}
			return routing.Rows{IDs: ids, Chosen: of.AutoKey}
		}
		return routing.Writing{Kind: journal.Upsert, Way: way, Collections: []string{name}, Read: read}
	}
}

// maxTouchedIDs limits the ids that are read from one write. A write of more rows counts as a write
// of any row: the follower would compare all rows anyway, and ids take many times the memory that
// they take in the request.
const maxTouchedIDs = 1 << 16

// readColumn reads the ids of a column if it has the given name. It returns false if they cannot be
// read, or if there are more than maxTouchedIDs.
func readColumn(b []byte, name string) ([]rerank.ID, bool) {
	const nameField = 2
	if text, _ := routing.Text(b, nameField); text != name {
		return nil, true
	}
	column := &schemapb.FieldData{}
	if routing.Decode(b, column) != nil {
		return nil, false
	}
	s := column.GetScalars()
	if len(s.GetLongData().GetData())+len(s.GetIntData().GetData())+len(s.GetStringData().GetData()) > maxTouchedIDs {
		return nil, false
	}
	ids := idsOf(&schemapb.IDs{IdField: &schemapb.IDs_IntId{IntId: s.GetLongData()}})
	for _, n := range s.GetIntData().GetData() {
		ids = append(ids, rerank.IntID(int64(n)))
	}
	for _, t := range s.GetStringData().GetData() {
		ids = append(ids, rerank.TextID(t))
	}
	return ids, true
}

func readDelete(b []byte) routing.Writing {
	name, _ := routing.Text(b, collectionField)
	return routing.Writing{Kind: journal.Delete, Way: adapters.WriteDelete, Collections: []string{name}, Read: func(_ context.Context, of adapters.Identity) routing.Rows {
		m := &milvuspb.DeleteRequest{}
		if routing.Decode(b, m) != nil || len(m.GetExprTemplateValues()) > 0 || m.GetExpr() == "" {
			return routing.Rows{All: true}
		}
		if ids, ok := keysOf(m.GetExpr(), of.Key); ok {
			return routing.Rows{IDs: ids}
		}
		return routing.Rows{Filter: m.GetExpr()}
	}}
}

// anyRow reads a write that may change any row of the collection named in a field.
func anyRow(kind journal.Kind, field protowire.Number) func(b []byte) routing.Writing {
	return func(b []byte) routing.Writing {
		name, _ := routing.Text(b, field)
		return routing.Writing{Kind: kind, Collections: []string{name}}
	}
}

// readCollection reads a request that creates or drops a collection.
func readCollection(b []byte) routing.Writing {
	name, _ := routing.Text(b, collectionField)
	return routing.Writing{Kind: journal.Collection, Collections: []string{name}, Renamed: []string{name}}
}

// readName reads a request that changes which collection a name stands for.
func readName(field protowire.Number) func(b []byte) routing.Writing {
	return func(b []byte) routing.Writing {
		name, _ := routing.Text(b, field)
		return routing.Writing{Kind: journal.Collection, Renamed: []string{name}}
	}
}

// readRename reads a rename, whose new name may lie in another database. Without a name of that database some servers
// take the collection's own, and others the connection's.
func (r *Router) readRename(ctx context.Context, b []byte) routing.Writing {
	const newDatabaseField = 5
	m := &milvuspb.RenameCollectionRequest{}
	if routing.Decode(b, m) != nil {
		return routing.Writing{Kind: journal.Collection, Everywhere: true}
	}
	w := routing.Writing{Kind: journal.Collection}
	fromOurs := r.mayBeOurs(ctx, b, databaseField)
	if fromOurs {
		w.Collections, w.Renamed = append(w.Collections, m.GetOldName()), append(w.Renamed, m.GetOldName())
	}
	if r.mayBeOurs(ctx, b, newDatabaseField) || fromOurs && m.GetNewDBName() == "" {
		w.Renamed = append(w.Renamed, m.GetNewName())
	}
	return w
}
