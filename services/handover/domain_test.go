package handover

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/domain"
	"github.com/sluice-net/sluice/services/handover/registry"
	"github.com/sluice-net/sluice/store"
)

// fakeDomain replaces the protocol between domains.
type fakeDomain struct {
	mu             sync.Mutex
	admission      domain.Admission
	attached, left []string
	record         *domain.Record // of the only device that it knows
	restored       bool
}

func (d *fakeDomain) Register(*api.API) {}
func (d *fakeDomain) Restore(context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.restored = true
	return nil
}

func (d *fakeDomain) Run(ctx context.Context) { <-ctx.Done() }
func (d *fakeDomain) Admit(openflow.MAC, domain.Heading, *domain.Evidence) domain.Admission {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.admission
}

func (d *fakeDomain) Attached(id string, _ *domain.Evidence) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.attached = append(d.attached, id)
}

func (d *fakeDomain) Left(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = append(d.left, id)
}

func (d *fakeDomain) Announce(context.Context, string, string, domain.Heading) error { return nil }
func (d *fakeDomain) Abandon(context.Context, string) error                          { return nil }

// Upstream returns that devices of the west come by the north, once the fake is restored.
func (d *fakeDomain) Upstream(id string) (string, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return "north", d.restored && strings.HasSuffix(id, "@west")
}

func (d *fakeDomain) Record(string) (domain.Record, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.record == nil {
		return domain.Record{}, false
	}
	return *d.record, true
}

func (d *fakeDomain) know(r domain.Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.record = &r
}

func (d *fakeDomain) admit(a domain.Admission) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.admission = a
}

var (
	peering    = ref(1, 8)
	mac5, mac6 = mac("06:00:00:00:00:05"), mac("06:00:00:00:00:06")
	busIP      = netip.MustParseAddr("10.7.0.50")
)

// newDomainRig returns a service with a neighbour in the north.
func newDomainRig(t *testing.T, change ...func(*Settings)) (*rig, *fakeDomain) {
	t.Helper()
	return startDomain(t, newWorld(treeLinks), newStore(t), change...)
}

func startDomain(t *testing.T, w *world, st store.Store, change ...func(*Settings)) (*rig, *fakeDomain) {
	t.Helper()
	d := &fakeDomain{}
	r := start(t, w, st, func(s *Settings) {
		s.Domain = "here"
		s.Borders = append(s.Borders, Border{Name: "north", At: peering, Peer: "north"})
		p, faults := PoolSpec{Prefix: "10.7.0.0/16", Gateway: "10.7.0.1", GatewayMAC: "02:aa:00:00:00:07", Home: "north"}.Parse("north")
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		s.Pools["north"] = p
		for _, f := range change {
			f(s)
		}
	}, func(s *Service) { s.domain, s.origin, s.receiver = d, d, d })
	return r, d
}

func bus() domain.Visitor {
	return domain.Visitor{Home: "north", Device: "bus", MACs: []openflow.MAC{mac5, mac6}, IP: busIP, Policy: registry.PolicySeamless}
}

// through follows a packet that comes in by a port, between an outside host and a device: to the
// device, or from it.
func (r *rig) through(in network.PortRef, src, dst openflow.MAC, from, to netip.Addr) []arrival {
	r.t.Helper()
	return r.w.deliver(r.t, in, fake.NewPacket(openflow.EthType(packet.TypeIPv4), openflow.EthSrc(src), openflow.EthDst(dst),
		openflow.IPSrc(from), openflow.IPDst(to), openflow.IPProto(packet.ProtoTCP)))
}

