package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/openflow"
)

// ports are those of one switch.
type ports struct {
	limit int

	mu       sync.Mutex
	byNumber map[uint32]openflow.Port
}

// list lists the ports by number.
func (p *ports) list() []openflow.Port {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]openflow.Port, 0, len(p.byNumber))
	for _, port := range p.byNumber {
		out = append(out, port)
	}
	slices.SortFunc(out, func(a, b openflow.Port) int { return cmp.Compare(a.Number, b.Number) })
	return out
}

func (p *ports) get(number uint32) (openflow.Port, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	port, ok := p.byNumber[number]
	return port, ok
}

// update takes what a switch says of a port, and tells what it said before. Without room
// for one more the port is left out.
func (p *ports) update(port openflow.Port, deleted bool) (old openflow.Port, known, room bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old, known = p.byNumber[port.Number]
	switch {
	case deleted:
		delete(p.byNumber, port.Number)
	case known || len(p.byNumber) < p.limit:
		p.byNumber[port.Number] = port
	default:
		return old, false, false
	}
	return old, known, true
}

// errTooManyPorts says that a switch claims to be larger than the configuration lets it be.
var errTooManyPorts = errors.New("the switch is not let in")

// read asks the switch for its ports.
func (p *ports) read(ctx context.Context, ch *channel) error {
	all, done, err := ask[openflow.PortDescReply](ctx, ch, &openflow.PortDescRequest{})
	if err != nil {
		return err
	}
	defer done()
	for port := range all {
		if _, _, room := p.update(*port, false); !room {
			return fmt.Errorf("%w: it has more than %d ports; if that is true, raise openflow.max_ports", errTooManyPorts, p.limit)
		}
	}
	return nil
}

// PortRole is what an operator says that a port is for.
type PortRole uint8

// The roles. A port without one may have as many hosts as any, and a link.
const (
	// PortAccess is for a few end hosts: so many, and no link to a switch.
	PortAccess PortRole = iota + 1
	// PortUplink leads to networks beyond this one, where servers of DHCP may be too.
	PortUplink
	// PortTrunk is for many hosts of this network: a switch that is not ours, an access
	// point, a machine with virtual ones; or for a link.
	PortTrunk
)

// manyHosts is how many hosts may be behind an uplink or a trunk: a switch's share.
const manyHosts = hosts.DefaultMaxPerSwitch

// PortRole returns the role of a port, zero for none.
func (n *Network) PortRole(at PortRef) PortRole { return n.cfg.PortRoles[at] }

// maxHostsBehind is how many hosts may be behind a port by its role; zero leaves it to the
// host table.
func (c *Config) maxHostsBehind(at PortRef) int {
	switch c.PortRoles[at] {
	case PortAccess:
		return c.AccessHosts
	case PortUplink, PortTrunk:
		return manyHosts
	}
	return 0
}
