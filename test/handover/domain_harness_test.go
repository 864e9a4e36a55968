package handover

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/handover"
	"github.com/sluice-net/sluice/services/handover/domain"
)

// operator is one of two domains in a lab: a world with a name, an authority and
// a neighbour.
type operator struct {
	*world
	name    string
	ca      string // folder of its authority
	api     net.Listener
	address string // of its API
	other   *operator
}

// newOperators starts two domains, each with a controller in this process, a pool of its own, and
// one with the parameters for visitors from the other.
func newOperators(t *testing.T, o lab.MobilityOptions) (a, b *operator) {
	t.Helper()
	l := lab.New(t, lab.MobilityDomains("hd", o))
	da, db := o.Domains()
	a, b = newOperator(t, l, "a", da), newOperator(t, l, "b", db)
	a.other, b.other = b, a
	for _, x := range []*operator{a, b} {
		x.launch()
	}
	for _, x := range []*operator{a, b} {
		x.furnish()
	}
	return a, b
}

// furnish waits until the controller knows its network, and declares the addresses that it needs.
func (x *operator) furnish() {
	x.t.Helper()
	x.ready()
	x.put("classes/seamless", handover.ClassSpec{Policy: "seamless", Trigger: "open"})
	x.put("pools/"+pool, handover.PoolSpec{
		Prefix: x.domain.Prefix.String(), Gateway: x.domain.GatewayAddr.String(), Server: near(x.domain.GatewayAddr), LeaseTime: "1h", Learn: true, Class: "seamless",
	})
	y := x.other.domain
	x.put("pools/from-"+x.other.name, handover.PoolSpec{
		Prefix: y.Prefix.String(), Gateway: y.GatewayAddr.String(), Server: near(y.GatewayAddr), LeaseTime: "1h", Home: x.other.name,
	})
}

// near returns the next address, as text.
func near(a netip.Addr) string { return a.Next().String() }

func newOperator(t *testing.T, l *lab.Lab, name string, d lab.MobilityDomain) *operator {
	t.Helper()
	x := &operator{
		world: &world{t: t, lab: l, domain: d, dir: t.TempDir(), log: &logBuffer{}, stop: func() {}},
		name:  name, ca: t.TempDir(),
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("controller of %s:\n%s", name, x.log)
			x.describeDomain()
		}
		x.stop()
	})
	if _, err := pki.Init(x.ca, name+" authority", 1<<40); err != nil {
		t.Fatal(err)
	}
	x.issue(pki.RoleController, "controller")
	var err error
	if x.api, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	x.address = x.api.Addr().String()
	return x
}

// issue issues a certificate of the domain's authority.
func (x *operator) issue(role pki.Role, name string) pki.Files {
	x.t.Helper()
	ca, err := pki.Load(x.ca)
	if err != nil {
		x.t.Fatal(err)
	}
	pair, err := ca.Issue(pki.Request{Role: role, Name: name, Hosts: []string{"127.0.0.1"}})
	if err != nil {
		x.t.Fatal(err)
	}
	dir := filepath.Join(x.ca, string(role))
	if err := pair.Write(dir, name); err != nil {
		x.t.Fatal(err)
	}
	return pki.Files{Cert: filepath.Join(dir, name+".crt"), Key: filepath.Join(dir, name+".key"), CA: filepath.Join(x.ca, pki.CACertFile)}
}

// text returns the configuration of the domain's controller.
func (x *operator) text() string {
	own := pki.Files{Cert: filepath.Join(x.ca, "controller", "controller.crt"), Key: filepath.Join(x.ca, "controller", "controller.key"), CA: filepath.Join(x.ca, pki.CACertFile)}
	theirs := x.other.issue(pki.RoleNeighbour, x.name)
	return fmt.Sprintf(`data_dir: %s/data
api: {listen: %q, tls: {cert: %s, key: %s, ca: %s}}
openflow: {listen: [%q], plaintext: true}
network:
  discovery: {interval: 300ms, timeout: 3s}
sos: {enabled: false}
handover:
  enabled: true
  domain: %s
  borders: [{port: %s}, {port: %s, peer: %s}]
  neighbour_timeout: 400ms
  neighbours:
    %s: {url: %q, prefixes: [%s], unsigned: true, tls: {cert: %s, key: %s, ca: %s}}
`, x.dir, x.address, own.Cert, own.Key, own.CA, x.switchesAt(), x.name, x.borderPort(lab.UplinkPort), x.borderPort(lab.PeeringPort), x.other.name,
		x.other.name, "https://"+x.other.address, x.other.domain.Prefix, theirs.Cert, theirs.Key, theirs.CA)
}

