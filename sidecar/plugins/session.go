package plugins

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/internal/traceparent"
	"github.com/likenessdb/likeness/internal/wirecount"
	"github.com/likenessdb/likeness/plugin"
)

// session is one run of a plugin, or one connection to an address.
type session struct {
	conn    *grpc.ClientConn
	version string
	pid     int // 0 for a plugin that is reached by its address
	answers atomic.Int64
	// gone is closed when the process has ended. It is nil if there is no process.
	gone  <-chan struct{}
	cause func() error // how the process ended; only after gone
	// end stops the session and removes everything that belongs to it. An error says what
	// could not be removed.
	end func() error
}

// explain returns the error of a call. If the process has ended, it returns the reason for
// that instead. It waits a little, because the connection fails slightly before the end of
// the process is known.
func (s *session) explain(err error) error {
	if s.gone != nil && (status.Code(err) == codes.Unavailable || errors.Is(err, plugin.ErrUnavailable)) {
		select {
		case <-s.gone:
			return s.cause()
		case <-time.After(2 * drain):
		}
	}
	if callStatus, ok := status.FromError(err); ok {
		return fmt.Errorf("%s: %s", callStatus.Code(), callStatus.Message())
	}
	return err
}

// answerLimits limits the content of a plugin's answer. Scores and rows are packed, so they
// count little.
var answerLimits = wirecount.Limits{Messages: 1 << 14, Fields: 1 << 17, Depth: 32}

// dialOptions returns the options of every connection to a plugin. A fixed window avoids
// the pings with which gRPC would measure one.
func (o Options) dialOptions() []grpc.DialOption {
	const window = 1 << 20
	return append(traceparent.DialOptions(),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wirecount.NewCodec(answerLimits)), grpc.MaxCallRecvMsgSize(o.MaxMessageBytes), grpc.MaxCallSendMsgSize(o.MaxMessageBytes)),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithIdleTimeout(0), grpc.WithDisableServiceConfig(), grpc.WithNoProxy(), grpc.WithUserAgent("likeness"))
}
