// Package devicetest is the conformance kit of devices. It tests everything that likeness
// relies on in a device.Device. The author of a device runs it in a test, or with `likeness
// plugin check`. Answers are compared with plain Go kernels and with scores of the RAILS
// reference.
//
//	func TestDevice(t *testing.T) { devicetest.Run(t, mine, devicetest.Options{}) }
package devicetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/plugin/plugintest"
	"github.com/likenessdb/likeness/rerank"
)

// Options are the optional parameters of the kit.
type Options struct {
	// Conn, if set, is a connection to the device's process. The kit then also sends
	// malformed streams.
	Conn grpc.ClientConnInterface
	// Timeout limits a case. 0 means one minute.
	Timeout time.Duration
}

// Run runs every case as a subtest. Afterwards the kit has unloaded everything that it
// loaded.
func Run(t *testing.T, d device.Device, o Options) {
	t.Helper()
	for _, c := range newKit(d, o).cases() {
		t.Run(c.name, func(t *testing.T) {
			switch r := newKit(d, o).run(t.Context(), c); r.State {
			case plugintest.Failed:
				t.Errorf("want %s: %s", r.Wants, r.Detail)
			case plugintest.Skipped:
				t.Skip(r.Detail)
			}
		})
	}
}

// Check runs every case against the device at the other end of a connection, one after the
// other. It calls told, if not nil, with each result as it arrives.
func Check(ctx context.Context, conn grpc.ClientConnInterface, o Options, told func(plugintest.Result)) []plugintest.Result {
	d := device.NewClient(conn)
	o.Conn = conn
	var all []plugintest.Result
	for _, c := range newKit(d, o).cases() {
		r := newKit(d, o).run(ctx, c)
		if told != nil {
			told(r)
		}
		all = append(all, r)
	}
	return all
}

// check is a case of the kit.
type check struct {
	name, wants string
	run         func(ctx context.Context, k *kit) error
}

// skip is the error of a case that does not apply.
type skip string

func (s skip) Error() string { return string(s) }

// kit is a device and the versions that a case has loaded on it.
type kit struct {
	device.Device
	options        Options
	description    device.Description
	models, tables []device.Version
}

func newKit(d device.Device, o Options) *kit {
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	return &kit{Device: d, options: o}
}

func (k *kit) run(ctx context.Context, c check) plugintest.Result {
	within, cancel := context.WithTimeout(ctx, k.options.Timeout)
	defer cancel()
	start := time.Now()
	r := plugintest.Result{Case: c.name, Wants: c.wants, State: plugintest.Passed}
	var err error
	if k.description, err = k.Describe(within); err == nil {
		err = c.run(within, k)
	}
	err = errors.Join(err, k.unloadAll(ctx))
	var why skip
	switch {
	case errors.As(err, &why):
		r.State, r.Detail = plugintest.Skipped, string(why)
	case err != nil:
		r.State, r.Detail = plugintest.Failed, err.Error()
	}
	r.Seconds = time.Since(start).Seconds()
	return r
}

// unloadAll unloads what a case has loaded, and checks that it is gone.
func (k *kit) unloadAll(ctx context.Context) error {
	if err := k.Unload(ctx, k.models, k.tables); err != nil {
		return fmt.Errorf("unloading: %w", err)
	}
	d, err := k.Describe(ctx)
	if err != nil {
		return err
	}
	for _, v := range k.tables {
		if slices.Contains(d.Tables, v) {
			return fmt.Errorf("table %s is still there after Unload", v)
		}
	}
	return nil
}

func (k *kit) scores(kind rerank.Kind) bool { return slices.Contains(k.description.Kinds, kind) }

// want returns an error unless err is the sentinel.
func want(err, sentinel error, what string) error {
	switch {
	case errors.Is(err, sentinel):
		return nil
	case err == nil:
		return fmt.Errorf("%s: it was taken, want %w", what, sentinel)
	default:
		return fmt.Errorf("%s: it returned %w, want %w", what, err, sentinel)
	}
}
