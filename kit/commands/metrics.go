package commands

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/internal/listen"
	"github.com/sluice-net/sluice/internal/lograte"
)

// MetricsServer serves the metrics of a daemon for Prometheus, if it has an address.
type MetricsServer struct {
	addr   string // empty if metrics are not served
	listen net.Listener
}

// Flag adds the flag --metrics, which sets the address.
func (f *MetricsServer) Flag(flags *pflag.FlagSet) {
	flags.StringVar(&f.addr, "metrics", "", "loopback address that serves metrics to Prometheus, like 127.0.0.1:9411")
}

// Open opens the listener if there is an address.
func (f *MetricsServer) Open() error {
	if f.addr == "" {
		return nil
	}
	at, err := netip.ParseAddrPort(f.addr)
	if err != nil || !at.Addr().IsLoopback() {
		return &command.UsageError{Err: fmt.Errorf("--metrics %s: want an address of the loopback interface and a port, like 127.0.0.1:9411", f.addr)}
	}
	f.listen, err = net.Listen("tcp", at.String())
	return err
}

// Serve serves metrics until stop is called, which waits for the end.
func (f *MetricsServer) Serve(m prometheus.Gatherer, to *slog.Logger) (stop func()) {
	if f.listen == nil {
		return func() {}
	}
	var strange lograte.Limit
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: log.New(strange.Writer(to, slog.LevelWarn, "metrics"), "", 0),
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(listen.New(f.listen, func(err error) { strange.Warn(to, "metrics", "error", err) })); !errors.Is(err, http.ErrServerClosed) {
			to.Warn("metrics are no longer served", "error", err)
		}
	})
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
		serving.Wait()
	}
}
