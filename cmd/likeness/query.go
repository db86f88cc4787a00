package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/likenessdb/likeness/learn/trial"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// queryFlags are the flags of `likeness query`.
type queryFlags struct {
	dial          dialFlags
	input         vectorFlags
	route         string
	k, depth      int32
	averageDepth  int32
	strategy      string
	weights       string
	head          string
	filter        string
	items         []string
	excludeIDs    []string
	excludeFile   string
	maxGap        float32
	requireExact  bool
	userID        int64
	text          string
	calls, rounds int32
	mix           float32
	storedVector  string
	explain       bool
	payload       bool
	payloadFields []string
	timeout       time.Duration
}

func newQueryCommand(a *app) *cobra.Command {
	f := &queryFlags{}
	cmd := &cobra.Command{
		Use:   "query",
		Short: "Ask a running sidecar",
		Long: `Prints the answer, with its certificate in plain words. The query vector comes from
--vector, --vector-file or stdin: a JSON array, or a whole SearchRequest whose fields
the flags override. With --text alone, a relevance-based model computes the vector from
the ranker's scores. Marked rows show the ranker's score.`,
		Example: `  likeness query --route questions --vector-file test_vectors.npy --row 6 --k 10
  likeness query --route products --vector '[0.1, 0.9]' --max-gap 0 --explain
  likeness query --route articles --text 'who may see my data?' --calls 60 --rounds 2 --payload-fields title
  likeness query --route products --item 17 --item 4=0.5 --exclude-ids seen.txt
  echo '[0.1, 0.9]' | likeness query --route products --filter '{"must":[{"key":"stock","range":{"gt":0}}]}' --output json`,
		Args: cobra.NoArgs,
	}
	f.add(cmd)
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.query(cmd, f, *out) }
	return cmd
}

func (f *queryFlags) add(cmd *cobra.Command) {
	f.dial.add(cmd)
	f.input.add(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&f.route, "route", "r", "", "route to search")
	flags.Int32VarP(&f.k, "k", "k", 10, "length of an answer")
	flags.StringVar(&f.strategy, "strategy", "", "per_embedding, average, combined, distilled, companion or scan; empty is the route's")
	flags.Int32Var(&f.depth, "depth", 0, "rows of each first-stage search; 0 is the route's")
	flags.Int32Var(&f.averageDepth, "average-depth", 0, "rows of the averaged search of combined; 0 is the route's")
	flags.StringVar(&f.weights, "weights", "", "uniform or gates, of the averaged search; empty is the route's")
	flags.StringVar(&f.head, "head", "", "learned search of distilled; empty is the route's")
	flags.StringVar(&f.filter, "filter", "", "filter in the store's own language")
	flags.StringArrayVar(&f.items, "item", nil, "make the query of this item's vector, left out of the answer; ID or ID=WEIGHT, may be repeated")
	flags.StringArrayVar(&f.excludeIDs, "exclude-id", nil, "leave this item out of the answer; may be repeated")
	flags.StringVar(&f.excludeFile, "exclude-ids", "", "leave the items of this file out, one id a line")
	flags.Float32Var(&f.maxGap, "max-gap", 0, "search deeper until no missing item can beat the K-th by more")
	flags.BoolVar(&f.requireExact, "require-exact", false, "fail unless the answer is exact")
	flags.Int64Var(&f.userID, "user-id", 0, "user, where the model has user-id embeddings")
	flags.StringVar(&f.text, "text", "", "the query in words, for the route's embedder or ranker")
	flags.Int32Var(&f.calls, "calls", 0, "items the ranker may score, supports included; 0 is supports alone")
	flags.Int32Var(&f.rounds, "rounds", 0, "rounds in which the ranker is asked; 0 is the route's")
	flags.Float32Var(&f.mix, "mix", 0, "share of the ranker's first round that is taken from the database's order")
	flags.StringVar(&f.storedVector, "stored-vector", "", "query as the collection's vectors were made, for --mix; a JSON array")
	flags.BoolVar(&f.explain, "explain", false, "show the terms of every score")
	flags.BoolVar(&f.payload, "payload", false, "show payloads")
	flags.StringSliceVar(&f.payloadFields, "payload-fields", nil, "show these fields of the payload")
	flags.DurationVar(&f.timeout, "timeout", 10*time.Second, "time for the whole call")
}

func (a *app) query(cmd *cobra.Command, f *queryFlags, out output) error {
	stdin := a.stdin
	if f.text != "" || len(f.items) > 0 {
		stdin = nil
	}
	request, err := f.input.read(stdin)
	if err != nil {
		return err
	}
	if err := f.apply(cmd, request); err != nil {
		return err
	}
	conn, err := f.dial.connect()
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
	defer cancel()
	options, err := f.dial.callOptions()
	if err != nil {
		return err
	}
	options = append(options, grpc.WaitForReady(false))
	searches := likenessv1.NewSearchServiceClient(conn)
	response, err := searches.Search(ctx, request, options...)
	if err != nil {
		return callError(f.dial.address, err)
	}
	search := func(r *likenessv1.SearchRequest) (*likenessv1.SearchResponse, error) {
		return searches.Search(ctx, r, options...)
	}
	a.warn(unknownFields(request, response, search))
	if len(response.GetHits()) == 0 {
		a.warn(unknownKeys(request, search))
	}
	if out == outputJSON {
		return a.printMessage(response)
	}
	return a.print(out, nil, func(w io.Writer) error { return printAnswer(w, request, response) })
}

