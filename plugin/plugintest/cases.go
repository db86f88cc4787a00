package plugintest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
)

// check is a case of the kit.
type check struct {
	name, wants string
	run         func(context.Context, *kit) error
}

func (k *kit) cases() []check {
	all := []check{
		{"describe", "a version, limits that can be, and the same when asked again", describe},
		{"count", "one score an item, numbers for items that it can read", count},
		{"order", "the score of each item alone, in the order asked", order},
		{"twice", "the same scores when asked again", twice},
		{"permuted", "scores that do not depend on the order of the items", permuted},
		{"split", "scores that do not depend on what else is in the call", split},
		{"empty batch", "no scores for no items, and no error", emptyBatch},
		{"max items", "RESOURCE_EXHAUSTED above max_items", maxItems},
		{"max bytes", "RESOURCE_EXHAUSTED above max_bytes", maxBytes},
		{"ids", "ids of every kind: the greatest, negative, texts", oddIDs},
		{"payloads", "a score or NaN for items with no payload, or with another than usual", oddPayloads},
		{"huge text", "an answer, or a refusal, of a query and an item of great length", hugeText},
		{"odd queries", "a score, or INVALID_ARGUMENT, for a query that cannot be read", oddQueries},
		{"cancelled", "the end of a call whose caller does not wait any more", cancelled},
		{"concurrent", "the same scores in calls at the same time", concurrent},
		{"version", "the version of its description in every answer", version},
	}
	if k.options.Conn != nil {
		all = append(all,
			check{"health", "SERVING of grpc.health.v1.Health for the service plugin", health},
			check{"malformed", "INVALID_ARGUMENT for parts that do not fit each other, an error for bytes that are no message", malformed},
		)
	}
	return all
}

func describe(ctx context.Context, k *kit) error {
	d, err := k.scorer.Describe(ctx)
	switch {
	case err != nil:
		return err
	case d.Version == "":
		return errors.New("it has no version")
	case d.Name == "":
		return errors.New("it has no name")
	case d.MaxItems < 0 || d.MaxBytes < 0 || d.Parallel < 0 || d.Cost < 0 || math.IsNaN(d.Cost):
		return fmt.Errorf("limits of %d items, %d bytes, %d calls, cost %v; none is negative", d.MaxItems, d.MaxBytes, d.Parallel, d.Cost)
	case fmt.Sprint(d) != fmt.Sprint(k.description):
		return fmt.Errorf("it said %+v, and now %+v", k.description, d)
	}
	return nil
}

func count(ctx context.Context, k *kit) error {
	scores, err := k.score(ctx, k.items)
	if err != nil {
		return fmt.Errorf("%w (if the kit's query or items are what it cannot read, give it others: Options.Query, Items, Dim; "+
			"--query, --items, --dim of likeness plugin check)", err)
	}
	for _, s := range scores {
		if !math.IsNaN(float64(s)) {
			return nil
		}
	}
	return fmt.Errorf("NaN for all of %d ordinary items", len(scores))
}

func order(ctx context.Context, k *kit) error {
	scores, err := k.score(ctx, k.items)
	if err != nil {
		return err
	}
	for i := range k.items {
		alone, err := k.score(ctx, k.items[i:i+1])
		if err != nil {
			return fmt.Errorf("item %d alone: %w", i, err)
		}
		if err := k.same(alone, scores[i:i+1]); err != nil {
			return fmt.Errorf("item %d alone and among others: %w", i, err)
		}
	}
	return nil
}

func twice(ctx context.Context, k *kit) error {
	before, err := k.score(ctx, k.items)
	if err != nil {
		return err
	}
	after, err := k.score(ctx, k.items)
	if err != nil {
		return err
	}
	return k.same(after, before)
}

func permuted(ctx context.Context, k *kit) error {
	before, err := k.score(ctx, k.items)
	if err != nil {
		return err
	}
	to := rand.New(rand.NewPCG(3, 3)).Perm(len(k.items))
	items := make([]plugin.Item, len(to))
	for i, j := range to {
		items[j] = k.items[i]
	}
	after, err := k.score(ctx, items)
	if err != nil {
		return err
	}
	back := make([]float32, len(to))
	for i, j := range to {
		back[i] = after[j]
	}
	return k.same(back, before)
}

