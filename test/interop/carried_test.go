package interop

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/packetsocket"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/services/qos/classes"
	"github.com/sluice-net/sluice/services/qos/match"
	"github.com/sluice-net/sluice/services/sos"
)

const (
	// The long link and the client's are narrow, and a third host at the server's site sends
	// the client more than either takes.
	longRate, clientRate, floodRate = 15e6, 10e6, 20e6
	promised                        = 4e6 // the class's rate
	ownDSCP                         = 46  // of the end hosts' packets
	some                            = 1 << 20
)

// busy is two sites with agents and narrow links, whose switches have so many tables.
func busy(name string, tables int) lab.Topology {
	t := lab.WAN(name, lab.WANOptions{Rate: longRate, RTT: 20 * time.Millisecond, Loss: -1})
	t.Hosts = append(t.Hosts, lab.Host{Name: "noise"})
	for i := range t.Switches {
		t.Switches[i].Tables = tables
	}
	for i := range t.Links {
		if t.Links[i].A.Node == "client" {
			t.Links[i].AtoB, t.Links[i].BtoA = delayline.Params{Rate: clientRate}, delayline.Params{Rate: clientRate}
		}
	}
	t.Links = append(t.Links, lab.Both("noise", "s2", delayline.Params{}))
	return t
}

// pull is a download that goes on.
type pull struct {
	conn  net.Conn
	bytes atomic.Int64
	done  sync.WaitGroup
}

// startPull begins to download, with packets of a DSCP.
func (w *world) startPull(dscp int) *pull {
	w.t.Helper()
	p := &pull{}
	w.must(w.lab.Host("client").Do(func() (err error) {
		d := net.Dialer{Timeout: time.Minute, Control: func(_, _ string, c syscall.RawConn) (err error) {
			cerr := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS, dscp<<2) })
			if cerr != nil {
				return cerr
			}
			return err
		}}
		p.conn, err = d.DialContext(w.t.Context(), "tcp", netip.AddrPortFrom(w.addr("server"), webPort).String())
		return err
	}))
	_, err := fmt.Fprintf(p.conn, "GET /file HTTP/1.1\r\nHost: server\r\n\r\n")
	w.must(err)
	p.done.Go(func() {
		b := make([]byte, 64<<10)
		for {
			n, err := p.conn.Read(b)
			p.bytes.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	w.t.Cleanup(p.stop)
	return p
}

func (p *pull) stop() {
	_ = p.conn.Close()
	p.done.Wait()
}

// gets waits until so many bytes more have arrived.
func (w *world) gets(p *pull, more int64) {
	w.t.Helper()
	before := p.bytes.Load()
	w.must(testbed.PollFor(w.t.Context(), time.Minute, "the download to go on", func() error {
		if n := p.bytes.Load() - before; n < more {
			return fmt.Errorf("%d bytes more have come, of %d", n, more)
		}
		return nil
	}))
}

// TestClassHoldsOnCarriedConnection floods the link between the agents and the client's. Beside
// the flood a connection that agents carry goes on once it has a class, whether it began before
// or after the class. All its packets are in the class's queue at each port of its way, with the
// class's DSCP between the agents, and the end hosts see the DSCP that each of them writes. With
// tables and in one.
func TestClassHoldsOnCarriedConnection(t *testing.T) {
	t.Parallel()
	for tables, name := range []string{"tables", "one"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			holdsOnCarried(t, build(t, busy("pair"+name, tables), func(*lab.Lab) string { return "" }))
		})
	}
}

func holdsOnCarried(t *testing.T, w *world) {
	w.must(os.Truncate(w.emptyFile(), 1<<30))
	// Connections that agents open before a session belong to no class, and would be among those captured.
	w.must(w.Do(t.Context(), http.MethodPatch, "/api/v1/sos/config", sos.ConfigChange{WarmPeers: new(0)}, nil))
	w.whitelist()
	before := w.startPull(ownDSCP)
	w.gets(before, some)
	flood, err := testbed.Flood{
		From: w.lab.Host("noise"), To: w.lab.Host("client"), Dst: netip.AddrPortFrom(w.addr("client"), 9), Rate: floodRate, Bytes: 1400,
	}.Start(t.Context())
	w.must(err)
	t.Cleanup(flood.Stop)

	flows := w.web()
	for i := range flows {
		flows[i].IPDSCP = match.Text(fmt.Sprint(ownDSCP))
	}
	w.post(classesPath, classes.ClassSpec{Name: "web", Priority: "0", MinRate: match.Text(fmt.Sprint(int(promised))), Flows: flows}, nil)
	ports := w.downPorts()
	ports[w.port("s1", "client-s1")] = "to the client"
	class := w.carriedOn("web", ports, promised)
	w.isOf("web", 1)
	w.inQueues("web", ports, before)
	before.stop()

	after := w.startPull(ownDSCP)
	w.gets(after, some)
	client := w.capture("client", func(h *packet.Headers) bool { return h.SrcPort == webPort })
	server := w.capture("server", func(h *packet.Headers) bool { return h.DstPort == webPort })
	// The answer to a connection's first segment comes before the session is known.
	agent := w.capture("x", func(h *packet.Headers) bool { return h.Src == w.addr("y") && h.End > h.Payload })
	w.inQueues("web", ports, after)
	w.isOf("web", 1)
	onlyDSCP(t, "the client", client(), ownDSCP)
	onlyDSCP(t, "the server", server(), ownDSCP)
	if class.DSCP == nil {
		t.Fatal("the class has no DSCP between agents")
	}
	onlyDSCP(t, "the client's agent", agent(), int(*class.DSCP))
}

