package interop

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/qos/match"
	"github.com/sluice-net/sluice/services/sos"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	rate    = 100e6 // of every link, in bit/s
	webPort = 80
	size    = 5 << 20
)

// world is a network with two agents, a controller with every service, and a web server
// that has one file.
type world struct {
	*testbed.Deployment
	t    testing.TB
	lab  *lab.Lab
	root string // what the web server serves
	sum  [sha256.Size]byte
	file string // where downloads go
}

// newWorld is two sites with an agent each, changed as the test wants it.
func newWorld(t testing.TB, name string, changes ...func(*lab.Topology)) *world {
	t.Helper()
	topology := lab.WAN(name, lab.WANOptions{Rate: rate, RTT: 20 * time.Millisecond})
	for _, change := range changes {
		change(&topology)
	}
	w := build(t, topology, func(*lab.Lab) string { return "" })
	w.publish(size)
	return w
}

// build builds a network and starts all programs on it. services is what the
// controller's configuration has besides.
func build(t testing.TB, topology lab.Topology, services func(*lab.Lab) string) *world {
	t.Helper()
	return buildWith(t, topology, nil, "", services)
}

// buildWith is build with gateways of Cinema, and with more of the controller's section network.
func buildWith(t testing.TB, topology lab.Topology, gateways map[string]testbed.CinemaRole, network string, services func(*lab.Lab) string) *world {
	t.Helper()
	w := &world{t: t, lab: lab.New(t, topology)} // skips the test where there can be no lab
	dir, binary := t.TempDir(), selfbuild.Binary(t)
	stop, err := testbed.StartClassifiers(context.WithoutCancel(t.Context()), w.lab, binary, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	w.Deployment, err = testbed.Deploy(context.WithoutCancel(t.Context()), testbed.Options{
		Lab: w.lab, Binary: binary, LogDir: dir, Network: w.capacities() + network, Services: w.databases() + services(w.lab),
		Gateways: gateways,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("controller: %s", testbed.Tail(filepath.Join(dir, "controller.log"), 30))
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	w.must(testbed.Poll(t.Context(), "the links", func() error {
		n, err := w.Links(t.Context())
		if want := w.cables(); err == nil && n < want {
			err = fmt.Errorf("%d of %d are known", n, want)
		}
		return err
	}))
	w.root = filepath.Join(dir, "root")
	w.must(os.Mkdir(w.root, 0o755))
	w.file = filepath.Join(dir, "download")
	server, err := testbed.StartWebServer(context.WithoutCancel(t.Context()), w.lab.Host("server"), w.root, dir, webPort)
	w.must(err)
	t.Cleanup(server.Stop)
	return w
}

// cables is how many directions of links between switches there are.
func (w *world) cables() (n int) {
	isSwitch := map[string]bool{}
	for _, s := range w.lab.Topology().Switches {
		isSwitch[s.Name] = true
	}
	for _, l := range w.lab.Topology().Links {
		if isSwitch[l.A.Node] && isSwitch[l.B.Node] {
			n += 2
		}
	}
	return n
}

// publish gives the web server a file of so many random bytes.
func (w *world) publish(bytes int64) {
	w.t.Helper()
	f, err := os.Create(filepath.Join(w.root, "file"))
	w.must(err)
	defer f.Close()
	h := sha256.New()
	_, err = io.CopyN(io.MultiWriter(f, h), rand.Reader, bytes)
	w.must(err)
	w.sum = [sha256.Size]byte(h.Sum(nil))
}

// withAccess has a switch of its own for the client, before that of its agent.
func withAccess(t *lab.Topology) {
	t.Switches = append(t.Switches, lab.Switch{Name: "s0"})
	for i := range t.Links {
		if t.Links[i].A.Node == "client" {
			t.Links[i].B.Node = "s0"
		}
	}
	t.Links = append(t.Links, lab.Link{A: lab.End{Node: "s0"}, B: lab.End{Node: "s1"}})
}

// oneTable leaves all switches one table.
func oneTable(t *lab.Topology) {
	for i := range t.Switches {
		t.Switches[i].Tables = 1
	}
}

// withTables leaves all switches as they are.
func withTables(*lab.Topology) {}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// capacities tells the controller the rates of all links: that of those without one is rate.
func (w *world) capacities() string {
	text := "  switches:\n"
	for _, s := range w.lab.Topology().Switches {
		var ports []string
		for _, l := range w.lab.Topology().Links {
			if l.A.Node == s.Name || l.B.Node == s.Name {
				port, err := w.lab.Switch(s.Name).Port(l.Name)
				w.must(err)
				ports = append(ports, fmt.Sprintf("%d: %s", port, units.FormatRate(cmp.Or(l.AtoB.Rate, rate))))
			}
		}
		text += fmt.Sprintf("    %016x: {name: %s, capacity: {%s}}\n", w.lab.Switch(s.Name).DPID(), s.Name, strings.Join(ports, ", "))
	}
	return text
}

func (w *world) databases() string {
	text := "qos: {queues: connect}\novsdb:\n  switches:\n"
	for _, s := range w.lab.Topology().Switches {
		text += fmt.Sprintf("    %016x: %s\n", w.lab.Switch(s.Name).DPID(), w.lab.Switch(s.Name).Database())
	}
	return text
}

func (w *world) addr(host string) netip.Addr { return w.lab.Host(host).Addr() }

// post asks the controller for something.
func (w *world) post(path string, body, answer any) {
	w.t.Helper()
	w.must(w.Do(w.t.Context(), http.MethodPost, path, body, answer))
}

// whitelist has the server's connections carried by agents.
func (w *world) whitelist() string {
	w.t.Helper()
	id, err := w.Whitelist(w.t.Context(), w.addr("server"), webPort, sos.Tuning{})
	w.must(err)
	return id
}

// download fetches the file, compares it, and says how many sessions of agents have begun
// with it.
func (w *world) download() (carried int) {
	w.t.Helper()
	sessions, _ := w.downloadAt("client")
	return len(sessions)
}

// isCarried downloads until agents have carried a connection: one whose set-up takes too long,
// as on a busy machine, goes directly.
func (w *world) isCarried(what string) {
	w.t.Helper()
	w.must(testbed.PollFor(w.t.Context(), time.Minute, what, func() error {
		if n := w.download(); n != 1 {
			return fmt.Errorf("%d sessions carried the connection, want 1; directly went %+v", n, w.directs())
		}
		return nil
	}))
}

// downloadAt is a download of a host, with the sessions of agents that have begun with it.
func (w *world) downloadAt(host string) ([]sos.Record, testbed.Download) {
	w.t.Helper()
	begun := time.Now()
	d, err := testbed.Curl(w.t.Context(), w.lab.Host(host), fmt.Sprintf("http://%v/file", netip.AddrPortFrom(w.addr("server"), webPort)), w.file, nil)
	w.must(err)
	f, err := os.Open(w.file)
	w.must(err)
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	w.must(err)
	if [sha256.Size]byte(h.Sum(nil)) != w.sum {
		w.t.Errorf("%d bytes arrived that are not the file's", d.Bytes)
	}
	return w.sessionsSince(begun), d
}

// sessionsSince are the sessions of agents that have begun since then. Of those of before,
// a controller that has been restarted may hear at any time.
func (w *world) sessionsSince(then time.Time) []sos.Record {
	w.t.Helper()
	all, err := w.Sessions(w.t.Context())
	w.must(err)
	return slices.DeleteFunc(all, func(r sos.Record) bool { return r.Started.Before(then) })
}

// web are the two directions of connections to the web server.
func (w *world) web() []match.Flow {
	client, server := match.Text(w.addr("client").String()), match.Text(w.addr("server").String())
	port := match.Text(fmt.Sprint(webPort))
	return []match.Flow{{IPv4Src: client, IPv4Dst: server, TCPDst: port}, {IPv4Src: server, IPv4Dst: client, TCPSrc: port}}
}
