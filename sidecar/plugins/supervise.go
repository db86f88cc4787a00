package plugins

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	goplugin "github.com/hashicorp/go-plugin"
)

// run keeps the plugin running until ctx is done.
func (p *Plugin) run(ctx context.Context) {
	defer close(p.done)
	defer p.enter(Stopped, func(s *State) { s.PID, s.Resident = 0, 0 })
	log := p.options.Logger
	flaps := newFlaps(p.options)
	for ctx.Err() == nil {
		reason, err := p.runSession(ctx)
		if ctx.Err() != nil {
			return
		}
		wait, quarantined := flaps.end(time.Now())
		if quarantined {
			p.enter(Quarantined, nil)
			log.Error("plugin quarantined", "ends", p.options.QuarantineAfter, "for", wait.String(), "reason", reason, "error", err)
		} else {
			log.Warn("plugin ended", "reason", reason, "error", err, "again_in", wait.Round(time.Millisecond).String())
		}
		select {
		case <-time.After(wait):
			p.enter(Starting, func(s *State) { s.Restarts++ })
		case <-ctx.Done():
		}
	}
}

// runSession starts the plugin and monitors it until it ends or must be ended, or until ctx
// is done.
func (p *Plugin) runSession(ctx context.Context) (Reason, error) {
	began := time.Now()
	s, err := p.begin(ctx)
	if err != nil {
		reason := Failed
		if errors.Is(err, errChecksum) {
			reason = Checksum
		}
		if ctx.Err() == nil {
			p.recordEnd(reason, err)
		}
		return reason, err
	}
	p.live.Store(s)
	p.enter(Ready, func(state *State) { state.PID, state.Version = s.pid, s.version })
	p.options.Logger.Info("plugin ready", "pid", s.pid, "version", s.version, "took", time.Since(began).Round(time.Millisecond).String())
	reason, err := p.watch(ctx, s)
	p.live.Store(nil) // before end, which takes a moment, so that calls fail at once
	if ctx.Err() == nil {
		p.recordEnd(reason, err)
	}
	if err := s.end(); err != nil {
		p.options.Logger.Error("plugin process did not end", "pid", s.pid, "error", err)
	}
	return reason, err
}

func (p *Plugin) recordEnd(reason Reason, err error) {
	p.enter(Unhealthy, func(s *State) {
		s.LastError = fmt.Sprintf("%s: %v", reason, err)
		s.Ends[reason]++
		s.PID, s.Resident = 0, 0
	})
}

// begin starts a process or connects to an address, and then reads the plugin's
// description.
func (p *Plugin) begin(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, p.options.StartTimeout)
	defer cancel()
	open := p.spawn
	if p.options.Address != "" {
		open = p.connect
	}
	s, err := open(ctx)
	if err == nil {
		s.version, err = p.options.Describe(ctx, s.conn)
		if err != nil {
			err = errors.Join(s.explain(err), s.end())
		}
	}
	switch {
	case err == nil:
		return s, nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, fmt.Errorf("not ready within start_timeout, which is %s: %w", p.options.StartTimeout, err)
	default:
		return nil, err
	}
}

// watch repeatedly checks a plugin's health and memory.
func (p *Plugin) watch(ctx context.Context, s *session) (Reason, error) {
	tick := time.NewTicker(p.options.HealthInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-s.gone:
			return Crashed, s.cause()
		case <-tick.C:
		}
		if reason, err := p.probe(ctx, s); err != nil {
			return reason, err
		}
		if err := p.checkMemory(s); err != nil {
			return Memory, err
		}
	}
}

// probe checks the plugin's health once. Any answer counts, also to another call at the
// same time, because a plugin whose interpreter is busy with a long call answers that call
// first.
func (p *Plugin) probe(ctx context.Context, s *session) (Reason, error) {
	ctx, cancel := context.WithTimeout(ctx, p.options.HealthTimeout)
	defer cancel()
	before := s.answers.Load()
	r, err := grpc_health_v1.NewHealthClient(s.conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: goplugin.GRPCServiceName})
	switch status.Code(err) {
	case codes.OK:
		if r.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			return Hung, fmt.Errorf("its health check reports %s", r.GetStatus())
		}
		return "", nil
	case codes.Unimplemented, codes.NotFound: // the plugin has no such health check, but it is alive
		return "", nil
	case codes.DeadlineExceeded:
		if s.answers.Load() != before {
			return "", nil
		}
		return Hung, fmt.Errorf("no answer to a health check within health_timeout, %s", p.options.HealthTimeout)
	default:
		return Crashed, s.explain(err)
	}
}

// checkMemory compares the resident memory of a process with its limit.
func (p *Plugin) checkMemory(s *session) error {
	if s.pid == 0 {
		return nil
	}
	bytes, err := residentBytes(s.pid)
	if err != nil {
		return nil //nolint:nilerr // it is gone, which is seen elsewhere, or this system does not say
	}
	p.setResident(bytes)
	if limit := p.options.Memory; limit > 0 && bytes > limit {
		return fmt.Errorf("%d bytes resident, at most %d: raise its memory, or send it less at once", bytes, limit)
	}
	return nil
}

// flapWindow is the time window in which ends are counted.
const flapWindow = time.Minute

// flaps counts how often a plugin ends.
type flaps struct {
	after      int
	quarantine time.Duration
	ends       []time.Time
	wait       *backoff.ExponentialBackOff
}

func newFlaps(o Options) *flaps {
	f := &flaps{after: o.QuarantineAfter, quarantine: o.Quarantine, wait: backoff.NewExponentialBackOff()}
	f.wait.InitialInterval, f.wait.Multiplier, f.wait.MaxInterval = 100*time.Millisecond, 2, 5*time.Second
	if o.Address != "" { // connecting is cheap, and the party that runs the plugin restarts it
		f.after, f.wait.MaxInterval = 0, 500*time.Millisecond
	}
	return f
}

// end counts an end and returns how long to wait before the next start. After the first end
// in a while, the wait is zero.
func (f *flaps) end(now time.Time) (wait time.Duration, quarantined bool) {
	for len(f.ends) > 0 && now.Sub(f.ends[0]) > flapWindow {
		f.ends = f.ends[1:]
	}
	first := len(f.ends) == 0
	f.ends = append(f.ends, now)
	switch {
	case f.after > 0 && len(f.ends) >= f.after:
		f.ends = nil
		return f.quarantine, true
	case first:
		f.wait.Reset()
		return 0, false
	default:
		return f.wait.NextBackOff(), false
	}
}
