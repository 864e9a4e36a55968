package testbed

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit/agents"
	controlapi "github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/sos"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

const sosPath = "/api/v1/sos"

// issueCertificates makes an authority for this deployment, and a certificate for the controller
// and for each agent.
func (d *Deployment) issueCertificates() error {
	ca, err := pki.Init(d.dir, "sluice lab "+d.lab.Name(), 24*time.Hour)
	if err != nil {
		return err
	}
	requests := []pki.Request{{Role: pki.RoleController, Name: "controller", Hosts: []string{d.openflow.Addr().String()}}}
	for _, host := range slices.Concat(d.agentHosts(), slices.Sorted(maps.Keys(d.gateways))) {
		requests = append(requests, pki.Request{Role: pki.RoleAgent, Name: host, Hosts: []string{d.lab.Host(host).ControlAddr().String()}})
	}
	for _, r := range requests {
		pair, err := ca.Issue(r)
		if err != nil {
			return err
		}
		if err := pair.Write(d.dir, r.Name); err != nil {
			return err
		}
	}
	return nil
}

// connect makes the client of the controller's API.
func (d *Deployment) connect(ctx context.Context) error {
	var token []byte
	err := Poll(ctx, "the controller's token", func() (err error) {
		token, err = os.ReadFile(d.TokenFile())
		return err
	})
	if err != nil {
		return fmt.Errorf("%w: %s", err, d.LastWords("controller"))
	}
	options := client.Options{Server: d.apiURL(), Token: strings.TrimSpace(string(token)), Dial: d.lab.Control().DialContext}
	if options.TLS, err = trustController(d); err != nil {
		return err
	}
	d.Client, err = client.New(options)
	return err
}

// trustController returns the TLS configuration for the API, or nil if the API has no certificate.
func trustController(d *Deployment) (*tls.Config, error) {
	if len(d.gateways) == 0 {
		return nil, nil
	}
	return pki.Client(pki.Files{CA: filepath.Join(d.dir, "ca.crt")}, pki.RoleController)
}

// TokenFile returns the path of the file with the token of the controller's API.
func (d *Deployment) TokenFile() string { return filepath.Join(d.dir, "controller", "token") }

// LastWords returns the last lines of the log of the controller or of an agent, by its host's name,
// for an error message.
func (d *Deployment) LastWords(program string) string {
	if program == "controller" {
		return Tail(d.controllerLog(), lastWords)
	}
	return Tail(filepath.Join(d.logs, program+".log"), lastWords)
}

// settle registers the agents and waits until switches and agents are usable.
func (d *Deployment) settle(ctx context.Context) error {
	if err := d.waitSwitches(ctx); err != nil {
		return err
	}
	for _, host := range d.agentHosts() {
		spec := controlapi.AgentSpec{
			Name:  host,
			URL:   d.agentURL(host),
			Addrs: []string{d.dataAddr(host).String()},
		}
		if err := d.Do(ctx, http.MethodPost, sosPath+"/agents", spec, nil); err != nil {
			return fmt.Errorf("add agent %s: %w", host, err)
		}
	}
	return d.waitAgents(ctx)
}

// Ready waits until every switch is connected and every agent usable, as after a program was killed
// and started again.
func (d *Deployment) Ready(ctx context.Context) error {
	if err := d.waitSwitches(ctx); err != nil {
		return err
	}
	return d.waitAgents(ctx)
}

func (d *Deployment) waitSwitches(ctx context.Context) error {
	want := 0
	for _, s := range d.lab.Topology().Switches {
		if len(s.Controllers) == 0 || slices.Contains(s.Controllers, d.controllerName) {
			want++
		}
	}
	return Poll(ctx, "the switches", func() error {
		var all []struct{}
		if err := d.Get(ctx, "/api/v1/network/switches", &all); err != nil {
			return err
		}
		if len(all) < want {
			return fmt.Errorf("%d of %d switches are connected", len(all), want)
		}
		return nil
	})
}

func (d *Deployment) waitAgents(ctx context.Context) error {
	return Poll(ctx, "the agents", func() error {
		all, err := listAgents(ctx, d)
		if err != nil {
			return err
		}
		for _, a := range all {
			if a.State != agents.Up || len(a.Places) == 0 {
				return fmt.Errorf("agent %s is %s, places %v: %s", a.Name, a.State, a.Places, a.Error)
			}
		}
		return nil
	})
}

// listAgents returns the agents that the controller knows.
func listAgents(ctx context.Context, d *Deployment) (all []agents.AgentInfo, err error) {
	err = d.Get(ctx, sosPath+"/agents", &all)
	return all, err
}

