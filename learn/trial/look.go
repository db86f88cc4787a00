package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/edits"
	"github.com/likenessdb/likeness/rerank"
)

// Look describes a collection, and which similarities could serve it.
type Look struct {
	Server     Server `json:"server"`
	Collection string `json:"collection"`
	Rows       int64  `json:"rows"`
	// Read is the number of rows that the trial read, WithoutVector the number of those
	// among them that have no vector.
	Read          int `json:"rows_read"`
	WithoutVector int `json:"rows_without_vector,omitempty"`
	// Random: the rows are from random places of the collection. Otherwise they are all, or the first.
	Random bool `json:"rows_at_random,omitempty"`
	// Logged is the number of rows that were read because the log names them.
	Logged  int      `json:"rows_logged,omitempty"`
	Vectors []Vector `json:"vectors"`
	// Vector is the field that is tried.
	Vector Vector `json:"vector"`
	// Index holds the index settings in the store's words.
	Index        map[string]string `json:"index"`
	Fields       []Field           `json:"payload_fields"`
	Title        string            `json:"title_field,omitempty"`
	Similarities []Similarity      `json:"similarities"`

	field   adapters.VectorField
	textIDs bool // ids are texts and no numbers
	named   int  // rows that the log names, if it was read for them
}

// Vector is a vector field of the collection.
type Vector struct {
	Name   string `json:"name"`
	Dim    int    `json:"dim,omitempty"`
	Metric string `json:"metric,omitempty"`
	// Kind is the datatype, or the type of a field that no trial reads.
	Kind      string `json:"kind"`
	Quantized string `json:"quantized,omitempty"`
	// Norms says what the lengths of the vectors are, of the field that is tried.
	Norms string `json:"norms,omitempty"`
}

// String describes the vector for a list.
func (v Vector) String() string {
	name := cmp.Or(v.Name, "the unnamed vector")
	if v.Dim == 0 {
		return fmt.Sprintf("%s (%s)", name, v.Kind)
	}
	return fmt.Sprintf("%s (%d dimensions, %s, %s)", name, v.Dim, v.Metric, v.Kind)
}

// phrase names the vector within a sentence.
func (v Vector) phrase() string {
	if v.Name == "" {
		return "the unnamed vector"
	}
	return fmt.Sprintf("vector %q", v.Name)
}

// Similarity is a kind of similarity that could serve the collection.
type Similarity struct {
	Name string `json:"name"`
	// How says how a search is answered. Certificate is the status that answers have, and
	// Why gives the reason.
	How         string `json:"how"`
	Certificate string `json:"certificate"`
	Why         string `json:"why"`
}

// lookAt describes the collection and chooses the vector field.
func (t *trial) lookAt(ctx context.Context) error {
	t.look.Collection = t.Collection
	d, err := t.can.Describe.Describe(ctx, t.Collection)
	if err != nil {
		return t.explain(ctx, err)
	}
	t.look.Rows, t.look.Index, t.look.textIDs = d.Rows, d.Settings, d.TextIDs
	for _, f := range d.Fields {
		t.look.Vectors = append(t.look.Vectors, vectorOf(f, string(f.Datatype)))
	}
	for _, f := range d.MaxSim {
		t.look.Vectors = append(t.look.Vectors, vectorOf(f, "several vectors a row"))
	}
	for _, name := range slices.Sorted(maps.Keys(d.Others)) {
		t.look.Vectors = append(t.look.Vectors, Vector{Name: name, Kind: d.Others[name]})
	}
	if t.look.field, err = t.chooseField(d); err != nil {
		return err
	}
	t.look.Vector = vectorOf(t.look.field, string(t.look.field.Datatype))
	switch {
	case d.Rows < 0:
		return &RefusalError{fmt.Sprintf("collection %q of %s is not loaded; load it and try again", t.Collection, t.look.Server), adapters.ErrUnavailable}
	case d.Rows == 0:
		return &RefusalError{fmt.Sprintf("collection %q of %s has no rows; there is nothing to try", t.Collection, t.look.Server), nil}
	}
	return nil
}

func vectorOf(f adapters.VectorField, kind string) Vector {
	return Vector{Name: f.Name, Dim: f.Dim, Metric: string(f.Metric), Kind: kind, Quantized: f.Quantized}
}

