package qdrant

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/jsonwalk"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/proxy/rest"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
)

// restWrite is the method of a request, and its path after the collection.
type restWrite struct{ method, path string }

// restWrites maps the requests that change rows of a collection to the kind of change.
var restWrites = map[restWrite]struct {
	kind  journal.Kind
	batch bool
}{
	{http.MethodPut, "points"}:                   {kind: journal.Upsert},
	{http.MethodPost, "points/delete"}:           {kind: journal.Delete},
	{http.MethodPut, "points/vectors"}:           {kind: journal.Vectors},
	{http.MethodPost, "points/vectors/delete"}:   {kind: journal.Vectors},
	{http.MethodPost, "points/payload"}:          {kind: journal.Payload},
	{http.MethodPut, "points/payload"}:           {kind: journal.Payload},
	{http.MethodPost, "points/payload/delete"}:   {kind: journal.Payload},
	{http.MethodPost, "points/payload/clear"}:    {kind: journal.Payload},
	{http.MethodPost, "points/batch"}:            {kind: journal.Upsert, batch: true},
	{http.MethodPost, "shards/delete"}:           {kind: journal.Delete},
	{http.MethodPost, "cluster"}:                 {kind: journal.Upsert},
	{http.MethodPut, "snapshots/recover"}:        {kind: journal.Collection},
	{http.MethodPost, "snapshots/upload"}:        {kind: journal.Collection},
	{http.MethodPut, "shards/snapshots/recover"}: {kind: journal.Collection},
	{http.MethodPost, "shards/snapshots/upload"}: {kind: journal.Collection},
}

// restReads lists the requests that change neither rows nor names of collections, by their paths after the
// collection. * stands for a name or a number. Some of them change settings, indexes or snapshots.
var restReads = map[restWrite]bool{
	{http.MethodPatch, ""}: true,

	{http.MethodPost, "points"}: true, {http.MethodPost, "points/scroll"}: true, {http.MethodPost, "points/count"}: true, {http.MethodPost, "facet"}: true,
	{http.MethodPost, "points/search/matrix/pairs"}: true, {http.MethodPost, "points/search/matrix/offsets"}: true,

	{http.MethodPut, "index"}: true, {http.MethodDelete, "index/*"}: true, {http.MethodPut, "vectors/*"}: true, {http.MethodPut, "shards"}: true,

	{http.MethodPost, "snapshots"}: true, {http.MethodDelete, "snapshots/*"}: true, {http.MethodPost, "shards/snapshots"}: true,
	{http.MethodDelete, "shards/snapshots/*"}: true, {http.MethodPost, "shards/snapshot/partial/create"}: true,
}

// restServerReads are like restReads, for requests that address no collection.
var restServerReads = map[restWrite]bool{
	{http.MethodPost, "snapshots"}: true, {http.MethodDelete, "snapshots/*"}: true,
	{http.MethodPost, "locks"}: true, {http.MethodPost, "logger"}: true, {http.MethodDelete, "issues"}: true,
}

// readsREST reports whether a request changes neither rows nor names of collections. path has the parts after
// the collection, without a shard.
func readsREST(of map[restWrite]bool, method string, path []string) bool {
	if n := len(path) - 1; n >= 1 && (path[n-1] == "index" || path[n-1] == "vectors" || path[n-1] == "snapshots") && !of[restWrite{method, strings.Join(path, "/")}] {
		path = append(slices.Clone(path[:n]), "*")
	}
	return of[restWrite{method, strings.Join(path, "/")}]
}

// writesREST reads a request. A request that is not known to read may change anything, for a newer Qdrant has
// requests that are unknown here.
func writesREST(in *http.Request, body []byte) (w routing.Writing) {
	if in.Method == http.MethodGet || in.Method == http.MethodHead || in.Method == http.MethodOptions {
		return w
	}
	parts := pathParts(in)
	if len(parts) < 2 || parts[0] != "collections" {
		if readsREST(restServerReads, in.Method, parts) {
			return w
		}
		return routing.AnyWrite(in.Method + " " + in.URL.EscapedPath())
	}
	name, rest := parts[1], parts[2:]
	switch {
	case len(rest) == 0 && name == "aliases" && in.Method == http.MethodPost:
		return aliasesREST(body)
	case len(rest) == 0 && (in.Method == http.MethodPut || in.Method == http.MethodDelete):
		return ofCollection(name)
	case len(rest) == 2 && rest[0] == "vectors" && in.Method == http.MethodDelete:
		return routing.Writing{Kind: journal.Vectors, Collections: []string{name}}
	case len(rest) > 2 && rest[0] == "shards" && strings.HasPrefix(rest[2], "snapshot"):
		rest = slices.Delete(slices.Clone(rest), 1, 2) // without the shard
		if len(rest) == 4 && rest[2] == "partial" && strings.HasPrefix(rest[3], "recover") {
			rest = []string{"shards", "snapshots", "upload"}
		}
	}
	path := strings.Join(rest, "/")
	found, ok := restWrites[restWrite{in.Method, path}]
	if !ok {
		if _, isSearch := readPath(in); isSearch || readsREST(restReads, in.Method, rest) {
			return w
		}
		return routing.AnyWrite(in.Method + " " + in.URL.EscapedPath())
	}
	if rest[0] == "cluster" && movesOnly(body) {
		return w
	}
	w = routing.Writing{Kind: found.kind, Collections: []string{name}, Several: found.batch}
	switch rest[len(rest)-1] {
	case "recover", "upload":
		w.Several = true // it has several steps
		rows := routing.Rows{All: true, Waited: in.URL.Query().Get("wait") != "false"}
		w.Read = func(context.Context, adapters.Identity) routing.Rows { return rows }
		return w
	}
	if rest[0] == "points" {
		w.Read = func(ctx context.Context, _ adapters.Identity) routing.Rows {
			return rowsREST(ctx, in, body, found.kind, found.batch)
		}
	}
	return w
}

