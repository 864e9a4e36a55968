package testbed

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/lab"
)

// NetworkOptions describes a controller for a lab whose links between switches have known rates.
type NetworkOptions struct {
	Lab    *lab.Lab
	Binary string // path of sluice
	LogDir string // folder for the program's output; must exist
	// Interval is how often the controller reads counters.
	Interval time.Duration
	// Rate returns the rate of a link in bit/s.
	Rate func(lab.Link) float64
	// Queues makes the controller create queues in the switches' databases.
	Queues bool
	// Settings holds further lines of the configuration's section "network", and Services further
	// sections.
	Settings, Services string
}

// Network is a controller without agents, a process of its own.
type Network struct {
	*client.Client
	lab        *lab.Lab
	dir, log   string
	token      string
	controller *Daemon
}

// DeployNetwork starts a controller whose configuration has the capacities of all links, and
// returns when it knows every switch and link.
func DeployNetwork(ctx context.Context, o NetworkOptions) (*Network, error) {
	dir, err := os.MkdirTemp("", "sluice-stage-")
	if err != nil {
		return nil, fmt.Errorf("deploy: %w", err)
	}
	n := &Network{lab: o.Lab, dir: dir, log: filepath.Join(o.LogDir, "controller.log")}
	if err := n.start(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("deploy: %w: %s", err, Tail(n.log, lastWords)), n.Close())
	}
	return n, nil
}

func (n *Network) start(ctx context.Context, o NetworkOptions) error {
	capacities, links, err := capacities(o.Lab, o.Rate)
	if err != nil {
		return err
	}
	file := filepath.Join(n.dir, "controller.yaml")
	text := fmt.Sprintf(`data_dir: %s/controller
store: {kind: memory}
api: {listen: %s}
openflow: {listen: ["%v"], plaintext: true}
sos: {enabled: false}
handover: {enabled: false}
network:
  stats_interval: %v
  discovery: {interval: 500ms, timeout: 4s}
%s%s%s%s`, n.dir, apiAddress, o.Lab.ControllerAddr(), o.Interval, o.Settings, capacities, databases(o), o.Services)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	if n.controller, err = StartDaemon(ctx, o.Lab.Control(), n.log, o.Binary, "controller", "--config", file); err != nil {
		return err
	}
	if err := Poll(ctx, "the controller's token", func() error {
		token, err := os.ReadFile(filepath.Join(n.dir, "controller", "token"))
		n.token = strings.TrimSpace(string(token))
		return err
	}); err != nil {
		return err
	}
	n.Client, err = client.New(client.Options{
		Server: "http://" + apiAddress, Token: n.token, Dial: o.Lab.Control().DialContext,
	})
	if err != nil {
		return err
	}
	return Poll(ctx, "all links", func() error {
		var found []struct{}
		if err := n.Get(ctx, "/api/v1/network/links", &found); err != nil {
			return err
		}
		if len(found) < links {
			return fmt.Errorf("%d of %d are known", len(found), links)
		}
		return nil
	})
}

// databases returns the configuration of the switches' databases.
func databases(o NetworkOptions) string {
	if !o.Queues {
		return ""
	}
	text := "qos: {queues: connect}\novsdb:\n  switches:\n"
	for _, s := range o.Lab.Topology().Switches {
		text += fmt.Sprintf("    %016x: %s\n", s.DPID, o.Lab.Switch(s.Name).Database())
	}
	return text
}

// DeclareLinks returns lines for Options.Network that declare the rates of a lab's links.
func DeclareLinks(l *lab.Lab, rate func(lab.Link) float64) (string, error) {
	text, _, err := capacities(l, rate)
	return text, err
}

// capacities returns the configuration of the links' rates, and the number of directed links
// between switches.
func capacities(l *lab.Lab, rate func(lab.Link) float64) (text string, links int, err error) {
	t := l.Topology()
	rates := map[string]string{}
	isSwitch := map[string]bool{}
	for _, s := range t.Switches {
		isSwitch[s.Name] = true
	}
	for _, link := range t.Links {
		for _, end := range []lab.End{link.A, link.B} {
			if !isSwitch[end.Node] {
				continue
			}
			port, err := l.Switch(end.Node).Port(link.Name)
			if err != nil {
				return "", 0, err
			}
			rates[end.Node] += fmt.Sprintf("%d: %s, ", port, units.FormatRate(rate(link)))
		}
		if isSwitch[link.A.Node] && isSwitch[link.B.Node] {
			links += 2
		}
	}
	text = "  switches:\n"
	for _, s := range t.Switches {
		text += fmt.Sprintf("    %016x: {name: %s, capacity: {%s}}\n", s.DPID, s.Name, strings.TrimSuffix(rates[s.Name], ", "))
	}
	return text, links, nil
}

// Metrics reads the controller's metrics.
func (n *Network) Metrics(ctx context.Context) (Metrics, error) {
	transport := &http.Transport{DialContext: n.lab.Control().DialContext, DisableKeepAlives: true}
	m, err := scrape(ctx, transport, "http://"+apiAddress+"/metrics", n.token)
	if err != nil {
		return nil, fmt.Errorf("metrics of the controller: %w", err)
	}
	return m, nil
}

// PID returns the process ID of the controller.
func (n *Network) PID() int { return n.controller.PID() }

// Close ends the controller.
func (n *Network) Close() error {
	if n.Client != nil {
		n.Client.Close()
	}
	if n.controller != nil {
		n.controller.Stop()
	}
	return os.RemoveAll(n.dir)
}