// chooseField returns the field to try, or a *RefusalError.
func (t *trial) chooseField(d adapters.Description) (adapters.VectorField, error) {
	var none adapters.VectorField
	of := fmt.Sprintf("collection %q of %s", t.Collection, t.look.Server)
	named := func(f adapters.VectorField) bool { return f.Name == t.Vector }
	asked := slices.IndexFunc(d.Fields, named)
	switch {
	case asked >= 0:
		return usable(d.Fields[asked], of)
	case t.Vector == "" && len(d.Fields) == 1:
		return usable(d.Fields[0], of)
	case t.Vector == "" && len(d.Fields) > 1:
		return none, &RefusalError{fmt.Sprintf("%s has several vectors; name one with --vector: %s", of, listVectors(t.look.Vectors)), nil}
	case len(d.Fields) == 0 && len(d.MaxSim) > 0:
		return none, &RefusalError{fmt.Sprintf("%s has only vectors of several rows (%s), and a trial learns from one vector a row; see docs/concepts.md#max-sim", of, listVectors(t.look.Vectors)), nil}
	case len(d.Fields) == 0 && len(d.Others) > 0:
		return none, &RefusalError{fmt.Sprintf("%s has no dense vector, only %s; add a dense one, from an embedding model, which likeness can learn from", of, listVectors(t.look.Vectors)), nil}
	case len(d.Fields) == 0:
		return none, &RefusalError{of + " has no vector field; add a dense one, from an embedding model", nil}
	case slices.ContainsFunc(d.MaxSim, named):
		return none, &RefusalError{fmt.Sprintf("vector %q of %s has several vectors a row, and a trial learns from one vector a row; name another with --vector: %s", t.Vector, of, listVectors(t.look.Vectors[:len(d.Fields)])), nil}
	}
	return none, &RefusalError{fmt.Sprintf("%s has no dense vector %q; it has %s", of, t.Vector, listVectors(t.look.Vectors)), nil}
}

// usable returns a *RefusalError for a field whose metric says nothing about inner products.
func usable(f adapters.VectorField, of string) (adapters.VectorField, error) {
	switch f.Metric {
	case adapters.InnerProduct, adapters.Cosine, adapters.L2:
		return f, nil
	case "":
		return f, &RefusalError{fmt.Sprintf("%s of %s has no index; create one with the metric COSINE or IP and load the collection", vectorOf(f, "").phrase(), of), nil}
	}
	return f, &RefusalError{fmt.Sprintf("%s of %s is compared by %s, from which no inner product follows; likeness needs cosine, inner product or L2", vectorOf(f, "").phrase(), of, f.Metric), nil}
}

func listVectors(vectors []Vector) string {
	all := make([]string, len(vectors))
	for i, v := range vectors {
		all[i] = v.String()
	}
	return strings.Join(all, ", ")
}

// explain turns an error of the store into a *RefusalError, where the user can do something.
func (t *trial) explain(ctx context.Context, err error) error {
	server := t.look.Server
	switch {
	case errors.Is(err, adapters.ErrNotFound):
		return &RefusalError{fmt.Sprintf("%s has no collection %q%s", server, t.Collection, t.nearest(ctx)), err}
	case errors.Is(err, adapters.ErrRefused) && t.KeyEnv == "" && t.KeyFile == "":
		return &RefusalError{fmt.Sprintf("%s wants an %s; set %s, or give --api-key-env or --api-key-file", server, keyWord(server), keyVariable(server.Kind)), err}
	case errors.Is(err, adapters.ErrRefused):
		what := "its collections"
		if t.Collection != "" {
			what = fmt.Sprintf("collection %q", t.Collection)
		}
		return &RefusalError{fmt.Sprintf("%s refuses to show %s to the credentials in %s; give some that may read it", server, what, cmp.Or(t.KeyFile, t.KeyEnv)), err}
	}
	return err
}

// keyWord names the server's credentials.
func keyWord(s Server) string {
	if s.Kind == milvusKind {
		return "API key or a token (user:password)"
	}
	return "API key"
}