// rowsREST reads which points a request changes.
func rowsREST(ctx context.Context, in *http.Request, body []byte, kind journal.Kind, batch bool) routing.Rows {
	t, s := &touched{kind: kind}, jsonwalk.New(body)
	if in.Header.Get("Content-Encoding") != "" || !t.body(ctx, s, batch) || !s.AtEnd() {
		t.all = true // compressed, streamed, or not understood
	}
	return t.rows(in.URL.Query().Get("wait") == "true")
}

// maxPathParts exceeds the parts in the path of any write.
const maxPathParts = 8

// pathParts returns the parts of a request's path as Qdrant reads them: empty parts do not count,
// an escaped slash does not separate parts, and dots and semicolons have no meaning. It returns at
// most maxPathParts parts, since a longer path is not a write.
func pathParts(in *http.Request) (parts []string) {
	for part := range strings.SplitSeq(rest.EscapedPath(in), "/") {
		if part == "" {
			continue
		}
		if plain, err := url.PathUnescape(part); err == nil {
			part = plain
		}
		if parts = append(parts, part); len(parts) == maxPathParts {
			break
		}
	}
	return parts
}

// aliasesREST reads a change of aliases.
func aliasesREST(body []byte) routing.Writing {
	w := routing.Writing{Kind: journal.Collection, Several: true}
	s := jsonwalk.New(body)
	known := s.Object(func(key string) bool {
		return key == "actions" && s.Array(func() bool {
			return s.Object(func(action string) bool {
				return slices.Contains([]string{"create_alias", "delete_alias", "rename_alias"}, action) && s.Object(func(key string) bool {
					name, ok := s.Text()
					if strings.HasSuffix(key, "alias_name") {
						w.Renamed = append(w.Renamed, name)
					}
					return ok
				})
			})
		})
	})
	if !known {
		w.Everywhere = true
	}
	return w
}

// movesOnly reports whether a change of a cluster changes no row.
func movesOnly(body []byte) bool {
	moves := []string{"move_shard", "replicate_shard", "abort_transfer", "drop_replica", "restart_transfer", "create_sharding_key"}
	s := jsonwalk.New(body)
	return s.Object(func(key string) bool { return slices.Contains(moves, key) && s.Skip() })
}

// followREST forwards a writing request and tells the follower of the write. ok is false for other
// requests.
func (r *Router) followREST(in *http.Request, body []byte) (reply rest.Reply, ok bool) {
	if r.Writes == nil {
		return reply, false
	}
	var several bool
	ended, outlives, err := r.Writes.Begin(callerOf(in), func() routing.Writing {
		w := writesREST(in, body)
		several = w.Several
		return w
	})
	switch {
	case err != nil:
		return rest.Reply{Answer: unavailable(err.Error())}, true
	case ended == nil:
		return reply, false
	}
	return rest.Reply{Outlives: outlives, Ended: func(e rest.Ending) { ended(outcomeREST(e, several), nil) }}, true
}

// outcomeREST derives a write's outcome from the answer.
func outcomeREST(e rest.Ending, several bool) routing.WriteOutcome {
	switch {
	case e.Unsent:
		return routing.Refused
	case e.Status == 0 || e.Status >= http.StatusInternalServerError:
		return routing.Unknown
	case refusedREST(e.Status, e.Problem, several):
		return routing.Refused
	case e.Status >= http.StatusBadRequest:
		return routing.Failed
	}
	return routing.Answered
}

// problemText returns the text of an error of Qdrant's API, or "" if the error has another form. In
// that case Qdrant refused the request before it tried to carry it out.
func problemText(body []byte) string {
	var problem struct {
		Status struct {
			Error string `json:"error"`
		} `json:"status"`
	}
	if json.Unmarshal(body, &problem) != nil {
		return ""
	}
	return problem.Status.Error
}

// refusedREST reports whether Qdrant says that it changed nothing. Its status alone does not say
// so: if one of several rows or operations is wrong or missing, Qdrant answers 400 or 404 after it
// has changed the rows before it.
func refusedREST(code int, answer []byte, several bool) bool {
	problem := problemText(answer)
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusLengthRequired,
		http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return true
	case http.StatusBadRequest:
		return problem == "" || strings.HasPrefix(problem, "Format error in ") || strings.HasPrefix(problem, "Deserialize error in ") ||
			!several && strings.HasPrefix(problem, "Bad request: ") && !isPartialFailure(problem)
	case http.StatusNotFound:
		return problem == "" || !several && strings.HasPrefix(problem, "Not found: Collection ") // the path or the collection does not exist
	case http.StatusConflict:
		return !several
	}
	return false
}

// isPartialFailure reports whether some shards carried out a write and others refused it.
func isPartialFailure(problem string) bool {
	return strings.Contains(problem, "shards failed to apply")
}
