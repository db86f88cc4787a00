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

// session is one life of a plugin.
type session struct {
	conn    *grpc.ClientConn
	version string
	pid     int // 0: reached by its address
	answers atomic.Int64
	// gone is closed when the process is; nil, it never is.
	gone  <-chan struct{}
	cause func() error // how it went, after gone
	// end leaves nothing behind; an error says what stayed.
	end func() error
}

// explain is the error of a call, in the words of the process where that has ended:
// the connection says so a little earlier.
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

// answerLimits are what an answer of a plugin may have inside; scores and rows are packed.
var answerLimits = wirecount.Limits{Messages: 1 << 14, Fields: 1 << 17, Depth: 32}

// dialOptions are of every connection to a plugin. A fixed window spares the pings
// that would measure one.
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