// If a MAC address that appears at a second port is refused, a visitor moves after its home has
// confirmed its signature. A visitor that does not sign cannot be confirmed.
func TestVisitorAtTwoPorts(t *testing.T) {
	for name, signed := range map[string]bool{"signed": true, "without a key": false} {
		t.Run(name, func(t *testing.T) {
			r, d := newDomainRig(t, func(s *Settings) { s.Claims = ClaimRefuse })
			v := bus()
			v.Signed = signed
			id := v.LocalID("here")
			d.know(domain.Record{ID: id, Visitor: v})
			if err := (host{r.Service}).Prepare(t.Context(), domain.Visit{Visitor: v, ID: id, Via: "north"}); err != nil {
				t.Fatal(err)
			}
			d.admit(domain.Serve)
			if got := r.move(edge3, mac5, busIP); got != busIP {
				t.Fatalf("came, and got %v", got)
			}
			r.idle()
			r.send(edge4, mac5, request(mac5, busIP))
			patience := answerTime
			if !signed {
				patience = 500 * time.Millisecond
			}
			if got := r.answer(edge4, dhcpv4.MessageTypeAck, patience); got.IsValid() != signed {
				t.Errorf("moved: %v, want %v", got.IsValid(), signed)
			}
		})
	}
}

// A visitor's place is prepared where it is heading. The visitor gets its address, moves, and
// leaves no state behind.
func TestVisitor(t *testing.T) {
	r, d := newDomainRig(t)
	h, ctx := host{r.Service}, t.Context()
	v := bus()
	id := v.LocalID("here")
	at := edge3
	visit := domain.Visit{Visitor: v, ID: id, Via: "north", Heading: domain.Heading{At: &at, MAC: mac5}}
	for range 2 { // messages may arrive twice
		if err := h.Prepare(ctx, visit); err != nil {
			t.Fatal(err)
		}
	}
	gw := mac("02:aa:00:00:00:07")
	down := func() []arrival { return r.through(peering, gw, mac5, server, busIP) }
	if got := down(); !slices.Equal(got, []arrival{{edge3, gw, mac5}}) {
		t.Errorf("before it comes: %v", got)
	}

	// Its domain is not ready: there is no answer until it is.
	d.admit(domain.Wait)
	r.send(edge3, mac5, discover(mac5))
	r.idle()
	if n := len(r.w.sent); n != 0 {
		t.Errorf("%d frames sent before the neighbour was ready", n)
	}
	d.admit(domain.Serve)
	h.Resume(mac5)
	if ip := r.answer(edge3, dhcpv4.MessageTypeOffer, answerTime); ip != busIP {
		t.Fatalf("the message that waited was answered with %v", ip)
	}
	if ip := r.attach(edge3, mac5); ip != busIP {
		t.Fatalf("a visitor that has %v got %v", busIP, ip)
	}
	r.idle()
	if got := r.through(edge3, mac5, gw, busIP, server); !slices.Equal(got, []arrival{{peering, mac5, gw}}) {
		t.Errorf("from the visitor: %v", got)
	}
	d.mu.Lock()
	if !slices.Equal(d.attached, []string{id}) {
		t.Errorf("told of %v", d.attached)
	}
	d.mu.Unlock()
	if k, ok := h.Device(id); !ok || !k.Here || k.IP != busIP || k.Home != "north" || k.Visitor.Device != "bus" {
		t.Errorf("known as %+v", k)
	}
	if ip := r.move(edge4, mac6, busIP); ip != busIP {
		t.Fatalf("moved, and got %v", ip)
	}
	r.eventually("one place to be served", func() bool { return len(down()) == 1 })
	r.idle()
	if got := down(); !slices.Equal(got, []arrival{{edge4, gw, mac6}}) {
		t.Errorf("after its move: %v", got)
	}
	for range 2 {
		if err := h.Forget(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := h.Device(id); ok || len(r.w.kept()) > 0 {
		t.Errorf("after it was forgotten rules of %v are left", r.w.kept())
	}
}

// Which devices roam is known before anything is done for them: a visitor that came by another
// domain than its own has its rules again as soon as all others have theirs.
func TestVisitorFromAfarAfterARestart(t *testing.T) {
	w, st := newWorld(treeLinks), newStore(t)
	far := func(s *Settings) { alter(s.Pools, "north", func(p *registry.Pool) { p.Home = "west" }) }
	r, d := startDomain(t, w, st, far)
	v, at := bus(), edge3
	v.Home = "west"
	visit := domain.Visit{Visitor: v, ID: v.LocalID("here"), Via: "north", Heading: domain.Heading{At: &at, MAC: mac5}}
	if err := (host{r.Service}).Prepare(t.Context(), visit); err != nil {
		t.Fatal(err)
	}
	d.admit(domain.Serve)
	if got := r.move(edge3, mac5, busIP); got != busIP {
		t.Fatalf("came, and got %v", got)
	}
	r.idle()
	r.stop()
	again, _ := startDomain(t, w, st, far, func(s *Settings) { s.Settle = time.Hour }) // the service becomes ready even so
	gw := mac("02:aa:00:00:00:07")
	if got := again.through(peering, gw, mac5, server, busIP); !slices.Equal(got, []arrival{{edge3, gw, mac5}}) {
		t.Errorf("to the visitor: %v", got)
	}
}

// A neighbour may not bring a visitor with an address of another device.
func TestVisitorWithSomebodysAddress(t *testing.T) {
	r, _ := newDomainRig(t)
	h := host{r.Service}
	for name, change := range map[string]func(*domain.Visitor){
		"an address of a pool of ours":   func(v *domain.Visitor) { v.IP = netip.MustParseAddr("10.8.1.9") },
		"the address of its router":      func(v *domain.Visitor) { v.IP = netip.MustParseAddr("10.7.0.1") },
		"a MAC address of a device here": func(v *domain.Visitor) { v.MACs = []openflow.MAC{mac5, mac1} },
		"the name of a device of ours":   func(v *domain.Visitor) { v.Home, v.Device = "here", "car" },
		"a device of ours that is not":   func(v *domain.Visitor) { v.Home, v.Device = "here", "nobody" },
	} {
		v := bus()
		change(&v)
		if err := h.Check(v); !errors.Is(err, domain.ErrTaken) {
			t.Errorf("%s: %v", name, err)
		}
		if err := h.Prepare(t.Context(), domain.Visit{Visitor: v, ID: v.LocalID("here"), Via: "north"}); !errors.Is(err, domain.ErrTaken) {
			t.Errorf("%s is taken in: %v", name, err)
		}
	}
	if len(r.w.kept()) > 0 || len(r.registry.Devices()) != 2 {
		t.Errorf("something was changed: rules of %v, devices %v", r.w.kept(), r.registry.Devices())
	}
}

// A device of ours goes to the neighbour and comes back.
func TestAbroadAndBack(t *testing.T) {
	r, d := newDomainRig(t)
	h, ctx := host{r.Service}, t.Context()
	ip := r.attach(edge3, mac3)
	r.idle()
	if err := h.Redirect(ctx, "phone", "north", false); err != nil {
		t.Fatal(err)
	}
	got := r.down(ip, mac3)
	slices.SortFunc(got, func(a, b arrival) int { return a.At.Compare(b.At) })
	if !slices.Equal(got, []arrival{{peering, routerMAC, mac3}, {edge3, routerMAC, mac3}}) {
		t.Errorf("announced: %v", got)
	}
	if err := h.Cancel(ctx, "phone"); err != nil {
		t.Fatal(err)
	}
	r.at(ip, mac3, edge3, mac3)
	for _, alone := range []bool{false, true, true} {
		if err := h.Redirect(ctx, "phone", "north", alone); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.down(ip, mac3); !slices.Equal(got, []arrival{{peering, routerMAC, mac3}}) {
		t.Errorf("abroad: %v", got)
	}
	if got := r.through(peering, mac3, routerMAC, ip, server); !slices.Equal(got, []arrival{{uplink, mac3, routerMAC}}) {
		t.Errorf("from abroad: %v", got)
	}
	if k, ok := h.Device("phone"); !ok || k.Here || r.api.status().Away != 1 {
		t.Errorf("known as %+v", k)
	}
	if got := r.move(edge5, mac3, ip); got != ip {
		t.Fatalf("home again, and got %v", got)
	}
	r.eventually("one place to be served", func() bool { return len(r.down(ip, mac3)) == 1 })
	r.idle()
	r.at(ip, mac3, edge5, mac3)
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.attached, []string{"phone", "phone"}) {
		t.Errorf("told of %v", d.attached)
	}
}
