package handover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/controller"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services"
	"github.com/sluice-net/sluice/services/handover"
)

const (
	// waitLimit bounds every wait of these tests.
	waitLimit = 40 * time.Second
	// apiAddress is where a controller that is a process serves its API, in the
	// control namespace.
	apiAddress = "127.0.0.1:8080"
	// pool is the name of the only pool, and server the address of its DHCP server.
	pool = "mobile"
)

// world is a lab of one domain with a controller.
type world struct {
	t       testing.TB
	lab     *lab.Lab
	domain  lab.MobilityDomain
	borders []string // as configured
	extra   string   // the rest of the handover section
	dir     string   // of the controller's files
	log     *logBuffer
	rest    *client.Client
	stop    func()
	// steadfast devices do not check whether their networks work. They stay where they are told to
	// be, even if the machine stalls for as long as it takes them to find a network silent.
	steadfast bool
	mobile    string // the rest of the configuration of devices' daemons

	probes  uint32 // how many packets have probed the rules
	prober  *net.UDPConn
	gateway *radio
}

// newWorld starts a network of Mobility and a controller in this process, with a pool of all
// addresses from .1.1 on.
func newWorld(t testing.TB, o lab.MobilityOptions) *world {
	t.Helper()
	w := makeWorld(t, o)
	w.begin()
	return w
}

// begin starts a controller, waits until it knows the network, and declares the pool.
func (w *world) begin() {
	w.t.Helper()
	w.start()
	w.ready()
	w.put("pools/"+pool, w.poolSpec())
}

func makeWorld(t testing.TB, o lab.MobilityOptions) *world {
	t.Helper()
	w := &world{t: t, lab: lab.New(t, lab.Mobility("ho", o)), domain: o.Domain(), dir: t.TempDir(), log: &logBuffer{}, stop: func() {}}
	w.borders = []string{fmt.Sprintf("{port: %v}", w.port("uplink"))}
	if o.Roots > 1 {
		w.borders = append(w.borders, fmt.Sprintf("{name: south, port: %v}", w.port("uplink2")))
	}
	t.Cleanup(func() {
		if t.Failed() {
			w.describe()
		}
		w.stop()
	})
	return w
}

func (w *world) poolSpec() handover.PoolSpec {
	return handover.PoolSpec{
		Prefix: w.domain.Prefix.String(), First: "10.20.1.1", Last: "10.20.200.254",
		Gateway: w.domain.GatewayAddr.String(), Server: "10.20.0.2", LeaseTime: "1h", DNS: []string{"192.0.2.53"},
	}
}

// config returns the controller's configuration. Default forwarding is enabled, as it is
// everywhere.
func (w *world) config(listen string) string {
	return fmt.Sprintf(`data_dir: %s/data
api: {listen: %q}
openflow: {listen: [%q], plaintext: true}
network:
  discovery: {interval: 300ms, timeout: 3s}
sos: {enabled: false}
handover:
  enabled: true
  borders: [%s]
%s`, w.dir, listen, w.lab.ControllerAddr().String(), strings.Join(w.borders, ", "), w.extra)
}

func (w *world) configFile(listen string) string {
	w.t.Helper()
	return w.write(w.config(listen))
}

// write writes the controller's configuration to a file.
func (w *world) write(text string) string {
	w.t.Helper()
	file := filepath.Join(w.dir, "controller.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return file
}

// start runs a controller in this process.
func (w *world) start() {
	w.t.Helper()
	api, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.serve(w.configFile("127.0.0.1:0"), w.lab.ControllerAddr(), api)
	w.dial("http://"+api.Addr().String(), nil)
}

// serve runs a controller in this process until stop: switches connect in the control namespace,
// operators to the given listener.
func (w *world) serve(file string, switches netip.AddrPort, api net.Listener) {
	w.t.Helper()
	cfg := services.DefaultConfig()
	if err := config.Load(config.Sources{File: file, Set: []string{"store.kind=memory"}}, cfg); err != nil {
		w.t.Fatal(err)
	}
	of, err := w.lab.Control().Listen("tcp", switches.String())
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c, err := controller.New(ctx, controller.Options{
		Services: services.Definitions(),
		Config:   cfg, Log: slog.New(slog.NewTextHandler(w.log, nil)), OpenFlow: []net.Listener{of}, API: api,
	})
	if err != nil {
		cancel()
		w.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("controller at %v: %v", switches, err)
		}
		if w.rest != nil {
			w.rest.Close()
		}
	})
}

// dial creates the client of the API.
func (w *world) dial(url string, dial func(context.Context, string, string) (net.Conn, error)) {
	w.t.Helper()
	w.connect(client.Options{Server: url, Dial: dial})
}

