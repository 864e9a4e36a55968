package lease

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/dhcp"
	"github.com/sluice-net/sluice/services/handover/mobile/fake"
	"github.com/sluice-net/sluice/services/handover/registry"
	"github.com/sluice-net/sluice/store/memstore"
)

var (
	vni       = openflow.MAC{2, 0, 0, 0, 0, 0xff}
	nic       = openflow.MAC{2, 0, 0, 0, 0, 1}
	serverMAC = openflow.MAC{2, 0, 0, 0, 0, 0xfe}
	home      = netip.MustParsePrefix("10.8.0.0/24")
	key       = []byte("0123456789abcdef0123456789abcdef")
)

const leaseTime = 10 * time.Minute

// operator is the real server with one device and two ports.
type operator struct {
	t   testing.TB
	reg *registry.Registry
	srv *dhcp.Server

	mu        sync.Mutex
	decisions []dhcp.Decision
	silent    bool
}

func newOperator(t testing.TB) *operator {
	t.Helper()
	st := memstore.New()
	o := &operator{t: t, reg: registry.New(registry.Options{Store: st})}
	must(t, o.reg.Load(t.Context(), registry.Definitions{
		Classes: map[string]registry.Class{"phones": {Name: "phones", Policy: registry.PolicySeamless, Trigger: registry.TriggerSigned}},
		Pools: map[string]registry.Pool{"p": {
			Name: "p", Prefix: home, First: netip.MustParseAddr("10.8.0.10"), Last: netip.MustParseAddr("10.8.0.99"),
			Gateway: netip.MustParseAddr("10.8.0.1"), LeaseTime: leaseTime, DNS: []netip.Addr{netip.MustParseAddr("10.8.0.2")},
			MTU: 1400, Domain: "example.org",
		}},
		Devices: map[string]registry.Device{"d": {ID: "d", MACs: []openflow.MAC{vni, nic}, Class: "phones", Pool: "p", Key: key}},
	}))
	o.srv = dhcp.New(o.reg, dhcp.Options{})
	return o
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// at returns the operator's network at one of its ports.
func (o *operator) at(port uint32) fake.Answer {
	return func(frame []byte, h *packet.Headers) []byte {
		m, err := dhcp.Parse(frame, h)
		if err != nil {
			o.t.Errorf("the server cannot read the client's frame: %v", err)
			return nil
		}
		d := o.srv.Handle(context.Background(), dhcp.Request{
			Message: m, Src: h.EthSrc, At: network.PortRef{Switch: 1, Port: port}, Time: time.Now(),
		})
		_ = d.Commit(context.Background()) // the verdict reports a failure
		o.mu.Lock()
		defer o.mu.Unlock()
		o.decisions = append(o.decisions, d)
		if d.Reply == nil || o.silent {
			return nil
		}
		return d.Frame(serverMAC)
	}
}

// took returns the kinds of messages and their verdicts since the last call.
func (o *operator) took() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []string
	for _, d := range o.decisions {
		out = append(out, d.Type.String()+" "+string(d.Verdict))
	}
	o.decisions = nil
	return out
}

func client() *Client {
	return New(Config{MAC: vni, HostName: "phone", Sign: func(m *dhcpv4.DHCPv4, src openflow.MAC, now time.Time) error {
		return dhcp.Sign(key, m, src, now)
	}})
}

