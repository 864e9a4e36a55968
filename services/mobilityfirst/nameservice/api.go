package nameservice

import (
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/services/mobilityfirst/replicas"
)

// Status describes the name service, as the API shows it.
type Status struct {
	Listen  string            `json:"listen" doc:"UDP address of the service; empty while it does not run"`
	Names   uint64            `json:"names" doc:"Number of names"`
	Lookups uint64            `json:"lookups" doc:"Lookups since its start"`
	Writes  uint64            `json:"writes" doc:"Writes since its start"`
	Answers map[string]uint64 `json:"answers" doc:"Number of answers to both, by outcome"`
	Domains []DomainInfo      `json:"domains" doc:"The domains that share the names, if there are several"`
}

// DomainInfo describes a domain, as the API shows it.
type DomainInfo struct {
	Name      string         `json:"name"`
	Address   string         `json:"address" doc:"UDP address of its name service"`
	Self      bool           `json:"self" doc:"Whether it is this domain"`
	RoundTrip units.Duration `json:"round_trip" doc:"Mean round-trip time; 0 until it has answered"`
	Silent    bool           `json:"silent" doc:"Whether it did not answer the last request"`
	Behind    int            `json:"behind" doc:"Names that still have to be sent to it"`
}

// Register adds the service's operations and metrics to the API.
func (s *Service) Register(a *api.API) {
	kit.Show(kit.NewREST(a, Name), "status", "Show the name service and its domains", s.Status)
	a.Metrics().MustRegister(s.Metrics())
}

// Metrics returns the service's metrics for Prometheus.
func (s *Service) Metrics() *kit.Metrics {
	m := kit.NewMetrics(Name)
	read := func(f func(*running, func(float64, ...string))) func(func(float64, ...string)) {
		return func(is func(float64, ...string)) {
			if r := s.running.Load(); r != nil {
				f(r, is)
			}
		}
	}
	m.Gauges("names", "Names that the name service has.", nil, read(func(r *running, is func(float64, ...string)) { is(float64(r.store.Names())) }))
	m.Totals("questions_total", "What the name service was asked, by kind: lookup or write.", []string{"kind"}, read(func(r *running, is func(float64, ...string)) {
		c := r.Counters()
		is(float64(c.Lookups), "lookup")
		is(float64(c.Writes), "write")
	}))
	m.Totals("answers_total", "What it has answered, by outcome.", []string{"outcome"}, read(func(r *running, is func(float64, ...string)) {
		for code, n := range r.Counters().Answers {
			is(float64(n), code.String())
		}
	}))
	m.Totals("dropped_total", "Datagrams that were no message, and answers for which there was no room.", []string{"reason"}, read(func(r *running, is func(float64, ...string)) {
		c := r.Counters()
		is(float64(c.Malformed), "malformed")
		is(float64(c.Dropped), "no room")
	}))
	m.Gauges("behind", "Names of which another domain has to be told yet.", []string{"domain"}, read(func(r *running, is func(float64, ...string)) {
		for _, p := range r.peers() {
			is(float64(p.Behind), p.Name)
		}
	}))
	return m
}

// peers returns the other domains.
func (r *running) peers() []replicas.Peer {
	if r.others == nil {
		return nil
	}
	return r.others.Peers()
}

// Status returns the current status of the service.
func (s *Service) Status() Status {
	st := Status{Answers: map[string]uint64{}, Domains: []DomainInfo{}}
	r := s.running.Load()
	if r == nil {
		return st
	}
	c := r.Counters()
	st.Listen, st.Names, st.Lookups, st.Writes = r.Addr().String(), r.store.Names(), c.Lookups, c.Writes
	for code, n := range c.Answers {
		st.Answers[code.String()] = n
	}
	of := map[string]replicas.Peer{}
	for _, p := range r.peers() {
		of[p.Name] = p
	}
	for _, d := range s.Domains {
		i := DomainInfo{Name: d.Name, Address: d.Addr.String(), Self: d.Name == s.Self}
		p := of[d.Name]
		i.RoundTrip, i.Silent, i.Behind = units.Duration(p.RoundTrip.Round(time.Microsecond)), p.Silent, p.Behind
		st.Domains = append(st.Domains, i)
	}
	return st
}
