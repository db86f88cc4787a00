package client

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// TestAnswersAreWhatTheSidecarSaid: each field of an answer has the value of its own field of the message.
func TestAnswersAreWhatTheSidecarSaid(t *testing.T) {
	made := time.Unix(8, 0).UTC()
	seconds := func(n int64) *durationpb.Duration { return &durationpb.Duration{Seconds: n} }
	items := int64(31)
	calibration := &likenessv1.Calibration{Recall: 1, Share: 2, Alpha: 3, Queries: 4, K: 5, Depth: 6, AverageDepth: 7, Made: timestamppb.New(made), Excluding: true}
	promise := &Calibration{Recall: 1, Share: 2, Alpha: 3, Queries: 4, K: 5, Depth: 6, AverageDepth: 7, Made: made, Excluding: true}
	certificate := &likenessv1.Certificate{
		Status: likenessv1.CertificateStatus_CERTIFICATE_STATUS_SNAPSHOT, Proof: likenessv1.Proof_PROOF_BOUND_CLOSED, Stop: likenessv1.Stop_STOP_NO_BOUND,
		Gap: proto.Float32(1), Bound: proto.Float32(2), KthScore: proto.Float32(3), Epsilon: 4, Depth: 5, Rounds: 6, Candidates: 7, Uncalibrated: "why",
		Tied: true, Calibration: calibration, AsOf: timestamppb.New(made), Measured: &likenessv1.MeasuredError{Pairs: 9, Error: 10},
	}
	proved := Certificate{
		Status: "snapshot", Proof: "bound_closed", Stop: "no_bound", Gap: proto.Float32(1), Bound: proto.Float32(2), KthScore: proto.Float32(3), Epsilon: 4,
		Depth: 5, Rounds: 6, Candidates: 7, Uncalibrated: "why", Tied: true, Calibration: promise, AsOf: made, Measured: &MeasuredError{Pairs: 9, Error: 10},
	}
	number := func(n uint64) *likenessv1.ItemId { return Number(n).proto() }
	for _, c := range []struct{ name, got, want any }{
		{"an answer", fromSearch(&likenessv1.SearchResponse{
			Hits: []*likenessv1.Hit{
				{Id: number(3), Score: 2, PayloadJson: `{"n":1}`, Ranked: true, Explanation: &likenessv1.Explanation{Terms: []*likenessv1.Term{{QueryComponent: 1, ItemComponent: 2, Dot: 3, Logit: 4, Gate: 5}}}},
				{Id: Int(-4).proto(), Score: 1},
			},
			Certificate: certificate, Degraded: &likenessv1.Degraded{Reason: "r", Detail: "d"}, Model: &likenessv1.ModelRef{Name: "m", Version: "v"},
			Strategy: likenessv1.Strategy_STRATEGY_PER_EMBEDDING, Timings: &likenessv1.Timings{Embed: seconds(1), Encode: seconds(2), Retrieve: seconds(3), Score: seconds(4), Certify: seconds(5), Rank: seconds(6), Total: seconds(7)},
			NotFinite: 11, NotIndexed: 12, Plan: "plan", AnswerId: "answer", Reembedded: proto.Float32(0.5),
			Ranking: &likenessv1.Ranking{Ranker: "r", Version: "1", Calls: 1, Budget: 2, Rounds: 3, Cut: 4, Reason: "deadline"},
		}, "id"), &Answer{
			Hits:        []Hit{{ID: Number(3), Score: 2, Payload: json.RawMessage(`{"n":1}`), Ranked: true, Terms: []Term{{QueryComponent: 1, ItemComponent: 2, Dot: 3, Logit: 4, Gate: 5}}}, {ID: Int(-4), Score: 1}},
			Certificate: proved, Degraded: &Degraded{Reason: "r", Detail: "d"}, Model: "m", ModelVersion: "v", Strategy: PerEmbedding,
			Timings:   Timings{Embed: time.Second, Encode: 2 * time.Second, Retrieve: 3 * time.Second, Score: 4 * time.Second, Certify: 5 * time.Second, Rank: 6 * time.Second, Total: 7 * time.Second},
			NotFinite: 11, NotIndexed: 12, Plan: "plan", AnswerID: "answer", Reembedded: proto.Float32(0.5), RequestID: "id",
			Ranking: &Ranking{Ranker: "r", Version: "1", Calls: 1, Budget: 2, Rounds: 3, Cut: 4, Reason: "deadline"},
		}},
		{"an empty answer", fromSearch(&likenessv1.SearchResponse{}, ""), &Answer{Hits: []Hit{}}},
		{"the other marks", fromCertificate(&likenessv1.Certificate{Ordered: true, RowsVerified: true}), Certificate{Ordered: true, RowsVerified: true}},
		{"a calibration without a day", fromCalibration(&likenessv1.Calibration{Recall: 1}), &Calibration{Recall: 1}},
		{"a route", fromRoute(&likenessv1.Route{
			Name: "n", Store: "s", Collection: "c", VectorField: "f", Model: &likenessv1.ModelRef{Name: "m", Version: "v"}, Placement: "derived", Companion: "o",
			Strategy: likenessv1.Strategy_STRATEGY_COMBINED, Depth: 1, AverageDepth: 2, Timeout: seconds(3), MaxK: 4, MaxDepth: 5, TableItems: &items,
			Calibration: calibration, Uncalibrated: "why", Ranker: "r", Calls: 6, WhyNotRewritten: "not",
		}), Route{
			Name: "n", Store: "s", Collection: "c", VectorField: "f", Model: "m", ModelVersion: "v", Placement: "derived", Companion: "o", Strategy: Combined,
			Depth: 1, AverageDepth: 2, Timeout: 3 * time.Second, MaxK: 4, MaxDepth: 5, TableItems: &items, Calibration: promise, Uncalibrated: "why", Ranker: "r", Calls: 6,
			WhyNotRewritten: "not",
		}},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s is %+v, want %+v", c.name, c.got, c.want)
		}
	}
}

