package hostagent

import (
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const mib = 1 << 20

// fakeKernel is one whose connections the test changes.
type fakeKernel struct {
	all     map[uint32]*Connection
	carried map[netip.AddrPort]uint64 // of subflows, by their local ends
	opened  []netip.Addr
	ended   []netip.AddrPort
	refuses bool
	octets  uint64
	asked   int // for all connections
}

func (k *fakeKernel) Octets() (uint64, error) { return k.octets, nil }

func (k *fakeKernel) Connections() (all []Connection, err error) {
	k.asked++
	for _, c := range k.all {
		all = append(all, *c)
	}
	return all, nil
}

func (k *fakeKernel) Carried(local, _ netip.AddrPort) (uint64, error) { return k.carried[local], nil }

func (k *fakeKernel) Open(_ uint32, local netip.Addr, _ uint8, _ netip.AddrPort) error {
	if k.refuses {
		return errors.New("refused")
	}
	k.opened = append(k.opened, local)
	return nil
}

func (k *fakeKernel) End(_ uint32, local, _ netip.AddrPort) error {
	k.ended = append(k.ended, local)
	return nil
}

var (
	here  = netip.MustParseAddrPort("10.0.0.1:40000")
	there = netip.MustParseAddrPort("10.0.0.2:80")
)

// bench is an agent on such a kernel, with a clock of its own.
type bench struct {
	*Agent
	k     *fakeKernel
	clock time.Time
}

func newBench(p Policy) *bench {
	b := &bench{k: &fakeKernel{all: map[uint32]*Connection{}, carried: map[netip.AddrPort]uint64{}}, clock: time.Unix(1000, 0)}
	b.Agent = New(Options{Policy: p, Log: slog.New(slog.DiscardHandler)})
	b.kernel, b.now = b.k, func() time.Time { return b.clock }
	return b
}

// carry has a connection carry so much in all, and the agent look.
func (b *bench) carry(token uint32, bytes uint64) time.Duration {
	c := b.k.all[token]
	if c == nil {
		c = &Connection{Token: token, Local: here, Remote: there, Counted: true}
		b.k.all[token] = c
	}
	b.k.octets += bytes - c.Carried
	c.Carried = bytes
	b.clock = b.clock.Add(time.Second)
	next, _ := b.poll()
	return next
}

// A connection gets a further subflow for each threshold that it has carried, and no more than
// it may.
func TestSubflowsByBytes(t *testing.T) {
	b := newBench(Policy{Threshold: mib, Subflows: 2, Most: 10})
	for _, c := range []struct {
		carried uint64
		opened  int
	}{{0, 0}, {mib - 1, 0}, {mib, 1}, {2*mib - 1, 1}, {2 * mib, 2}, {100 * mib, 2}} {
		if b.carry(7, c.carried); len(b.k.opened) != c.opened {
			t.Errorf("after %d bytes it has %d, want %d", c.carried, len(b.k.opened), c.opened)
		}
	}
}

// All connections have as many as may be together, those that have carried most first; one
// that has fallen back to TCP, and one whose peer takes none, get none.
func TestWhoGetsThem(t *testing.T) {
	b := newBench(Policy{Threshold: mib, Subflows: 1, Most: 2})
	for token := range uint32(4) {
		b.k.all[token] = &Connection{Token: token, Local: here, Remote: there, Counted: true, Carried: uint64(token) * mib, Fallback: token == 3}
	}
	b.poll()
	b.clock = b.clock.Add(time.Second)
	b.poll()
	if b.connections[2].opened != 1 || b.connections[1].opened != 1 || b.connections[3].opened != 0 {
		t.Errorf("%+v", b.connections)
	}
	b.carry(5, 50*mib)
	if b.connections[5].opened != 0 {
		t.Error("a third one is opened")
	}
	b = newBench(Policy{Threshold: mib, Subflows: 1, Most: 2})
	b.k.refuses = true
	b.carry(1, mib)
	b.k.refuses = false
	if b.carry(1, 9*mib); len(b.k.opened) != 0 {
		t.Error("one that was refused is asked for again")
	}
}

// The end that has opened a connection opens its further subflows; where nobody has told who
// that was, it is the one with the higher port.
func TestServersOpenNone(t *testing.T) {
	b := newBench(Policy{Threshold: mib, Subflows: 3, Most: 9})
	b.handle(notification{events: []Event{{Kind: ConnectionCreated, Token: 1, Local: here, Remote: there, Server: true}}})
	b.carry(1, 9*mib)
	b.k.all[2] = &Connection{Token: 2, Local: there, Remote: here, Counted: true, Carried: 9 * mib}
	b.poll()
	if len(b.k.opened) != 0 {
		t.Errorf("it opens %d", len(b.k.opened))
	}
}

// Subflows are opened from the addresses that are named, in turn, where these are of the
// connection's IP version.
func TestAddresses(t *testing.T) {
	six, a, c := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.1.0.1")
	b := newBench(Policy{Threshold: mib, Subflows: 3, Most: 9, Addresses: []netip.Addr{six, a, c}})
	for i := range uint64(3) {
		b.carry(1, (i+1)*mib)
	}
	if len(b.k.opened) != 3 || b.k.opened[0] != a || b.k.opened[1] != c || b.k.opened[2] != a {
		t.Errorf("from %v", b.k.opened)
	}
}

// A subflow that carries next to nothing while its connection carries much is ended, and its
// connection gets no other; one that has its part stays.
func TestSubflowsThatBringNothing(t *testing.T) {
	for carried, ended := range map[uint64]int{0: 1, mib / 2: 0} {
		b := newBench(Policy{Threshold: mib, Subflows: 3, Most: 9})
		b.carry(1, mib)
		local := netip.AddrPortFrom(here.Addr(), 50000)
		b.handle(notification{events: []Event{{Kind: SubflowOpened, Token: 1, Local: local, Remote: there}}})
		b.k.carried[local] = carried
		b.clock = b.clock.Add(evaluateAfter)
		b.carry(1, 2*mib)
		if len(b.k.ended) != ended {
			t.Errorf("with %d of 1 MiB: %d ended", carried, len(b.k.ended))
		}
		b.handle(notification{events: []Event{{Kind: SubflowClosed, Token: 1, Local: local, Remote: there}}})
		if b.carry(1, 20*mib); ended > 0 && len(b.k.opened) != 1 {
			t.Errorf("%d are opened after one that brought nothing", len(b.k.opened))
		}
	}
}

// A subflow that does not come about is no subflow, and its connection gets no other.
func TestSubflowThatDoesNotComeAbout(t *testing.T) {
	b := newBench(Policy{Threshold: mib, Subflows: 3, Most: 1})
	b.carry(1, mib)
	b.clock = b.clock.Add(answerTimeout)
	b.carry(1, 9*mib)
	if n := b.connections.openSubflows(); n != 0 || len(b.k.opened) != 1 {
		t.Errorf("%d are there, %d were opened", n, len(b.k.opened))
	}
	if b.carry(2, mib); len(b.k.opened) != 2 {
		t.Error("it takes another connection's place")
	}
}

// Kernels that do not count bytes tell sequence numbers: what there was before counts for
// nothing.
func TestKernelThatDoesNotCount(t *testing.T) {
	b := newBench(Policy{Threshold: mib, Subflows: 3, Most: 9})
	b.k.all[1] = &Connection{Token: 1, Local: here, Remote: there, Carried: 1 << 60}
	b.poll()
	b.clock = b.clock.Add(time.Second)
	b.k.all[1].Carried += mib
	b.k.octets += mib
	if b.poll(); len(b.k.opened) != 1 {
		t.Errorf("%d are opened", len(b.k.opened))
	}
}

// As long as the host has not carried what one of its connections lacks until it gets a
// subflow, the kernel is asked for none of them; it is when there is a new one, or events are
// lost.
func TestIdleConnectionsAreNotAskedFor(t *testing.T) {
	b := newBench(Policy{Threshold: mib, Subflows: 3, Most: 9})
	for token := range uint32(1000) {
		b.k.all[token+1] = &Connection{Token: token + 1, Local: here, Remote: there, Counted: true, Carried: uint64(token)}
	}
	look := func(octets uint64) (asked bool, next time.Duration) {
		before := b.k.asked
		b.k.octets += octets
		b.clock = b.clock.Add(slowInterval)
		next, _ = b.poll()
		return b.k.asked > before, next
	}
	if asked, _ := look(0); !asked {
		t.Error("they are not asked for at first")
	}
	for _, c := range []struct {
		octets uint64
		asked  bool
		next   time.Duration
	}{{0, false, slowInterval}, {1000, false, slowInterval}, {mib / 2, false, fastInterval}, {mib/2 - 2000, false, fastInterval}, {2, true, slowInterval}, {0, false, slowInterval}} {
		if asked, next := look(c.octets); asked != c.asked || next != c.next {
			t.Errorf("%d octets later: asked %v, again in %v; want %v, %v", c.octets, asked, next, c.asked, c.next)
		}
	}
	b.handle(notification{events: []Event{{Kind: ConnectionCreated, Token: 5000, Local: here, Remote: there}}})
	if asked, _ := look(0); !asked {
		t.Error("they are not asked for when there is a new one")
	}
	b.k.all[5000] = &Connection{Token: 5000, Local: here, Remote: there, Counted: true}
	look(0)
	b.handle(notification{err: ErrMissed})
	if asked, _ := look(0); !asked {
		t.Error("they are not asked for when events are lost")
	}
}

// The kernel is asked often while there is something to see, seldom while there is not, and
// not at all without connections.
func TestHowOftenTheKernelIsAsked(t *testing.T) {
	b := newBench(Policy{Threshold: 1 << 40, Subflows: 3, Most: 9})
	if _, any := b.poll(); any {
		t.Error("it is asked without connections")
	}
	if !b.handle(notification{events: []Event{{Kind: ConnectionCreated, Token: 1, Local: here, Remote: there}}}) {
		t.Error("it is not asked when there is one")
	}
	for _, carried := range []uint64{0, mib} {
		if next := b.carry(1, carried); next != fastInterval {
			t.Errorf("after %v while it is new and has carried %d", next, carried)
		}
	}
	b.clock = b.clock.Add(slowInterval)
	if next := b.carry(1, 2*mib); next != fastInterval {
		t.Errorf("after %v while it carries", next)
	}
	if next := b.carry(1, 2*mib); next != slowInterval {
		t.Errorf("after %v while it does not", next)
	}
	if !b.handle(notification{err: ErrMissed}) {
		t.Error("it is not asked what has become of them when events are lost")
	}
	if b.handle(notification{events: []Event{{Kind: ConnectionClosed, Token: 1}}}) {
		t.Error("it is asked when one has ended")
	}
	if len(b.connections) != 0 {
		t.Errorf("%v", b.connections)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	good := Options{Policy: Policy{Threshold: 1, Subflows: 1, Most: 1}, DSCP: 1}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Options){
		"threshold": func(o *Options) { o.Threshold = 0 }, "no subflows": func(o *Options) { o.Subflows = 0 }, "subflows": func(o *Options) { o.Subflows = 8 },
		"most": func(o *Options) { o.Most = 0 }, "DSCP": func(o *Options) { o.DSCP = 64 }, "no DSCP": func(o *Options) { o.DSCP = 0 },
		"addresses": func(o *Options) { o.Addresses = make([]netip.Addr, 255) },
	} {
		o := good
		spoil(&o)
		if o.Check() == nil {
			t.Errorf("%s is not refused", name)
		}
	}
}

// What does not leave the host gets no further subflows, and takes none away from the rest.
func TestConnectionsWithinTheHost(t *testing.T) {
	b := newBench(Policy{Threshold: mib, Subflows: 3, Most: 2})
	for token, ends := range [][2]string{{"127.0.0.1:40000", "127.0.0.1:80"}, {"[::1]:40001", "[::1]:80"}, {"10.0.0.1:40002", "10.0.0.1:80"}} {
		b.k.all[uint32(token+1)] = &Connection{Token: uint32(token + 1), Local: netip.MustParseAddrPort(ends[0]), Remote: netip.MustParseAddrPort(ends[1]), Counted: true}
		b.carry(uint32(token+1), 100*mib)
	}
	if len(b.k.opened) != 0 {
		t.Errorf("opened from %v", b.k.opened)
	}
	if b.carry(9, mib); len(b.k.opened) != 1 {
		t.Errorf("one that leaves the host has %d", len(b.k.opened))
	}
}

// As many as may be are said to be open, rather than nothing.
func TestMostIsSaid(t *testing.T) {
	b := newBench(Policy{Threshold: mib, Subflows: 1, Most: 1})
	var out strings.Builder
	b.Log = slog.New(slog.NewTextHandler(&out, nil))
	b.carry(1, mib)
	if strings.Contains(out.String(), "as many are open") {
		t.Errorf("said of the only one: %s", out.String())
	}
	if b.carry(2, mib); len(b.k.opened) != 1 || strings.Count(out.String(), "as many are open") != 1 {
		t.Errorf("%d are open: %s", len(b.k.opened), out.String())
	}
}
