package harness_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	_ "github.com/qdrant/go-client/qdrant" // its messages are in the registry
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/likenessdb/likeness/e2e/harness"
)

// restRequest and grpcRequest are requests that one client made, for another one
// to make with its own methods.
type restRequest struct {
	Step   string          `json:"step"`
	Method string          `json:"method"`
	Path   string          `json:"path"`
	Query  map[string]any  `json:"query,omitempty"`
	Body   json.RawMessage `json:"body,omitempty"`
}

type grpcRequest struct {
	Step    string          `json:"step"`
	Service string          `json:"service"`
	Method  string          `json:"method"`
	Request json.RawMessage `json:"request"`
}

// maxReplayed is the largest body that is made again.
const maxReplayed = 200 << 10

// random matches requests for a random choice.
var random = regexp.MustCompile(`"sample":\s*("?[0-9]\b|"random"|"RANDOM"|"Random")`)

// restRequests are the requests with a JSON body, or none, among exchanges.
func restRequests(all []harness.Exchange) (out []restRequest) {
	for _, e := range all {
		method, target, _ := strings.Cut(e.Call, " ")
		u, err := url.ParseRequestURI(target)
		if method == "" || err != nil || len(e.Body) > maxReplayed || len(e.Body) > 0 && !json.Valid(e.Body) || random.Match(e.Body) {
			continue
		}
		r := restRequest{Step: fmt.Sprintf("%04d %s", len(out), e.Call), Method: method, Path: u.EscapedPath(), Body: e.Body, Query: map[string]any{}}
		for key, values := range u.Query() {
			r.Query[key] = values[0]
			if n, err := strconv.Atoi(values[0]); err == nil {
				r.Query[key] = n
			} else if b, err := strconv.ParseBool(values[0]); err == nil {
				r.Query[key] = b
			}
		}
		out = append(out, r)
	}
	return out
}

// grpcRequests are the requests of known methods among exchanges.
func grpcRequests(all []harness.Exchange) (out []grpcRequest) {
	for _, e := range all {
		service, method, _ := strings.Cut(strings.TrimPrefix(e.Call, "/"), "/")
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service + "." + method))
		if err != nil || len(e.Body) > maxReplayed {
			continue
		}
		input, err := protoregistry.GlobalTypes.FindMessageByName(d.(protoreflect.MethodDescriptor).Input().FullName())
		if err != nil {
			continue
		}
		m := input.New().Interface()
		if proto.Unmarshal(e.Body, m) != nil {
			continue
		}
		b, err := protojson.Marshal(m)
		if err != nil || random.Match(b) {
			continue
		}
		_, name, _ := strings.Cut(service, ".")
		out = append(out, grpcRequest{fmt.Sprintf("%04d %s/%s", len(out), name, method), name, method, b})
	}
	return out
}

// requestFile writes requests, a line each.
func requestFile[T any](t *testing.T, requests []T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "requests.jsonl")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, r := range requests {
		line, err := json.Marshal(r)
		if err == nil {
			_, err = f.Write(append(line, '\n'))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return name
}