// inQueues has a download go on, and waits until the class's queues at all ports have counted
// at least the bytes that have arrived meanwhile.
func (w *world) inQueues(class string, ports map[string]string, p *pull) {
	w.t.Helper()
	counted, received := w.queueBytes(class), p.bytes.Load()
	w.gets(p, some)
	received = p.bytes.Load() - received
	w.counts(class, ports, counted, uint64(received))
}

// counts waits until the class's queues at all ports have sent so many bytes more.
func (w *world) counts(class string, ports map[string]string, before map[string]uint64, more uint64) {
	w.t.Helper()
	w.must(testbed.Poll(w.t.Context(), "the queues of the way to have counted what arrived", func() error {
		now := w.queueBytes(class)
		for at, what := range ports {
			if grown := now[at] - before[at]; grown < more {
				return fmt.Errorf("%s (%s): its queue has sent %d bytes, %d have been received", what, at, grown, more)
			}
		}
		return nil
	}))
}

// emptyFile makes the file that the web server has.
func (w *world) emptyFile() string {
	w.t.Helper()
	name := filepath.Join(w.root, "file")
	w.must(os.WriteFile(name, nil, 0o644))
	return name
}

// port is one of a switch, as statistics of classes name it.
func (w *world) port(sw, link string) string {
	w.t.Helper()
	n, err := w.lab.Switch(sw).Port(link)
	w.must(err)
	return fmt.Sprintf("%016x/%d", w.lab.Switch(sw).DPID(), n)
}

// downPorts are those by which packets to the client leave switches when agents carry them,
// but for those between its agent and the client.
func (w *world) downPorts() map[string]string {
	return map[string]string{
		w.port("s2", "y-s2"): "from the server to its agent", w.port("s2", "wan"): "between the agents",
		w.port("s1", "x-s1"): "to the client's agent",
	}
}

// carriedOn waits until a class has its rate, for carried connections, at ports.
func (w *world) carriedOn(class string, ports map[string]string, rate uint64) (c classes.Info) {
	w.t.Helper()
	w.must(testbed.Poll(w.t.Context(), "the class to be kept on carried connections", func() error {
		c = classes.Info{} // what an answer leaves out stays as it was
		w.must(w.Get(w.t.Context(), classesPath+"/"+class, &c))
		has := map[string]bool{}
		for _, p := range c.Carried {
			has[fmt.Sprintf("%s/%d", p.Switch, p.Port)] = p.MinRate == rate
		}
		for at, what := range ports {
			if !has[at] {
				return fmt.Errorf("%s (%s) it is not; notes: %q", what, at, c.Notes)
			}
		}
		if n := strings.Join(c.Notes, "; "); strings.Contains(n, "carr") {
			return fmt.Errorf("it is %s (%s) and has notes: %s", c.State, c.Reason, n)
		}
		return nil
	}))
	return c
}

// isOf waits until so many live sessions are of a class, both ways.
func (w *world) isOf(class string, want int) {
	w.t.Helper()
	w.must(testbed.Poll(w.t.Context(), "the sessions to be of the class", func() error {
		all, err := w.Sessions(w.t.Context())
		if err != nil {
			return err
		}
		n := 0
		for _, s := range all {
			if s.State == sos.StateLive && s.ClassUp == class && s.ClassDown == class {
				n++
			}
		}
		if n != want {
			return fmt.Errorf("%d are, of %d", n, len(all))
		}
		return nil
	}))
}

// queueBytes is what the queues of a class have sent, by port.
func (w *world) queueBytes(class string) map[string]uint64 {
	w.t.Helper()
	var s classes.Stats
	w.must(w.Get(w.t.Context(), classesPath+"/"+class+"/stats", &s))
	out := map[string]uint64{}
	for _, q := range s.Queues {
		out[fmt.Sprintf("%s/%d", q.Switch, q.Port)] = q.Bytes
	}
	return out
}

// capture counts the DSCPs of TCP segments that reach a host from now on, until it is asked.
func (w *world) capture(host string, of func(*packet.Headers) bool) (seen func() map[uint8]int) {
	w.t.Helper()
	var socket *packetsocket.Socket
	w.must(w.lab.Host(host).Do(func() (err error) {
		socket, err = packetsocket.Open(nil, packetsocket.Options{Batch: 32, MaxFrame: 65536})
		return err
	}))
	counts := map[uint8]int{}
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			frames, err := socket.ReceiveBatch(context.Background())
			if err != nil {
				return
			}
			for _, f := range frames {
				if h, err := packet.Parse(f.Data); err == nil && h.Has(packet.TCP) && of(&h) {
					counts[h.DSCP]++
				}
			}
		}
	})
	stop := sync.OnceFunc(func() { _ = socket.Close(); reader.Wait() })
	w.t.Cleanup(stop)
	return func() map[uint8]int { stop(); return counts }
}

// onlyDSCP says that all segments had one.
func onlyDSCP(t *testing.T, where string, seen map[uint8]int, want int) {
	t.Helper()
	if len(seen) != 1 || seen[uint8(want)] < 10 {
		t.Errorf("%s was sent segments with these DSCPs: %v, want %d only", where, seen, want)
	}
}