func (x *operator) borderPort(port uint32) network.PortRef {
	return network.PortRef{Switch: openflow.DatapathID(x.lab.Switch(x.domain.Root).DPID()), Port: port}
}

// switchesAt returns where the domain's switches connect to the controller.
func (x *operator) switchesAt() netip.AddrPort {
	x.t.Helper()
	at, err := x.lab.ControllerAddrOf(x.name)
	if err != nil {
		x.t.Fatal(err)
	}
	return at
}

// launch runs the domain's controller in this process.
func (x *operator) launch() {
	x.t.Helper()
	x.serve(x.write(x.text()), x.switchesAt(), x.api)
	config, err := pki.Client(pki.Files{CA: filepath.Join(x.ca, pki.CACertFile)}, pki.RoleController)
	if err != nil {
		x.t.Fatal(err)
	}
	x.connect(client.Options{Server: "https://" + x.address, TLS: config})
}

// ready waits until the controller knows its own switches and links.
func (x *operator) ready() {
	x.t.Helper()
	inner := 0
	for _, l := range x.lab.Topology().Links {
		if x.owns(l.A.Node) && x.owns(l.B.Node) {
			inner++
		}
	}
	punt := fmt.Sprintf("priority=%d,", network.StageAdmit.Base())
	x.eventually("switches and links of "+x.name+" are known", func() bool {
		var links []struct {
			Latency float64 `json:"latency_milliseconds"`
		}
		if x.rest.Get(context.Background(), "/api/v1/network/links", &links) != nil || len(links) != 2*inner {
			return false
		}
		for _, e := range x.domain.Edges {
			if !strings.Contains(x.flows(e), punt) {
				return false
			}
		}
		return true
	})
}

// owns reports whether a node is one of the domain's switches.
func (x *operator) owns(node string) bool {
	for _, s := range x.lab.Topology().Switches {
		if s.Name == node {
			return strings.HasPrefix(node, x.name+"-")
		}
	}
	return false
}

// roaming returns the domain's record of a device that is not just at home.
func (x *operator) roaming(id string) (domain.Roaming, bool) {
	x.t.Helper()
	var list []domain.Roaming
	x.get("roaming", &list)
	for _, r := range list {
		if r.ID == id {
			return r, true
		}
	}
	return domain.Roaming{}, false
}

// settled waits until a device of home is in one of the domains and all outboxes are empty.
func settled(home, in *operator, id string) {
	home.t.Helper()
	home.eventually(id+" is in "+in.name, func() bool {
		r, abroad := home.roaming(id)
		if in == home {
			_, visits := home.other.roaming(id + "@" + home.name)
			return !abroad && !visits
		}
		v, visits := in.roaming(id + "@" + home.name)
		return abroad && visits && r.Downstream == in.name && r.Stage == "" && r.Outbox == 0 && v.Stage == "" && v.Outbox == 0 && v.Host == in.name
	})
}

// announce announces to the other domain that a device heads for one of its ports.
func (x *operator) announce(id string, to network.PortRef, mac openflow.MAC) {
	x.t.Helper()
	spec := handover.AnnounceSpec{Domain: x.other.name, Port: to.String(), MAC: mac.String()}
	if err := x.do(http.MethodPost, "devices/"+id+"/announce", spec, nil); err != nil {
		x.t.Fatalf("announce %s to %s: %s", id, x.other.name, problemText(err))
	}
}

// rulesFor returns the rules of the domain's switches that match an address.
func (x *operator) rulesFor(ip netip.Addr) []string {
	x.t.Helper()
	var all []string
	for _, s := range x.lab.Topology().Switches {
		if !x.owns(s.Name) {
			continue
		}
		for line := range strings.Lines(x.flows(s.Name)) {
			if strings.Contains(line, "="+ip.String()+" ") || strings.Contains(line, "="+ip.String()+",") {
				all = append(all, s.Name+": "+strings.TrimSpace(line))
			}
		}
	}
	return all
}

// describeDomain logs the domain's state when a test has failed.
func (x *operator) describeDomain() {
	for _, what := range []string{"status", "devices", "leases", "roaming", "neighbours", "handovers?limit=6"} {
		var v any
		err := x.do(http.MethodGet, what, nil, &v)
		x.t.Logf("%s of %s: %v %v", what, x.name, v, err)
	}
	for _, s := range x.lab.Topology().Switches {
		if x.owns(s.Name) {
			x.t.Logf("%s:\n%s", s.Name, head(x.flows(s.Name), 40))
		}
	}
}
