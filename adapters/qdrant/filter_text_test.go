package qdrant_test

import (
	"errors"
	"math"
	"testing"

	client "github.com/qdrant/go-client/qdrant"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/qdrant"
)

func TestFilterText(t *testing.T) {
	for want, f := range map[string]*client.Filter{
		"": nil,
		`{"must":[{"key":"a","match":{"value":"x"}}]}`:              {Must: []*client.Condition{client.NewMatch("a", "x")}},
		`{"must":[{"key":"a","match":{"value":9007199254740993}}]}`: {Must: []*client.Condition{client.NewMatchInt("a", 1<<53+1)}},
		`{"should":[{"key":"a","match":{"any":[1,2]}}]}`:            {Should: []*client.Condition{client.NewMatchInts("a", 1, 2)}},
		`{"must_not":[{"has_id":[18446744073709551615]}]}`:          {MustNot: []*client.Condition{client.NewHasID(client.NewIDNum(1<<64 - 1))}},
		`{"must":[{"key":"a","range":{"gte":0.1,"lt":1e+300}}]}`:    {Must: []*client.Condition{client.NewRange("a", &client.Range{Gte: client.PtrOf(0.1), Lt: client.PtrOf(1e300)})}},
		`{"must":[{"nested":{"filter":{"must":[{"is_null":{"key":"b"}}]},"key":"a"}}]}`: {Must: []*client.Condition{
			client.NewNestedFilter("a", &client.Filter{Must: []*client.Condition{client.NewIsNull("b")}}),
		}},
	} {
		got, err := qdrant.FilterText(f)
		if err != nil || got != want {
			t.Errorf("%v: %s, %v, want %s", f, got, err, want)
		}
	}
	// What JSON cannot say, or says otherwise, is refused: a write by such a filter may be of any row.
	for name, f := range map[string]*client.Filter{
		"an unknown condition":      {Must: []*client.Condition{{}}},
		"a UUID of capitals":        {Must: []*client.Condition{client.NewHasID(client.NewIDUUID("5C56C793-69F3-4FBF-87E6-C4BF54C28C26"))}},
		"two ranges":                {Must: []*client.Condition{{ConditionOneOf: &client.Condition_Field{Field: &client.FieldCondition{Key: "a", Range: &client.Range{Gt: client.PtrOf(1.0)}, DatetimeRange: &client.DatetimeRange{Gt: timestamppb.Now()}}}}}},
		"a bound that is no number": {Must: []*client.Condition{client.NewRange("a", &client.Range{Gt: client.PtrOf(math.NaN())})}},
		"an unknown match":          {Must: []*client.Condition{{ConditionOneOf: &client.Condition_Field{Field: &client.FieldCondition{Key: "a", Match: &client.Match{}}}}}},
	} {
		if text, err := qdrant.FilterText(f); !errors.Is(err, adapters.ErrFilter) {
			t.Errorf("%s: %s, %v", name, text, err)
		}
	}
}

// FuzzFilterText: whatever a client sends is written so that it means the same,
// or refused.
func FuzzFilterText(f *testing.F) {
	seed, err := proto.Marshal(&client.Filter{Must: []*client.Condition{client.NewMatch("a", "x"), client.NewHasVector("v")}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, b []byte) {
		var m client.Filter
		if proto.Unmarshal(b, &m) != nil {
			t.Skip("no filter")
		}
		if _, err := qdrant.FilterText(&m); err != nil && !errors.Is(err, adapters.ErrFilter) {
			t.Error(err)
		}
	})
}