func split(ctx context.Context, k *kit) error {
	before, err := k.score(ctx, k.items)
	if err != nil {
		return err
	}
	var after []float32
	for from, step := 0, 1; from < len(k.items); from, step = from+step, step+2 {
		part, err := k.score(ctx, k.items[from:min(from+step, len(k.items))])
		if err != nil {
			return err
		}
		after = append(after, part...)
	}
	return k.same(after, before)
}

func emptyBatch(ctx context.Context, k *kit) error {
	_, err := k.score(ctx, nil)
	return err
}

// greatestItems and greatestBytes limit the calls with which the kit tests limits.
const greatestItems, greatestBytes = 1 << 17, 32 << 20

func maxItems(ctx context.Context, k *kit) error {
	most := k.description.MaxItems
	if most == 0 || most > greatestItems {
		return skip(fmt.Sprintf("max_items is %d", most))
	}
	if _, err := k.score(ctx, k.makeItems(most)); err != nil && !errors.Is(err, plugin.ErrTooLarge) {
		return fmt.Errorf("%d items: %w", most, err)
	}
	return refused(k.scorer.Score(ctx, k.query, k.makeItems(most+1)))
}

func maxBytes(ctx context.Context, k *kit) error {
	most := k.description.MaxBytes
	if most == 0 || most > greatestBytes {
		return skip(fmt.Sprintf("max_bytes is %d", most))
	}
	items := append([]plugin.Item(nil), k.items[0])
	items[0].Payload = text("padding", strings.Repeat("x", most))
	return refused(k.scorer.Score(ctx, k.query, items))
}

func refused(scores []float32, err error) error {
	switch {
	case err == nil:
		return fmt.Errorf("it was answered, with %d scores", len(scores))
	case errors.Is(err, plugin.ErrTooLarge):
		return nil
	default:
		return fmt.Errorf("the error is another: %w", err)
	}
}

func text(field, value string) json.RawMessage {
	b, err := json.Marshal(map[string]string{field: value})
	if err != nil {
		return nil
	}
	return b
}

func oddIDs(ctx context.Context, k *kit) error {
	ids := []rerank.ID{
		rerank.UintID(0), rerank.UintID(math.MaxUint64), rerank.IntID(-1), rerank.IntID(math.MinInt64), rerank.TextID(""),
		rerank.TextID("5f4b1f0c-0d5c-4a6e-9c2a-6a7b8c9d0e1f"), rerank.TextID("7"), rerank.TextID("наклад́ная\n\x00"), rerank.TextID(strings.Repeat("i", 1<<12)),
	}
	for i, id := range ids {
		item := k.items[0]
		item.ID = id
		if _, err := k.score(ctx, []plugin.Item{item}); err != nil {
			return fmt.Errorf("id %d, %.40q: %w", i, id.String(), err)
		}
	}
	return nil
}

func oddPayloads(ctx context.Context, k *kit) error {
	fields := k.description.PayloadFields
	if k.description.Payload {
		fields = append(fields, "text", "title")
	}
	if len(fields) == 0 {
		return skip("it reads no payload")
	}
	payloads := map[string]json.RawMessage{"none": nil, "empty": json.RawMessage(`{}`), "another field": text("other", "x")}
	for name, value := range map[string]string{
		"null": "null", "number": "-1e308", "true": "true", "list": `["a", 1, null]`, "object": `{"a": {}}`, "empty text": `""`,
		"odd text": `"\u0000\ud83d\ude00\u202e"`,
	} {
		object := map[string]json.RawMessage{}
		for _, field := range fields {
			object[field] = json.RawMessage(value)
		}
		payloads[name], _ = json.Marshal(object)
	}
	want, err := k.score(ctx, k.items)
	if err != nil {
		return err
	}
	for name, payload := range payloads {
		// between two ordinary items, whose scores must not change
		items := append([]plugin.Item(nil), k.items[0], k.items[0], k.items[len(k.items)-1])
		items[1].Payload = payload
		if k.fits(len(items)) < len(items) {
			items = items[1:2]
		}
		scores, err := k.score(ctx, items)
		if err != nil {
			return fmt.Errorf("%s (%.60s): %w", name, payload, err)
		}
		if len(scores) == 3 {
			if err := k.same([]float32{scores[0], scores[2]}, []float32{want[0], want[len(want)-1]}); err != nil {
				return fmt.Errorf("beside an item with %s (%.60s): %w", name, payload, err)
			}
		}
	}
	return nil
}

