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

// OVSDB says where the databases of the switches are, which hold what OpenFlow cannot
// change.
type OVSDB struct {
	Address   string                         `yaml:"address" doc:"Where the database of a switch is: like ssl:{address}:6640, with {address} for the one that the switch connects from, or unix:/run/switches/{name}/db.sock, with {name} for network.switches.<dpid>.name. Empty: only the databases of ovsdb.switches are known."`
	Switches  map[openflow.DatapathID]string `yaml:"switches" doc:"Databases of single switches, by datapath id, in the same form."`
	TLS       TLS                            `yaml:"tls" doc:"The controller's client certificate for databases with ssl, and the authority that issued theirs."`
	Plaintext bool                           `yaml:"plaintext" doc:"Allows databases with tcp, without TLS: for a management network that only switches and controllers are on."`
}

// Target is where the database of a switch is, by the address that it connects from
// and its name.
func (o *OVSDB) Target(d openflow.DatapathID, address netip.Addr, name string) (string, error) {
	template, ok := o.Switches[d]
	if !ok {
		template = o.Address
	}
	if template == "" {
		return "", fmt.Errorf("switch %v: it is not known where its database is: set ovsdb.address, or ovsdb.switches", d)
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
