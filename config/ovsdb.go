package config

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/ovsdb"
)

// OVSDB describes where the switches' databases are. Through them the controller changes settings
// that OpenFlow cannot change.
type OVSDB struct {
	Address   string                         `yaml:"address" doc:"Location of a switch's database, like ssl:{address}:6640 or unix:/run/switches/{name}/db.sock. {address} stands for the address from which the switch connects, and {name} for network.switches.<dpid>.name. Empty: only the databases in ovsdb.switches are used."`
	Switches  map[openflow.DatapathID]string `yaml:"switches" doc:"Databases of single switches, by datapath identifier, in the same form."`
	TLS       TLS                            `yaml:"tls" doc:"The controller's client certificate for databases with ssl, and the authority that issued the databases' certificates."`
	Plaintext bool                           `yaml:"plaintext" doc:"Allows databases with tcp, without TLS. Use it only on a management network to which only switches and controllers are connected."`
}

// Target returns the location of the database of a switch that connects from an address and has a
// name.
func (o *OVSDB) Target(d openflow.DatapathID, address netip.Addr, name string) (string, error) {
	template, ok := o.Switches[d]
	if !ok {
		template = o.Address
	}
	if template == "" {
		return "", fmt.Errorf("switch %v: the location of its database is not known: set ovsdb.address or ovsdb.switches", d)
	}
	return ovsdb.Expand(template, address, name)
}

func (o *OVSDB) check(k *Checker) {
	k.TLS("ovsdb.tls", o.TLS, true)
	o.checkTarget(k, "ovsdb.address", o.Address)
	for _, d := range slices.Sorted(maps.Keys(o.Switches)) {
		o.checkTarget(k, "ovsdb.switches."+d.String(), o.Switches[d])
	}
}

func (o *OVSDB) checkTarget(k *Checker, key, template string) {
	if template == "" {
		return
	}
	target, err := ovsdb.Expand(template, netip.AddrFrom4([4]byte{192, 0, 2, 1}), "switch")
	switch {
	case err != nil:
		k.Fail(key, "not a database", "write ssl:{address}:6640, or another target as ovsdb(7) has it, with literal addresses")
	case strings.HasPrefix(target, "ssl:") && !o.TLS.Enabled():
		k.Fail(key, "with ssl but without certificates", "set ovsdb.tls.cert, key and ca")
	case strings.HasPrefix(target, "tcp:") && !o.Plaintext:
		k.Fail(key, "without TLS", "use ssl, or set ovsdb.plaintext: true on a network of switches and controllers only")
	}
}
