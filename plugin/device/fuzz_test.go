package device_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"context"

	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/plugin/device/cpu"
	pluginv1 "github.com/likenessdb/likeness/proto/gen/likeness/plugin/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
)

// registered catches the service that Register makes.
type registered struct {
	service pluginv1.SimilarityScorerServiceServer
}

func (r *registered) RegisterService(_ *grpc.ServiceDesc, s any) {
	r.service, _ = s.(pluginv1.SimilarityScorerServiceServer)
}

// upload is a stream of messages, each cut from the bytes that are left.
type upload[Q any] struct {
	grpc.ServerStream
	left []byte
}

func (u *upload[Q]) Context() context.Context    { return context.Background() }
func (u *upload[Q]) SetHeader(metadata.MD) error { return nil }

func (u *upload[Q]) next(m proto.Message) error {
	if len(u.left) == 0 {
		return io.EOF
	}
	n := min(1+int(u.left[0]), len(u.left))
	part := u.left[1:n]
	u.left = u.left[n:]
	return proto.Unmarshal(part, m)
}

type tables struct {
	upload[pluginv1.LoadTableRequest]
}

func (t *tables) Recv() (*pluginv1.LoadTableRequest, error) {
	m := &pluginv1.LoadTableRequest{}
	return m, t.next(m)
}
func (t *tables) SendAndClose(*pluginv1.LoadTableResponse) error { return nil }

type patches struct {
	upload[pluginv1.PatchTableRequest]
}

func (t *patches) Recv() (*pluginv1.PatchTableRequest, error) {
	m := &pluginv1.PatchTableRequest{}
	return m, t.next(m)
}
func (t *patches) SendAndClose(*pluginv1.PatchTableResponse) error { return nil }

type models struct {
	upload[pluginv1.LoadModelRequest]
}

func (t *models) Recv() (*pluginv1.LoadModelRequest, error) {
	m := &pluginv1.LoadModelRequest{}
	return m, t.next(m)
}
func (t *models) SendAndClose(*pluginv1.LoadModelResponse) error { return nil }

// FuzzRequests: no bytes that a caller sends end the process, take memory for what did
// not come, or change a table but as a whole.
func FuzzRequests(f *testing.F) {
	at := &pluginv1.Loaded{Name: "m", Version: dotVersion(f)}
	table := &pluginv1.Loaded{Name: "t", Version: "1"}
	seed := func(kind byte, messages ...proto.Message) {
		var b []byte
		for _, m := range messages {
			raw, err := proto.Marshal(m)
			if err != nil || len(raw) > 254 {
				f.Fatal(len(raw), err)
			}
			b = append(append(b, byte(len(raw))), raw...)
		}
		f.Add(kind, b)
	}
	seed(0, &pluginv1.LoadTableRequest{Head: &pluginv1.TableHead{Table: &pluginv1.Loaded{Name: "t", Version: "2"}, Model: at, Rows: 2, Cols: 3}, Rows: make([]byte, 24)})
	seed(0, &pluginv1.LoadTableRequest{Head: &pluginv1.TableHead{Table: table, Model: at, Rows: 1 << 31, Cols: 1 << 20}})
	seed(1, &pluginv1.PatchTableRequest{Head: &pluginv1.PatchHead{From: table, Version: "2"}, Numbers: []byte{4, 0, 0, 0}, Rows: make([]byte, 12), Removed: []byte{0, 0, 0, 0}})
	seed(2, &pluginv1.LoadModelRequest{Head: &pluginv1.ModelHead{Model: at, Bytes: 1 << 40}, Chunk: []byte{1}})
	seed(3, &pluginv1.RescoreRequest{Model: at, Table: table, K: 2, Rows: []byte{1, 0, 0, 0}})
	seed(4, &pluginv1.ScanRequest{Model: at, Table: table, K: 2, Bitmap: []byte{9}})
	f.Fuzz(func(t *testing.T, kind byte, b []byte) {
		d := loaded(t, at, table)
		r := &registered{}
		device.Register(r, d, device.Limits{ModelBytes: 1 << 16, TableBytes: 1 << 20, PatchBytes: 1 << 16})
		in := func() []byte { return bytes.Clone(b) }
		switch kind % 5 {
		case 0:
			_ = r.service.LoadTable(&tables{upload[pluginv1.LoadTableRequest]{left: in()}})
		case 1:
			_ = r.service.PatchTable(&patches{upload[pluginv1.PatchTableRequest]{left: in()}})
		case 2:
			_ = r.service.LoadModel(&models{upload[pluginv1.LoadModelRequest]{left: in()}})
		case 3:
			m := &pluginv1.RescoreRequest{}
			if proto.Unmarshal(tail(b), m) == nil {
				_, _ = r.service.Rescore(t.Context(), m)
			}
		default:
			m := &pluginv1.ScanRequest{}
			if proto.Unmarshal(tail(b), m) == nil {
				_, _ = r.service.Scan(t.Context(), m)
			}
		}
		said, err := d.Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range said.Tables {
			a := device.Ask{Model: device.Version{Name: "m", Version: at.GetVersion()}, Table: v, Query: rerank.Query{Vector: []float32{1, 2, 3}}, K: 3}
			best, err := d.Scan(t.Context(), a, nil)
			if err == nil {
				err = best.Check(3)
			}
			if err != nil && !errors.Is(err, device.ErrRequest) {
				t.Fatal(err)
			}
		}
	})
}

func tail(b []byte) []byte { return b[min(1, len(b)):] }

func dotModel(t testing.TB) (*model.Model, []byte) {
	m, err := model.New(model.Parameters{Kind: rerank.KindDot, Name: "m", Config: []byte(`{"dim": 3}`)})
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := model.Encode(&file, m); err != nil {
		t.Fatal(err)
	}
	return m, file.Bytes()
}

func dotVersion(t testing.TB) string {
	m, _ := dotModel(t)
	return m.Version
}

// loaded is a device with a model and a table of four rows.
func loaded(t *testing.T, at, table *pluginv1.Loaded) *cpu.Device {
	d := cpu.New(cpu.Options{Memory: 1 << 20})
	_, file := dotModel(t)
	v := device.Version{Name: at.GetName(), Version: at.GetVersion()}
	if err := d.LoadModel(t.Context(), v, file); err != nil {
		t.Fatal(err)
	}
	head := device.TableHead{Table: device.Version{Name: table.GetName(), Version: table.GetVersion()}, Model: v, Rows: 4, Cols: 3}
	rows := func(yield func([]float32, error) bool) { yield([]float32{1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1}, nil) }
	if err := d.LoadTable(t.Context(), head, rows); err != nil {
		t.Fatal(err)
	}
	return d
}