func expect(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func TestLifeOfALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperator(t)
		wire := fake.NewWire(o.at(1))
		p := Port{Conn: wire.Open(), MAC: nic}
		c := client()

		l, err := c.Attach(t.Context(), p, nil)
		must(t, err)
		expect(t, "first", o.took(), "DISCOVER offered", "REQUEST granted")
		if l.Address != netip.MustParsePrefix("10.8.0.10/24") || l.Router != netip.MustParseAddr("10.8.0.1") || l.MTU != 1400 ||
			l.Domain != "example.org" || len(l.DNS) != 1 || l.Server != l.Router || l.ServerMAC != serverMAC {
			t.Errorf("lease %+v", l)
		}
		if lasts := l.Expires.Sub(l.Granted); lasts != leaseTime {
			t.Errorf("it lasts %v", lasts)
		}

		// From another place: one message each way, and the server treats it as a move.
		wire.SetAnswer(o.at(2))
		began := time.Now()
		l, err = c.Attach(t.Context(), p, &l)
		must(t, err)
		if d := o.decisions[0]; !d.Attach || !d.Signed || d.Previous == nil || d.Previous.At.Port != 1 || time.Since(began) != 2*wire.Delay {
			t.Errorf("the move: attach %v, signed %v, from %+v, in %v", d.Attach, d.Signed, d.Previous, time.Since(began))
		}
		expect(t, "move", o.took(), "REQUEST granted")

		// At T1 only the lease's server is asked, from the leased address.
		before := time.Now()
		renewed, err := c.Extend(t.Context(), p, l)
		must(t, err)
		if waited := time.Since(before); waited < leaseTime/2-time.Second || waited > leaseTime/2+time.Second {
			t.Errorf("renewed after %v", waited)
		}
		expect(t, "renewal", o.took(), "REQUEST granted")
		sent := wire.Sent()
		h, err := packet.Parse(sent[len(sent)-1])
		must(t, err)
		if h.EthDst != serverMAC || h.Dst != l.Server || h.Src != l.Address.Addr() || h.EthSrc != nic {
			t.Errorf("the renewal goes from %v %v to %v %v", h.EthSrc, h.Src, h.EthDst, h.Dst)
		}
		if !renewed.Expires.After(l.Expires) {
			t.Errorf("renewed until %v, was %v", renewed.Expires, l.Expires)
		}

		must(t, c.Release(p, renewed))
		pause.For(2*wire.Delay, "the release travels")
		expect(t, "release", o.took(), "RELEASE released")
	})
}

func (o *operator) setSilent(silent bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.silent = silent
}

// attached returns a client with a lease.
func attached(t *testing.T) (*operator, *fake.Wire, Port, *Client, Lease) {
	t.Helper()
	o := newOperator(t)
	wire := fake.NewWire(o.at(1))
	p := Port{Conn: wire.Open(), MAC: nic}
	c := client()
	l, err := c.Attach(t.Context(), p, nil)
	must(t, err)
	o.took()
	return o, wire, p, c, l
}

func TestMessagesGetLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, wire, p, c, l := attached(t)
		wire.Lose(2)
		began := time.Now()
		if _, err := c.Attach(t.Context(), p, &l); err != nil {
			t.Fatal(err)
		}
		// 100 ms give or take a tenth, and twice that give or take a tenth.
		if took := time.Since(began); took < 250*time.Millisecond || took > 360*time.Millisecond {
			t.Errorf("two lost requests cost %v", took)
		}
		// A lost answer is requested again, with a new signature: otherwise it would be a replay.
		o.setSilent(true)
		time.AfterFunc(50*time.Millisecond, func() { o.setSilent(false) })
		if _, err := c.Attach(t.Context(), p, &l); err != nil {
			t.Fatal(err)
		}
		expect(t, "messages", o.took(), "REQUEST granted", "REQUEST granted", "REQUEST granted")
	})
}

func TestNobodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, wire, p, c, l := attached(t)
		wire.Cut(true)
		before := len(wire.Sent())
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := c.Attach(ctx, p, &l); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		var kinds []string
		for _, f := range wire.Sent()[before:] {
			h, err := packet.Parse(f)
			must(t, err)
			m, err := dhcp.Parse(f, &h)
			must(t, err)
			kinds = append(kinds, m.MessageType().String())
			if m.IsBroadcast() != (len(kinds)%2 == 0) {
				t.Errorf("message %d asks for broadcast: %v", len(kinds), m.IsBroadcast())
			}
		}
		expect(t, "sent", kinds, "REQUEST", "REQUEST", "REQUEST", "REQUEST", "DISCOVER", "DISCOVER", "DISCOVER", "DISCOVER", "DISCOVER", "DISCOVER", "DISCOVER")
	})
}

func TestAddressThatIsNotTheDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _, p, c, l := attached(t)
		other := l
		other.Address = netip.MustParsePrefix("10.8.0.77/24")
		got, err := c.Attach(t.Context(), p, &other)
		must(t, err)
		expect(t, "messages", o.took(), "REQUEST refused", "DISCOVER offered", "REQUEST granted")
		if got.Address != l.Address {
			t.Errorf("got %v", got.Address)
		}
	})
}

func TestExpiredLeaseIsAskedForAsAWish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _, p, c, l := attached(t)
		pause.For(leaseTime, "the lease ends")
		got, err := c.Attach(t.Context(), p, &l)
		must(t, err)
		expect(t, "messages", o.took(), "DISCOVER offered", "REQUEST granted")
		if got.Address != l.Address {
			t.Errorf("got %v", got.Address)
		}
	})
}

func TestRebinding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, wire, p, c, l := attached(t)
		o.setSilent(true)
		time.AfterFunc(leaseTime*7/8, func() { o.setSilent(false) })
		renewed, err := c.Extend(t.Context(), p, l)
		must(t, err)
		if waited := renewed.Granted.Sub(l.Granted); waited < leaseTime*7/8 {
			t.Errorf("renewed after %v", waited)
		}
		sent := wire.Sent()
		h, err := packet.Parse(sent[len(sent)-1])
		must(t, err)
		if h.EthDst != packet.Broadcast || h.Src != l.Address.Addr() {
			t.Errorf("rebinding goes from %v to %v", h.Src, h.EthDst)
		}
		// T1 at 300 s: again after 112, 56, 37 s; T2 at 525 s.
		if n := len(o.took()); n < 4 || n > 6 {
			t.Errorf("asked %d times", n)
		}
	})
}

func TestLeaseThatNobodyExtends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, wire, p, c, l := attached(t)
		wire.Cut(true)
		if _, err := c.Extend(t.Context(), p, l); !errors.Is(err, ErrExpired) || time.Now().Before(l.Expires) {
			t.Errorf("error %v at %v, the lease ends at %v", err, time.Now(), l.Expires)
		}
	})
}

func TestExtendEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, p, c, l := attached(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := c.Extend(ctx, p, l); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	})
}

// Messages that are no answers to the client's request are ignored.
func TestForeignAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, wire, p, c, l := attached(t)
		honest := o.at(1)
		edits := []func(*dhcpv4.DHCPv4){
			func(m *dhcpv4.DHCPv4) { m.TransactionID[0] ^= 1 },
			func(m *dhcpv4.DHCPv4) { m.ClientHWAddr[5] ^= 1 },
			func(m *dhcpv4.DHCPv4) { m.OpCode = dhcpv4.OpcodeBootRequest },
			func(m *dhcpv4.DHCPv4) { m.UpdateOption(dhcpv4.OptMessageType(dhcpv4.MessageTypeOffer)) },
		}
		wire.SetAnswer(func(frame []byte, h *packet.Headers) []byte {
			reply := honest(frame, h)
			for _, edit := range edits {
				m, err := dhcpv4.FromBytes(reply[42:])
				must(t, err)
				edit(m)
				wire.Deliver(dhcp.Frame(m, serverMAC, l.Server, nic, l.Address.Addr()))
			}
			broken := slices.Clone(reply)
			broken[60] ^= 1 // the address
			wire.Deliver(broken)
			wire.Deliver(reply[:60])
			return reply
		})
		got, err := c.Attach(t.Context(), p, &l)
		must(t, err)
		if got.Address != l.Address || len(o.took()) != 1 {
			t.Errorf("lease %+v", got)
		}
	})
}