// unknownFields says which of the payload fields that a request names no row of its answer has. Whatever
// fields the best row has instead, it asks by search.
func unknownFields(request *likenessv1.SearchRequest, response *likenessv1.SearchResponse, search func(*likenessv1.SearchRequest) (*likenessv1.SearchResponse, error)) (warnings []string) {
	have := payloadsOf(response)
	var whole []json.RawMessage
	for _, name := range request.GetPayload().GetFields() {
		if len(have) == 0 || trial.UnknownField(name, have) == "" {
			continue
		}
		if whole == nil {
			one, _ := proto.Clone(request).(*likenessv1.SearchRequest)
			one.K, one.Payload, one.Explain = 1, &likenessv1.PayloadSelector{}, false
			answer, err := search(one)
			if err != nil {
				return append(warnings, fmt.Sprintf("--payload-fields: no row of the answer has a field %q", name))
			}
			whole = payloadsOf(answer)
		}
		if unknown := trial.UnknownField(name, whole); unknown != "" {
			warnings = append(warnings, "--payload-fields: "+unknown)
		} else if object, _, nested := strings.Cut(name, "."); nested {
			warnings = append(warnings, fmt.Sprintf("--payload-fields: the database has %q, and returns whole fields only; ask for %q", name, object))
		}
	}
	return warnings
}

// unknownKeys says which keys of a filter, which let no row through, the best row without the filter lacks. It reads filters
// in Qdrant's form only.
func unknownKeys(request *likenessv1.SearchRequest, search func(*likenessv1.SearchRequest) (*likenessv1.SearchResponse, error)) (warnings []string) {
	var filter any
	if json.Unmarshal([]byte(request.GetFilter()), &filter) != nil {
		return nil
	}
	keys := filterKeys(filter)
	if len(keys) == 0 {
		return nil
	}
	one, _ := proto.Clone(request).(*likenessv1.SearchRequest)
	one.K, one.Payload, one.Explain, one.Filter = 1, &likenessv1.PayloadSelector{}, false, ""
	answer, err := search(one)
	if err != nil || len(answer.GetHits()) == 0 {
		return nil
	}
	for _, key := range keys {
		if unknown := trial.UnknownField(key, payloadsOf(answer)); unknown != "" {
			_, nearest, _ := strings.Cut(unknown, "; ")
			warnings = append(warnings, fmt.Sprintf("--filter: row %s, the best without the filter, has no field %q; %s", idText(answer.GetHits()[0].GetId()), key, nearest))
		}
	}
	return warnings
}

// filterKeys lists the payload fields that a filter of Qdrant names, sorted, each once.
func filterKeys(filter any) (keys []string) {
	switch f := filter.(type) {
	case []any:
		for _, clause := range f {
			keys = append(keys, filterKeys(clause)...)
		}
	case map[string]any:
		if key, ok := f["key"].(string); ok {
			keys = append(keys, key)
		}
		for _, name := range []string{"must", "should", "must_not", "min_should", "conditions"} {
			keys = append(keys, filterKeys(f[name])...)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func payloadsOf(r *likenessv1.SearchResponse) (all []json.RawMessage) {
	for _, h := range r.GetHits() {
		all = append(all, json.RawMessage(h.GetPayloadJson()))
	}
	return all
}

// apply copies the flags that were given into the request.
func (f *queryFlags) apply(cmd *cobra.Command, r *likenessv1.SearchRequest) error {
	given := cmd.Flags().Changed
	if given("route") {
		r.Route = f.route
	}
	if r.GetRoute() == "" {
		return usagef("a route is missing; give --route")
	}
	if given("k") || r.GetK() == 0 {
		r.K = f.k
	}
	if given("depth") {
		r.Depth = f.depth
	}
	if given("average-depth") {
		r.AverageDepth = f.averageDepth
	}
	if given("filter") {
		r.Filter = f.filter
	}
	for _, text := range f.items {
		item, err := weightedItem(text)
		if err != nil {
			return err
		}
		r.Query.ItemIds = append(r.Query.ItemIds, item)
	}
	excluded, err := readItemIDs(f.excludeIDs, f.excludeFile)
	if err != nil {
		return err
	}
	r.ExcludeIds = append(r.ExcludeIds, excluded...)
	if given("head") {
		r.Head = f.head
	}
	if given("max-gap") {
		r.MaxGap = &f.maxGap
	}
	if given("user-id") {
		r.Query.UserId = &f.userID
	}
	if given("text") {
		r.Query.Text = f.text
	}
	if given("calls") {
		r.Calls = &f.calls
	}
	if given("mix") {
		r.Mix = &f.mix
	}
	if f.storedVector != "" {
		if err := json.Unmarshal([]byte(f.storedVector), &r.StoredVector); err != nil {
			return usagef("--stored-vector must be a JSON array of numbers: %w", err)
		}
	}
	if given("rounds") {
		r.Rounds = f.rounds
	}
	r.Explain = r.GetExplain() || f.explain
	r.RequireExact = r.GetRequireExact() || f.requireExact
	if f.payload || len(f.payloadFields) > 0 {
		r.Payload = &likenessv1.PayloadSelector{Fields: f.payloadFields}
	}
	if given("timeout") {
		r.Timeout = durationpb.New(f.timeout)
	}
	return f.applyEnums(r)
}

func (f *queryFlags) applyEnums(r *likenessv1.SearchRequest) error {
	if f.strategy != "" {
		value, err := enumValue("strategy", "STRATEGY_", f.strategy, likenessv1.Strategy_value)
		if err != nil {
			return err
		}
		r.Strategy = likenessv1.Strategy(value)
	}
	if f.weights != "" {
		value, err := enumValue("weights", "WEIGHTS_", f.weights, likenessv1.Weights_value)
		if err != nil {
			return err
		}
		r.Weights = likenessv1.Weights(value)
	}
	return nil
}

// printMessage writes a message as JSON with the field names of the proto files.
func (a *app) printMessage(m proto.Message) error {
	compact, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, compact, "", "  "); err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.stdout, b.String())
	return err
}