// keyVariable returns the environment variable from which a server's key is read if no
// flag names another.
func keyVariable(kind string) string {
	return map[string]string{qdrantKind: "QDRANT_API_KEY", milvusKind: "MILVUS_TOKEN"}[kind]
}

// shownNames is the number of collections that a message lists.
const shownNames = 5

// nameOne refuses a trial without a collection, and lists the collections that there are.
func (t *trial) nameOne(ctx context.Context) error {
	names, err := t.can.Inspect.Collections(ctx)
	switch {
	case err != nil:
		return t.explain(ctx, err)
	case len(names) == 0:
		return &RefusalError{fmt.Sprintf("%s has no collection that these credentials may see; there is nothing to try", t.look.Server), nil}
	}
	slices.Sort(names)
	return &RefusalError{fmt.Sprintf("name a collection of %s: %s", t.look.Server, strings.Join(names, ", ")), nil}
}

// nearest lists the collections whose names are most like the one that is missing.
func (t *trial) nearest(ctx context.Context) string {
	names, err := t.can.Inspect.Collections(ctx)
	if err != nil || len(names) == 0 {
		return "; it has none that these credentials may see"
	}
	near := edits.Nearest(t.Collection, names, shownNames)
	for i, name := range near {
		near[i] = strconv.Quote(name)
	}
	if len(names) > shownNames {
		return fmt.Sprintf("; of its %d the nearest are %s", len(names), strings.Join(near, ", "))
	}
	return "; it has " + strings.Join(near, ", ")
}

// canBeExact reports whether the store can search the field exhaustively over float32
// vectors.
func canBeExact(f adapters.VectorField) bool {
	return f.FullPrecision && (f.Exact || f.AlwaysExact)
}

// tellSimilarities says which similarities could serve the collection, and how exact
// their answers could be.
func (l *Look) tellSimilarities(s *sample) {
	f := l.field
	one := Similarity{Name: "bilinear form", How: "one search of the database, by another vector"}
	if f.Metric == adapters.L2 || f.Datatype != adapters.Float32 && f.Datatype != adapters.Float16 {
		one.How = "a search of the database, and scores in the sidecar from the vectors that it returns"
	}
	switch {
	case f.Metric == adapters.L2 && !s.unit:
		one.How = "not by this field"
		one.Certificate, one.Why = string(rerank.StatusUnknown), "L2 distances give inner products only for vectors of norm 1, and these have other norms; use a cosine field, or write unit vectors"
	case f.AlwaysExact && f.FullPrecision:
		one.Certificate, one.Why = string(rerank.StatusExact), "every search of the index is exhaustive"
	case canBeExact(f):
		one.Certificate, one.Why = string(rerank.StatusExact), "the database can be asked for an exhaustive search (exact_search: true); from its index alone answers are unknown, until `likeness calibrate` has measured their recall"
	case !f.FullPrecision:
		one.Certificate, one.Why = string(rerank.StatusUnknown), fmt.Sprintf("the database keeps the vectors as %s; `likeness calibrate` can measure a recall", f.Datatype)
	default:
		one.Certificate, one.Why = string(rerank.StatusUnknown), "the database searches this index approximately only (Milvus: FLAT is exhaustive); `likeness calibrate` can measure a recall"
	}
	mol := Similarity{
		Name: "Mixture-of-Logits", How: fmt.Sprintf("a scan of a table in the sidecar, which `likeness index` builds: about %d MB for %d rows", l.Rows*int64(f.Dim)*4>>20+1, l.Rows),
		Certificate: string(rerank.StatusSnapshot), Why: "every row of the table is scored; a write that bypasses likeness is missing until the table has followed",
	}
	lists := Similarity{
		Name: "Mixture-of-Logits by lists", How: "several searches of the database or a companion, and scores in the sidecar",
		Certificate: "bounded", Why: "exhaustive lists bound how much a missing row could gain",
	}
	if !canBeExact(f) {
		lists.Certificate, lists.Why = string(rerank.StatusUnknown), "approximate lists bound nothing"
	}
	l.Similarities = []Similarity{one, mol, lists, {
		Name: "ranker", How: "an expensive model orders the best candidates", Certificate: string(rerank.StatusUnknown), Why: "its scores bound nothing",
	}}
}
