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
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/pki"
)

// Status summarizes the state of the controller.
type Status struct {
	version.Info
	Started   time.Time   `json:"started"`
	Starts    uint64      `json:"starts" doc:"Number of times that a controller has been started with this store"`
	LastEvent uint64      `json:"last_event" doc:"Identifier of the latest event"`
	OpenFlow  []string    `json:"openflow" doc:"Addresses on which switches connect"`
	Services  []string    `json:"services"`
	Chain     []string    `json:"chain" doc:"Packet-in handlers in the order in which they are called"`
	Store     StoreStatus `json:"store"`
	Switches  int         `json:"switches"`
	Links     int         `json:"links" doc:"Number of links; each direction counts as one"`
	Hosts     int         `json:"hosts"`
	Drift     int         `json:"drift" doc:"Rules, groups and meters that were not as declared in the connected switches, and were repaired. /network/switches has them by switch"`

	Certificates []Certificate  `json:"certificates" doc:"The controller's own certificates and their expiry"`
	Errors       []ServiceError `json:"errors" doc:"Present problems of the network and of all services"`
}

// ServiceError describes a present problem of a service.
type ServiceError struct {
	Service string `json:"service"`
	Error   string `json:"error" doc:"The problem, its cause and a remedy"`
}

// errorReporter is a Service that reports its present problems: a line for each, with cause and
// remedy.
type errorReporter interface{ Errors() []string }

// serviceErrors returns the problems of the network, and of the services that have read their store.
func (c *Controller) serviceErrors() []ServiceError {
	all := []ServiceError{}
	for _, l := range c.net.Loops() {
		all = append(all, ServiceError{"network", network.LoopReason(l)})
	}
	for _, s := range c.services {
		t, ok := s.(errorReporter)
		if !ok {
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

// StoreStatus reports whether the store accepts writes, and which damaged stores were put aside.
type StoreStatus struct {
	Kind     string         `json:"kind" doc:"Kind of the store, as in store.kind of the configuration"`
	Writable bool           `json:"writable" doc:"False while the store's file system is full or read-only, or its disk fails. Requests that change something are then refused, and everything else works"`
	Reason   string         `json:"reason,omitempty" doc:"Why the store accepts no writes, and a remedy"`
	Damaged  []DamagedStore `json:"damaged,omitempty" doc:"Damaged stores that have been put aside. Remove them when you do not need them"`
}

// DamagedStore is a damaged store that has been put aside.
type DamagedStore struct {
	Path   string `json:"path" doc:"Folder of the damaged store"`
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
	huma.Register(c.api.Huma(), op("status", "/status", "Show a summary of the controller's state"),
		func(context.Context, *struct{}) (*struct{ Body Status }, error) {
			return &struct{ Body Status }{c.status()}, nil
		})
	huma.Register(c.api.Huma(), op("config", "/config", "Show the configuration in force, without secrets"),
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
	for _, sw := range c.net.Switches() {
		s.Drift += sw.Stats().Drift.Total()
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
	Key    string     `json:"key" example:"api.tls" doc:"Key of the configuration that names the certificate"`
	Name   string     `json:"name,omitempty" doc:"Common name of the certificate"`
	File   string     `json:"file"`
	Expiry *time.Time `json:"expiry,omitempty" doc:"End of the certificate's validity"`
	Error  string     `json:"error,omitempty" doc:"Why the certificate's file cannot be read now. The certificate that was read before stays in use"`
}

// certificates describes the controller's certificates from their present files. Renewed
// certificates are used without a restart.
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

// newCertificateMetrics returns the metrics of the expiry of the controller's certificates.
func newCertificateMetrics(cfg *config.Controller) prometheus.Collector {
	return pki.NewExpiry(func() map[string]string {
		all := map[string]string{}
		for _, t := range cfg.Certificates() {
			all[t.Key] = t.Cert
		}
		return all
	})
}
