package interop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/sos"
)

// A connection of several subflows is there before its server is whitelisted. A further subflow
// joins it all the same: an agent that took it for a connection of its own would end it.
func TestSubflowOfDirectConnection(t *testing.T) {
	t.Parallel()
	const port = 8443
	w := newWorld(t, "pairjoin")
	to := netip.AddrPortFrom(w.addr("server"), port)
	client, server := w.multipath(to)
	defer client.Close()
	defer server.Close()
	if _, err := w.Whitelist(t.Context(), to.Addr(), port, sos.Tuning{}); err != nil {
		t.Fatal(err)
	}
	const further = "10.0.9.1"
	w.on("client", "ip", "address", "add", further+"/16", "dev", "eth0")
	w.on("client", "ip", "mptcp", "endpoint", "add", further, "subflow")
	w.must(testbed.Poll(t.Context(), "the further subflow", func() error {
		out, err := w.lab.Host("server").Command(t.Context(), "ss", "-Htn", "state", "established", "src", to.String(), "dst", further).Output()
		if err == nil && len(out) == 0 {
			err = errors.New("there is one subflow")
		}
		return err
	}))
	if all, err := w.Sessions(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("agents have taken it: %+v, %v", all, err)
	}
	sent := []byte("by either")
	got := make([]byte, len(sent))
	_, err := client.Write(sent)
	if err == nil {
		_, err = io.ReadFull(server, got)
	}
	if err != nil || string(got) != string(sent) {
		t.Errorf("%q, %v", got, err)
	}
}

// multipath opens a connection of Multipath TCP from the client, by which a byte has gone each
// way: only then the kernel adds a subflow.
func (w *world) multipath(to netip.AddrPort) (client, server net.Conn) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	for _, h := range []string{"client", "server"} {
		w.on(h, "ip", "mptcp", "limits", "set", "subflows", "4", "add_addr_accepted", "4")
	}
	var lc net.ListenConfig
	lc.SetMultipathTCP(true)
	var listener net.Listener
	w.must(w.lab.Host("server").Do(func() (err error) { listener, err = lc.Listen(ctx, "tcp4", to.String()); return err }))
	w.t.Cleanup(func() { listener.Close() }) // who listens no more takes no further subflow
	var d net.Dialer
	d.SetMultipathTCP(true)
	w.must(w.lab.Host("client").Do(func() (err error) { client, err = d.DialContext(ctx, "tcp4", to.String()); return err }))
	server, err := listener.Accept()
	w.must(err)
	for _, c := range []net.Conn{client, server} {
		if multi, err := c.(*net.TCPConn).MultipathTCP(); err != nil || !multi {
			w.t.Fatalf("the connection is plain TCP, %v", err)
		}
	}
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		_, err := way[0].Write([]byte{1})
		w.must(err)
		_, err = io.ReadFull(way[1], make([]byte, 1))
		w.must(err)
	}
	return client, server
}

// on runs a program on a host.
func (w *world) on(host, name string, args ...string) {
	w.t.Helper()
	if out, err := w.lab.Host(host).Command(w.t.Context(), name, args...).CombinedOutput(); err != nil {
		w.must(fmt.Errorf("%s %v: %w: %s", name, args, err, out))
	}
}
