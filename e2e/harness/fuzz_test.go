package harness_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	qdrantapi "github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/e2e/harness"
)

// envCrossings sets the number of random messages; `make soak` uses 100,000.
const envCrossings = "LIKENESS_CROSSINGS"

// perRound is the number of messages that one pair of taps records.
const perRound = 2500

// TestRandomMessagesCross sends valid and invalid gRPC messages and HTTP requests through the proxy
// to a real server: requests and answers are the same on both sides of the proxy.
func TestRandomMessagesCross(t *testing.T) {
	total := 2 * perRound
	if s := os.Getenv(envCrossings); s != "" {
		var err error
		if total, err = strconv.Atoi(s); err != nil {
			t.Fatalf("%s: %v", envCrossings, err)
		}
	}
	versions := []string{servers.QdrantNewest, servers.QdrantOldest}
	compared := 0
	for round := 0; round*perRound < total; round++ {
		through := tapped(t, qdrant(versions[round%2]).start(t))
		rng := rand.New(rand.NewPCG(uint64(round), 7))
		prepare(t, through.at)
		randomCalls(t, rng, through.at.GRPC, "qdrant.Points", perRound/2)
		randomHTTP(t, rng, strings.TrimPrefix(through.at.REST, "http://"), perRound/2)
		client, database := through.exchanges(t)
		report(t, fmt.Sprintf("round %d", round), harness.CompareExchanges(client, database))
		for _, e := range client {
			if !e.Cut {
				compared++
			}
		}
	}
	t.Logf("%d random messages crossed, both ways the same", compared)
	if compared < total*95/100 {
		t.Errorf("only %d of %d calls ran to their end", compared, total)
	}
}

// prepare creates the collection "c" with four points.
func prepare(t *testing.T, at harness.Address) {
	t.Helper()
	c, err := connectGo(at, qdrantKey)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	err = c.CreateCollection(t.Context(), &qdrantapi.CreateCollection{CollectionName: "c", VectorsConfig: qdrantapi.NewVectorsConfig(&qdrantapi.VectorParams{Size: 2, Distance: qdrantapi.Distance_Dot})})
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(4) {
		if _, err := c.Upsert(t.Context(), &qdrantapi.UpsertPoints{CollectionName: "c", Points: []*qdrantapi.PointStruct{{Id: qdrantapi.NewIDNum(i), Vectors: qdrantapi.NewVectors(float32(i), 1)}}}); err != nil {
			t.Fatal(err)
		}
	}
}

// randomCalls makes n calls of a service's methods and of unknown methods.
func randomCalls(t *testing.T, rng *rand.Rand, address string, service protoreflect.FullName, n int) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(service)
	if err != nil {
		t.Fatal(err)
	}
	methods := d.(protoreflect.ServiceDescriptor).Methods()
	for range n {
		m := methods.Get(rng.IntN(methods.Len()))
		name := fmt.Sprintf("/%s/%s", service, m.Name())
		if rng.IntN(20) == 0 {
			name += "OfTomorrow"
		}
		request, answer := randomMessage(rng, m.Input()), []byte(nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		ctx = metadata.AppendToOutgoingContext(ctx, "api-key", qdrantKey, "x-random", strconv.Itoa(rng.IntN(9)), "x-bytes-bin", string(randomBytes(rng, 8)))
		_ = conn.Invoke(ctx, name, &request, &answer) // most are refused; the taps record how
		cancel()
	}
}

// randomMessage returns a message of a type: valid, with bytes changed, cut or added, or random
// bytes.
func randomMessage(rng *rand.Rand, d protoreflect.MessageDescriptor) []byte {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		return nil
	}
	m := kind.New()
	fill(rng, m, 0)
	b, err := proto.Marshal(m.Interface())
	if err != nil {
		return nil
	}
	switch rng.IntN(8) {
	case 0:
		return randomBytes(rng, 64)
	case 1:
		return b[:rng.IntN(len(b)+1)]
	case 2:
		return protowire.AppendVarint(protowire.AppendTag(b, protowire.Number(900+rng.IntN(99)), protowire.VarintType), rng.Uint64())
	case 3:
		for range 1 + rng.IntN(3) {
			if len(b) > 0 {
				b[rng.IntN(len(b))] = byte(rng.Uint32())
			}
		}
	}
	return b
}

