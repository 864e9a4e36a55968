package mobilityfirst

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/kit/servicetest"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
	"github.com/sluice-net/sluice/store/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sent is a frame that the controller has sent by a switch.
type sent struct {
	to    network.PortRef
	bytes []byte
}

// frame parses the content behind the Ethernet header.
func (s sent) frame(t testing.TB) frame.Frame {
	t.Helper()
	f, err := frame.Parse(s.bytes[ethernetHeader:])
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// net is a network that records the sent frames by port.
type net struct {
	*servicetest.Network
	mu       sync.Mutex
	all      []sent
	settling map[network.PortRef]bool // ports that are not edge ports yet
}

// IsEdge implements kit.Network.
func (n *net) IsEdge(at network.PortRef) bool { return n.Network.IsEdge(at) && !n.IsSettling(at) }

// IsSettling implements kit.Network.
func (n *net) IsSettling(at network.PortRef) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.settling[at]
}

// Send implements kit.Network.
func (n *net) Send(at network.PortRef, frame []byte) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, sent{at, bytes.Clone(frame)}) // the caller may use its frame again
	return nil
}

// labelled identifies the frames that have a label: the label means something only together with the
// addresses that they go from and to.
type labelled struct{ label, from, to string }

// labelledBy returns the frames that a rule of a path forwards. It reports false for other rules.
func labelledBy(r network.Rule) (labelled, bool) {
	label, ok := r.Match.Get(openflow.FieldVLANVID)
	from, hasFrom := r.Match.Get(openflow.FieldEthSrc)
	to, hasTo := r.Match.Get(openflow.FieldEthDst)
	return labelled{label.String(), from.String(), to.String()}, ok && hasFrom && hasTo
}

// flowTable is a ledger that fails the test if a label gets a second meaning: if rules for labelled
// frames are applied while another path still has rules for the same frames, at any switch.
type flowTable struct {
	*servicetest.Ledger
	t testing.TB
	// removal is how long switches take to remove the rules of a path.
	removal time.Duration

	mu     sync.Mutex
	owners map[labelled]string // key of the program that has rules for the frames
}

// Apply implements kit.Ledger.
func (f *flowTable) Apply(ctx context.Context, key string, p network.Program, o network.ApplyOptions) error {
	f.mu.Lock()
	for _, r := range p.Rules {
		x, ok := labelledBy(r)
		if !ok {
			continue
		}
		if owner := f.owners[x]; owner != "" && owner != key {
			f.t.Errorf("%s gets label %s from %s to %s, for which %s has rules", key, x.label, x.from, x.to, owner)
		}
		f.owners[x] = key
	}
	f.mu.Unlock()
	return f.Ledger.Apply(ctx, key, p, o)
}

// Remove implements kit.Ledger.
func (f *flowTable) Remove(ctx context.Context, key string) error {
	pause.For(f.removal, "switches take their time to remove rules")
	if err := f.Ledger.Remove(ctx, key); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.owners, func(_ labelled, owner string) bool { return owner == key })
	return nil
}

// ring returns four switches, each linked from its port 1 to port 2 of the next, except for cut
// links. Hosts are behind the ports from 10 on.
func ring(cut ...openflow.DatapathID) *network.Topology {
	var links []network.Link
	switches := []openflow.DatapathID{1, 2, 3, 4}
	for _, d := range switches {
		if slices.Contains(cut, d) {
			continue
		}
		here, there := network.PortRef{Switch: d, Port: 1}, network.PortRef{Switch: d%4 + 1, Port: 2}
		links = append(links, network.Link{From: here, To: there}, network.Link{From: there, To: here})
	}
	return topology.New(1, switches, links)
}

// world is the service in a ring.
type world struct {
	t testing.TB
	*Service
	net    *net
	ledger *flowTable
	id     uint64
	number uint64
}

// in runs a test of the service in a synctest bubble with its own clock.
func in(t *testing.T, o Options, test func(w *world)) {
	synctest.Test(t, func(t *testing.T) { runIn(t, o, test) })
}

