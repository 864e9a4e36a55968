package mobilityfirst

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/services/mobilityfirst"
	"github.com/sluice-net/sluice/store/memstore"
)

// token is the API's.
const token = "0123456789abcdef0123456789abcdef"

// controller is one of a lab, with the service.
type controller struct {
	net  *network.Network
	api  http.Handler
	stop func()
}

// control runs a controller for a lab.
func control(t *testing.T, l *lab.Lab) *controller {
	t.Helper()
	return controlWith(t, l, network.Config{})
}

// controlWith runs a controller with the given settings of the network for a lab.
func controlWith(t *testing.T, l *lab.Lab, cfg network.Config) *controller {
	t.Helper()
	return controlAt(t, l, l.ControllerAddr(), cfg)
}

// controlAt runs a controller for the switches of a lab that connect to an address.
func controlAt(t *testing.T, l *lab.Lab, at netip.AddrPort, cfg network.Config) *controller {
	t.Helper()
	ln, err := l.Control().Listen("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	cfg.Log, cfg.Generation, cfg.Listeners = log, generation(), []net.Listener{ln}
	n, err := network.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	owner, err := n.Owner(mobilityfirst.Name, network.OwnerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := mobilityfirst.New(mobilityfirst.Options{Network: n, Rules: owner, Store: memstore.New(), Log: log, Lease: mobilityfirst.MinLease})
	n.AddHandler(rule.ChainMobilityFirst, s)
	n.Subscribe(s.NetworkChanged)
	a := api.New(api.Options{Version: "test", Auth: api.Auth{Tokens: []api.Token{api.NewToken("test", token)}}, Log: log})
	s.Register(a)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var all sync.WaitGroup
	for _, run := range []func(context.Context) error{n.Run, s.Run} {
		all.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	c := &controller{net: n, api: a.Handler(), stop: sync.OnceFunc(func() { cancel(); all.Wait() })}
	t.Cleanup(c.stop)
	return c
}

var generations struct {
	sync.Mutex
	last uint16
}

// generation is one that no controller of the test had before.
func generation() uint16 {
	generations.Lock()
	defer generations.Unlock()
	generations.last++
	return generations.last
}

// get asks the API.
func (c *controller) get(t *testing.T, path string) string {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	if c.api.ServeHTTP(w, r); w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	return w.Body.String()
}

// metric is one of the service's figures, zero if it has not been counted yet.
func (c *controller) metric(t *testing.T, name string) float64 {
	t.Helper()
	for line := range strings.Lines(c.get(t, "/metrics")) {
		if value, is := strings.CutPrefix(line, name+" "); is {
			v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	return 0
}

// paths are the names between which there are paths.
func (c *controller) paths(t *testing.T) (names []string) {
	t.Helper()
	var all []mobilityfirst.PathInfo
	if err := json.Unmarshal([]byte(c.get(t, "/api/v1/mobilityfirst/paths")), &all); err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		for _, e := range p.Ends {
			names = append(names, e.Name)
		}
	}
	return names
}

// packetIns are those of all switches.
func (c *controller) packetIns(*testing.T) (n uint64) {
	for _, s := range c.net.Switches() {
		n += s.Stats().PacketIns
	}
	return n
}

// namePacketIns returns the frames that have reached the controller and are neither IP nor of its own
// protocols: hosts of names send no others in a lab.
func (c *controller) namePacketIns() (n uint64) {
	for _, s := range c.net.Switches() {
		n += s.Stats().PacketInsOf[network.KindOther]
	}
	return n
}
