package openflow

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// ovs is a private Open vSwitch with one bridge on the dummy datapath: it
// needs no privileges and touches no interface of the machine.
type ovs struct {
	t   *testing.T
	dir string
}

// startOVS starts the daemons. The test is skipped where they are not installed.
func startOVS(t *testing.T) *ovs {
	t.Helper()
	for _, program := range []string{"ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed", program)
		}
	}
	dir, err := os.MkdirTemp("", "of-ovs-") // t.TempDir is too long for a socket's name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	o := &ovs{t: t, dir: dir}
	o.run("ovsdb-tool", "create", o.path("db"), "/usr/share/openvswitch/vswitch.ovsschema")
	o.daemon("ovsdb-server", o.path("db"), "--remote=punix:"+o.path("db.sock"), "--unixctl="+o.path("db.ctl"))
	o.await("db.sock")
	o.run("ovs-vsctl", "--db=unix:"+o.path("db.sock"), "--no-wait", "init")
	o.daemon("ovs-vswitchd", "unix:"+o.path("db.sock"), "--enable-dummy", "--disable-system", "--unixctl="+o.path("sw.ctl"))
	o.run("ovs-vsctl", "--timeout=10", "--db=unix:"+o.path("db.sock"),
		"add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy", "fail_mode=secure",
		"protocols=OpenFlow13", "other_config:datapath-id=00000000000000a1",
		"--", "add-port", "br0", "p1", "--", "set", "interface", "p1", "type=dummy", "ofport_request=1",
		"--", "add-port", "br0", "p2", "--", "set", "interface", "p2", "type=dummy", "ofport_request=2")
	o.await("br0.mgmt")
	return o
}

func (o *ovs) path(name string) string { return filepath.Join(o.dir, name) }

func (o *ovs) command(name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	o.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "OVS_RUNDIR="+o.dir, "OVS_LOGDIR="+o.dir, "OVS_DBDIR="+o.dir)
	return cmd
}

func (o *ovs) run(name string, args ...string) string {
	o.t.Helper()
	out, err := o.command(name, args...).CombinedOutput()
	if err != nil {
		o.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (o *ovs) daemon(name string, args ...string) {
	o.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "OVS_RUNDIR="+o.dir, "OVS_LOGDIR="+o.dir, "OVS_DBDIR="+o.dir)
	if err := cmd.Start(); err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			o.t.Errorf("%s is still running: %v", name, err)
		}
		_ = cmd.Wait() // it was killed: the state is known
	})
}

// await waits for a socket that a daemon makes.
func (o *ovs) await(name string) {
	o.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for {
		if c, err := net.Dial("unix", o.path(name)); err == nil {
			c.Close()
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			o.t.Fatalf("%s did not appear", name)
		}
	}
}

// A wire is a relay between an OpenFlow client and the bridge; it keeps every
// message that passes.
type wire struct {
	addr string
	mu   sync.Mutex
	seen [][]byte
}

func (w *wire) messages() [][]byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}

// tap opens a relay to the bridge.
func (o *ovs) tap() *wire {
	o.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		o.t.Fatal(err)
	}
	w := &wire{addr: "tcp:" + l.Addr().String()}
	var relays sync.WaitGroup
	relays.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("unix", o.path("br0.mgmt"))
			if err != nil {
				client.Close()
				continue
			}
			relays.Go(func() { w.relay(client, server) })
			relays.Go(func() { w.relay(server, client) })
		}
	})
	o.t.Cleanup(func() { l.Close(); relays.Wait() })
	return w
}

func (w *wire) relay(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	r := NewReader(from)
	for {
		b, err := r.Next()
		if err != nil {
			return
		}
		w.mu.Lock()
		w.seen = append(w.seen, append([]byte(nil), b...))
		w.mu.Unlock()
		if _, err := to.Write(b); err != nil {
			return
		}
	}
}

// A session is a controller's connection to the bridge.
type session struct {
	t    *testing.T
	conn net.Conn
	r    *Reader
	xid  uint32
}

// connect opens a session and says hello.
func (o *ovs) connect() *session {
	o.t.Helper()
	conn, err := net.Dial("unix", o.path("br0.mgmt"))
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { conn.Close() })
	s := &session{t: o.t, conn: conn, r: NewReader(conn)}
	s.send(NewHello())
	if m, ok := s.next().(*Hello); !ok || !m.Speaks(Version) {
		o.t.Fatalf("greeted with %v", m)
	}
	return s
}

func (s *session) send(m Message) {
	s.t.Helper()
	s.xid++
	b, err := m.AppendTo(nil, s.xid)
	if err != nil {
		s.t.Fatalf("%v: %v", m, err)
	}
	if _, err := s.conn.Write(b); err != nil {
		s.t.Fatal(err)
	}
}

// next returns the next message, answering what must be answered.
func (s *session) next() Message {
	s.t.Helper()
	if err := s.conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		s.t.Fatal(err)
	}
	b, err := s.r.Next()
	if errors.Is(err, io.EOF) {
		s.t.Fatal("the switch closed the connection")
	}
	if err != nil {
		s.t.Fatal(err)
	}
	_, m, err := Decode(append([]byte(nil), b...))
	if err != nil {
		s.t.Fatalf("%x: %v", b, err)
	}
	return m
}

// ask sends the message and a barrier, and returns what came before the
// barrier's reply.
func (s *session) ask(m Message) []Message {
	s.t.Helper()
	s.send(m)
	s.send(&BarrierRequest{})
	var replies []Message
	for {
		reply := s.next()
		if _, ok := reply.(*BarrierReply); ok {
			return replies
		}
		replies = append(replies, reply)
	}
}