func runIn(t testing.TB, o Options, test func(w *world)) {
	w := &world{t: t, net: &net{Network: servicetest.NewNetwork(ring())}, number: 1 << 60}
	w.ledger = &flowTable{Ledger: servicetest.NewLedger(), t: t, owners: map[labelled]string{}}
	o.Network, o.Rules, o.Metric, o.Store = w.net, w.ledger, network.MetricHops, memstore.New()
	w.Service = New(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	synctest.Wait()
	test(w)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// owner is the owner of a name.
type owner struct {
	key  ed25519.PrivateKey
	name frame.GUID
}

func numbered(i int) owner {
	seed := make([]byte, ed25519.SeedSize)
	be.PutUint32(seed, uint32(i))
	key := ed25519.NewKeyFromSeed(seed)
	return owner{key, record.NameOfOwner(key)}
}

// host returns the place of the host with a number.
func host(d openflow.DatapathID, number byte) place {
	return place{network.PortRef{Switch: d, Port: 10 + uint32(number)}, openflow.MAC{2, 0, 0, 0, 0, number}}
}

// hello returns a host's hello for a name.
func (w *world) hello(o owner, at place) message {
	w.number++
	return message{place: at, hello: record.SignHello(o.key, w.number, at.MAC, 0), received: time.Now()}
}

// say sends a hello.
func (w *world) say(o owner, at place) network.Verdict { return w.heard(w.hello(o, at)) }

// ask sends a request for a name.
func (w *world) ask(o owner, at place, to frame.GUID) network.Verdict {
	x := w.hello(o, at)
	w.id++
	x.request = &frame.PathRequest{ID: w.id, Destination: to, Hello: x.hello}
	return w.heard(x)
}

// heard passes a message to the service, and waits until it has been processed.
func (w *world) heard(x message) network.Verdict {
	x.send = w.net
	v := w.process(x)
	synctest.Wait()
	return v
}

// pass advances the clock.
func (w *world) pass(d time.Duration) {
	pause.For(d, "the service counts by its clock")
	synctest.Wait()
}

// sent returns the frames that were sent since the last call.
func (w *world) sent() []sent {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	all := w.net.all
	w.net.all = nil
	return all
}

// request returns the only frame that was sent, which must be a request for a host.
func (w *world) request(to place) *frame.PathRequest {
	w.t.Helper()
	all := w.sent()
	if len(all) != 1 || all[0].to != to.At {
		w.t.Fatalf("sent %+v, want one frame to %v", all, to)
	}
	q, is := all[0].frame(w.t).(*frame.PathRequest)
	if !is || openflow.MAC(all[0].bytes) != to.MAC {
		w.t.Fatalf("sent %x, want a request to %v", all[0].bytes, to)
	}
	return q
}

// arrives returns the place that a host's frame with a label reaches, or nowhere if it is dropped,
// and whether it still has the label there.
func (w *world) arrives(label uint16, from, to place) (at network.PortRef, tagged bool) {
	w.t.Helper()
	packet := fake.NewPacket(openflow.EthType(frame.EtherType), openflow.VLANVID(label), openflow.EthSrc(from.MAC), openflow.EthDst(to.MAC))
	at, tagged = from.At, true
	programs := w.ledger.Programs()
	top := w.net.Topology()
	for range 8 {
		var found *network.Rule
		arrived := packet.With(openflow.InPort(at.Port))
		for _, p := range programs {
			for i := range p.Rules {
				r := &p.Rules[i]
				if r.Switch != at.Switch || len(r.Actions) == 0 || !arrived.Matches(r.Match) {
					continue
				}
				if found != nil {
					w.t.Fatalf("two rules are for label %d from %v at %v", label, from, at)
				}
				found = r
			}
		}
		if found == nil {
			return network.PortRef{}, tagged
		}
		if found.Actions[0].Type == openflow.ActionPopVLAN {
			tagged = false
		}
		out := network.PortRef{Switch: at.Switch, Port: found.Actions[len(found.Actions)-1].Port()}
		link := slices.IndexFunc(top.Links, func(l network.Link) bool { return l.From == out })
		if link < 0 {
			return out, tagged
		}
		at = top.Links[link].To
	}
	w.t.Fatalf("label %d from %v goes round", label, from)
	return at, tagged
}

// leads asserts that labels lead frames in both directions.
func (w *world) leads(forth, back uint16, from, to place) {
	w.t.Helper()
	if at, tagged := w.arrives(forth, from, to); at != to.At || tagged {
		w.t.Errorf("label %d from %v to %v arrives at %v, tagged %v", forth, from, to, at, tagged)
	}
	if at, tagged := w.arrives(back, to, from); at != from.At || tagged {
		w.t.Errorf("label %d from %v to %v arrives at %v, tagged %v", back, to, from, at, tagged)
	}
}

// rules returns the number of rules of paths.
func (w *world) rules() (n int) {
	for key, p := range w.ledger.Programs() {
		if key != "unknown-labels" {
			n += len(p.Rules)
		}
	}
	return n
}
