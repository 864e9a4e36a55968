package nameservice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/sluice-net/sluice/services/mobilityfirst/gnrs"
	"github.com/sluice-net/sluice/services/mobilityfirst/replicas"
)

// Name is the service's name in the API's paths.
const Name = "gnrs"

// Options configures a name service.
type Options struct {
	// Dir is the folder of the names, which only this service uses. With Redis it holds no names,
	// and is only needed with Domains.
	Dir string
	// MaxNames limits the number of names, and Cache the memory in bytes for cached parts of the
	// folder; zero selects the defaults of package namestore. With Redis there is no cache.
	MaxNames uint64
	Cache    int64
	// Redis is the cluster that holds the names; without nodes they are in Dir.
	Redis Redis
	// Listen is the UDP address of the service. With Domains it is that of Self.
	Listen netip.AddrPort
	// Limits limits the requests of each address; the zero value selects gnrs.DefaultLimits.
	Limits gnrs.Limits
	// Domains lists the domains that share the names, Self names this one, and Replicas is how many
	// domains keep each name; zero selects replicas.DefaultK. Without domains the service is alone.
	Domains  []replicas.Domain
	Self     string
	Replicas int
	// Log receives the log; nil discards it.
	Log *slog.Logger
}

// At checks the domains, and returns the address of the service: that of its own domain, if it has
// one. The error wraps replicas.ErrDomains.
func (o *Options) At() (netip.AddrPort, error) {
	if len(o.Domains) == 0 && o.Self == "" {
		return o.Listen, nil
	}
	k := o.Replicas
	if k == 0 {
		k = replicas.DefaultK
	}
	if err := replicas.Check(o.Domains, o.Self, k); err != nil {
		return netip.AddrPort{}, err
	}
	at := o.Domains[slices.IndexFunc(o.Domains, func(d replicas.Domain) bool { return d.Name == o.Self })].Addr
	if o.Listen.IsValid() && o.Listen != at {
		return netip.AddrPort{}, fmt.Errorf("the other domains reach %s at %v, so it cannot listen at %v: %w", o.Self, at, o.Listen, replicas.ErrDomains)
	}
	return at, nil
}

// Service is a name service. Its methods may be called concurrently.
type Service struct {
	Options
	loaded  chan struct{}
	running atomic.Pointer[running] // nil while the service does not run
}

// running is the state of a running name service.
type running struct {
	*gnrs.Server
	store  store
	others *replicas.Replicas // nil if the service is alone
}

// New returns a service that does nothing until Run is called.
func New(o Options) *Service {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Service{Options: o, loaded: make(chan struct{})}
	close(s.loaded)
	return s
}

// Name returns the service's name.
func (s *Service) Name() string { return Name }

// Loaded returns a closed channel: records are read when they are asked for.
func (s *Service) Loaded() <-chan struct{} { return s.loaded }

// Run answers requests until ctx ends, and then logs what the service has done. On a full disk it
// first waits for room.
func (s *Service) Run(ctx context.Context) (err error) {
	at, err := s.At()
	if err != nil {
		return err
	}
	store, err := s.openWithRoom(ctx)
	if err != nil || store == nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	r := &running{store: store}
	o := gnrs.Options{Store: store, Listen: at, Limits: s.Limits, Log: s.Log}
	passing := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	if len(s.Domains) > 0 {
		if r.others, err = replicas.New(replicas.Options{Self: s.Self, Domains: s.Domains, K: s.Replicas, Store: store, Dir: s.Dir, Log: s.Log}); err != nil {
			cancel()
			return err
		}
		o.Others = r.others
		go func() { passing <- r.others.Run(ctx); cancel() }()
	} else {
		passing <- nil
	}
	defer func() { cancel(); err = errors.Join(err, <-passing) }()
	if r.Server, err = gnrs.Listen(o); err != nil {
		return err
	}
	s.running.Store(r)
	defer s.running.Store(nil)
	s.Log.Info("name service runs", "listen", r.Addr(), "in", s.location(), "names", store.Names(), "domains", len(s.Domains))
	err = r.Server.Run(ctx)
	c := r.Counters()
	s.Log.Info("name service ends", "lookups", c.Lookups, "writes", c.Writes, "malformed", c.Malformed, "dropped", c.Dropped, "names", store.Names())
	return err
}