// TestIDsThereAndBack: an id is the same after it was sent, and tells which kind it is.
func TestIDsThereAndBack(t *testing.T) {
	for _, c := range []struct {
		id               ID
		isNumber, isText bool
		isInt            bool
		number           uint64
		signed           int64
		text             string
	}{
		{id: Number(5), isNumber: true, isInt: true, number: 5, signed: 5},
		{id: Number(math.MaxUint64), isNumber: true, number: math.MaxUint64, signed: -1},
		{id: Int(-5), isInt: true, number: math.MaxUint64 - 4, signed: -5},
		{id: Int(0), isNumber: true, isInt: true},
		{id: Text("5"), isText: true, text: "5"},
	} {
		if got := fromID(c.id.proto()); got != c.id {
			t.Errorf("%v comes back as %v", c.id, got)
		}
		number, isNumber := c.id.Number()
		signed, isInt := c.id.Int()
		text, isText := c.id.Text()
		if number != c.number || isNumber != c.isNumber || signed != c.signed || isInt != c.isInt || text != c.text || isText != c.isText {
			t.Errorf("%v: %d %t, %d %t, %q %t", c.id, number, isNumber, signed, isInt, text, isText)
		}
	}
}

// TestStrategiesAreKnown: each strategy is sent as the API's value of that name, and any other text as a value that the
// sidecar refuses.
func TestStrategiesAreKnown(t *testing.T) {
	for value, name := range likenessv1.Strategy_name {
		s := Strategy(word(likenessv1.Strategy(value), "STRATEGY_"))
		if got := s.proto(); got != likenessv1.Strategy(value) {
			t.Errorf("%s is %q, which is sent as %s", name, s, got)
		}
	}
	if got := Strategy("guess").proto(); got != unknownStrategy {
		t.Errorf("an unknown strategy is sent as %s", got)
	}
}

// TestErrorsAreOneLine: the text of an error has what it is, the sidecar's words, and the reason if there is one.
func TestErrorsAreOneLine(t *testing.T) {
	for want, e := range map[string]*Error{
		"likeness: not found: no such route (ROUTE_NOT_FOUND)": {Message: "no such route", Reason: "ROUTE_NOT_FOUND", is: []error{ErrNotFound}},
		"likeness: unavailable: refused":                       {Message: "refused", is: []error{ErrUnavailable}},
	} {
		if got := e.Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