func hugeText(ctx context.Context, k *kit) error {
	long := strings.Repeat("long text ", 1<<16)
	q := k.query
	q.Text = long
	_, err := k.scorer.Score(ctx, q, k.items[:1])
	if err := ignoreRefusal(err); err != nil {
		return fmt.Errorf("a query of %d bytes: %w", len(long), err)
	}
	item := k.items[0]
	item.Payload = k.payload(long, 0)
	_, err = k.scorer.Score(ctx, k.query, []plugin.Item{item})
	if err := ignoreRefusal(err); err != nil {
		return fmt.Errorf("an item of %d bytes: %w", len(long), err)
	}
	return nil
}

// ignoreRefusal returns nil for the errors by which a scorer may refuse unreadable input, and
// any other error unchanged.
func ignoreRefusal(err error) error {
	if errors.Is(err, plugin.ErrQuery) || errors.Is(err, plugin.ErrTooLarge) {
		return nil
	}
	return err
}

func oddQueries(ctx context.Context, k *kit) error {
	nan := float32(math.NaN())
	for name, q := range map[string]plugin.Query{
		"empty":           {},
		"without text":    {Vector: k.query.Vector},
		"without vector":  {Text: k.query.Text},
		"NaN":             {Text: k.query.Text, Vector: []float32{nan, nan}},
		"a short vector":  {Text: k.query.Text, Vector: []float32{1}},
		"a long vector":   {Text: k.query.Text, Vector: make([]float32, 1<<14)},
		"a strange text":  {Text: "\x00\u202e\uffff \"'{}[]%s`; --", Vector: k.query.Vector},
		"no word":         {Text: " \t\n", Vector: k.query.Vector},
		"many vectors":    {Text: k.query.Text, Vector: k.query.Vector, Vectors: rerank.Matrix{Rows: 3, Cols: 1, Data: []float32{1, 0, -1}}},
		"a user":          {Text: k.query.Text, Vector: k.query.Vector, UserID: math.MinInt64, HasUserID: true},
		"unknown context": {Text: k.query.Text, Vector: k.query.Vector, Context: map[string]float32{"": 1, "unknown": -1}},
	} {
		scores, err := k.scorer.Score(ctx, q, k.items)
		if err == nil {
			err = valid(scores, len(k.items))
		}
		if err := ignoreRefusal(err); err != nil {
			return fmt.Errorf("query %s: %w", name, err)
		}
	}
	return nil
}

func cancelled(ctx context.Context, k *kit) error {
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := k.scorer.Score(gone, k.query, k.items); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("a call that was cancelled before it began returned the error %w", orNone(err))
	}
	var group errgroup.Group
	going, cancel := context.WithCancel(ctx)
	for range 4 {
		group.Go(func() error {
			if _, err := k.scorer.Score(going, k.query, k.items); err != nil && !errors.Is(err, context.Canceled) {
				return fmt.Errorf("a call that was cancelled on its way returned another error: %w", err)
			}
			return nil
		})
	}
	cancel()
	return group.Wait()
}

// orNone returns err, or an error with the text "nil" if err is nil.
func orNone(err error) error {
	if err == nil {
		return errors.New("nil")
	}
	return err
}

func concurrent(ctx context.Context, k *kit) error {
	want, err := k.score(ctx, k.items)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	calls := min(max(k.description.Parallel, 1), 32)
	for range calls {
		group.Go(func() error {
			for range 4 {
				got, err := k.score(ctx, k.items)
				if err != nil {
					return fmt.Errorf("%d calls at the same time: %w", calls, err)
				}
				if err := k.same(got, want); err != nil {
					return fmt.Errorf("%d calls at the same time: %w", calls, err)
				}
			}
			return nil
		})
	}
	return group.Wait()
}

func version(ctx context.Context, k *kit) error {
	s, ok := k.scorer.(interface {
		ScoreVersion(ctx context.Context, q plugin.Query, items []plugin.Item) ([]float32, string, error)
	})
	if !ok {
		return skip("the scorer is not asked through a connection")
	}
	_, version, err := s.ScoreVersion(ctx, k.query, k.items)
	if err == nil && version != k.description.Version {
		return fmt.Errorf("the answer has the version %q, the description %q", version, k.description.Version)
	}
	return err
}
