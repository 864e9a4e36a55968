package controller

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/event"
	"github.com/sluice-net/sluice/internal/version"
	"github.com/sluice-net/sluice/pki"
)

// Status is the controller at a glance.
type Status struct {
	version.Info
	Started   time.Time   `json:"started"`
	Starts    uint64      `json:"starts" doc:"How often this controller has been started on its store"`
	LastEvent uint64      `json:"last_event" doc:"Identifier of the latest event"`
	OpenFlow  []string    `json:"openflow" doc:"Where switches connect"`
	Services  []string    `json:"services"`
	Chain     []string    `json:"chain" doc:"Who is asked about a packet that a switch sends up, in order"`
	Store     StoreStatus `json:"store"`
	Switches  int         `json:"switches"`
	Links     int         `json:"links" doc:"Each direction by itself"`
	Hosts     int         `json:"hosts"`

	Certificates []Certificate  `json:"certificates" doc:"The controller's own, and when they end"`
	Errors       []ServiceError `json:"errors" doc:"What does not work now, of all services"`
}

// ServiceError is what does not work in a service now.
type ServiceError struct {
	Service string `json:"service"`
	Error   string `json:"error" doc:"What is wrong, its cause, and what would help"`
}

// errorReporter is a Service that says what does not work: a line for each, with cause and
// remedy.
type errorReporter interface{ Errors() []string }

// serviceErrors asks the services that have read their store.
func (c *Controller) serviceErrors() []ServiceError {
	all := []ServiceError{}
	for _, s := range c.services {
		t, says := s.(errorReporter)
		if !says {
			continue
		}
		select {
		case <-s.Loaded():
		default:
			continue
		}
		for _, text := range t.Errors() {
			all = append(all, ServiceError{s.Name(), text})
		}
	}
	return all
}

// StoreStatus says whether the store accepts writes, and whether it has been damaged.
type StoreStatus struct {
	Kind     string         `json:"kind" doc:"As store.kind of the configuration"`
	Writable bool           `json:"writable" doc:"False while its file system is full or read-only, or its disk fails: requests that change something are refused, all else goes on"`
	Reason   string         `json:"reason,omitempty" doc:"Why it is not, and what helps"`
	Damaged  []DamagedStore `json:"damaged,omitempty" doc:"Damaged stores that have been put aside; remove them when you do not need them"`
}

// DamagedStore is a damaged store that has been put aside.
type DamagedStore struct {
	Path   string `json:"path" doc:"Where it is"`
	Reason string `json:"reason" doc:"What was damaged, and what was done"`
}

func (c *Controller) storeStatus() StoreStatus {
	s := StoreStatus{Kind: c.cfg.Store.Kind, Writable: true}
	if why := c.unwritable(); why != nil {
		s.Writable, s.Reason = false, why.Error()
	}
	for _, d := range c.damaged() {
		s.Damaged = append(s.Damaged, DamagedStore(d))
	}
	return s
}

func (c *Controller) registerStatus() {
	op := func(id, path, summary string) huma.Operation {
		return huma.Operation{OperationID: id, Method: http.MethodGet, Path: api.Prefix + path, Summary: summary, Tags: []string{"system"}}
	}
	huma.Register(c.api.Huma(), op("status", "/status", "The controller at a glance"),
		func(context.Context, *struct{}) (*struct{ Body Status }, error) {
			return &struct{ Body Status }{c.status()}, nil
		})
	huma.Register(c.api.Huma(), op("config", "/config", "The configuration in force, secrets hidden"),
		func(context.Context, *struct{}) (*struct{ Body any }, error) {
			return &struct{ Body any }{config.Plain(c.inForce.Load())}, nil
		})
}

func (c *Controller) status() Status {
	_, openFlow := c.Addr()
	s := Status{
		Info: version.Get(), Started: c.started.UTC(), LastEvent: c.bus.Last(), Starts: event.Epoch(c.bus.Last()),
		Store:    c.storeStatus(),
		OpenFlow: []string{}, Services: []string{}, Chain: c.net.Handlers(),
		Switches: len(c.net.Switches()), Links: len(c.net.Topology().Links), Hosts: len(c.net.Hosts()),
		Certificates: certificates(c.cfg), Errors: c.serviceErrors(),
	}
	for _, a := range openFlow {
		s.OpenFlow = append(s.OpenFlow, a.String())
	}
	for _, service := range c.services {
		s.Services = append(s.Services, service.Name())
	}
	return s
}

// Certificate is one of the controller's own certificates.
type Certificate struct {
	Key    string     `json:"key" example:"api.tls" doc:"Where the configuration names it"`
	Name   string     `json:"name,omitempty" doc:"Its common name"`
	File   string     `json:"file"`
	Expiry *time.Time `json:"expiry,omitempty" doc:"When it ends"`
	Error  string     `json:"error,omitempty" doc:"Why it cannot be read now; what was read before goes on being used"`
}

// certificates reads the files as they are now: renewed ones are used without a restart.
func certificates(c *config.Controller) []Certificate {
	out := []Certificate{}
	for _, t := range c.Certificates() {
		x := Certificate{Key: t.Key, File: t.Cert}
		if cert, err := pki.ReadCert(t.Cert); err != nil {
			x.Error = err.Error()
		} else {
			x.Name, x.Expiry = cert.Subject.CommonName, &cert.NotAfter
		}
		out = append(out, x)
	}
	return out
}

// newCertificateMetrics tells when the controller's certificates end.
func newCertificateMetrics(cfg *config.Controller) prometheus.Collector {
	return pki.NewExpiry(func() map[string]string {
		all := map[string]string{}
		for _, t := range cfg.Certificates() {
			all[t.Key] = t.Cert
		}
		return all
	})
}
