package relay_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/sidecar/proxy/relay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs a relay until the test ends.
func serve(t testing.TB, o relay.Options) (s *relay.Server, address string) {
	t.Helper()
	l := listen(t)
	s = relay.NewServer(o)
	run(t, s, l)
	return s, l.Addr().String()
}

// run serves until the test ends.
func run(t testing.TB, s *relay.Server, l net.Listener) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		s.Drain(ctx)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// database is a gRPC server of one method of each sort.
type database struct {
	grpc_health_v1.UnimplementedHealthServer
	entered, ended chan struct{} // a Watch
}

// Check answers with what came, or fails as the service's name says.
func (d *database) Check(ctx context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	_ = grpc.SetTrailer(ctx, metadata.Pairs("size-bin", string(rune(len(r.GetService()))), "key", md.Get("api-key")[0]))
	if r.GetService() == "none" {
		return nil, status.Error(codes.NotFound, "none: ü")
	}
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

// Watch sends once, and again when the client's patience has ended or ended is closed.
func (d *database) Watch(_ *grpc_health_v1.HealthCheckRequest, s grpc_health_v1.Health_WatchServer) error {
	if err := s.Send(&grpc_health_v1.HealthCheckResponse{}); err != nil {
		return err
	}
	d.entered <- struct{}{}
	select {
	case <-s.Context().Done():
		d.entered <- struct{}{}
		return nil
	case <-d.ended:
		return s.Send(&grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING})
	}
}

func startDatabase(t testing.TB, options ...grpc.ServerOption) (*database, string) {
	t.Helper()
	d := &database{entered: make(chan struct{}), ended: make(chan struct{})}
	server := grpc.NewServer(append(options, grpc.MaxRecvMsgSize(1<<30))...)
	grpc_health_v1.RegisterHealthServer(server, d)
	l := listen(t)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	return d, l.Addr().String()
}

func connect(t testing.TB, address string, c credentials.TransportCredentials) grpc_health_v1.HealthClient {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return grpc_health_v1.NewHealthClient(conn)
}

// check makes a call of a size and looks at all of its answer.
func check(t *testing.T, client grpc_health_v1.HealthClient, service string, want codes.Code) {
	t.Helper()
	var trailer metadata.MD
	ctx := metadata.AppendToOutgoingContext(t.Context(), "api-key", "k")
	_, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service}, grpc.Trailer(&trailer))
	if status.Code(err) != want || want == codes.NotFound && status.Convert(err).Message() != "none: ü" {
		t.Errorf("%d bytes: %v, want %s", len(service), err, want)
	}
	if got := trailer.Get("key"); len(got) != 1 || got[0] != "k" {
		t.Errorf("%d bytes: trailer %v", len(service), trailer)
	}
}

func TestCallsCross(t *testing.T) {
	web := httptest.NewTLSServer(nil) // for its certificate, of 127.0.0.1
	defer web.Close()
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	server := &tls.Config{Certificates: web.TLS.Certificates, NextProtos: []string{"h2"}}
	for name, test := range map[string]struct {
		database []grpc.ServerOption
		options  relay.Options
		client   credentials.TransportCredentials
	}{
		"plain":                {client: insecure.NewCredentials()},
		"towards the client":   {options: relay.Options{ServerTLS: server}, client: credentials.NewClientTLSFromCert(roots, "")},
		"towards the database": {[]grpc.ServerOption{grpc.Creds(credentials.NewTLS(server))}, relay.Options{UpstreamTLS: &tls.Config{RootCAs: roots}}, insecure.NewCredentials()},
	} {
		t.Run(name, func(t *testing.T) {
			_, upstream := startDatabase(t, test.database...)
			test.options.Upstream = upstream
			_, address := serve(t, test.options)
			client := connect(t, address, test.client)
			for _, size := range []int{0, 1, 100, 20 << 10, 5 << 20} {
				check(t, client, string(bytes.Repeat([]byte("x"), size)), codes.OK)
			}
			check(t, client, "none", codes.NotFound)
		})
	}
}

