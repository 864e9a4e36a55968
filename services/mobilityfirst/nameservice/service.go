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

// Name is the service's name: its path in the API.
const Name = "gnrs"

// Options is how a name service is.
type Options struct {
	// Dir is the folder of the names, of this alone. With Redis there are no names in it, and it is needed with Domains only.
	Dir string
	// MaxNames is how many names it takes, Cache how much of what is on disk it keeps in memory, in bytes; zero stands for
	// the defaults of package namestore. With Redis there is no cache.
	MaxNames uint64
	Cache    int64
	// Redis is the cluster that has the names; without nodes they are in Dir.
	Redis Redis
	// Listen is the UDP address at which it is asked. With Domains it is that of Self.
	Listen netip.AddrPort
	// Limits bound what each address does; the zero value stands for gnrs.DefaultLimits.
	Limits gnrs.Limits
	// Domains are those whose name services are one, Self which of these it is, and Replicas how many keep each name: zero for
	// replicas.DefaultK. No domains: it is alone.
	Domains  []replicas.Domain
	Self     string
	Replicas int
	// Log receives the log; nil discards it.
	Log *slog.Logger
}

// At checks the domains, and gives the address at which the service is asked: that of its own domain, if it has one. The
// error wraps replicas.ErrDomains.
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
		return netip.AddrPort{}, fmt.Errorf("the others ask the domain %s at %v, and it is to listen at %v: %w", o.Self, at, o.Listen, replicas.ErrDomains)
	}
	return at, nil
}

// Service is a name service. Its methods may be called concurrently.
type Service struct {
	Options
	loaded  chan struct{}
	running atomic.Pointer[running] // nil while it does not run
}

// running is a name service that runs.
type running struct {
	*gnrs.Server
	store  store
	others *replicas.Replicas // nil if it is alone
}

// New returns a service that does nothing before it runs.
func New(o Options) *Service {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Service{Options: o, loaded: make(chan struct{})}
	close(s.loaded)
	return s
}

// Name is the service's name.
func (s *Service) Name() string { return Name }

// Loaded is closed: what is stored is read when it is asked for.
func (s *Service) Loaded() <-chan struct{} { return s.loaded }

// Run answers until ctx ends, and says then what it has done.
func (s *Service) Run(ctx context.Context) (err error) {
	at, err := s.At()
	if err != nil {
		return err
	}
	store, err := s.open(ctx)
	if err != nil {
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
	s.Log.Info("name service runs", "listen", r.Addr(), "in", s.in(), "names", store.Names(), "domains", len(s.Domains))
	err = r.Server.Run(ctx)
	c := r.Counters()
	s.Log.Info("name service ends", "lookups", c.Lookups, "writes", c.Writes, "malformed", c.Malformed, "dropped", c.Dropped, "names", store.Names())
	return err
}
