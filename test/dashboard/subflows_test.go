package dashboard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos"
)

// sendPort is where the receiver of the connection listens that sends, fetchPort that of the
// one that is sent to.
const sendPort, fetchPort = 7100, 7101

// joinRate is what each of the two ways carries, in bit/s: little, since switches and browser
// share the machine.
const joinRate = 3e6

// TestSubflows lets Chromium look at two connections of Multipath TCP with two further subflows
// each. All of them go by one link first, and then by two ways, one of which is cut.
func TestSubflows(t *testing.T) {
	begin(t, "npm", "chromium", "nft")
	l := lab.New(t, twoWays("board-joins"))
	switches, err := l.Control().Listen("tcp", l.ControllerAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	cfg := settings(t, l)
	cfg.Network.Forwarding.Mode = "proactive"
	config.Of[*qos.Section](cfg).Subflows.Enabled, config.Of[*qos.Section](cfg).Subflows.Paths = true, 2
	declareCapacity(t, cfg, l)
	server, token := runController(t, cfg, switches)
	waitReachable(t, l.Host("a"), l.Host("b").Addr().String())
	joinByKernel(t, l, config.Of[*qos.Section](cfg).Subflows.DSCP)
	// What the visit asks for: connections begin, and a link is cut.
	happen := http.NewServeMux()
	happen.HandleFunc("POST /begin", func(http.ResponseWriter, *http.Request) {
		carry(t, l, sendPort, false)
		carry(t, l, fetchPort, true)
	})
	happen.HandleFunc("POST /cut", func(w http.ResponseWriter, r *http.Request) {
		if err := l.SetLink(r.Context(), "s1-s2", false); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	asked := httptest.NewServer(happen)
	t.Cleanup(asked.Close)
	visit(t, "subflows", server, token, "SLUICE_HAPPEN="+asked.URL, "SLUICE_RECEIVER="+l.Host("b").Addr().String())
}

// twoWays has one link from the first host's switch, and two ways from there to the second's.
func twoWays(name string) lab.Topology {
	t := lab.Topology{Name: name, Hosts: []lab.Host{{Name: "a"}, {Name: "b"}}}
	for _, s := range []string{"s0", "s1", "s2", "s3", "s4"} {
		t.Switches = append(t.Switches, lab.Switch{Name: s})
	}
	t.Links = []lab.Link{lab.Both("a", "s0", delayline.Params{}), lab.Both("b", "s4", delayline.Params{}), lab.Both("s0", "s1", delayline.Params{})}
	for _, s := range []string{"s2", "s3"} {
		for _, end := range []string{"s1", "s4"} {
			t.Links = append(t.Links, lab.Both(end, s, delayline.Params{Rate: joinRate, Queue: 32 << 10, Delay: 2 * time.Millisecond}))
		}
	}
	return t
}

// declareCapacity says that links carry more than they do, so that none is full, for which
// subflows would be moved, and that their common one carries what both ways do, and more.
func declareCapacity(t *testing.T, cfg *config.Controller, l *lab.Lab) {
	t.Helper()
	for _, s := range l.Topology().Switches {
		capacity := cfg.Network.Switches[openflow.DatapathID(s.DPID)].Capacity
		for port := range capacity {
			capacity[port] = 2 * joinRate
		}
		if common, err := l.Switch(s.Name).Port("s0-s1"); err == nil {
			capacity[common] = 8 * joinRate
		}
	}
}

// joinByKernel has the first host's kernel open two further subflows of each connection, and
// give their SYNs the mark.
func joinByKernel(t *testing.T, l *lab.Lab, mark int) {
	t.Helper()
	run := func(host, name string, args ...string) {
		if out, err := l.Host(host).Command(t.Context(), name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
	}
	for _, h := range []string{"a", "b"} {
		run(h, "ip", "mptcp", "limits", "set", "subflows", "8", "add_addr_accepted", "8")
	}
	for _, address := range []string{"10.0.9.1", "10.0.9.2"} {
		run("a", "ip", "address", "add", address+"/16", "dev", "eth0")
		run("a", "ip", "mptcp", "endpoint", "add", address, "subflow")
	}
	run("a", "nft", "add table inet marks; add chain inet marks output { type filter hook output priority mangle; }; "+
		fmt.Sprintf("add rule inet marks output tcp option mptcp subtype 1 tcp flags & (syn|ack) == syn ip dscp set %d", mark))
}

// carry opens a connection from a to b and keeps it full until the test ends: from a, or
// from b if it fetches.
func carry(t *testing.T, l *lab.Lab, port uint16, fetches bool) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	a, b, ln, err := connect(ctx, l, netip.AddrPortFrom(l.Host("b").Addr(), port))
	if err != nil {
		t.Errorf("connection to port %d: %v", port, err)
		return
	}
	from, to := a, b
	if fetches {
		from, to = b, a
	}
	running.Go(func() {
		<-ctx.Done()
		for _, c := range []io.Closer{a, b, ln} {
			_ = c.Close()
		}
	})
	running.Go(func() {
		for block := make([]byte, 64<<10); ; {
			if _, err := from.Write(block); err != nil {
				return // closed
			}
		}
	})
	running.Go(func() { _, _ = io.Copy(io.Discard, to) }) // until it is closed
}

// connect opens a connection of Multipath TCP from a to b. Its further subflows need the
// listener, too.
func connect(ctx context.Context, l *lab.Lab, to netip.AddrPort) (a, b net.Conn, ln net.Listener, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var lc net.ListenConfig
	lc.SetMultipathTCP(true)
	if err := l.Host("b").Do(func() (err error) { ln, err = lc.Listen(ctx, "tcp4", to.String()); return err }); err != nil {
		return nil, nil, nil, err
	}
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	var d net.Dialer
	d.SetMultipathTCP(true)
	if err := l.Host("a").Do(func() (err error) { a, err = d.DialContext(ctx, "tcp4", to.String()); return err }); err != nil {
		return nil, nil, nil, errors.Join(err, ln.Close())
	}
	if b, err = ln.Accept(); err != nil {
		return nil, nil, nil, errors.Join(err, a.Close(), ln.Close())
	}
	return a, b, ln, nil
}