func TestCancellationReachesTheDatabase(t *testing.T) {
	d, upstream := startDatabase(t)
	_, address := serve(t, relay.Options{Upstream: upstream})
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := connect(t, address, insecure.NewCredentials()).Watch(ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	<-d.entered
	cancel()
	<-d.entered
}

// A client that is told to go elsewhere has its calls in flight answered, and makes
// new ones at another relay.
func TestDrain(t *testing.T) {
	d, upstream := startDatabase(t)
	first, address := serve(t, relay.Options{Upstream: upstream})
	client := connect(t, address, insecure.NewCredentials())
	stream, err := client.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	<-d.entered
	idle := connect(t, address, insecure.NewCredentials())
	check(t, idle, "", codes.OK)
	drained := make(chan bool)
	go func() { drained <- first.Drain(context.Background()) }()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, err := idle.Check(metadata.AppendToOutgoingContext(ctx, "api-key", "k"), &grpc_health_v1.HealthCheckRequest{})
		cancel()
		if err != nil {
			if status.Code(err) != codes.Unavailable {
				t.Error(err)
			}
			break
		}
	}
	close(d.ended)
	for want := range 2 { // of the enumeration
		if m, err := stream.Recv(); err != nil || int(m.GetStatus()) != want {
			t.Errorf("%v, %v; want %d", m, err, want)
		}
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if <-drained {
		t.Error("drain had to cut")
	}
}

func TestDrainCuts(t *testing.T) {
	d, upstream := startDatabase(t)
	s, address := serve(t, relay.Options{Upstream: upstream})
	stream, err := connect(t, address, insecure.NewCredentials()).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	<-d.entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if !s.Drain(ctx) {
		t.Error("nothing was cut")
	}
	<-d.entered // the database sees the end, too
	for err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
}

func TestDatabaseThatIsDown(t *testing.T) {
	nobody := listen(t)
	_ = nobody.Close()
	_, address := serve(t, relay.Options{Upstream: nobody.Addr().String()})
	_, err := connect(t, address, insecure.NewCredentials()).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
}

// Each side hears of the other's end.
func TestEndsCross(t *testing.T) {
	database := listen(t)
	_, address := serve(t, relay.Options{Upstream: database.Addr().String()})
	for _, databaseFirst := range []bool{true, false} {
		client, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		upstream, err := database.Accept()
		if err != nil {
			t.Fatal(err)
		}
		ends, other := client, upstream
		if databaseFirst {
			ends, other = upstream, client
		}
		if _, err := ends.Write([]byte("last words")); err != nil {
			t.Fatal(err)
		}
		_ = ends.Close()
		if b, err := io.ReadAll(other); err != nil || string(b) != "last words" {
			t.Errorf("%q, %v", b, err)
		}
		_ = other.Close()
	}
}

// What a database sends arrives as it is, but for one frame that says to go elsewhere,
// which stands between two frames and inside no block of headers.
func FuzzGoAway(f *testing.F) {
	f.Add(uint64(1), uint8(20), uint16(100))
	f.Add(uint64(2), uint8(0), uint16(0))
	f.Add(uint64(3), uint8(200), uint16(9))
	f.Fuzz(func(t *testing.T, seed uint64, count uint8, split uint16) {
		random := rand.New(rand.NewPCG(seed, 0))
		sent := frames(t, random, int(count))
		database := listen(t)
		s, address := serve(t, relay.Options{Upstream: database.Addr().String()})
		client, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		upstream, err := database.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer upstream.Close()
		leave := random.IntN(len(sent) + 1)
		drained := make(chan struct{})
		go func() {
			defer upstream.Close()
			for at := 0; at < len(sent); {
				n := min(1+random.IntN(int(split)+1), len(sent)-at)
				if at <= leave && leave < at+n {
					go func() { defer close(drained); s.Drain(context.Background()) }()
				}
				_, _ = upstream.Write(sent[at : at+n])
				at += n
			}
			if leave == len(sent) {
				go func() { defer close(drained); s.Drain(context.Background()) }()
			}
		}()
		got, err := io.ReadAll(client)
		if err != nil {
			t.Fatal(err)
		}
		_ = client.Close()
		<-drained
		if told := without(t, got); !bytes.Equal(told, sent) {
			t.Errorf("%d bytes were sent and %d arrived", len(sent), len(told))
		}
	})
}

// frames are those of a server: its settings, and count others.
func frames(t *testing.T, random *rand.Rand, count int) []byte {
	var b bytes.Buffer
	f := http2.NewFramer(&b, nil)
	err := f.WriteSettings()
	for range count {
		stream := 1 + 2*random.Uint32N(100)
		switch random.IntN(3) {
		case 0:
			err = errors.Join(err, f.WriteData(stream, false, make([]byte, random.IntN(3000))))
		case 1:
			err = errors.Join(err, f.WriteWindowUpdate(stream, 1+random.Uint32N(1000)))
		case 2:
			parts := random.IntN(3)
			err = errors.Join(err, f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: make([]byte, random.IntN(50)), EndHeaders: parts == 0}))
			for i := range parts {
				err = errors.Join(err, f.WriteContinuation(stream, i == parts-1, make([]byte, random.IntN(50))))
			}
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// without takes out the frame that says to go elsewhere. Framer refuses one that stands
// in a block of headers.
func without(t *testing.T, b []byte) []byte {
	var out bytes.Buffer
	in := bytes.NewReader(b)
	f := http2.NewFramer(io.Discard, in)
	for told := false; ; {
		at := len(b) - in.Len()
		frame, err := f.ReadFrame()
		if errors.Is(err, io.EOF) {
			return out.Bytes()
		}
		if err != nil {
			t.Fatalf("at byte %d: %v", at, err)
		}
		if _, ok := frame.(*http2.GoAwayFrame); ok && !told {
			told = true
			continue
		}
		out.Write(b[at : len(b)-in.Len()])
	}
}