func randomBytes(rng *rand.Rand, most int) []byte {
	b := make([]byte, rng.IntN(most+1))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// fill sets some fields. Numbers are small, because a limit of 2^60 would test the server's memory.
func fill(rng *rand.Rand, m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.Name() == "collection_name" && !f.IsList() {
			m.Set(f, protoreflect.ValueOfString([]string{"c", "c", "c", "nobody", "", "größe"}[rng.IntN(6)]))
			continue
		}
		if depth > 5 || rng.IntN(3) > 0 {
			continue
		}
		switch {
		case f.IsMap():
		case f.IsList():
			list := m.Mutable(f).List()
			for range rng.IntN(4) {
				list.Append(randomValue(rng, f, list.NewElement, depth))
			}
		default:
			m.Set(f, randomValue(rng, f, func() protoreflect.Value { return m.NewField(f) }, depth))
		}
	}
}

func randomValue(rng *rand.Rand, f protoreflect.FieldDescriptor, fresh func() protoreflect.Value, depth int) protoreflect.Value {
	small := rng.IntN(12)
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		v := fresh()
		fill(rng, v.Message(), depth+1)
		return v
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(small%2 == 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(small % 6))
	case protoreflect.StringKind:
		return protoreflect.ValueOfString([]string{"", "a", "a.b[]", "漢字", "5c56c793-69f3-4fbf-87e6-c4bf54c28c26", "x"}[small%6])
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(randomBytes(rng, 8))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32([]float32{0, 1, -2.5, float32(math.Inf(1)), float32(math.NaN()), 1e30}[small%6])
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64([]float64{0, 1, -2.5, math.Inf(-1), math.NaN(), 1e300}[small%6])
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(small) - 2)
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(int64(small) - 2)
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(small))
	default:
		return protoreflect.ValueOfUint64(uint64(small))
	}
}

// bodies are the pieces of random bodies.
var bodies = []string{
	`{"vector":[1.0,-2e0],"limit":3,"with_payload":true,"filter":{"must":[{"key":"a","match":{"value":1}}]}}`,
	`{"query":{"nearest":[0.5,1]},"limit":2,"offset":1,"params":{"exact":true},"with_vector":true}`,
	`{"points":[{"id":18446744073709551615,"vector":[1,2],"payload":{"n":9223372036854775807,"t":"<&>\u0000ü","":[null,true]}}]}`,
	`{"searches":[{"vector":[1,2],"limit":1},{"vector":[3,4],"limit":2}]}`,
	`{"positive":[1],"negative":[2],"limit":2}`, `{"ids":[1,"5c56c793-69f3-4fbf-87e6-c4bf54c28c26"]}`, `{"payload":{"a":1.50},"points":[1]}`, `{}`, ``,
}

// randomHTTP sends n requests as plain bytes, each on its own connection.
func randomHTTP(t *testing.T, rng *rand.Rand, address string, n int) {
	t.Helper()
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	for range n {
		body := []byte(pick(bodies...))
		switch rng.IntN(6) {
		case 0:
			body = randomBytes(rng, 64)
		case 1:
			body = body[:rng.IntN(len(body)+1)]
		case 2:
			if len(body) > 0 {
				body[rng.IntN(len(body))] = byte(' ' + rng.IntN(95))
			}
		}
		path := "/collections/" + pick("c", "c", "c", "nobody", "", "a%2Fb", "%C3%A9", "c;x", "c/") + "/points" +
			pick("/search", "/search", "/query", "/query/batch", "/search/batch", "/scroll", "/count", "/recommend", "", "/payload", "/delete", "/tomorrow", "//", "/1", "/18446744073709551616") +
			pick("", "", "?wait=true", "?timeout=x", "?consistency=all&a=%zz&;", "?", "?timeout=3&timeout=4")
		method := pick("POST", "POST", "POST", "POST", "PUT", "GET", "DELETE", "PATCH", "OPTIONS", "PURGE")
		kind := pick("application/json", "application/json", "text/plain", "application/octet-stream")
		request := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: h\r\nApi-Key: %s\r\nContent-Type: %s\r\nConnection: close\r\nX-Random: %x\r\nContent-Length: %d\r\n\r\n%s",
			method, path, pick(qdrantKey, qdrantKey, qdrantKey, "wrong"), kind, randomBytes(rng, 4), len(body), body)
		if err := sendBare(address, request); err != nil {
			t.Fatal(err)
		}
	}
}

// sendBare writes a request and reads until the server closes the connection.
func sendBare(address, request string) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, conn) // a broken connection counts as a cut call
	return nil
}