// RestartAgent restarts a host's agent, so that it has no state, and returns when the controller
// has noticed both its end and its start.
func RestartAgent(ctx context.Context, d *Deployment, host string) error {
	d.Agent(host).Stop()
	err := Poll(ctx, "the controller to miss agent "+host, func() error {
		all, err := listAgents(ctx, d)
		if err != nil {
			return err
		}
		for _, a := range all {
			if a.Name == host && a.State == agents.Up {
				return errors.New("it counts as up")
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := d.StartAgent(ctx, host); err != nil {
		return err
	}
	return d.waitAgents(ctx)
}

// AwaitWarm waits until the agent of the host from has at least two connections to that of the host
// to which were opened after the given time, before a session needs them.
func AwaitWarm(ctx context.Context, d *Deployment, from, to string, after time.Time) error {
	return Poll(ctx, fmt.Sprintf("connections from agent %s to %s", from, to), func() error {
		var all []sos.WarmInfo
		if err := d.Get(ctx, sosPath+"/warm", &all); err != nil {
			return err
		}
		for _, w := range all {
			if w.ClientAgent != from || w.ServerAgent != to {
				continue
			}
			if w.Error != "" || w.Connections < 2 || w.Since.Before(after) {
				return fmt.Errorf("%d since %v: %s", w.Connections, w.Since, w.Error)
			}
			return nil
		}
		return errors.New("the pair is not likely")
	})
}

// Poll calls f until it returns nil, for at most readyWithin.
func Poll(ctx context.Context, what string, f func() error) error {
	return PollFor(ctx, readyWithin, what, f)
}

// PollFor does what Poll does, for conditions that may take longer.
func PollFor(ctx context.Context, within time.Duration, what string, f func() error) error {
	return tasks.Poll(ctx, within, what, f)
}

// Whitelist adds a whitelist entry for the server's port, so that agents carry connections to it,
// and returns the entry's ID.
func (d *Deployment) Whitelist(ctx context.Context, server netip.Addr, port uint16, tuning sos.Tuning) (string, error) {
	spec := sos.EntrySpec{
		Clients: []string{everyone(server)}, Servers: []string{server.String()}, Ports: []string{fmt.Sprint(port)}, Tuning: tuning,
	}
	var entry sos.Entry
	if err := d.Do(ctx, http.MethodPost, sosPath+"/whitelist", spec, &entry); err != nil {
		return "", fmt.Errorf("whitelist %v port %d: %w", server, port, err)
	}
	return entry.ID, nil
}

func everyone(server netip.Addr) string {
	if server.Is4() {
		return "0.0.0.0/0"
	}
	return "::/0"
}

// NearByHops makes the controller choose agents by hops. By latency, the usual way, no agent would
// be chosen if the link between the agents has no latency.
func (d *Deployment) NearByHops(ctx context.Context) error {
	hops := network.MetricHops.String()
	return d.Do(ctx, http.MethodPatch, sosPath+"/config", sos.ConfigChange{Metric: &hops}, nil)
}

// WarmPeers sets the number of peers with which agents have connections before the first session.
func (d *Deployment) WarmPeers(ctx context.Context, peers int) error {
	return d.Do(ctx, http.MethodPatch, sosPath+"/config", sos.ConfigChange{WarmPeers: &peers}, nil)
}

// Unlist removes a whitelist entry.
func (d *Deployment) Unlist(ctx context.Context, id string) error {
	return d.Do(ctx, http.MethodDelete, sosPath+"/whitelist/"+id, nil, nil)
}

// Sessions returns live and past sessions.
func (d *Deployment) Sessions(ctx context.Context) ([]sos.Record, error) {
	var all []sos.Record
	err := d.Get(ctx, sosPath+"/sessions?limit=10000", &all)
	return all, err
}

// ErrNotCarried means that agents should have carried a transfer and did not.
var ErrNotCarried = errors.New("the transfer was not carried by agents")

// Links returns the number of directed links that the controller knows.
func (d *Deployment) Links(ctx context.Context) (int, error) {
	var all []struct{}
	err := d.Get(ctx, "/api/v1/network/links", &all)
	return len(all), err
}

// AgentClient returns a client of an agent's control interface that uses the controller's
// certificate.
func (d *Deployment) AgentClient(host string) (*agentapi.Client, error) {
	config, err := d.trustAgents()
	if err != nil {
		return nil, err
	}
	return agentapi.NewClient(d.agentURL(host), config, d.lab.Control().DialContext)
}

// trustAgents returns the TLS configuration of the controller's connections to agents.
func (d *Deployment) trustAgents() (*tls.Config, error) {
	file := func(name string) string { return filepath.Join(d.dir, name) }
	return pki.Client(pki.Files{Cert: file("controller.crt"), Key: file("controller.key"), CA: file("ca.crt")}, pki.RoleAgent)
}

func (d *Deployment) agentURL(host string) string {
	return fmt.Sprintf("https://%v", netip.AddrPortFrom(d.lab.Host(host).ControlAddr(), agentPort))
}
