package soak

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/sluice-net/sluice/lab/testbed"
)

// The loads are small enough to leave the machine time for the programs under test.
const (
	shortBatch  = 40
	shortAtOnce = 4
	shortBytes  = 2 << 10
	largeBytes  = 8 << 20
	// sessionLife is how long a stream through SOS lasts. A stream that was opened while an agent
	// was away goes directly to the server, and the next one goes through SOS again.
	sessionLife = 20 * time.Second
	// batchInterval is the time between two batches, and between two transfers.
	batchInterval = 500 * time.Millisecond
)

// files holds the files of the web server.
type files struct {
	dir          string
	short, large []byte
	server       *testbed.WebServer
}

func (f *fleet) serveFiles(ctx context.Context) (w *files, err error) {
	w = &files{short: make([]byte, shortBytes), large: make([]byte, largeBytes)}
	if w.dir, err = os.MkdirTemp("", "sluice-web-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(w.dir)
		}
	}()
	logs := filepath.Join(f.logs, "web")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return nil, err
	}
	for name, content := range map[string][]byte{"short": w.short, "large": w.large} {
		rand.Read(content)
		if err := os.WriteFile(filepath.Join(w.dir, name), content, 0o644); err != nil {
			return nil, err
		}
	}
	w.server, err = testbed.StartWebServer(ctx, f.lab.Host("web"), w.dir, logs, webPort)
	return w, err
}

func (w *files) close() {
	w.server.Stop()
	os.RemoveAll(w.dir)
}

// fetch gets one of the files through SOS again and again until stop is closed, by new connections
// each time.
func (f *fleet) fetch(ctx context.Context, rec *record, load string, o testbed.ShortOptions, stop <-chan struct{}) error {
	o.Client, o.Server = f.lab.Host("client"), netip.AddrPortFrom(f.lab.Host("web").Addr(), webPort)
	for {
		all, err := testbed.Short(ctx, o)
		if err != nil {
			return fmt.Errorf("%s: %w", load, err)
		}
		right := 0
		for _, c := range all {
			if c.Failure == testbed.NoFailure {
				right++
				continue
			}
			rec.fail(failure{load: load, part: partSOS, kind: c.Failure, began: c.Began, at: c.Failed, err: c.Err})
		}
		rec.right(load, partSOS, right, int64(right*len(o.Want)))
		o.ClientCloses = !o.ClientCloses
		if !pause(ctx, stop, batchInterval) {
			return context.Cause(ctx)
		}
	}
}

// These are the loads that SOS carries.
const (
	shortLoad  = "short connections"
	largeLoad  = "large files"
	streamLoad = "stream by SOS"
)

// loads returns all loads; each runs until stop is closed.
func (f *fleet) loads(rec *record, w *files) []func(context.Context, <-chan struct{}) error {
	type load = func(context.Context, <-chan struct{}) error
	all := []load{
		func(ctx context.Context, stop <-chan struct{}) error {
			return f.fetch(ctx, rec, shortLoad, testbed.ShortOptions{File: "short", Want: w.short, Count: shortBatch, AtOnce: shortAtOnce}, stop)
		},
		func(ctx context.Context, stop <-chan struct{}) error {
			return f.fetch(ctx, rec, largeLoad, testbed.ShortOptions{File: "large", Want: w.large, Count: 1, AtOnce: 1}, stop)
		},
	}
	d := mobility().Domain()
	for _, s := range []struct {
		name     string
		part     part
		from, to string
		server   netip.Addr
		port     uint16
		rate     int
		life     time.Duration
	}{
		{streamLoad, partSOS, "client", "web", f.lab.Host("web").Addr(), longPort, 100_000, sessionLife},
		{"stream of the device", partHandover, "dev1", d.Server, d.ServerAddr, longPort, 100_000, 0},
		{"critical stream", partQoS, "critical1", "critical2", f.lab.Host("critical2").Addr(), criticalPort, 200_000, 0},
		{"stream of a class", partQoS, "class1", "class2", f.lab.Host("class2").Addr(), classPort, 200_000, 0},
		{"stream beside them", partQoS, "plain1", "plain2", f.lab.Host("plain2").Addr(), plainPort, 500_000, 0},
	} {
		one := &stream{
			name: s.name, part: s.part, from: f.lab.Host(s.from), to: f.lab.Host(s.to),
			server: netip.AddrPortFrom(s.server, s.port), rate: s.rate, life: s.life, rec: rec,
		}
		all = append(all, one.run)
	}
	return all
}

// pause waits for d, and returns false if the soak ends before.
func pause(ctx context.Context, stop <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-stop:
		return false
	case <-t.C:
		return true
	}
}
