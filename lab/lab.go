package lab

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sluice-net/sluice/internal/namespace"
	"github.com/sluice-net/sluice/lab/delayline"
)

// Lab is a network that is up.
type Lab struct {
	plan   plan
	record record
	// moves serialises moves of links. links holds the links as they are now; each move replaces
	// the whole slice.
	moves    sync.Mutex
	links    atomic.Pointer[[]wire]
	tuning   tuning
	byThread bool // is Options.ByThread
	runDir   string
	dir      string
	shaper   string
}

func newLab(p plan, runDir string, logf func(string, ...any)) *Lab {
	if logf == nil {
		logf = func(string, ...any) {}
	}
	l := &Lab{plan: p, runDir: runDir, dir: filepath.Join(runDir, p.Topology.Name)}
	l.tuning = tuning{dir: l.dir, originals: map[string]string{}, logf: logf}
	l.links.Store(&p.Wires)
	return l
}

// Open returns a lab that another process has built.
func Open(name string, o Options) (*Lab, error) {
	dir := filepath.Join(runDirOr(o.RunDir), name)
	r, err := readRecord(dir)
	if err != nil {
		return nil, fmt.Errorf("lab %s: %w", name, ErrNoLab)
	}
	l := newLab(r.Plan, runDirOr(o.RunDir), o.Logf)
	l.record, l.shaper = r, r.Shaper
	return l, nil
}

// Name returns the lab's name.
func (l *Lab) Name() string { return l.plan.Topology.Name }

// Topology returns the topology that the lab was built from, with all defaults filled in. It does
// not follow links that were moved.
func (l *Lab) Topology() Topology { return l.plan.Topology }

// wires returns the links as they are now.
func (l *Lab) wires() []wire { return *l.links.Load() }

// node is a namespace of the lab.
type node struct {
	lab  *Lab
	name string
}

func (n node) path() string { return namespace.Path(n.Namespace()) }

// Name returns the node's name in the topology.
func (n node) Name() string { return n.name }

// Namespace returns the name of the node's network namespace, as `ip netns` lists it.
func (n node) Namespace() string { return n.lab.plan.namespace(n.name) }

// Command prepares a program that will run in the node's network namespace. The program sees the
// machine's /sys. Command does not use ip-netns(8): the mount namespace that it makes would keep
// the namespaces of other labs alive while the program runs.
func (n node) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + n.path(), "--", name}, args...)...)
}

// Do runs f on a thread inside the node's namespace: sockets that f opens belong to that namespace.
// f must not hand work to other goroutines.
func (n node) Do(f func() error) error { return namespace.Do(n.path(), f) }

// LiveHost is a host of a lab that is up.
type LiveHost struct {
	node
	spec Host
}

// Host returns a host by its name. It panics if the topology has no such host: that is a bug of the
// caller, as with an index out of range.
func (l *Lab) Host(name string) *LiveHost {
	i := l.plan.Topology.hostIndex(name)
	if i < 0 {
		panic(fmt.Sprintf("lab %s has no host %q", l.Name(), name))
	}
	return &LiveHost{node: node{lab: l, name: name}, spec: l.plan.Topology.Hosts[i]}
}

// addresses returns all addresses of the host's interfaces, first interface first.
func (h *LiveHost) addresses() []netip.Prefix {
	var all []netip.Prefix
	for _, f := range h.interfaces() {
		all = append(all, f.Addresses...)
	}
	return all
}

// interfaces returns the node's ends of links, in the order of the links.
func (n node) interfaces() []iface {
	var all []iface
	for _, w := range n.lab.wires() {
		if f, ok := w.endAt(n.name); ok {
			all = append(all, f)
		}
	}
	return all
}

// endAt returns a link's end at a node.
func (w wire) endAt(node string) (iface, bool) {
	switch node {
	case w.A.Node:
		return w.A, true
	case w.B.Node:
		return w.B, true
	}
	return iface{}, false
}

// Addr returns the host's first IPv4 address, or its first IPv6 address if it has no other.
func (h *LiveHost) Addr() netip.Addr {
	all := h.addresses()
	for _, a := range all {
		if a.Addr().Is4() {
			return a.Addr()
		}
	}
	return h.Addr6()
}

// Addr6 returns the host's first IPv6 address.
func (h *LiveHost) Addr6() netip.Addr {
	for _, a := range h.addresses() {
		if a.Addr().Is6() {
			return a.Addr()
		}
	}
	return netip.Addr{}
}

// MAC returns the hardware address of the host's first interface.
func (h *LiveHost) MAC() [6]byte { return h.MACOf(0) }

// MACOf returns the hardware address of the host's interface ethN.
func (h *LiveHost) MACOf(n int) [6]byte {
	return [6]byte(mac(0x02, h.lab.plan.Topology.hostIndex(h.name), n))
}

// ControlAddr returns an agent's address in the control network.
func (h *LiveHost) ControlAddr() netip.Addr { return h.lab.ControlAddr(h.name) }

func (l *Lab) wire(link string) (wire, error) {
	for _, w := range slices.Concat(l.wires(), l.plan.Controls) {
		if w.Link.Name == link {
			return w, nil
		}
	}
	return wire{}, fmt.Errorf("lab %s has no link %q", l.Name(), link)
}

// tcShapes reports whether tc gives a link its properties.
func (l *Lab) tcShapes(w wire) bool { return l.shaper == ShapingNetem && w.Link.shaped() }

// delayLine returns the client of the lab's delay line process.
func (l *Lab) delayLine() *delayline.Client {
	return delayline.Dial(filepath.Join(l.dir, socketFile))
}