// connect creates a client of the API, with the token that the controller has created.
func (w *world) connect(o client.Options) {
	w.t.Helper()
	w.eventually("the controller has a token", func() bool {
		token, err := os.ReadFile(filepath.Join(w.dir, "data", "token"))
		o.Token = strings.TrimSpace(string(token))
		return err == nil && o.Token != ""
	})
	c, err := client.New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.rest = c
	w.eventually("the API answers", func() bool { return w.do(http.MethodGet, "status", nil, nil) == nil })
}

// ready waits until the controller knows all switches and links, with latencies.
func (w *world) ready() {
	w.t.Helper()
	inner, isSwitch := 0, map[string]bool{}
	for _, s := range w.lab.Topology().Switches {
		isSwitch[s.Name] = true
	}
	for _, l := range w.lab.Topology().Links {
		if isSwitch[l.A.Node] && isSwitch[l.B.Node] {
			inner++
		}
	}
	w.eventually("switches and links are known", func() bool {
		var links []struct {
			Latency float64 `json:"latency_milliseconds"`
		}
		if w.rest.Get(context.Background(), "/api/v1/network/links", &links) != nil || len(links) != 2*inner {
			return false
		}
		for _, l := range links {
			if l.Latency == 0 {
				return false
			}
		}
		return true
	})
	punt := fmt.Sprintf("priority=%d,", network.StageAdmit.Base())
	w.eventually("punt rules are in the edges", func() bool {
		for _, e := range w.domain.Edges {
			if !strings.Contains(w.flows(e), punt) {
				return false
			}
		}
		return true
	})
}

// floods waits until the rules of the broadcast tree are in the edges: before that, packets of
// default forwarding may be lost.
func (w *world) floods() {
	w.t.Helper()
	flood := fmt.Sprintf("priority=%d,", network.StageRoute.Base()+rule.RouteFlood)
	w.eventually("the broadcast tree is in the edges", func() bool {
		return !slices.ContainsFunc(w.domain.Edges, func(e string) bool { return !contains(w.flows(e), flood) })
	})
}

// do calls an operation of the service's API.
func (w *world) do(method, path string, in, out any) error {
	return w.rest.Do(context.Background(), method, "/api/v1/handover/"+path, in, out)
}

func (w *world) put(path string, in any) {
	w.t.Helper()
	if err := w.do(http.MethodPut, path, in, nil); err != nil {
		w.t.Fatalf("PUT %s: %v", path, err)
	}
}

func (w *world) get(path string, out any) {
	w.t.Helper()
	if err := w.do(http.MethodGet, path, nil, out); err != nil {
		w.t.Fatalf("GET %s: %v", path, err)
	}
}

// eventually polls with a deadline.
func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	if !w.poll(waitLimit, ok) {
		w.t.Fatalf("waited %v in vain: %s", waitLimit, what)
	}
}

// poll polls until the condition holds or the time is over, and reports whether it holds.
func (w *world) poll(limit time.Duration, ok func() bool) bool {
	deadline := time.Now().Add(limit)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			return false
		}
		<-tick.C
	}
	return true
}

// port returns the switch port where a link ends.
func (w *world) port(link string) network.PortRef {
	name, port := w.lab.Link(link).Attachment()
	return network.PortRef{Switch: openflow.DatapathID(w.lab.Switch(name).DPID()), Port: uint32(port)}
}

// switches returns the names of all switches.
func (w *world) switches() []string {
	var names []string
	for _, s := range w.lab.Topology().Switches {
		names = append(names, s.Name)
	}
	return names
}

func (w *world) flows(name string) string {
	out, err := w.lab.Switch(name).Ofctl(context.Background(), "dump-flows", "--no-names")
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// run runs a program on a host and returns what it prints.
func (w *world) run(host string, args ...string) string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	out, err := w.lab.Host(host).Command(ctx, args[0], args[1:]...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("%s: %s: %v\n%s", host, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// describe logs the state of a world in which a test has failed.
func (w *world) describe() {
	w.t.Logf("controller:\n%s", w.log)
	if w.rest != nil {
		for _, what := range []string{"status", "devices", "leases", "handovers?limit=10"} {
			var v any
			err := w.do(http.MethodGet, what, nil, &v)
			w.t.Logf("%s: %v %v", what, v, err)
		}
	}
	for _, s := range w.switches() {
		out, err := w.lab.Switch(s).Ofctl(context.Background(), "dump-flows", "--no-names")
		w.t.Logf("%s: %v\n%s", s, err, head(out, 40))
	}
}

// head returns the first lines of a text.
func head(text string, lines int) string {
	all := strings.SplitAfter(text, "\n")
	return strings.Join(all[:min(len(all), lines)], "")
}

// logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

const maxLog = 256 << 10

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.b.Len() > maxLog {
		b.b.Reset()
	}
	return b.b.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// problemText returns the full text of an error of the API.
func problemText(err error) string {
	var p *client.Problem
	if errors.As(err, &p) {
		return fmt.Sprintf("%+v", *p)
	}
	if err == nil {
		return ""
	}
	return err.Error()
}
